package rule

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
)

// counter is an algorithm that counts even records and finds their number a second
// after the last.
type counter struct {
	seen int
	due  int64
}

func (c *counter) Observe(r *Record) bool {
	n, _ := Integer(r.Attributes, "n")
	if n%2 != 0 {
		return false
	}
	c.seen, c.due = c.seen+1, r.Now+1e9
	return true
}

func (c *counter) Due() int64 { return c.due }

func (c *counter) Decide(now int64) []Finding {
	if c.due == 0 || now < c.due {
		return nil
	}
	c.due = 0
	return []Finding{{
		Event: "counted", Body: "some were even", Severity: plog.SeverityNumberWarn,
		Resource: map[string]any{"host.name": "a"}, Attributes: map[string]any{"seen": c.seen, "bad": struct{}{}, "all": []any{1, "x"}},
	}}
}

func (*counter) Snapshot() ([]byte, error) { return nil, nil }
func (*counter) Restore([]byte) error      { return nil }
func (*counter) Evicted() uint64           { return 0 }

func numbered(event string, numbers ...int64) plog.Logs {
	ld := plog.NewLogs()
	for _, n := range numbers {
		rl := ld.ResourceLogs().AppendEmpty()
		rl.Resource().Attributes().PutInt("resource", n)
		r := rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		r.SetEventName(event)
		r.Attributes().PutInt("n", n)
	}
	return ld
}

func TestAHostShowsRecordsAndGivesFindings(t *testing.T) {
	h := Host{Detector: Detector{Logs: []string{"n"}}, Algorithm: &counter{}, Scope: "scope", Keeps: true}
	require.False(t, h.Wants(numbered("other", 2)))
	require.True(t, h.Wants(numbered("n", 2)))
	require.Zero(t, h.Logs(numbered("other", 2), 10).LogRecordCount())

	kept := h.Logs(numbered("n", 1, 2, 3, 4), 10)
	require.Equal(t, 2, kept.LogRecordCount(), "those that matter")
	require.Equal(t, map[string]any{"resource": int64(2)}, kept.ResourceLogs().At(0).Resource().Attributes().AsRaw())

	require.Zero(t, h.Advance(1e9).LogRecordCount(), "not yet")
	found := h.Advance(10 + 1e9)
	require.Equal(t, 1, found.LogRecordCount())
	scope := found.ResourceLogs().At(0).ScopeLogs().At(0)
	require.Equal(t, "scope", scope.Scope().Name())
	r := scope.LogRecords().At(0)
	require.Equal(t, "counted", r.EventName())
	require.Equal(t, "some were even", r.Body().Str())
	require.Equal(t, "warning", r.SeverityText())
	require.EqualValues(t, 10+1e9, r.Timestamp())
	require.Equal(t, map[string]any{"seen": int64(2), "tracecore.trust": "claimed", "all": []any{int64(1), "x"}}, r.Attributes().AsRaw(), "without what is no attribute")

	h.Keeps = false
	require.Zero(t, h.Logs(numbered("n", 6), 20).LogRecordCount(), "nobody wants them")
	require.Equal(t, 1, h.Settle(21).LogRecordCount(), "as if time went on")
	require.Zero(t, h.Settle(22).LogRecordCount())
}
