package oomkillreceiver

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/metadata"
)

var update = flag.Bool("update", false, "rewrite the golden records")

func newTestConverter() *converter {
	builder := metadata.NewLogsBuilder(metadata.DefaultLogsBuilderConfig(), receivertest.NewNopSettings(metadata.Type))
	return newConverter(builder, record.Host{Name: "node-1", ID: "0123456789abcdef0123456789abcdef", NodeName: "node-1"})
}

var (
	pod       = "/kubepods.slice/kubepods-burstable-pod0a1b2c3d_0000_4000_8000_123456789abc.slice"
	container = pod + "/cri-containerd-" + strings.Repeat("ab", 32) + ".scope"
)

func cgroupKill() oomkill.Event {
	return oomkill.Event{
		Time: start, PID: 42, ParentPID: 7, Comm: "python", UID: 1000, OOMScoreAdj: 996,
		TotalVMBytes: 9 << 30, AnonRSSBytes: 4 << 30, FileRSSBytes: 1 << 20, ShmemRSSBytes: 2 << 30, PageTablesBytes: 9 << 20, SwapBytes: 4096,
		Constraint: oomkill.ConstraintCgroup, CgroupPath: container, LimitCgroup: pod, LimitBytes: 8 << 30, UsageBytes: 8<<30 - 4096,
		FailureCount: 17, TriggerPID: 43, TriggerComm: "pt_data_worker",
	}
}

func TestGoldenRecords(t *testing.T) {
	rank := identity.Process{
		PID: 42, ParentPID: 7, Comm: "python3", ContainerID: "stale", Rank: 3, LocalRank: 1, WorldSize: 8, JobID: "job-1",
	}
	node := cgroupKill()
	node.Constraint, node.CgroupPath, node.LimitCgroup = oomkill.ConstraintNode, "/system.slice/train.service", ""
	node.LimitBytes, node.UsageBytes, node.FailureCount = 0, 0, 0
	bare := oomkill.Event{Time: start, PID: 42, Comm: "python"}
	for name, tc := range map[string]struct {
		event oomkill.Event
		known *identity.Process
	}{
		"rank_at_pod_limit":     {cgroupKill(), &rank},
		"stranger_at_pod_limit": {cgroupKill(), nil},
		"node_out_of_memory":    {node, nil},
		"nothing_known":         {bare, nil},
	} {
		t.Run(name, func(t *testing.T) {
			logs := newTestConverter().kill(&tc.event, tc.known, start.Add(time.Minute))
			file := filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, golden.WriteLogsToFile(file, logs))
			}
			want, err := golden.ReadLogs(file)
			require.NoError(t, err)
			require.NoError(t, plogtest.CompareLogs(want, logs))
			require.Equal(t, want.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).EventName(), "oom.kill")
		})
	}
}

func TestWorkerKeepsItsOwnProcessAndItsRanksIdentity(t *testing.T) {
	event := cgroupKill()
	victim := identify(&event, &identity.Process{PID: 7, ParentPID: 1, Comm: "torchrun", Rank: 3, PodUID: "other", Inherited: true})
	require.EqualValues(t, 42, victim.PID)
	require.EqualValues(t, 7, victim.ParentPID)
	require.Equal(t, "python", victim.Comm)
	require.Equal(t, 3, victim.Rank)
	require.Equal(t, strings.Repeat("ab", 32), victim.ContainerID, "the cgroup at the kill is the kernel's word")
	require.Equal(t, "0a1b2c3d-0000-4000-8000-123456789abc", victim.PodUID)
}

// BenchmarkRecord is what the record of one kill costs.
func BenchmarkRecord(b *testing.B) {
	c, event := newTestConverter(), cgroupKill()
	rank := identity.Process{PID: 42, ParentPID: 7, Comm: "python3", Rank: 3, LocalRank: 1, WorldSize: 8, JobID: "job-1"}
	b.ReportAllocs()
	for b.Loop() {
		c.kill(&event, &rank, start)
	}
}
