package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/engine"
)

// TestEvidenceIsFedByWhatComes, whether it meets the condition or not, and never later than
// now, whatever the clock of its sender says.
func TestEvidenceIsFedByWhatComes(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	e, err := engine.New(rules, engine.Options{})
	require.NoError(t, err)
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	e.Advance(now)
	heard := func(pattern, evidence string) int64 {
		for _, h := range e.Heard() {
			if h.Pattern == pattern && h.Evidence == evidence {
				return h.At
			}
		}
		t.Fatalf("%s has no %s", pattern, evidence)
		return 0
	}
	require.Zero(t, heard("gpu_lost", "xid_79"), "nothing came")
	xid := func(at time.Time) {
		logs := plog.NewLogs()
		record := logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		record.SetEventName("gpu.xid")
		record.SetTimestamp(pcommon.NewTimestampFromTime(at))
		record.Attributes().PutInt("kernelevents.xid", 13)
		e.Logs(logs)
	}
	xid(now.Add(-time.Second))
	require.Equal(t, now.Add(-time.Second).UnixNano(), heard("gpu_lost", "xid_79"), "another Xid shows that the source speaks")
	require.Zero(t, heard("gpu_lost", "lost"))
	xid(now.Add(24 * time.Hour))
	require.Equal(t, now.UnixNano(), heard("gpu_lost", "xid_79"))
}
