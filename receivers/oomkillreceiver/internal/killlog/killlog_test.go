package killlog

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/oomkill"
)

var start = time.Unix(1_700_000_000, 0)

// read gives lines, one a millisecond, to a reader.
func read(lines ...string) []oomkill.Event {
	var r Reader
	var kills []oomkill.Event
	for i, line := range lines {
		if e, ok := r.Line(start.Add(time.Duration(i)*time.Millisecond), line); ok {
			e.Time = time.Time{}
			kills = append(kills, e)
		}
	}
	return kills
}

const (
	pod       = "/kubepods.slice/kubepods-burstable-pod0a1b2c3d_0000_4000_8000_123456789abc.slice"
	container = pod + "/cri-containerd-abababababababababababababababababababababababababababababababab.scope"
	asked     = "pt_data_worker invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=996"
	atLimit   = "memory: usage 8388604kB, limit 8388608kB, failcnt 17"
	whose     = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd-abab.scope,mems_allowed=0-1,oom_memcg=" + pod + ",task_memcg=" + container + ",task=python,pid=42,uid=1000"
	kill      = "Memory cgroup out of memory: Killed process 42 (python) total-vm:9437184kB, anon-rss:4194304kB, file-rss:1024kB, shmem-rss:2097152kB, UID:1000 pgtables:9216kB oom_score_adj:996"
	together  = "Tasks in " + pod + " are going to be killed due to memory.oom.group set"
)

// killOf is what the line of a kill says by itself.
func killOf(pid uint32) oomkill.Event {
	return oomkill.Event{
		PID: pid, Comm: "python", UID: 1000, OOMScoreAdj: 996, Constraint: oomkill.ConstraintCgroup,
		TotalVMBytes: 9 << 30, AnonRSSBytes: 4 << 30, FileRSSBytes: 1 << 20, ShmemRSSBytes: 2 << 30, PageTablesBytes: 9 << 20,
	}
}

// reported is a kill with the report before it.
func reported(pid uint32) oomkill.Event {
	e := killOf(pid)
	e.LimitCgroup, e.LimitBytes, e.UsageBytes, e.FailureCount = pod, 8<<30, 8<<30-4096, 17
	e.TriggerComm = "pt_data_worker"
	return e
}

func inCgroup(e oomkill.Event, cgroup string) oomkill.Event {
	e.CgroupPath = cgroup
	return e
}

func other(pid string) string { return strings.Replace(kill, "process 42 ", "process "+pid+" ", 1) }

func TestEveryFormOfReportIsRead(t *testing.T) {
	node := oomkill.Event{
		PID: 4167877, Comm: "MATLAB", UID: 1021, Constraint: oomkill.ConstraintNode,
		TotalVMBytes: 78782016 << 10, AnonRSSBytes: 49186560 << 10, PageTablesBytes: 99276 << 10,
		TriggerComm: "GTP_0", CgroupPath: "/user.slice/user-1021.slice/session-963.scope",
	}
	choosing := killOf(42)
	choosing.Constraint = oomkill.ConstraintNode
	brackets := killOf(42)
	brackets.Comm = "a) total-vm:1kB"
	for name, tc := range map[string]struct {
		lines []string
		want  []oomkill.Event
	}{
		"a container at its limit": {[]string{asked, atLimit, whose, kill}, []oomkill.Event{inCgroup(reported(42), container)}},
		"the node": {[]string{
			"GTP_0 invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0",
			"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/user.slice/user-1021.slice/session-963.scope,task=MATLAB,pid=4167877,uid=1021",
			"Out of memory: Killed process 4167877 (MATLAB) total-vm:78782016kB, anon-rss:49186560kB, file-rss:0kB, shmem-rss:0kB, UID:1021 pgtables:99276kB oom_score_adj:0",
		}, []oomkill.Event{node}},
		"the kill alone, its report limited in rate": {[]string{kill}, []oomkill.Event{killOf(42)}},
		"who asks is killed": {
			[]string{strings.Replace(kill, "Memory cgroup out of memory", "Out of memory (oom_kill_allocating_task)", 1)}, []oomkill.Event{choosing},
		},
		"all of a cgroup": {
			[]string{asked, atLimit, whose, kill, together, other("43"), "oom_reaper: reaped process 43 (python)", other("44")},
			[]oomkill.Event{inCgroup(reported(42), container), reported(43), reported(44)},
		},
		"a second kill without a report has not that of the first": {
			[]string{asked, atLimit, whose, kill, other("43")}, []oomkill.Event{inCgroup(reported(42), container), killOf(43)},
		},
		"a report of another process": {[]string{asked, atLimit, whose, other("43")}, []oomkill.Event{killOf(43)}},
		"a broken summary": {[]string{asked, atLimit, "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)", kill}, []oomkill.Event{func() oomkill.Event {
			e := reported(42)
			e.LimitCgroup = ""
			return e
		}()}},
		"a cgroup without a limit of memory": {[]string{asked, "memory: usage 8kB, limit 9007199254740988kB, failcnt 0", whose, kill}, []oomkill.Event{func() oomkill.Event {
			e := inCgroup(reported(42), container)
			e.LimitBytes, e.UsageBytes, e.FailureCount = 0, 0, 0
			return e
		}()}},
		"a name with brackets": {[]string{strings.Replace(kill, "(python)", "(a) total-vm:1kB)", 1)}, []oomkill.Event{brackets}},
		"nothing to kill":      {[]string{"Out of memory and no killable processes...", "Out of memory: Killed process", "oom_reaper: reaped process 42 (python)"}, nil},
		"a pid beyond pids":    {[]string{other("0"), other("99999999999")}, nil},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, read(tc.lines...)) })
	}
}

// TestAWholeReportIsRead has what Linux 6.18 wrote when a process reached the
// limit of the cgroup (v1) above its own.
func TestAWholeReportIsRead(t *testing.T) {
	raw, err := os.ReadFile("testdata/cgroup_v1_6.18.txt")
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(string(raw)) {
		_, text, ok := strings.Cut(strings.TrimSpace(line), "] ")
		require.True(t, ok)
		lines = append(lines, text)
	}
	require.Equal(t, []oomkill.Event{{
		PID: 7234, Comm: "python3", Constraint: oomkill.ConstraintCgroup, CgroupPath: "/tcoom/inner", LimitCgroup: "/tcoom",
		LimitBytes: 32 << 20, UsageBytes: 32 << 20, FailureCount: 52, TriggerComm: "python3",
		TotalVMBytes: 42264 << 10, AnonRSSBytes: 32256 << 10, FileRSSBytes: 6520 << 10, PageTablesBytes: 124 << 10,
	}}, read(lines...))
}

// TestAReportIsNotJoinedToAKillMuchLater: the lines between were lost.
func TestAReportIsNotJoinedToAKillMuchLater(t *testing.T) {
	for name, tc := range map[string]struct {
		lines []string
		last  string
		later time.Duration
		limit uint64
	}{
		"a slow console":                 {[]string{asked, atLimit, whose}, kill, longestReport, 8 << 30},
		"after a gap":                    {[]string{asked, atLimit, whose}, kill, longestReport + 1, 0},
		"a clock set back":               {[]string{asked, atLimit, whose}, kill, -time.Second, 0},
		"a member of a group":            {[]string{asked, atLimit, whose, kill, together}, other("43"), betweenKills, 8 << 30},
		"another kill, after the group":  {[]string{asked, atLimit, whose, kill, together}, other("43"), betweenKills + 1, 0},
		"another group, after this kill": {[]string{asked, atLimit, whose, kill}, other("43"), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var r Reader
			for _, line := range tc.lines {
				r.Line(start, line)
			}
			e, ok := r.Line(start.Add(tc.later), tc.last)
			require.True(t, ok)
			require.Equal(t, tc.limit, e.LimitBytes)
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range []string{asked, atLimit, whose, kill, together, strings.Repeat("(", 5000)} {
		f.Add(line, line)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		var r Reader
		for i, line := range []string{asked, first, whose, second, kill} {
			e, ok := r.Line(start.Add(time.Duration(i)), line)
			if !ok {
				continue
			}
			if e.PID == 0 || e.LimitBytes > noLimit<<10 || utf8.RuneCountInString(e.Comm) > 64 {
				t.Errorf("%s: %+v", strconv.Quote(line), e)
			}
		}
	})
}
