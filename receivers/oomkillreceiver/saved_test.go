package oomkillreceiver

import (
	"path/filepath"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/stretchr/testify/require"
)

const savedKill = "Memory cgroup out of memory: Killed process 42 (python) total-vm:9437184kB, anon-rss:4194304kB, file-rss:1024kB, shmem-rss:2097152kB, UID:1000 pgtables:9216kB oom_score_adj:996"

// TestAKillInALogIsTheRecordOfAKill: what a log does not say is absent.
func TestAKillInALogIsTheRecordOfAKill(t *testing.T) {
	tr := NewTranslator("node-1")
	for _, line := range []string{
		"pt_data_worker invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=996",
		"memory: usage 8388604kB, limit 8388608kB, failcnt 17",
		"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg=" + pod + ",task_memcg=" + container + ",task=python,pid=42,uid=1000",
	} {
		require.Zero(t, tr.Translate(start, line).LogRecordCount())
	}
	got := tr.Translate(start, savedKill)
	file := filepath.Join("testdata", "golden", "from_a_kernel_log.yaml")
	if *update {
		require.NoError(t, golden.WriteLogsToFile(file, got))
	}
	want, err := golden.ReadLogs(file)
	require.NoError(t, err)
	require.NoError(t, plogtest.CompareLogs(want, got))
}

func TestAKillWithoutItsReportSaysWhatItKnows(t *testing.T) {
	r := NewTranslator("node-1").Translate(start, savedKill).ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
	require.Equal(t, "the kernel killed python (pid 42): its memory cgroup reached its limit", r.Body().Str())
	for _, key := range []string{"oomkill.limit_bytes", "oomkill.usage_bytes", "oomkill.limit_cgroup", "oomkill.cgroup", "oomkill.swap_bytes", "oomkill.trigger_pid", "process.parent_pid"} {
		_, known := r.Attributes().Get(key)
		require.False(t, known, key)
	}
}
