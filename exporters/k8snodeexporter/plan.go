package k8snodeexporter

import (
	"context"
	"errors"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/plog"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// found is a verdict and the node that its record's resource names.
type found struct {
	verdict.Verdict
	on string
}

// plan is what a verdict asks for.
type plan struct {
	node      string
	condition string // "" for none
	holds     bool   // the condition is to be True for its sake
	tell      bool   // Events
	says      string // all of the verdict that matters here
}

// plan says what to do about a verdict; false when it names no node.
//
// A condition drains a node: it takes a verdict that is open, fully proven and
// nobody's symptom. A drill is none of these; it leads to an Event. What held and
// no longer does (resolved, or explained by another verdict) is taken back.
func (c *Config) plan(f found) (plan, bool) {
	p := plan{node: nodeOf(f), condition: c.Conditions[f.Pattern], tell: f.Role == verdict.RootCause}
	if len(validation.IsDNS1123Subdomain(p.node)) > 0 {
		return plan{}, false
	}
	severe := slices.Index(severities, f.Severity) >= slices.Index(severities, verdict.Severity(c.MinSeverity))
	p.holds = p.condition != "" && f.Status == verdict.Open && f.Confidence == verdict.Full && f.Role == verdict.RootCause &&
		severe && f.Culprit["job"] != verdict.DrillJob
	p.says = strings.Join([]string{p.node, string(f.Role), string(f.Status), string(f.Confidence), string(f.Severity), f.Headline}, "\x00")
	return p, true
}

// nodeOf is the name of the node; of a machine that says none its host name,
// which the kubelet registers a node by unless it is told otherwise.
func nodeOf(f found) string {
	for _, name := range []string{f.Culprit["node"], f.on, f.Culprit["host"]} {
		if name != "" {
			return strings.ToLower(name)
		}
	}
	return ""
}

// readVerdicts reads the verdicts among ld.
func readVerdicts(ld plog.Logs, invalid func()) []found {
	var all []found
	for _, resource := range ld.ResourceLogs().All() {
		on := ""
		if name, ok := resource.Resource().Attributes().Get("k8s.node.name"); ok {
			on = name.AsString()
		}
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				v, err := verdict.FromRecord(record)
				switch {
				case err == nil:
					all = append(all, found{v, on})
				case !errors.Is(err, verdict.ErrNotVerdict):
					invalid()
				}
			}
		}
	}
	return all
}

func writeVerdicts(all []found) plog.Logs {
	ld := plog.NewLogs()
	for _, f := range all {
		resource := ld.ResourceLogs().AppendEmpty()
		if f.on != "" {
			resource.Resource().Attributes().PutStr("k8s.node.name", f.on)
		}
		verdict.ToRecord(f.Verdict, resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty())
	}
	return ld
}

// verdictsOnly lets nothing else into the queue.
type verdictsOnly struct {
	exporter.Logs
	count func(ctx context.Context, outcome string)
}

// ConsumeLogs implements consumer.Logs.
func (o *verdictsOnly) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	all := readVerdicts(ld, func() { o.count(ctx, outcomeInvalid) })
	if len(all) == 0 {
		return nil
	}
	return o.Logs.ConsumeLogs(ctx, writeVerdicts(all))
}

// mostKnown bounds the memory of verdicts, twice: a verdict id and what it says
// take half a KiB, all of it some 8 MiB.
const mostKnown = 8192

// memory is what was last done about a verdict, so that a revision that says
// nothing new costs no request. It forgets the older half when it is full; what
// is forgotten is asked of the API server again.
type memory struct {
	most       int
	young, old map[string]string
}

func newMemory(most int) *memory {
	return &memory{most: most, young: map[string]string{}, old: map[string]string{}}
}

func (m *memory) has(id, says string) bool {
	last, ok := m.young[id]
	if !ok {
		last, ok = m.old[id]
	}
	return ok && last == says
}

func (m *memory) put(id, says string) {
	if len(m.young) >= m.most {
		m.young, m.old = map[string]string{}, m.young
	}
	m.young[id] = says
}
