//go:build linux && (amd64 || arm64)

package cudaoomreceiver

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/cudaoom/fakejob"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// playJob makes the test binary the job that maps a libcuda.
func playJob() {
	if fakejob.IsChild() {
		os.Exit(fakejob.Child())
	}
}

// A job as PyTorch is one: what it overcomes is no record, what it does not is.
func TestRefusalOnThisKernelBecomesARecord(t *testing.T) {
	privtest.Require(t)
	library, err := fakejob.Install(t.TempDir(), "cuMemAlloc_v2", "cuMemCreate")
	require.NoError(t, err)
	job, err := fakejob.Start(library)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, job.Close()) })

	b := newBench(t)
	b.Resolver.Know(identity.Process{PID: job.PID(), Comm: "python", Rank: 3, LocalRank: 3, WorldSize: 8})
	b.config.Settle = 5 * time.Second // a job on a busy machine may stand for some
	logs, err := NewFactory().CreateLogs(t.Context(), b.Settings, b.config, b.Sink)
	require.NoError(t, err)
	b.StartAll(t, logs)
	b.Eventually(t, "libraries", 1)

	require.NoError(t, job.Do(
		fakejob.Malloc(4*gib, fakejob.OutOfMemory), fakejob.Malloc(4*gib, fakejob.Success),
		fakejob.Create(20<<20, 3, fakejob.OutOfMemory), fakejob.Create(20<<20, 3, fakejob.OutOfMemory),
	))
	a := b.Next(t).Attributes().AsRaw()
	require.EqualValues(t, job.PID(), a["process.pid"])
	require.EqualValues(t, 3, a["gen_ai.training.rank"])
	require.EqualValues(t, 20<<20, a["cuda_oom.tried_alloc_bytes"])
	require.EqualValues(t, 3, a["cuda_oom.gpu_index"])
	require.EqualValues(t, 2, a["cuda_oom.attempts"])
	require.Equal(t, "cuMemCreate", a["cuda_oom.function"])
}
