//go:build linux && (amd64 || arm64)

package ncclcallreceiver

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclcall/fakejob"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// playJob makes the test binary the job that maps a stand-in for NCCL.
func playJob() {
	if fakejob.IsChild() {
		os.Exit(fakejob.Child())
	}
}

// A rank that stops calling is told, with what it called last, and again when it goes on.
func TestRankThatStopsCallingOnThisKernelBecomesARecord(t *testing.T) {
	privtest.Require(t)
	l := fakejob.Library{RankOffset: 0x1206d8, Functions: []string{
		"ncclCommUserRank", "ncclCommCount", "ncclCommCuDevice", "ncclAllReduce", "ncclCommSplit",
	}}
	library, err := l.Install(t.TempDir())
	require.NoError(t, err)
	job, err := l.Start(library)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, job.Close()) })

	b := newBench(t)
	b.Resolver.Know(identity.Process{PID: job.PID(), Comm: "python", Rank: 13, LocalRank: 5, WorldSize: 16})
	b.config.Patience = time.Second
	logs, err := NewFactory().CreateLogs(t.Context(), b.Settings, b.config, b.Sink)
	require.NoError(t, err)
	b.StartAll(t, logs)
	b.Eventually(t, "libraries", 1)

	step := fakejob.AllReduce(1, 4096)
	require.NoError(t, job.Do(
		fakejob.Call{Function: "plant", Comm: 1, Planted: fakejob.Communicator{Hash: 0xabc, Rank: 5, Size: 8}}, step, step, step,
	))
	a := next(t, b, "nccl.call.stopped", 3)
	require.EqualValues(t, job.PID(), a["process.pid"])
	require.EqualValues(t, 13, a["gen_ai.training.rank"])
	require.Equal(t, "0xabc", a["nccl.call.comm"])
	require.Equal(t, []any{int64(5), int64(8), int64(3), false}, []any{a["nccl.call.comm_rank"], a["nccl.call.comm_size"], a["nccl.call.collectives"], a["nccl.call.exact"]})
	require.Equal(t, []any{"AllReduce", int64(4096), "bf16"}, []any{a["nccl.call.last_operation"], a["nccl.call.last_count"], a["nccl.call.last_type"]})
	require.Equal(t, []any{"0 AllReduce 4096 bf16", "1 AllReduce 4096 bf16", "2 AllReduce 4096 bf16"}, a["nccl.call.recent"])
	require.NoError(t, job.Do(step))
	next(t, b, "nccl.call.moving", 4)
}

// next waits for the record of an event with so many collectives. On a busy machine the
// job stands between two steps, too.
func next(t *testing.T, b *bench, event string, collectives int64) map[string]any {
	t.Helper()
	for {
		r := b.Next(t)
		if a := r.Attributes().AsRaw(); r.EventName() == event && a["nccl.call.collectives"] == collectives {
			return a
		}
	}
}
