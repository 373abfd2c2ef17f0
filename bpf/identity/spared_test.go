//go:build linux && (amd64 || arm64)

package identity

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// rankOf starts a rank of a job of its own.
func (b *senderBench) rankOf(job string, rank int, mode string) *child {
	b.Helper()
	return startChildAs(b, nil, mode, fmt.Sprint("RANK=", rank), "WORLD_SIZE=8", "JOB_ID="+job)
}

// job starts ranks 0 to 2 of it.
func (b *senderBench) job(name, mode string) (ranks [3]*child) {
	b.Helper()
	for rank := range ranks {
		ranks[rank] = b.rankOf(name, rank, mode)
	}
	return ranks
}

// terminate asks a rank that this process started to end.
func (b *senderBench) terminate(c *child) {
	b.Helper()
	defer b.asks(time.Now())
	require.NoError(b, unix.Kill(int(c.pid()), unix.SIGTERM))
}

// asks notes that one was asked to end since then, and how long it takes to ask several.
func (b *senderBench) asks(since time.Time) {
	if b.first.IsZero() {
		b.first = since
		return
	}
	b.took = time.Since(b.first)
}

// Who ends a job asks all of its ranks; the end of each tells how many others were not.
func TestEndOfARankThatWasAskedTellsOfTheOthers(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungSignals})
	exits := watch(t, tracker)
	causes := map[string]struct {
		do   func(b *senderBench, job string) (pid uint32)
		want Others
	}{
		"one by a stranger": {want: Others{Lived: 2}, do: func(b *senderBench, job string) uint32 {
			ranks := b.job(job, "wait")
			b.rankOf("another", 5, "wait")
			b.kill(nil, "stranger", ranks[1].pid(), unix.SIGTERM)
			return b.reaped(ranks[1])
		}},
		"all, and all die": {want: Others{Lived: 2, Asked: 2}, do: func(b *senderBench, job string) uint32 {
			ranks := b.job(job, "wait")
			for _, r := range ranks {
				b.kill(nil, "owner", r.pid(), unix.SIGTERM)
			}
			return b.reaped(ranks[0])
		}},
		"all, and two do not end yet": {want: Others{Lived: 2, Asked: 2}, do: func(b *senderBench, job string) uint32 {
			ranks := b.job(job, "exitAfterTerm")
			for _, r := range ranks[1:] {
				r.printed(b)
				require.NoError(b, unix.Kill(int(r.pid()), unix.SIGSTOP))
			}
			ranks[0].printed(b)
			for _, r := range ranks {
				b.kill(nil, "owner", r.pid(), unix.SIGTERM)
			}
			return b.reaped(ranks[0])
		}},
		"one, and another dies of that": {want: Others{Lived: 2}, do: func(b *senderBench, job string) uint32 {
			ranks := b.job(job, "wait")
			b.kill(nil, "stranger", ranks[1].pid(), unix.SIGTERM)
			ranks[1].ends(b)
			ranks[2].finish()
			return b.reaped(ranks[1])
		}},
		"all others by a rank": {want: Others{Lived: 1, Asked: 1}, do: func(b *senderBench, job string) uint32 {
			ranks := b.job(job, "wait")
			for _, r := range ranks[:2] {
				b.kill(nil, "rank", r.pid(), unix.SIGTERM, "RANK=2", "WORLD_SIZE=8", "JOB_ID="+job)
			}
			return b.reaped(ranks[1])
		}},
		"one by what started it": {want: Others{Lived: 2}, do: func(b *senderBench, job string) uint32 {
			ranks := b.job(job, "wait")
			b.terminate(ranks[1])
			return b.reaped(ranks[1])
		}},
		"one by a stranger, and what started them ends the others": {want: Others{Lived: 2}, do: func(b *senderBench, job string) uint32 {
			ranks := b.job(job, "wait")
			b.kill(nil, "stranger", ranks[1].pid(), unix.SIGTERM)
			ranks[1].ends(b)
			for _, r := range []*child{ranks[0], ranks[2]} {
				b.terminate(r)
			}
			return b.reaped(ranks[1])
		}},
		"two by a stranger, and what started them ends the others before he comes to them": {want: Others{Lived: 2, Asked: 2}, do: func(b *senderBench, job string) uint32 {
			ranks := b.job(job, "wait")
			for _, r := range ranks[:2] {
				b.kill(nil, "owner", r.pid(), unix.SIGTERM)
			}
			ranks[0].ends(b)
			b.terminate(ranks[2])
			return b.reaped(ranks[0])
		}},
		"two of many by a stranger, and what started them ends the others": {want: Others{Lived: 4, Asked: 1}, do: func(b *senderBench, job string) uint32 {
			few := b.job(job, "wait")
			ranks := append(few[:], b.rankOf(job, 3, "wait"), b.rankOf(job, 4, "wait"))
			for _, r := range ranks[:2] {
				b.kill(nil, "stranger", r.pid(), unix.SIGTERM)
			}
			ranks[0].ends(b)
			for _, r := range ranks[2:] {
				b.terminate(r)
			}
			return b.reaped(ranks[0])
		}},
		"all by what started them, one after the other": {want: Others{Lived: 2, Asked: 2}, do: func(b *senderBench, job string) uint32 {
			ranks := b.job(job, "wait")
			b.terminate(ranks[0])
			ranks[0].ends(b)
			for _, r := range ranks[1:] { // within a second of that end
				b.terminate(r)
			}
			return b.reaped(ranks[0])
		}},
		"all, and what started them hurries those that are still there": {want: Others{Lived: 2, Asked: 2}, do: func(b *senderBench, job string) uint32 {
			ranks := b.job(job, "wait")
			for _, r := range ranks[1:] { // they do not end before they are continued
				require.NoError(b, unix.Kill(int(r.pid()), unix.SIGSTOP))
			}
			for _, r := range ranks {
				b.kill(nil, "owner", r.pid(), unix.SIGINT)
			}
			ranks[0].ends(b)
			for _, r := range ranks[1:] {
				b.terminate(r)
			}
			return b.reaped(ranks[0])
		}},
		"the only one": {do: func(b *senderBench, job string) uint32 {
			r := b.rankOf(job, 1, "wait")
			b.kill(nil, "stranger", r.pid(), unix.SIGTERM)
			return b.reaped(r)
		}},
		"another signal": {do: func(b *senderBench, job string) uint32 {
			ranks := b.job(job, "wait")
			b.kill(nil, "stranger", ranks[1].pid(), unix.SIGKILL)
			return b.reaped(ranks[1])
		}},
	}
	// All at once: an end waits for others a second.
	for try := 0; len(causes) > 0; try++ {
		ended, pids := map[string]uint32{}, []uint32{}
		for name, tc := range causes {
			b := &senderBench{Tracker: tracker, TB: t, exits: exits}
			pid := tc.do(b, fmt.Sprint(strings.ReplaceAll(name, " ", "-"), "-", try))
			if try < 20 && b.took > asking/2 { // on a busy machine who asks all may take longer than the tracker waits for that
				continue
			}
			ended[name], pids = pid, append(pids, pid)
		}
		told := exitsOf(t, exits, pids...)
		for name, pid := range ended {
			t.Run(name, func(t *testing.T) { require.Equal(t, causes[name].want, told[pid].Others) })
			delete(causes, name)
		}
	}
}

func TestWhoAsksRanksOneByOneIsOneSender(t *testing.T) {
	sender := &Sender{PID: 90, ParentPID: 80, UserID: 1000}
	for name, tc := range map[string]struct {
		sent sent
		want bool
	}{
		"the same process":                     {sent{pid: 90, parentPID: 80, userID: 1000}, true},
		"another kill(1) of the same script":   {sent{pid: 91, parentPID: 80, userID: 1000}, true},
		"of the same parent, for another user": {sent{pid: 91, parentPID: 80, userID: 1001}, false},
		"somebody else":                        {sent{pid: 91, parentPID: 81, userID: 1000}, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, tc.sent.of(sender)) })
	}
	require.False(t, (&sent{pid: 91, parentPID: 1}).of(&Sender{PID: 90, ParentPID: 1}), "process 1 adopts anybody's children")
}

// ends waits until it has, with all its threads, and is still there to be waited for: a launcher
// learns of it by the same call.
func (c *child) ends(t testing.TB) {
	t.Helper()
	require.NoError(t, unix.Waitid(unix.P_PID, int(c.pid()), nil, unix.WEXITED|unix.WNOWAIT, nil))
}

// asked is the end of a rank by SIGTERM of a process that is not known.
func (s *scripted) asked(pid uint32, rank int) {
	s.exec(pid, 1, 0, 0, fmt.Sprint("RANK=", rank), "WORLD_SIZE=4096", "JOB_ID=job")
	kill := sent{signal: sigTERM, timeNS: s.ns(20), pid: 90, startNS: s.ns(1), comm: "kill"}
	s.script.events <- event{
		kind: kindExit, pid: pid, parentPID: 1, startNS: s.ns(0), timeNS: s.ns(20), comm: "python", status: sigTERM,
		signals: &signals{asked: asked{sent: kill, first: kill}},
	}
}

func TestEndsThatWaitForTheOthersAreBoundedAndNotLost(t *testing.T) {
	s := newScripted(t, Options{MaxProcesses: 8192}, nil)
	const more = 50
	for i := range maxAsked + more {
		s.asked(uint32(1000+i), i)
		if i%1000 == 999 {
			s.settle()
		}
	}
	s.settle()
	require.NoError(t, s.Close(), "it tells of what waits")
	require.Len(t, s.exits, maxAsked+more)
	for i := range maxAsked + more {
		require.Equal(t, i, (<-s.exits).Rank, "in order")
	}
}

// What dies because somebody ended a rank is told after that rank.
func TestEndsOfAJobAreToldInOrder(t *testing.T) {
	t.Parallel() // it waits for the tracker's timers
	s := newScripted(t, Options{}, func(tracker *Tracker, _ fakeProc, base uint64) {
		all := &scripted{Tracker: tracker, TB: t, script: tracker.source.(*script), base: base} // at once: an end waits for others a second
		all.exec(2000, 1, 0, 0, "RANK=1", "WORLD_SIZE=4096", "JOB_ID=job")
		all.exec(3000, 1, 0, 0, "RANK=0", "WORLD_SIZE=2", "JOB_ID=another")
		all.asked(1000, 0)
		all.exit(2000, 1, 0, 20.3, 1<<8)
		all.exit(3000, 1, 0, 20.4, 1<<8)
	})
	var order []uint32
	for range 3 {
		select {
		case e := <-s.exits:
			order = append(order, e.PID)
			if e.PID == 1000 {
				require.Equal(t, Others{Lived: 1}, e.Others)
			}
		case <-time.After(hosttest.Patience):
			require.FailNow(t, "an end is missing", "told: %v", order)
		}
	}
	require.Equal(t, []uint32{3000, 1000, 2000}, order, "another job does not wait")
}

// A terminal and an owner ask by several signals. What a crash or an end of a container sends asks nobody.
func TestWhichSignalsAskOneRank(t *testing.T) {
	for _, signal := range []int{sigHUP, sigINT, sigQUIT, sigUSR1, sigUSR2, sigTERM} {
		byOwner := Signal{Number: signal, Sender: Sender{Relation: RelationOther}}
		require.True(t, byOwner.asksOne(), signal)
		byScheduler := Signal{Number: signal, Sender: Sender{Relation: RelationScheduler}}
		require.False(t, byScheduler.asksOne(), signal)
		byTerminal := Signal{Number: signal, Sender: Sender{Relation: RelationKernel}}
		require.Equal(t, signal <= sigQUIT, byTerminal.asksOne(), signal)
	}
	for _, signal := range []unix.Signal{unix.SIGKILL, unix.SIGABRT, unix.SIGSEGV, unix.SIGXCPU} {
		for _, relation := range []Relation{RelationKernel, RelationOther, RelationItself} {
			s := Signal{Number: int(signal), Sender: Sender{Relation: relation}}
			require.False(t, s.asksOne(), signal)
		}
	}
}
