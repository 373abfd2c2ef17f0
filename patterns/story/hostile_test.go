package story

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/internal/safetext/safetexttest"
	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// poison puts hostile text behind one attribute.
func poison(m pcommon.Map, key string) {
	if value, ok := m.Get(key); ok && value.Type() == pcommon.ValueTypeStr {
		value.SetStr(value.Str() + safetexttest.Hostile)
	}
}

// keys are the attributes that the records of a story have, but for the trust, which
// receivers alone set.
func (in *Input) keys() []string {
	found := map[string]bool{}
	for key := range in.Resource {
		found[key] = true
	}
	for i := range in.Records {
		for key := range in.Records[i].Attributes {
			found[key] = true
		}
		for key := range in.Records[i].Resource {
			found[key] = true
		}
	}
	delete(found, "tracecore.trust")
	var keys []string
	for key := range found {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// TestHostileEvidenceComesThroughNoWayOut plays the faults of each pattern with hostile
// text in one attribute after another, and gives what comes of it to every reader.
func TestHostileEvidenceComesThroughNoWayOut(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it plays each fault for each of its attributes")
	}
	poisoned := map[string]bool{}
	each(t, func(t *testing.T, s told) {
		if s.Input.Kind != Fires {
			return
		}
		for _, key := range s.Input.keys() {
			s.MarkLogs = func(ld plog.Logs) {
				for _, resource := range ld.ResourceLogs().All() {
					poison(resource.Resource().Attributes(), key)
					for _, record := range resource.ScopeLogs().At(0).LogRecords().All() {
						poison(record.Attributes(), key)
					}
				}
			}
			s.MarkMetrics = func(md pmetric.Metrics) {
				for _, resource := range md.ResourceMetrics().All() {
					poison(resource.Resource().Attributes(), key)
				}
			}
			for _, v := range s.playback(t, func(e *engine.Engine) *engine.Engine { return e }) {
				if reads(t, v) {
					poisoned[v.Pattern] = true
				}
			}
		}
	})
	require.Greater(t, len(poisoned), 15, "verdicts quote it: %v", poisoned)
}

// reads gives a verdict to a terminal, to JSON and to a record, and reports whether it
// quotes the hostile text.
func reads(t *testing.T, v verdict.Verdict) bool {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, verdict.Render(&out, []verdict.Verdict{v}, verdict.Options{}))
	for line := range strings.Lines(out.String()) {
		safetexttest.RequireSafe(t, strings.TrimSuffix(line, "\n"))
		require.False(t, strings.HasPrefix(line, "forged line"))
	}
	encoded := string(verdict.ToJSON(v))
	safetexttest.RequireSafe(t, encoded)
	require.NotContains(t, encoded, "<script")
	record := plog.NewLogRecord()
	verdict.ToRecord(v, record)
	for _, value := range record.Attributes().All() {
		if value.Type() == pcommon.ValueTypeStr {
			safetexttest.RequireSafe(t, value.Str())
		}
	}
	return strings.Contains(out.String(), "forged line")
}
