package rule

import (
	"maps"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/cut"
)

// Host runs one algorithm without an engine: log records go in, and its findings
// come out as log records, all with the least trust that its detector is shown. Times are unix nanoseconds. It does no I/O and has no
// clock.
type Host struct {
	Detector  Detector
	Algorithm Algorithm
	Scope     string // instrumentation scope of the findings
	Keeps     bool   // Logs returns what it must be shown again
	Cut       uint64 // resources and records beyond recordLimits, judged by what is left
}

// recordLimits bound what one record brings, before the algorithm sees it. The ranks of
// a group of 32,768 one by one fit into a text.
var recordLimits = cut.Limits{Attributes: 256, Text: 256 << 10, Bytes: 4 << 20}

func (h *Host) count(cut bool) {
	if cut {
		h.Cut++
	}
}

// Wants reports whether the algorithm reads a record of the batch.
func (h *Host) Wants(ld plog.Logs) bool {
	for _, resourceLogs := range ld.ResourceLogs().All() {
		for _, scopeLogs := range resourceLogs.ScopeLogs().All() {
			for _, r := range scopeLogs.LogRecords().All() {
				if slices.Contains(h.Detector.Logs, r.EventName()) {
					return true
				}
			}
		}
	}
	return false
}

// Logs shows the records to the algorithm as of now. A host that keeps gets copies
// of the records that matter: to show them again is to have the state again.
func (h *Host) Logs(ld plog.Logs, now int64) plog.Logs {
	kept := plog.NewLogs()
	for _, resourceLogs := range ld.ResourceLogs().All() {
		var into plog.LogRecordSlice
		resource, cut := recordLimits.Resource(resourceLogs.Resource())
		h.count(cut)
		for _, scopeLogs := range resourceLogs.ScopeLogs().All() {
			for _, r := range scopeLogs.LogRecords().All() {
				if !slices.Contains(h.Detector.Logs, r.EventName()) {
					continue
				}
				r, cut := recordLimits.Record(r)
				h.count(cut)
				if !h.show(resource, r, now) || !h.Keeps {
					continue
				}
				if into == (plog.LogRecordSlice{}) {
					to := kept.ResourceLogs().AppendEmpty()
					resource.CopyTo(to.Resource())
					into = to.ScopeLogs().AppendEmpty().LogRecords()
				}
				r.CopyTo(into.AppendEmpty())
			}
		}
	}
	return kept
}

func (h *Host) show(resource pcommon.Resource, r plog.LogRecord, now int64) bool {
	if TrustOf(resource.Attributes(), r.Attributes()) < h.Detector.Trust {
		return false
	}
	return h.Algorithm.Observe(&Record{
		Name: r.EventName(), Time: int64(r.Timestamp()), Now: now, //nolint:gosec // a time that does not fit is below zero
		Resource: resource.Attributes(), Attributes: r.Attributes(),
	})
}

// Advance returns the findings that are due at now; there may be none.
func (h *Host) Advance(now int64) plog.Logs { return h.records(h.Algorithm.Decide(now), now) }

// Settle returns the findings of all that waits, as if time went on without
// another record.
func (h *Host) Settle(now int64) plog.Logs {
	var findings []Finding
	for due := h.Algorithm.Due(); due != 0; due = h.Algorithm.Due() {
		findings = append(findings, h.Algorithm.Decide(due)...)
	}
	return h.records(findings, now)
}

// records makes a record of each finding, under its own resource.
func (h *Host) records(findings []Finding, now int64) plog.Logs {
	ld := plog.NewLogs()
	for i := range findings {
		f := &findings[i]
		resourceLogs := ld.ResourceLogs().AppendEmpty()
		put(resourceLogs.Resource().Attributes(), f.Resource)
		scope := resourceLogs.ScopeLogs().AppendEmpty()
		scope.Scope().SetName(h.Scope)
		r := scope.LogRecords().AppendEmpty()
		r.SetEventName(f.Event)
		r.SetTimestamp(pcommon.Timestamp(max(now, 0)))
		r.SetObservedTimestamp(r.Timestamp())
		r.SetSeverityNumber(f.Severity)
		r.SetSeverityText(severityTexts[f.Severity])
		r.Body().SetStr(f.Body)
		put(r.Attributes(), f.Attributes)
		r.Attributes().PutStr(AttributeTrust, h.Detector.Trust.String())
	}
	return ld
}

// severityTexts are the words of this project's records.
var severityTexts = map[plog.SeverityNumber]string{
	plog.SeverityNumberInfo: "info", plog.SeverityNumberWarn: "warning", plog.SeverityNumberError: "error",
}

// put writes attributes in the order of their keys: equal findings are equal bytes.
func put(to pcommon.Map, attributes map[string]any) {
	to.EnsureCapacity(len(attributes))
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		if to.PutEmpty(key).FromRaw(attributes[key]) != nil {
			to.Remove(key) // a value of a type that no attribute has
		}
	}
}
