//go:build linux && (amd64 || arm64)

package oomkill

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// chargeBatch is how far from its limit the usage of a cgroup may be when a charge
// fails: MEMCG_CHARGE_BATCH pages (include/linux/memcontrol.h) for each CPU, which may
// have just given back what it held in store (drain_all_stock in mm/memcontrol.c, whose
// work on other CPUs nobody waits for), or above while another thread's charge is about
// to be taken back.
var chargeBatch = 64 * 4096 * runtime.NumCPU()

func TestEachRungReportsADrill(t *testing.T) {
	for _, rung := range []string{RungFentry, RungKprobe, RungStack, RungVictim} {
		t.Run(path.Dir(rung), func(t *testing.T) {
			p := open(t, Options{Rung: rung})
			event, err := p.Fire(t.Context())
			require.NoError(t, err)
			require.NotZero(t, event.PID)
			require.Equal(t, probe.Report{
				Probe: "oomkill", Rung: rung,
				Attempts: []probe.Attempt{{Rung: rung, Outcome: probe.OK, Fired: true}},
			}, p.Report())
			require.Equal(t, probe.Stats{Events: 1}, p.Stats())
		})
	}
}

func TestWithoutAChoiceTheBestRungIsTakenAndTheBetterOnesAreExplained(t *testing.T) {
	p := open(t, Options{})
	_, err := p.Fire(t.Context())
	require.NoError(t, err)
	report := p.Report()
	last := len(report.Attempts) - 1
	require.Equal(t, probe.Attempt{Rung: report.Rung, Outcome: probe.OK, Fired: true}, report.Attempts[last])
	for _, better := range report.Attempts[:last] {
		require.Contains(t, []probe.Outcome{probe.Denied, probe.Unsupported}, better.Outcome, better.Reason)
		require.NotEmpty(t, better.Reason)
	}
}

func TestKillForACgroupLimitNamesVictimMemoryAndLimit(t *testing.T) {
	p := open(t, Options{})
	before := time.Now()
	drill, err := Drill(t.Context(), DrillOptions{Env: []string{"RANK=3"}, LimitBytes: 24 << 20})
	require.NoError(t, err)
	e := next(t, p, drill.PID)

	require.WithinRange(t, e.Time, before.Add(-time.Second), drill.Killed.Add(time.Second))
	require.EqualValues(t, os.Getpid(), e.ParentPID)
	require.Equal(t, "tracecore-drill", e.Comm)
	require.EqualValues(t, os.Geteuid(), e.UID)
	require.EqualValues(t, 1000, e.OOMScoreAdj)
	requireMemory(t, e, drill.LimitBytes)

	require.Equal(t, ConstraintCgroup, e.Constraint)
	require.Equal(t, drill.CgroupPath, e.CgroupPath)
	require.Equal(t, drill.CgroupPath, e.LimitCgroup)
	require.EqualValues(t, 24<<20, e.LimitBytes)
	require.Positive(t, e.FailureCount)
	require.Equal(t, e.PID, e.TriggerPID)
	require.NotEmpty(t, e.TriggerComm)
}

func requireMemory(t *testing.T, e Event, limit uint64) {
	t.Helper()
	require.InDelta(t, limit, e.UsageBytes, float64(chargeBatch))
	// The limit also covers page tables and kernel stacks; a per-CPU counter may lag.
	require.Greater(t, e.AnonRSSBytes, limit/2)
	require.Greater(t, e.TotalVMBytes, 2*limit)
	require.Positive(t, e.FileRSSBytes+e.ShmemRSSBytes, "the binary: shmem when it lies in a tmpfs")
	require.Positive(t, e.PageTablesBytes)
	require.Zero(t, e.SwapBytes)
}

// A pod's limit above its containers: the victim's own cgroup is not the one to blame.
func TestLimitOfAnOuterCgroupIsNamed(t *testing.T) {
	for _, rung := range []string{RungFentry, RungKprobe, RungStack} {
		t.Run(path.Dir(rung), func(t *testing.T) {
			p := open(t, Options{Rung: rung})
			pod := cgroup(t, nil, DefaultDrillLimit)
			container := cgroup(t, pod, 1<<30)
			drill, err := drillIn(t.Context(), container, DrillOptions{LimitBytes: DefaultDrillLimit})
			require.NoError(t, err)
			e := next(t, p, drill.PID)
			require.Equal(t, drill.CgroupPath, e.CgroupPath)
			require.Equal(t, path.Dir(drill.CgroupPath), e.LimitCgroup)
			require.EqualValues(t, DefaultDrillLimit, e.LimitBytes)
			require.GreaterOrEqual(t, e.UsageBytes, uint64(DefaultDrillLimit-chargeBatch))
		})
	}
}

func TestVictimAndTriggerCanBeDifferentProcesses(t *testing.T) {
	p := open(t, Options{})
	group := cgroup(t, nil, 64<<20)
	victim := play(t, "take:33554432:1000")
	trigger := play(t, "take:46137344:0")
	require.NoError(t, group.add(victim.Process.Pid))
	require.NoError(t, group.add(trigger.Process.Pid))
	victim.tell(t)
	require.Equal(t, "taken", victim.line(t))
	trigger.tell(t) // and may be killed next, before the kernel has the victim's memory back
	e := next(t, p, uint32(victim.Process.Pid))
	require.EqualValues(t, trigger.Process.Pid, e.TriggerPID)
	require.EqualValues(t, 1000, e.OOMScoreAdj)
	require.Greater(t, e.AnonRSSBytes, uint64(24<<20))
	require.Equal(t, ConstraintCgroup, e.Constraint)
}

// memory.oom.group: one kill takes all processes of the cgroup.
func TestEachProcessOfAGroupKillIsReported(t *testing.T) {
	p := open(t, Options{})
	group := cgroup(t, nil, 64<<20)
	if !group.v2 {
		t.Skip("memory.oom.group is of cgroup v2, this machine has v1")
	}
	require.NoError(t, writeFile(group.file("memory.oom.group"), "1"))
	bystander, glutton := play(t, "take:1048576:0"), play(t, "take:134217728:1000")
	require.NoError(t, group.add(bystander.Process.Pid))
	require.NoError(t, group.add(glutton.Process.Pid))
	bystander.tell(t)
	require.Equal(t, "taken", bystander.line(t))
	glutton.tell(t)

	found := map[uint32]Event{}
	for _, process := range []*player{bystander, glutton} {
		pid := uint32(process.Process.Pid)
		for found[pid].PID == 0 { // of others on the machine there may be kills, too
			var e Event
			require.NoError(t, p.Read(&e))
			found[e.PID] = e
		}
		e := found[pid]
		require.Equal(t, ConstraintCgroup, e.Constraint)
		require.EqualValues(t, 64<<20, e.LimitBytes)
		require.EqualValues(t, glutton.Process.Pid, e.TriggerPID)
	}
}

// Takes all memory of the machine, so only where the machine is ours.
func TestNodeOutOfMemoryIsNoCgroupLimit(t *testing.T) {
	privtest.Require(t)
	var info unix.Sysinfo_t
	require.NoError(t, unix.Sysinfo(&info))
	memory := info.Totalram * uint64(info.Unit)
	if name, _ := os.Hostname(); name != "vmtest" || memory > 4<<30 {
		t.Skip("takes all memory of the node: runs in the machines of vmtests alone")
	}
	setOOMScore(t, -1000)
	for _, rung := range []string{RungFentry, RungStack} {
		t.Run(path.Dir(rung), func(t *testing.T) {
			p := open(t, Options{Rung: rung})
			// A machine that frees the glutton's memory slowly kills again, and one
			// that finds nobody to kill panics.
			for range 4 {
				bystander := play(t, "take:4096:500")
				bystander.tell(t)
				require.Equal(t, "taken", bystander.line(t))
			}
			glutton := play(t, fmt.Sprintf("take:%d:1000", 2*memory))
			glutton.tell(t)
			e := next(t, p, uint32(glutton.Process.Pid))
			require.Equal(t, ConstraintNode, e.Constraint)
			require.Empty(t, e.LimitCgroup)
			require.Zero(t, e.LimitBytes)
			require.Greater(t, e.AnonRSSBytes, memory/4)
			require.NotEmpty(t, e.CgroupPath)
		})
	}
}

// Kernels whose mark_victim has only a pid: the victim comes from its SIGKILL.
func TestVictimIsFoundByItsSignal(t *testing.T) {
	privtest.Require(t)
	k := learnKernel()
	k.victimFromSignal = true
	h, err := openHooks(k, "", 0)
	require.NoError(t, err)
	p := &Probe{hooks: h, code: k.code, report: probe.Report{Rung: RungStack}}
	defer func() { require.NoError(t, p.Close()) }()

	drill, err := Drill(t.Context(), DrillOptions{})
	require.NoError(t, err)
	e := next(t, p, drill.PID)
	require.Equal(t, drill.CgroupPath, e.CgroupPath)
	requireMemory(t, e, drill.LimitBytes)
}

func TestFullRingCountsWhatItLost(t *testing.T) {
	p := open(t, Options{RingBytes: uint32(os.Getpagesize())})
	room := uint64(os.Getpagesize()) / 3100 // a record with its header
	for range room + 2 {
		_, err := Drill(t.Context(), DrillOptions{})
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, p.Stats().Dropped)
	var e Event
	require.NoError(t, p.Read(&e))
	require.NoError(t, p.Close())
	require.Equal(t, probe.Stats{Events: 1, Dropped: 2}, p.Stats(), "counters outlive the probe")
}

// A cgroup that runs out of memory again and again fills the ring for itself alone.
func TestAFloodOfKillsLosesItsOwn(t *testing.T) {
	p := open(t, Options{RingBytes: 8 * uint32(os.Getpagesize())})
	group, err := newDrillCgroup(DefaultDrillLimit)
	require.NoError(t, err)
	defer func() { require.NoError(t, group.remove()) }()
	kills := 8*os.Getpagesize()/3100 + 2 // more than there is room for
	for range kills {
		_, err := drillIn(t.Context(), group, DrillOptions{LimitBytes: DefaultDrillLimit})
		require.NoError(t, err)
	}
	other, err := Drill(t.Context(), DrillOptions{})
	require.NoError(t, err)
	told := 0
	var e Event
	for require.NoError(t, p.Read(&e)); e.PID != other.PID; require.NoError(t, p.Read(&e)) {
		told++
	}
	require.EqualValues(t, kills, uint64(told)+p.Stats().Dropped)
}

func TestCloseUnblocksReadAndMayBeRepeated(t *testing.T) {
	p := open(t, Options{})
	done := make(chan error)
	go func() { done <- p.Read(&Event{}) }()
	require.NoError(t, p.Close())
	require.ErrorIs(t, <-done, probe.ErrClosed)
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Read(&Event{}), probe.ErrClosed)
}

func TestUnknownRungIsRefusedWithTheKnownOnes(t *testing.T) {
	_, err := Open(Options{Rung: "uprobe/malloc"})
	require.ErrorContains(t, err, "use one of "+strings.Join([]string{RungFentry, RungKprobe, RungStack, RungVictim}, ", "))
}

func TestLostPrivilegesAreDenied(t *testing.T) {
	privtest.Require(t)
	errs := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its lost capabilities
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			errs <- err
			return
		}
		_, err := Open(Options{})
		errs <- err
	}()
	err := <-errs
	var noRung *ladder.NoRung
	require.ErrorAs(t, err, &noRung)
	for _, attempt := range noRung.Report.Attempts {
		require.Contains(t, []probe.Outcome{probe.Denied, probe.Unsupported}, attempt.Outcome, attempt.Reason)
	}
	require.Equal(t, probe.Denied, noRung.Report.Attempts[len(noRung.Report.Attempts)-1].Outcome)
}

func TestFireEndsWithItsContext(t *testing.T) {
	p := open(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := p.Report()
	_, err := p.Fire(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, p.Report(), "a drill that could not be made says nothing of the rung")
}

// BenchmarkSignal is what the signal hook of pid-only kernels costs each signal.
func BenchmarkSignal(b *testing.B) {
	privtest.Require(b)
	signal.Ignore(unix.SIGUSR2)
	defer signal.Reset(unix.SIGUSR2)
	for _, hooked := range []bool{false, true} {
		b.Run(fmt.Sprintf("hooked=%t", hooked), func(b *testing.B) {
			if hooked {
				k := learnKernel()
				k.victimFromSignal = true
				h, err := openHooks(k, "", 0)
				require.NoError(b, err)
				defer func() { require.NoError(b, h.Close()) }()
			}
			pid := os.Getpid()
			for b.Loop() {
				if err := unix.Kill(pid, unix.SIGUSR2); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpen is what the probe costs the start of the collector.
func BenchmarkOpen(b *testing.B) {
	privtest.Require(b)
	for b.Loop() {
		p, err := Open(Options{})
		require.NoError(b, err)
		require.NoError(b, p.Close())
	}
}
