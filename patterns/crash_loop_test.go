package patterns_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// The third death of a loop, like those before, is told as a part of the loop at once, and is no incident of its own
// until then.
func TestTheThirdDeathOfALoopIsOneIncident(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		status, signal int64
		peers          time.Duration // after which the other ranks of a start end, alike
	}{
		"a crash":                        {0, 11, time.Second},
		"a status":                       {1, 0, time.Second},
		"a status, and peers soon after": {1, 0, 150 * time.Millisecond},
		"an abort":                       {0, 6, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := engine.New(rules, engine.Options{})
			require.NoError(t, err)
			begin := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
			for start := range int64(4) {
				began := begin.Add(time.Duration(start) * time.Minute)
				for i, rank := range []int64{3, 0, 1, 2} {
					at := began.Add(30 * time.Second)
					if i > 0 {
						at = at.Add(tc.peers + time.Duration(i)*10*time.Millisecond)
					}
					e.Advance(at)
					e.Logs(endOfRank(at, began, rank, 100*start+rank, tc.status, tc.signal))
					for _, v := range e.Verdicts() {
						if start > 1 && v.Pattern == "rank_exit" && v.Onset.After(began) {
							require.Equal(t, verdict.Symptom, v.Role, "%s", v.Headline)
						}
					}
				}
			}
		})
	}
}

// endOfRank is the end of a rank of a start of the job.
func endOfRank(at, began time.Time, rank, pid, status, signal int64) plog.Logs {
	logs := plog.NewLogs()
	of := logs.ResourceLogs().AppendEmpty()
	of.Resource().Attributes().PutStr("host.name", "node-a")
	r := of.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	r.SetEventName("process.exit")
	r.SetTimestamp(pcommon.NewTimestampFromTime(at))
	for key, value := range map[string]int64{
		"process.pid": pid, rule.AttributeRank: rank, rule.AttributeRankPID: pid, rule.AttributeRankStart: began.UnixNano() + rank,
		"gen_ai.training.world_size": 4, "process.exit.code": status, "process.exit.signal": signal,
	} {
		r.Attributes().PutInt(key, value)
	}
	if signal != 0 {
		r.Attributes().PutStr("process.exit.signal_name", map[int64]string{6: "SIGABRT", 11: "SIGSEGV"}[signal])
	}
	r.Attributes().PutStr(rule.AttributeJob, "llm")
	r.Attributes().PutStr("process.executable.name", fmt.Sprint("python", rank))
	r.Attributes().PutBool("process.exit.inherited_identity", false)
	r.Attributes().PutStr(rule.AttributeTrust, verdict.Proven.String())
	return logs
}
