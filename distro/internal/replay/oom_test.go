package replay

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// report is what the kernel writes of a kill at a cgroup's limit.
var report = []string{
	"pt_data_worker invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=996",
	"memory: usage 8388604kB, limit 8388608kB, failcnt 17",
	"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/train,task=python,pid=42,uid=1000",
	"Memory cgroup out of memory: Killed process 42 (python) total-vm:9437184kB, anon-rss:4194304kB, file-rss:1024kB, shmem-rss:2097152kB, UID:1000 pgtables:9216kB oom_score_adj:996",
	"oom_reaper: reaped process 42 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:2097152kB",
}

func withEach(prefix, suffix string) []byte {
	return []byte(prefix + strings.Join(report, suffix+"\n"+prefix) + suffix + "\n")
}

func TestAKillInAKernelLogIsNamed(t *testing.T) {
	const iso = "2026-11-21T08:41:23.965742+00:00 node-17 kernel: "
	for name, log := range map[string][]byte{
		"dmesg -T":          withEach("[Sat Nov 21 08:41:23 2026] ", ""),
		"short-iso-precise": withEach(iso, ""),
		"journal, JSON": withEach(`{"__REALTIME_TIMESTAMP":"1795250483965742","_TRANSPORT":"kernel","_HOSTNAME":"node-17",`+
			`"SYSLOG_FACILITY":"0","SYSLOG_IDENTIFIER":"kernel","MESSAGE":"`, `"}`),
		"among those of others": []byte(strings.ReplaceAll(string(withEach(iso, "")), "\n", "\n"+strings.Replace(iso, "node-17", "node-18", 1)+"eth0: link up\n")),
	} {
		t.Run(name, func(t *testing.T) {
			got := played(t, Options{}, map[string][]byte{"node-17.log": log})
			require.Empty(t, got.bad)
			require.Len(t, got.verdicts, 1)
			v := got.verdicts[0]
			require.Equal(t, "host_oom_kill", v.Pattern)
			require.Equal(t, verdict.Partial, v.Confidence)
			require.Equal(t, "the kernel killed python (pid 42) on node-17: its memory cgroup /kubepods/pod1 reached its limit of 8 GiB, 8.0 GiB in use", v.Headline)
			require.Equal(t, []string{"whether the victim belonged to a rank, and to which: a kernel log does not say"}, v.NotObserved)
			require.Equal(t, "pt_data_worker", v.Culprit["trigger"])
		})
	}
}

// TestNoProcessReportsAKill: what was written to /dev/kmsg is not the kernel's.
func TestNoProcessReportsAKill(t *testing.T) {
	got := played(t, Options{Boot: began}, map[string][]byte{"node-17.log": withEach("user  :err   : [    1.000000] ", "")})
	require.Empty(t, got.bad)
	require.Empty(t, got.verdicts)
}

// TestAKillInALogExplainsTheDeathOfARank: the log of a node beside what a
// collector without that probe recorded.
func TestAKillInALogExplainsTheDeathOfARank(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 41, 24, 0, time.UTC)
	logs := plog.NewLogs()
	resource := logs.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", "node-17")
	r := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	r.SetEventName("process.exit")
	r.SetTimestamp(pcommon.NewTimestampFromTime(at))
	require.NoError(t, r.Attributes().FromRaw(map[string]any{
		"process.pid": 42, "process.executable.name": "python", "gen_ai.training.rank": 3, "gen_ai.training.job_id": "llm",
		"process.exit.code": 0, "process.exit.signal": 9, "process.exit.signal_name": "SIGKILL",
	}))
	got := played(t, Options{}, map[string][]byte{
		"node-17.log": withEach("[Sat Nov 21 08:41:23 2026] ", ""), "otlp.json": jsonOf(t, logs),
	})
	require.Empty(t, got.bad)
	require.Len(t, got.verdicts, 2)
	require.Equal(t, []string{"host_oom_kill", "rank_exit"}, []string{got.verdicts[0].Pattern, got.verdicts[1].Pattern})
	require.Equal(t, got.verdicts[0].IncidentID, got.verdicts[1].IncidentID)
	require.Equal(t, verdict.Symptom, got.verdicts[1].Role)
}
