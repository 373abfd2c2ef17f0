package cudaoomreceiver

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/cudaoomreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

var update = flag.Bool("update", false, "rewrite the golden records")

func newTestConverter() *converter {
	builder := metadata.NewLogsBuilder(metadata.DefaultLogsBuilderConfig(), receivertest.NewNopSettings(metadata.Type))
	return newConverter(builder, record.Host{Name: "node-1", ID: "0123456789abcdef0123456789abcdef", NodeName: "node-1"})
}

// full has everything that a record can say.
func full() (finding, identity.Process) {
	return finding{
			Event: cudaoom.Event{
				Time: start, PID: 42, Thread: 57, Comm: "pt_autograd_0", Function: cudaoom.MemCreate, SizeBytes: 20 << 20, Device: 3, Succeeded: true,
			},
			attempts: 2, retried: true,
		}, identity.Process{
			PID: 42, ParentPID: 7, Comm: "python", ContainerID: "c0ffee", PodUID: "u-1", Rank: 3, LocalRank: 3, WorldSize: 8, JobID: "job-1",
		}
}

func TestGoldenRecords(t *testing.T) {
	retried, rank := full()
	refusal := finding{
		Event:    cudaoom.Event{Time: start, PID: 42, Thread: 42, Comm: "python3", Function: cudaoom.MemAlloc, SizeBytes: 2 << 30, Device: cudaoom.DeviceUnknown},
		attempts: 2,
	}
	absurd := refusal
	absurd.SizeBytes, absurd.Thread = math.MaxUint64, 43
	for name, tc := range map[string]struct {
		finding finding
		known   *identity.Process
	}{
		"rank_refused":     {refusal, &rank},
		"rank_got_it_late": {retried, &rank},
		"stranger_refused": {refusal, nil},
		"nothing_known":    {absurd, nil},
	} {
		t.Run(name, func(t *testing.T) {
			logs := newTestConverter().refusal(&tc.finding, tc.known, start.Add(time.Minute))
			file := filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, golden.WriteLogsToFile(file, logs))
			}
			want, err := golden.ReadLogs(file)
			require.NoError(t, err)
			require.NoError(t, plogtest.CompareLogs(want, logs))
			require.Equal(t, "cuda.refusal", want.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).EventName())
		})
	}
}
