package recipes

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/gputest"
)

// A fault that DCGM and NVML both tell is one verdict: a receiver of each source runs,
// as nobody should.
func TestDCGMLeadsToVerdictsAndSoDoesNVMLBesideIt(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it starts several agents")
	}
	host := gputest.New(t)
	engine, driver := host.DCGM, host.NVML
	const gpu = "0000:1a:00.0"
	t.Setenv("DCGM_ENDPOINT", gputest.Endpoint)
	engine.Script("gpus 2")
	driver.Script("gpus 2")
	a := start(t, "dcgm.yaml",
		"--config=yaml:service::pipelines::logs::receivers: [gpu, gpu/nvml]",
		"--config=yaml:service::pipelines::metrics::receivers: [gpu]",
		"--config=yaml:receivers::gpu::identity: null",
		"--set=receivers.gpu.helper="+host.Helper, "--set=receivers.gpu.dcgm.library_folder="+engine.Folder(),
		"--set=receivers.gpu.collection_interval=100ms",
		"--set=receivers.gpu/nvml.source=nvml", "--set=receivers.gpu/nvml.helper="+host.Helper, "--set=receivers.gpu/nvml.nvml.library="+driver.File)

	// The counter rises, and the driver reports it, until somebody has read both
	// before and after.
	full := func(v verdict.Verdict) bool { return about("hbm_ecc", "gpu", gpu)(v) && v.Confidence == verdict.Full }
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	for n, end := 1, time.Now().Add(patience); !anyOf(a.verdicts(t), full); n++ {
		require.True(t, time.Now().Before(end), "no verdict: %s", a.Stderr)
		engine.Script("gpus 2", fmt.Sprintf("field 0 311 %d", n), fmt.Sprintf("xid %d 0 48", n))
		driver.Script("gpus 2", fmt.Sprintf("event %d 0 8 48", n))
		<-ticks.C
	}
	ids := map[string]bool{}
	for _, v := range a.verdicts(t) {
		if about("hbm_ecc", "gpu", gpu)(v) {
			ids[v.ID] = true
		}
	}
	require.Len(t, ids, 1)

	engine.Script("gpus 2", "status 1 4")
	driver.Script("gpus 2", "code 1 * 15")
	a.await(t, "a lost GPU", about("gpu_lost", "gpu", "0000:2a:00.0"))
}

func anyOf(all []verdict.Verdict, match func(verdict.Verdict) bool) bool {
	for _, v := range all {
		if match(v) {
			return true
		}
	}
	return false
}
