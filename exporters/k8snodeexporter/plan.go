package k8snodeexporter

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Attributes of a verdict's record that the verdict itself does not hold.
const (
	attrDrill = "tracecore.drill" // true: our own receivers saw that a drill made the fault
	proven    = "proven"
)

// found is a verdict and what its record says beside it.
type found struct {
	verdict.Verdict
	on       string // the node that its resource names
	proven   bool
	repeated bool
	drill    bool
}

// plan is what a verdict asks for.
type plan struct {
	node      string
	condition corev1.NodeConditionType // "" for none
	holds     bool                     // the condition is to be True for its sake
	decides   bool                     // it may set or clear a condition
	tell      bool                     // Events
	says      string                   // all of the verdict that matters here
}

// plan says what to do about a verdict.
//
// A condition drains a node: it takes a verdict that is open, full, proven and
// nobody's symptom. What held and no longer does (resolved, or explained by another
// verdict) is taken back, which takes a proven verdict, too. A drill does neither; it
// leads to an Event.
func (c *Config) plan(f found) plan {
	p := plan{
		node: nodeOf(f), condition: corev1.NodeConditionType(c.Conditions[f.Pattern]), tell: f.Role == verdict.RootCause,
		decides: f.proven && !f.drill && c.Conditions[f.Pattern] != "",
	}
	severe := slices.Index(severities, f.Severity) >= slices.Index(severities, verdict.Severity(c.MinSeverity))
	p.holds = p.decides && f.Status == verdict.Open && f.Confidence == verdict.Full && f.Role == verdict.RootCause && severe
	p.says = strings.Join([]string{p.node, string(f.Role), string(f.Status), string(f.Confidence), string(f.Severity), strconv.FormatBool(p.decides), f.Boot, f.Headline}, "\x00")
	return p
}

// nodeOf is the name of the node that the evidence came from. The verdict names it,
// or its resource does; where both do and differ there is none.
func nodeOf(f found) string {
	named := strings.ToLower(f.Culprit["node"])
	if named != "" && f.on != "" && named != strings.ToLower(f.on) {
		return ""
	}
	return cmp.Or(named, strings.ToLower(f.on))
}

// mine reports whether this process may speak of a node.
func (c *Config) mine(node string) bool {
	return len(validation.IsDNS1123Subdomain(node)) == 0 && (c.Node == "" || c.Node == node)
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
					trust, ok := record.Attributes().Get(verdict.AttrTrust)
					all = append(all, found{
						Verdict: v, on: on, proven: ok && trust.AsString() == proven,
						repeated: isTrue(record, verdict.AttrRepeated), drill: isTrue(record, attrDrill),
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

func writeVerdicts(all []found) plog.Logs {
	ld := plog.NewLogs()
	for _, f := range all {
		resource := ld.ResourceLogs().AppendEmpty()
		if f.on != "" {
			resource.Resource().Attributes().PutStr("k8s.node.name", f.on)
		}
		record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		verdict.ToRecord(f.Verdict, record)
		if f.proven {
			record.Attributes().PutStr(verdict.AttrTrust, proven)
		}
		record.Attributes().PutBool(verdict.AttrRepeated, f.repeated)
		record.Attributes().PutBool(attrDrill, f.drill)
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
