package patterndetectorprocessor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
)

// silentRanks are records of ranks of a ring of four, in which rank 2 fell
// silent first.
func silentRanks(ranks ...int64) plog.Logs {
	ld := plog.NewLogs()
	for _, rank := range ranks {
		lr := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		lr.SetEventName("nccl.socket.stall")
		lr.SetTimestamp(pcommon.NewTimestampFromTime(began))
		silence := int64(4e9) - (rank+2)%4*int64(20e6)
		for key, value := range map[string]any{
			"tracecore.trust": "proven", "gen_ai.training.job_id": "job", "gen_ai.training.rank": rank, "process.pid": 100 + rank,
			"nccl.socket.cause": "waiting", "nccl.socket.direction": "receive", "nccl.socket.kind": "data",
			"nccl.socket.stall.id": fmt.Sprint(rank), "nccl.socket.stall.age_ns": silence, "nccl.peer.rank": (rank + 3) % 4,
			"nccl.rank.last_sent_age_ns": silence, "nccl.rank.last_received_age_ns": silence - 15e6, "nccl.rank.state": "sleeping",
		} {
			if n, ok := value.(int64); ok {
				lr.Attributes().PutInt(key, n)
			} else {
				lr.Attributes().PutStr(key, fmt.Sprint(value))
			}
		}
	}
	return ld
}

// A crash between the records that a detector needs, and one while it waits for
// more: it goes on from where it was, and says nothing twice.
func TestCrashWhileADetectorWaits(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	first := newRig(t, withStorage(dir)).start(t)
	require.NoError(t, first.logs.ConsumeLogs(ctx, silentRanks(0, 1)))
	require.Empty(t, first.next.verdicts, "two ranks wait for others of which nothing came yet")

	dir = crashed(t, dir)
	second := newRig(t, withStorage(dir)).start(t)
	require.NoError(t, second.logs.ConsumeLogs(ctx, silentRanks(2, 3)))
	require.Len(t, second.next.verdicts, 1)
	named := second.next.verdicts[0]
	require.Equal(t, "nccl_socket_stall", named.Pattern)
	require.Equal(t, "2", named.Culprit["rank"])
	require.Equal(t, verdict.Ranks{0, 1, 3}, named.BlastRadius)

	third := newRig(t, withStorage(crashed(t, dir))).start(t)
	third.clock.pass(2 * time.Second)
	require.Empty(t, third.next.verdicts, "what was said is not said again")
	require.NoError(t, third.logs.ConsumeLogs(ctx, silentRanks(2, 3)))
	require.Empty(t, third.next.verdicts, "nor when the records come again")
}

func TestCrashBeforeADetectorIsDue(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	first := newRig(t, withStorage(dir)).start(t)
	require.NoError(t, first.logs.ConsumeLogs(ctx, silentRanks(0)))

	second := newRig(t, withStorage(crashed(t, dir))).start(t)
	second.clock.pass(3 * time.Second)
	require.Len(t, second.next.verdicts, 1)
	require.Equal(t, "missing", second.next.verdicts[0].Culprit["held"])
}

// A guess of sockets that waits for stacks when the process is killed waits for those that the next start brings.
func TestCrashWhileAGuessWaits(t *testing.T) {
	atOnce := silentRanks(0, 1, 2, 3)
	eachLog(atOnce, func(_ pcommon.Resource, record plog.LogRecord) bool {
		for _, age := range []string{"nccl.socket.stall.age_ns", "nccl.rank.last_sent_age_ns", "nccl.rank.last_received_age_ns"} {
			record.Attributes().PutInt(age, 4e9)
		}
		return false
	})
	dir := t.TempDir()
	first := newRig(t, withStorage(dir)).start(t)
	require.NoError(t, first.logs.ConsumeLogs(context.Background(), atOnce))
	first.clock.pass(2 * time.Second)
	require.Empty(t, first.next.verdicts)

	second := newRig(t, withStorage(crashed(t, dir)))
	second.clock.time = began.Add(12 * time.Second)
	second.start(t)
	second.clock.pass(5900 * time.Millisecond)
	require.Empty(t, second.next.verdicts)
	second.clock.pass(200 * time.Millisecond)
	require.Len(t, second.next.verdicts, 1)
	require.Equal(t, "tied", second.next.verdicts[0].Culprit["held"])
}
