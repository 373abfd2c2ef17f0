// Package verdicts reads verdicts out of batches of log records and writes them back, for
// exporters that act on them.
package verdicts

import (
	"errors"
	"strings"
	"unicode"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const nodeName = "k8s.node.name"

// Found is a verdict and what its record says beside it.
type Found struct {
	verdict.Verdict
	On       string // the Kubernetes node that its resource names
	Proven   bool
	Repeated bool // it is open, was told before and says nothing new
}

// Read reads the verdicts among ld. Invalid is called for each record that claims to be
// one and cannot be used.
func Read(ld plog.Logs, invalid func()) []Found {
	var all []Found
	for _, resource := range ld.ResourceLogs().All() {
		on := ""
		if name, ok := resource.Resource().Attributes().Get(nodeName); ok {
			on = name.AsString()
		}
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				v, err := verdict.FromRecord(record)
				switch {
				case err == nil:
					trust, ok := record.Attributes().Get(verdict.AttrTrust)
					v.Drill = v.Drill || isTrue(record, verdict.AttrDrill)
					all = append(all, Found{
						Verdict: v, On: on, Proven: ok && trust.AsString() == verdict.Proven.String(), Repeated: isTrue(record, verdict.AttrRepeated),
					})
				case !errors.Is(err, verdict.ErrNotVerdict):
					invalid()
				}
			}
		}
	}
	return all
}

func isTrue(record plog.LogRecord, attribute string) bool {
	value, ok := record.Attributes().Get(attribute)
	return ok && value.Type() == pcommon.ValueTypeBool && value.Bool()
}

// Write makes a batch that Read reads.
func Write(all []Found) plog.Logs {
	ld := plog.NewLogs()
	for i := range all {
		f := &all[i]
		resource := ld.ResourceLogs().AppendEmpty()
		if f.On != "" {
			resource.Resource().Attributes().PutStr(nodeName, f.On)
		}
		record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		verdict.ToRecord(f.Verdict, record)
		record.Attributes().Remove(verdict.AttrTrust)
		if f.Proven {
			record.Attributes().PutStr(verdict.AttrTrust, verdict.Proven.String())
		}
		record.Attributes().PutBool(verdict.AttrRepeated, f.Repeated)
	}
	return ld
}

// Own begins all names that tracecore gives: it keeps a rule of a site's own from sounding
// like a kubelet (Evicted).
const Own = "Tracecore"

// Name is a pattern's name as Kubernetes writes reasons and Prometheus alerts:
// TracecoreGpuLost. It has at most 128 characters, as the reason of an Event.
func Name(pattern string) string {
	var out strings.Builder
	out.WriteString(Own)
	up := true
	for _, r := range pattern {
		switch {
		case r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r):
			up = true
			continue
		case up:
			r = unicode.ToUpper(r)
		}
		out.WriteRune(r)
		up = false
	}
	return out.String()[:min(out.Len(), 128)]
}
