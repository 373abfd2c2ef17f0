package ingress

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// toldAt is a record of node-b of one moment, which says it in each place that has room for a time.
func toldAt(t *testing.T, at int64) plog.Logs {
	t.Helper()
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("host.name", "node-b")
	rl.Resource().Attributes().PutDouble(correctedKey, 7)
	lr := rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	lr.SetTimestamp(pcommon.Timestamp(at))         //nolint:gosec // it is above zero
	lr.SetObservedTimestamp(pcommon.Timestamp(at)) //nolint:gosec // it is above zero
	require.NoError(t, lr.Attributes().FromRaw(map[string]any{
		"gen_ai.training.rank_start_unix_nano": at, "process.start_ns": at, "unset_unix_nano": 0, "words_unix_nano": "soon",
		"list": []any{map[string]any{"since_unix_nano": at, "state": "works"}},
	}))
	return ld
}

func TestTheTimesOfAnAgentWithAWrongClockAreCorrected(t *testing.T) {
	const at = int64(1_700_000_000e9)
	for name, tt := range map[string]struct {
		auth client.AuthData
		by   time.Duration
		says any
	}{
		"behind":  {Agent{Host: "node-b", Behind: 30 * time.Second}, 30 * time.Second, 30.0},
		"ahead":   {Agent{Host: "node-b", Behind: -30 * time.Second}, -30 * time.Second, -30.0},
		"right":   {Agent{Host: "node-b"}, 0, nil},
		"a relay": {Agent{Relay: true, Behind: 30 * time.Second}, 0, 7.0},
	} {
		t.Run(name, func(t *testing.T) {
			r, out, _, _ := wrap(t, Network, nil)
			require.NoError(t, r.logs.ConsumeLogs(sentBy(t, distant, tt.auth), toldAt(t, at)))
			resource, _, record, _ := only(t, out)
			lr := out.AllLogs()[0].ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
			want := at + int64(tt.by)
			require.Equal(t, want, int64(lr.Timestamp()))         //nolint:gosec // it is above zero
			require.Equal(t, want, int64(lr.ObservedTimestamp())) //nolint:gosec // it is above zero
			require.Equal(t, map[string]any{
				"gen_ai.training.rank_start_unix_nano": want, "process.start_ns": at, "unset_unix_nano": int64(0), "words_unix_nano": "soon",
				"list": []any{map[string]any{"since_unix_nano": want, "state": "works"}},
			}, record)
			require.Equal(t, tt.says, resource[correctedKey])
		})
	}
}

// A stranger moves no times, not even his own: what he says of clocks is renamed.
func TestAStrangerCorrectsNoTimes(t *testing.T) {
	const at = int64(1_700_000_000e9)
	r, out, _, _ := wrap(t, Network, nil)
	require.NoError(t, r.logs.ConsumeLogs(sentBy(t, distant, impostor{}), toldAt(t, at)))
	resource, _, _, _ := only(t, out)
	require.NotContains(t, resource, correctedKey)
	require.Equal(t, at, int64(out.AllLogs()[0].ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Timestamp())) //nolint:gosec // it is above zero
}

func TestTheTimesOfPointsAndSpansAreCorrected(t *testing.T) {
	at := pcommon.Timestamp(1_700_000_000e9)
	c := clock(30 * time.Second)
	want := at + 30e9
	points := pmetric.NewHistogramDataPoint()
	points.SetTimestamp(at)
	points.SetStartTimestamp(at)
	points.Exemplars().AppendEmpty().SetTimestamp(at)
	b := batch{rights: rights{hosts: provenHost, behind: c}, stage: &stage{}}
	b.dropsPoint(points)
	require.Equal(t, []pcommon.Timestamp{want, want, want}, []pcommon.Timestamp{points.Timestamp(), points.StartTimestamp(), points.Exemplars().At(0).Timestamp()})
	span := ptrace.NewSpan()
	span.SetStartTimestamp(at)
	span.Events().AppendEmpty().SetTimestamp(at)
	b.dropsSpan(span)
	require.Equal(t, []pcommon.Timestamp{want, 0, want}, []pcommon.Timestamp{span.StartTimestamp(), span.EndTimestamp(), span.Events().At(0).Timestamp()})
}
