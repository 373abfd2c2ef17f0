//go:build linux

package acceptance

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/distro/internal/pipeline"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// kernelToSink is the default's way from the kernel log to a verdict.
const kernelToSink = `
extensions: {identity: {}}
receivers: {kernelevents: {identity: identity}}
processors: {patterndetector: {}}
exporters: {sink: {}}
service:
  extensions: [identity]
  telemetry: {metrics: {level: none}, logs: {level: error}}
  pipelines: {logs: {receivers: [kernelevents], processors: [patterndetector], exporters: [sink]}}
`

// journal keeps what reached the end of the pipeline.
type journal struct {
	mu       sync.Mutex
	records  []map[string]any
	verdicts []verdict.Verdict
}

func (j *journal) add(_ time.Time, batch plog.Logs) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, resource := range batch.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				if v, err := verdict.FromRecord(record); err == nil {
					j.verdicts = append(j.verdicts, v)
					continue
				}
				attributes := record.Attributes().AsRaw()
				attributes["event_name"] = record.EventName()
				j.records = append(j.records, attributes)
			}
		}
	}
}

func (j *journal) await(t *testing.T, what string, found func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return found()
	}, hosttest.Patience, 5*time.Millisecond, what)
}

// xids returns the records of one GPU's Xids.
func (j *journal) xids(gpu string) []map[string]any {
	var some []map[string]any
	for _, r := range j.records {
		if r["event_name"] == "gpu.xid" && r["gpu.id"] == gpu {
			some = append(some, r)
		}
	}
	return some
}

// TestWhatIsNoFaultMakesNoVerdict writes what happens on healthy machines, and
// thousands of copies of what a large job's teardown writes.
func TestWhatIsNoFaultMakesNoVerdict(t *testing.T) {
	privtest.Require(t)
	hosttest.UnlimitKmsg(t)
	var j journal
	p, err := pipeline.Start(t.Context(), kernelToSink, j.add)
	require.NoError(t, err)
	writeKmsg(t,
		"NVRM: Xid (PCI:0000:2a:00): 13, pid=77, name=python, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): Out Of Range Address",
		"NVRM: Xid (PCI:0000:2b:00): 149, NETIR_LINK_EVT Fatal XC0 i1 Link 08 (0x00000000 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
		"amdgpu 0000:2c:00.0: amdgpu: GPU reset(2) succeeded!",
		"amdgpu 0000:2c:00.0: amdgpu: 3 correctable hardware errors detected in gfx block",
		"amdgpu 0000:2c:00.0: amdgpu: 0 uncorrectable hardware errors detected in gfx block",
	)
	const copies = 5_000 // so many fit into the probe's ring of 4 MiB, if its reader has no turn
	began := time.Now()
	writeStorm(t, "NVRM: Xid (PCI:0000:2d:00): 45, pid=78, name=python, Ch 00000008", copies)
	j.await(t, "the storm closes with its whole count: nothing is lost", func() bool {
		counts := map[any]int64{} // where somebody is held up for a second, the rest is another storm
		for _, r := range j.xids("0000:2d:00.0") {
			counts[r["kernelevents.fault_id"]] = r["kernelevents.count"].(int64)
		}
		total := int64(0)
		for _, count := range counts {
			total += count
		}
		return total == copies
	})
	took := time.Since(began) // until the last of it was read, which may be later than written
	// A real fault behind them all: once it is told, the others had their turn.
	writeKmsg(t, "NVRM: Xid (PCI:0000:2e:00): 79, GPU has fallen off the bus.")
	j.await(t, "the sentinel's verdict", func() bool {
		return slices.ContainsFunc(j.verdicts, about("gpu_lost", "gpu", "0000:2e:00.0"))
	})
	require.NoError(t, p.Stop())

	for _, v := range j.verdicts {
		require.NotContains(t, []string{"0000:2a:00.0", "0000:2b:00.0", "0000:2c:00.0", "0000:2d:00.0"}, v.Culprit["gpu"], "%+v", v)
	}
	// A storm closes when it has been quiet for a second, and one that goes on tells its count every ten.
	require.LessOrEqual(t, len(j.xids("0000:2d:00.0")), max(1, int(took/time.Second)), "one record for the storm")
	require.Len(t, j.xids("0000:2a:00.0"), 1)
}
