package fusefaultreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
)

const daemonPID = 812

// scene is a mount with a daemon, followed by a tracker, as time goes on.
type scene struct {
	*tracker
	machine  *fakeMachine
	resolver *probereceivertest.Resolver
	now      time.Time
	answered uint64
	aborted  uint64
	inFlight []fusefault.InFlight
}

// newScene has been scanned once and is healthy.
func newScene() *scene {
	s := &scene{machine: newFakeMachine(), resolver: &probereceivertest.Resolver{}, now: start, answered: 1000}
	s.machine.processes[daemonPID] = procfs.Process{Name: "juicefs", State: procfs.Alive, StartTicks: 5}
	s.machine.mount("1", data.Minor, procfs.Mount{Point: "/mnt/data", Source: "JuiceFS:vol", Type: "fuse.juicefs"})
	s.tracker = newTracker(createDefaultConfig().(*Config), look{machine: s.machine, resolver: s.resolver})
	s.scan()
	return s
}

func (s *scene) snapshot() *fusefault.Snapshot {
	return &fusefault.Snapshot{
		Time: s.now, InFlight: s.inFlight,
		Mounts: []fusefault.Mount{{Device: data, DaemonPID: daemonPID, DaemonComm: "worker", Requests: answers(s.answered), Answered: s.answered, Aborted: s.aborted, InFlight: len(s.inFlight)}},
	}
}

func (s *scene) scan() []report { return s.observe(s.snapshot()) }

// after lets time pass and scans once a second.
func (s *scene) after(seconds int) []report {
	var reports []report
	for range seconds {
		s.now = s.now.Add(time.Second)
		reports = append(reports, s.scan()...)
	}
	return reports
}

// stick adds a request of a process that began a little after now.
func (s *scene) stick(pid uint32, with ...func(*fusefault.InFlight)) {
	f := fusefault.InFlight{
		ID: uint64(len(s.inFlight) + 1), Kind: fusefault.KindRequest, Start: s.now.Add(time.Duration(len(s.inFlight)+1) * time.Millisecond),
		Device: data, Opcode: opRead, PID: pid, TID: pid, Comm: "python",
	}
	s.machine.lives(pid, "python")
	for _, change := range with {
		change(&f)
	}
	s.inFlight = append(s.inFlight, f)
}

func (s *scene) rank(pid uint32, rank int, job string) {
	s.resolver.Know(append(s.resolver.Ranks(), identity.Process{PID: pid, Comm: "python", Rank: rank, LocalRank: rank, WorldSize: 8, JobID: job})...)
}

func background(f *fusefault.InFlight) { f.Background = true }
func fault(f *fusefault.InFlight)      { f.Kind, f.Opcode = fusefault.KindFault, 0 }
func opcode(op uint32) func(*fusefault.InFlight) {
	return func(f *fusefault.InFlight) { f.Opcode = op }
}

func TestStallIsToldOnceTheThresholdHasPassedAndThenEveryInterval(t *testing.T) {
	s := newScene()
	s.rank(42, 3, "llm")
	s.stick(42)
	require.Empty(t, s.after(1), "999 ms old")
	reports := s.after(1)
	require.Len(t, reports, 1, "within the threshold and one scan")
	r := reports[0]
	require.True(t, r.first)
	require.Equal(t, 1999*time.Millisecond, r.age)
	require.Equal(t, []int{3}, r.waiters.ranks)
	require.Equal(t, procfs.Alive, r.daemon)
	require.Equal(t, "juicefs", r.mount.daemon.name)
	require.Equal(t, "/mnt/data", r.place.Point)
	require.Zero(t, r.answered)
	id := r.id

	require.Empty(t, s.after(9))
	reports = s.after(1)
	require.Len(t, reports, 1)
	require.Equal(t, 11999*time.Millisecond, reports[0].age)
	require.False(t, reports[0].first)
	require.Equal(t, id, reports[0].id)

	s.inFlight = nil
	s.answered++
	reports = s.after(1)
	require.Len(t, reports, 1)
	require.Equal(t, endCompleted, reports[0].end)
	require.Equal(t, id, reports[0].id)
	require.Equal(t, 12999*time.Millisecond, reports[0].age)
	require.Empty(t, s.after(20))
}

// A daemon that has no CPU is said to be starved, for as long as it may have a turn now and then.
func TestDaemonWithoutACPU(t *testing.T) {
	s := newScene()
	s.rank(42, 3, "llm")
	s.machine.starves = true
	s.stick(42)
	reports := s.after(2)
	require.Len(t, reports, 1)
	require.Equal(t, Starved, reports[0].daemon)
	s.machine.starves = false
	require.Empty(t, s.after(4))
	reports = s.after(1)
	require.Len(t, reports, 1)
	require.Equal(t, procfs.Alive, reports[0].daemon)
	s.machine.starves = true
	s.machine.processes[daemonPID] = procfs.Process{Name: "juicefs", State: procfs.Stopped, StartTicks: 5}
	reports = s.after(1)
	require.Len(t, reports, 1)
	require.Equal(t, procfs.Stopped, reports[0].daemon)
}

// Scans come late where CPUs are scarce: what a daemon has is not told at the first look at it.
func TestWhetherADaemonHasACPUShowsInThreeScans(t *testing.T) {
	for _, young := range []int{1, 2} { // at the second it may just have begun to wait for one
		s := newScene()
		s.rank(42, 3, "llm")
		s.machine.starves, s.machine.young = true, young
		s.stick(42)
		s.now = s.now.Add(3 * time.Second)
		require.Empty(t, s.scan())
		reports := s.after(young)
		require.Len(t, reports, 1)
		require.Equal(t, Starved, reports[0].daemon)
	}
	s := newScene()
	s.rank(42, 3, "llm")
	s.machine.young = 5
	s.stick(42)
	s.now = s.now.Add(3 * time.Second)
	require.Empty(t, s.scan())
	require.Len(t, s.after(2), 1, "it waits for two scans")
}

// The daemon of an earlier mount, which had the device number before, has ended, and nothing
// hangs for that.
func TestDaemonOfAnEarlierMountIsForgotten(t *testing.T) {
	s := newScene()
	s.machine.processes[daemonPID] = procfs.Process{State: procfs.Gone}
	s.stick(42)
	scan := func(connection uint64, daemon uint32) []report {
		s.now = s.now.Add(time.Second)
		one := s.snapshot()
		one.Mounts[0].Connection, one.Mounts[0].DaemonPID = connection, daemon
		return s.observe(one)
	}
	scan(7, 0)
	reports := scan(7, 0) // nobody knows its daemon yet
	require.Len(t, reports, 1)
	require.Equal(t, []any{procfs.Unknown, uint32(0)}, []any{reports[0].daemon, reports[0].mount.daemon.pid})

	s.machine.processes[daemonPID+1] = procfs.Process{Name: "juicefs", State: procfs.Stopped, StartTicks: 6}
	reports = scan(7, daemonPID+1)
	require.Len(t, reports, 1, "its state is known now")
	require.Equal(t, []any{procfs.Stopped, uint32(daemonPID + 1)}, []any{reports[0].daemon, reports[0].mount.daemon.pid})
}

func TestMountThatCompletesSteadilyDoesNotStall(t *testing.T) {
	s := newScene()
	for range 30 {
		s.inFlight = nil
		s.stick(42) // each is answered before it is a second old
		s.answered += 100
		require.Empty(t, s.after(1))
	}
}

func TestWhatIsAnsweredMeanwhileIsCountedFromTheScanAfterTheOldestBegan(t *testing.T) {
	s := newScene()
	s.stick(42)
	s.answered += 500 // in the same second, before it began
	s.after(1)
	reports := s.after(1)
	require.Len(t, reports, 1)
	require.Zero(t, reports[0].answered, "nobody was answered since")

	s.answered += 70
	s.after(9)
	reports = s.after(1)
	require.EqualValues(t, 70, reports[0].answered, "since the last record")
	require.Zero(t, s.after(10)[0].answered)
}

func TestScanThatCannotTellWhetherTheDaemonAnswersWaitsForTheNext(t *testing.T) {
	s := newScene()
	s.stick(42)
	s.answered += 10
	s.now = s.now.Add(1500 * time.Millisecond) // a late scan: none lies between
	require.Empty(t, s.scan())
	reports := s.after(1)
	require.Len(t, reports, 1)
	require.Zero(t, reports[0].answered)

	s = newScene()
	s.stick(42)
	s.now = s.now.Add(1500 * time.Millisecond)
	require.Len(t, s.scan(), 1, "nothing was answered at all: that is sure")
}

func TestFirstRequestOfAMountMayBeTheOneThatSticks(t *testing.T) {
	s := newScene()
	s.stick(42, func(f *fusefault.InFlight) { f.Device.Minor = 99 })
	s.now = s.now.Add(2 * time.Second)
	reports := s.scan()
	require.Len(t, reports, 1)
	require.EqualValues(t, 99, reports[0].mount.device.Minor)
	require.Equal(t, procfs.Unknown, reports[0].daemon)
	require.Empty(t, reports[0].place)
}

func TestWhatCannotBeLateDoesNotStall(t *testing.T) {
	for name, change := range map[string]func(*fusefault.InFlight){
		"release that nobody waits for": func(f *fusefault.InFlight) { f.Opcode, f.Background = opRelease, true },
		"release of a directory":        func(f *fusefault.InFlight) { f.Opcode, f.Background = opReleaseDir, true },
		"wait for a lock":               opcode(opSetLockWait),
		"forget":                        opcode(opForget),
		"interrupt":                     opcode(opInterrupt),
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.stick(42, change)
			require.Empty(t, s.after(60))
		})
	}
}

func TestWhatGoesOnInTheBackgroundStallsAndNobodyWaitsForIt(t *testing.T) {
	for name, op := range map[string]uint32{"readahead": opRead, "writeback": opWrite, "init": 26} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.rank(42, 3, "llm")
			s.stick(42, background, opcode(op))
			reports := s.after(2)
			require.Len(t, reports, 1)
			require.Zero(t, reports[0].waiters.threads)
			require.Empty(t, reports[0].waiters.ranks)
			require.Equal(t, 1, reports[0].requests)

			s.inFlight[0].Background = false // the probe now sees its thread sleep for it
			require.Equal(t, []int{3}, s.after(1)[0].waiters.ranks)
		})
	}
}

func TestThousandWaitersAreOneReport(t *testing.T) {
	s := newScene()
	for pid := uint32(1); pid <= 8; pid++ {
		s.rank(pid, int(pid)-1, "llm")
	}
	for tid := range uint32(1000) {
		s.stick(tid%8+1, fault, func(f *fusefault.InFlight) { f.TID, f.Start = 10_000+tid, s.now })
	}
	reports := s.after(1)
	require.Len(t, reports, 1)
	r := reports[0]
	require.Equal(t, 1000, r.waiters.threads)
	require.Equal(t, 1000, r.faults)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, r.waiters.ranks)
	require.Len(t, r.waiters.pids, 8)
}

func TestRankIsNamedBeforeAProcessThatWaitsLonger(t *testing.T) {
	s := newScene()
	s.stick(7, opcode(3))
	s.rank(42, 3, "llm")
	s.rank(43, 3, "other")
	s.rank(44, 5, "llm")
	s.stick(42)
	s.stick(43)
	s.stick(44, fault)
	r := s.after(2)[0]
	require.EqualValues(t, 42, r.waiters.named.PID)
	require.Equal(t, []int{3, 5}, r.waiters.ranks, "of the same job")
	require.Equal(t, []uint32{7, 42, 43, 44}, r.waiters.pids)
	require.Equal(t, 1999*time.Millisecond, r.age, "of the oldest")
	require.Equal(t, [2]int{1, 3}, [2]int{r.faults, r.requests})
}

func TestNewRanksAndAChangedDaemonAreToldAtOnce(t *testing.T) {
	s := newScene()
	s.rank(42, 3, "llm")
	s.stick(42)
	require.Len(t, s.after(2), 1)
	s.rank(43, 4, "llm")
	s.stick(43)
	require.Empty(t, s.after(1), "not yet older than the threshold")
	require.Len(t, s.after(1), 1)
	s.machine.processes[daemonPID] = procfs.Process{Name: "juicefs", State: procfs.Stopped, StartTicks: 5}
	reports := s.after(1)
	require.Len(t, reports, 1)
	require.Equal(t, procfs.Stopped, reports[0].daemon)
	require.Empty(t, s.after(9))
}

func TestDaemonWhosePIDIsSomebodyElsesNowIsGone(t *testing.T) {
	s := newScene()
	s.stick(42)
	s.machine.processes[daemonPID] = procfs.Process{Name: "bash", State: procfs.Alive, StartTicks: 6}
	r := s.after(2)[0]
	require.Equal(t, procfs.Gone, r.daemon)
	require.Equal(t, "juicefs", r.mount.daemon.name)
}

func TestMountPointIsTheVictimsOwn(t *testing.T) {
	s := newScene()
	s.machine.mount("42", data.Minor, procfs.Mount{Point: "/data", Source: "JuiceFS:vol", Type: "fuse.juicefs"})
	s.stick(42)
	require.Equal(t, "/data", s.after(2)[0].place.Point)
}

func TestEndSaysWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(*scene)
		want    string
	}{
		"answered":           {func(s *scene) { s.answered++ }, endCompleted},
		"connection aborted": {func(s *scene) { s.answered++; s.aborted++ }, endAborted},
		"daemon died":        {func(s *scene) { s.answered++; delete(s.machine.processes, daemonPID) }, endAborted},
		"unmounted":          {func(s *scene) { s.answered++; s.aborted++; delete(s.machine.mounts["1"], data.Minor) }, endUnmounted},
		"victim killed":      {func(s *scene) { delete(s.machine.processes, 42) }, endWaitersGone},
		"nothing known":      {func(*scene) {}, endCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.stick(42)
			require.Len(t, s.after(2), 1)
			s.inFlight = nil
			tc.happens(s)
			reports := s.after(1)
			require.Len(t, reports, 1)
			require.Equal(t, tc.want, reports[0].end)
		})
	}
}

func TestVictimsTableThatCannotBeReadIsNoUnmount(t *testing.T) {
	s := newScene()
	s.machine.mount("42", data.Minor, procfs.Mount{Point: "/data"})
	s.stick(42)
	s.after(2)
	delete(s.machine.mounts, "42")
	delete(s.machine.processes, 42)
	s.inFlight = nil
	require.Equal(t, endWaitersGone, s.after(1)[0].end)
}

func TestMountsBeyondTheCapAreCountedAndStallsComeFirst(t *testing.T) {
	s := newScene()
	snapshot := s.snapshot()
	for minor := range uint32(maxMounts + 10) {
		snapshot.Mounts = append(snapshot.Mounts, fusefault.Mount{Device: fusefault.Device{Major: 1, Minor: minor}})
	}
	last := fusefault.Device{Major: 1, Minor: maxMounts + 9}
	snapshot.InFlight = []fusefault.InFlight{{ID: 1, Device: last, Opcode: opRead, Start: s.now, PID: 1, TID: 1}}
	snapshot.Time = s.now.Add(3 * time.Second)
	reports := s.observe(snapshot)
	require.Len(t, reports, 1)
	require.Equal(t, last, reports[0].mount.device)
	require.Equal(t, 11, s.dropped)
	require.Len(t, s.mounts, maxMounts)

	s.now = s.now.Add(4 * time.Second)
	require.Len(t, s.scan(), 1, "the end")
	require.Empty(t, s.after(1))
	require.Len(t, s.mounts, 1, "what is not there any more is forgotten")
}

func TestCountsThatBeginAnewAreNoFlood(t *testing.T) {
	s := newScene()
	s.stick(42)
	s.after(2)
	s.answered = 3 // the probe forgot the mount and met it again
	s.after(9)
	require.EqualValues(t, 3, s.after(1)[0].answered)
}

// TestWaitersOfOneUserHideNoRankOfAnother: a thousand processes wait on the same mount, and
// longer; some claim to be ranks of the same job.
func TestWaitersOfOneUserHideNoRankOfAnother(t *testing.T) {
	const mine, his = "pods in namespace team-a", "user 65534"
	for name, stranger := range map[string]identity.Process{
		"processes of a user": {Rank: identity.Unknown, Domain: his},
		"that nobody knows":   {Rank: identity.Unknown},
		"ranks of the job":    {Rank: 0, WorldSize: 8, JobID: "llm", Domain: his},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			var known []identity.Process
			for pid := range uint32(4 * maxProcesses) {
				one := stranger
				one.PID = 1000 + pid
				if one.IsRank() {
					one.Rank = int(100 + pid%8)
				}
				known = append(known, one)
				s.stick(one.PID)
			}
			for rank := range 2 {
				known = append(known, identity.Process{PID: uint32(42 + rank), Comm: "python", Rank: rank, LocalRank: rank, WorldSize: 8, JobID: "llm", Domain: mine})
				s.stick(uint32(42 + rank))
			}
			s.resolver.Know(known...)
			reports := s.after(8)
			require.NotEmpty(t, reports)
			w := reports[0].waiters
			require.Len(t, w.pids, maxProcesses)
			require.Equal(t, 4*maxProcesses+2, w.threads)
			require.Contains(t, w.who, uint32(42))
			require.Contains(t, w.who, uint32(43))
			if !stranger.IsRank() {
				require.Equal(t, uint32(42), w.named.PID)
				require.Equal(t, []int{0, 1}, w.ranks)
			} else {
				require.NotContains(t, w.ranks, 0, "ranks of another domain are of another job")
				require.NotContains(t, w.ranks, 1)
			}
		})
	}
}

// TestMountsOfOneUserHideNoneOfAnother: a user has mounts beyond the limit, well or stuck,
// before the mount of a job stalls. The stall is told, and goes on.
func TestMountsOfOneUserHideNoneOfAnother(t *testing.T) {
	for name, hang := range map[string]bool{"that are well": false, "that hang": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			known := []identity.Process{{PID: 42, Comm: "python", Rank: 3, LocalRank: 3, WorldSize: 8, JobID: "llm", Domain: "pods in namespace team-a"}}
			var his []fusefault.Mount
			for minor := range uint32(2 * maxMounts) {
				known = append(known, identity.Process{PID: 1000 + minor, Rank: identity.Unknown, Domain: "user 65534"})
				his = append(his, fusefault.Mount{Device: fusefault.Device{Major: 1, Minor: minor}, Answered: 1})
				if hang {
					s.stick(1000+minor, func(f *fusefault.InFlight) { f.Device = his[minor].Device })
				}
			}
			s.resolver.Know(known...)
			scan := func() []report {
				s.now = s.now.Add(time.Second)
				snapshot := s.snapshot()
				snapshot.Mounts = append(his, snapshot.Mounts...)
				return s.observe(snapshot)
			}
			for range 5 {
				scan()
				require.LessOrEqual(t, len(s.mounts), maxMounts)
			}
			s.stick(42)
			var mine []report
			for range 15 {
				for _, r := range scan() {
					if r.mount.device == data {
						mine = append(mine, r)
					}
				}
				require.LessOrEqual(t, len(s.mounts), maxMounts)
				require.LessOrEqual(t, len(s.stalls), maxMounts)
				require.Positive(t, s.dropped)
			}
			require.GreaterOrEqual(t, len(mine), 2, "it is told, and told again")
			for _, r := range mine {
				require.Empty(t, r.end)
				require.Equal(t, uint32(42), r.waiters.named.PID)
			}
		})
	}
}
