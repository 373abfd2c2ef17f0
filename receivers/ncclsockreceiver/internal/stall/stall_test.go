package stall

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// TestASnapshotThatComesAMomentEarlyIsInTime: a rest is counted from one snapshot to another. The one after three seconds, or
// after two of a rank that is stopped, may come some milliseconds early.
func TestASnapshotThatComesAMomentEarlyIsInTime(t *testing.T) {
	for state, seconds := range map[socketstall.State]int{socketstall.Stopped: 2, socketstall.Sleeping: 3} {
		w := newWorld(t, 4, Defaults())
		w.train(30)
		w.pass(time.Second)
		w.links[1].deliver(48, 900*time.Millisecond)
		w.ranks[2].State = state
		w.look()
		for second := 1; second < seconds; second++ {
			w.pass(time.Second)
			require.Empty(t, accusing(w.look()))
		}
		w.pass(time.Second - 20*time.Millisecond)
		require.Equal(t, []told{{2, socketstall.NotReading, socketstall.Receive, 1, ""}}, short(accusing(w.look())), state)
	}
}

// TestStoppedRankLeavesBytesUnread is the first way a rank stops: its ring
// predecessor's header stays unread, every other queue of the job is empty.
func TestStoppedRankLeavesBytesUnread(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(3) // the job has just begun: nothing of it is learned
	w.pass(time.Second)
	w.links[1].deliver(48, 900*time.Millisecond)
	w.ranks[2].State = socketstall.Stopped
	require.Empty(t, w.look())
	events, seconds := w.firstAfter(5)
	require.Equal(t, 2, seconds)
	require.Equal(t, []told{
		{2, socketstall.NotReading, socketstall.Receive, 1, ""},
	}, short(accusing(events)))
	culprit := accusing(events)[0]
	require.Equal(t, socketstall.Stopped, culprit.Rank.State)
	require.EqualValues(t, 48, culprit.Socket.ReceiveQueueBytes)
	require.Equal(t, 2900*time.Millisecond, culprit.Age)
	require.EqualValues(t, Unknown, culprit.Rank.UsualPhase)
	require.Contains(t, short(events), told{3, socketstall.Waiting, socketstall.Receive, 2, ""})
	require.Contains(t, short(events), told{0, socketstall.Waiting, socketstall.Receive, 3, ""})
	require.Contains(t, short(events), told{1, socketstall.Waiting, socketstall.Receive, 0, ""})
	require.NotContains(t, short(events), told{2, socketstall.Waiting, socketstall.Receive, 1, ""}, "it has what it waits for")
}

// TestSleepingMainThreadLeavesEveryQueueEmpty is the second way, with the ages
// that were measured on a real job: all that is left are the times of the last data.
func TestSleepingMainThreadLeavesEveryQueueEmpty(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	w.pass(time.Second)
	sent := []time.Duration{88, 96, 176, 120} // ms before this snapshot
	received := []time.Duration{88, 96, 116, 104}
	for r, l := range w.links {
		l.send(48, 0)
		l.out.LastSentAge, l.in.LastReceivedAge = sent[r]*time.Millisecond, received[(r+1)%4]*time.Millisecond
	}
	require.Empty(t, w.look())
	events, seconds := w.firstAfter(5)
	require.Equal(t, 3, seconds)
	require.Len(t, w.tracker.Silent(), 4)
	require.ElementsMatch(t, []told{
		{0, socketstall.Waiting, socketstall.Receive, 3, ""}, {1, socketstall.Waiting, socketstall.Receive, 0, ""}, {2, socketstall.Waiting, socketstall.Receive, 1, ""}, {3, socketstall.Waiting, socketstall.Receive, 2, ""},
		{0, socketstall.Waiting, socketstall.Send, 1, ""}, {1, socketstall.Waiting, socketstall.Send, 2, ""}, {2, socketstall.Waiting, socketstall.Send, 3, ""}, {3, socketstall.Waiting, socketstall.Send, 0, ""},
	}, short(events), "all ranks, in one snapshot")
	for _, e := range events {
		r := e.Process.Rank
		require.Equal(t, 3*time.Second+sent[r]*time.Millisecond, e.Rank.LastSentAge)
		require.Equal(t, 3*time.Second+received[r]*time.Millisecond, e.Rank.LastReceivedAge)
		require.Zero(t, e.Rank.CPUShare)
		require.Zero(t, e.Rank.UsualPhase, "no silence was as long as a snapshot")
		require.Equal(t, socketstall.Gloo, e.Kind)
	}
}

// TestWhoWaitsForAProcessOfNoRankIsTold: an engine that generates, or a parameter server, is asked by rank 0, and the other ranks
// wait for that one. It is told before anything is learned of the job, and it is no pause to learn.
func TestWhoWaitsForAProcessOfNoRankIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		asks func(w *world, s *ncclsock.Socket)
		told bool
	}{
		"asked last": {func(w *world, s *ncclsock.Socket) { s.LastSentAge = 20 * time.Millisecond }, true},
		"as late as a rank, as far as the clock tells": {func(w *world, s *ncclsock.Socket) { s.LastSentAge = 65 * time.Millisecond }, true},
		"before a rank": {func(w *world, s *ncclsock.Socket) { s.LastSentAge = 75 * time.Millisecond }, false},
		"never asked":   {func(w *world, s *ncclsock.Socket) { s.BytesSent, s.BytesAcked = 0, 0 }, false},
		"of a job of one rank": {func(w *world, s *ncclsock.Socket) {
			s.LastSentAge = 20 * time.Millisecond
			for _, p := range w.ranks {
				p.WorldSize = 1
			}
		}, false},
		"a rank of another node is": {func(w *world, s *ncclsock.Socket) {
			s.LastSentAge = 20 * time.Millisecond
			for _, p := range w.ranks {
				p.WorldSize = 5
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			engine := w.add(0, 900, "10.0.0.1:41000", "10.0.0.9:42000")
			engine.BytesSent, engine.BytesAcked = 4096, 4096
			w.train(3)
			w.pass(time.Second)
			for _, l := range w.links {
				l.send(48, 60*time.Millisecond)
			}
			tc.asks(w, engine)
			require.Empty(t, w.look())
			if !tc.told {
				require.Empty(t, w.idle(20))
				return
			}
			events, seconds := w.firstAfter(20)
			require.Equal(t, 3, seconds)
			require.Empty(t, accusing(events))
			require.Contains(t, short(events), told{0, socketstall.Waiting, socketstall.Send, Unknown, ""})
			require.Contains(t, short(events), told{1, socketstall.Waiting, socketstall.Receive, 0, ""})
			w.idle(20)
			for _, l := range w.links {
				l.send(48, 10*time.Millisecond)
			}
			w.look()
			w.train(30)
			require.Zero(t, w.tracker.phase(w.tracker.ranks[w.ranks[0].PID].job, 0, socketstall.Idle))
		})
	}
}

// TestForWhoseAnswerARankWaitsIsTold: it has asked a process of no rank since its job is silent, and sleeps for data.
func TestForWhoseAnswerARankWaitsIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		service func(s *ncclsock.Socket)
		inside  Inside
		awaits  bool
	}{
		"a request":                                   {func(*ncclsock.Socket) {}, Inside{Syscall: "poll"}, true},
		"a second one, the first answered":            {func(s *ncclsock.Socket) { s.LastReceivedAge = 2 * time.Second }, Inside{Syscall: "recvfrom"}, true},
		"it was answered":                             {func(s *ncclsock.Socket) { s.LastReceivedAge = 100 * time.Millisecond }, Inside{Syscall: "poll"}, false},
		"it did not arrive":                           {func(s *ncclsock.Socket) { s.UnackedBytes = 100 }, Inside{Syscall: "poll"}, false},
		"the answer stands unread":                    {func(s *ncclsock.Socket) { s.ReceiveQueueBytes = 10 }, Inside{Syscall: "poll"}, false},
		"long before":                                 {func(s *ncclsock.Socket) { s.LastSentAge = time.Minute }, Inside{Syscall: "poll"}, false},
		"a thread asks, the main thread waits for it": {func(*ncclsock.Socket) {}, Inside{Syscall: "futex"}, true},
		"it writes a file":                            {func(*ncclsock.Socket) {}, Inside{Syscall: "fsync"}, false},
		"who only logs there":                         {func(s *ncclsock.Socket) { s.BytesReceived, s.BytesRead = 0, 0 }, Inside{Syscall: "futex"}, false},
		"the first request of a connection":           {func(s *ncclsock.Socket) { s.BytesReceived, s.BytesRead, s.Age = 0, 0, 400*time.Millisecond }, Inside{Syscall: "poll"}, true},
		"it sleeps until a time comes":                {func(*ncclsock.Socket) {}, Inside{Syscall: "pselect6", Pauses: true}, false},
		"the connection has ended":                    {func(s *ncclsock.Socket) { s.State = ncclsock.Established + 7 }, Inside{Syscall: "poll"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			service := w.add(0, 900, "10.0.0.1:41000", "10.0.0.9:8000")
			w.train(12)
			w.pass(time.Second)
			for _, l := range w.links {
				l.send(48, 400*time.Millisecond)
			}
			service.BytesSent, service.BytesAcked, service.LastSentAge = 4096, 4096, 300*time.Millisecond
			service.BytesReceived, service.BytesRead, service.LastReceivedAge = 10, 10, 10*time.Second
			tc.service(service)
			w.inside[0] = tc.inside
			require.Empty(t, w.look())
			events, _ := w.firstAfter(8)
			for _, e := range events {
				require.Equal(t, tc.awaits && e.Process.Rank == 0, e.Rank.Awaits.IsValid())
				if e.Rank.Awaits.IsValid() {
					require.Equal(t, "10.0.0.9:8000", e.Rank.Awaits.String())
				}
			}
		})
	}
}

func TestStallIsRepeatedAndEnds(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	w.links[1].deliver(48, 0)
	w.ranks[2].State = socketstall.Stopped
	first := accusing(w.idle(4))
	require.Len(t, first, 1)
	var again []Event
	for len(again) == 0 {
		again = accusing(w.idle(1))
	}
	require.Equal(t, first[0].ID, again[0].ID)
	require.Equal(t, 10*time.Second, again[0].Time.Sub(first[0].Time))
	require.Equal(t, 10*time.Second, again[0].Age-first[0].Age)

	w.ranks[2].State = socketstall.Running
	w.pass(time.Second)
	w.links[1].read()
	ended := w.look()
	require.Contains(t, short(ended), told{2, socketstall.NotReading, socketstall.Receive, 1, socketstall.Progress})
	for _, e := range ended {
		require.Equal(t, socketstall.Progress, e.End)
		if e.Cause == socketstall.NotReading {
			require.Equal(t, first[0].ID, e.ID)
		}
	}
	require.Len(t, ended, 8, "and with it all that waited")
	require.Zero(t, w.tracker.Counters().Open)
	w.train(5)
}

// TestLateRankIsNotAccused: unread bytes and silence are what a rank
// that computes longer than its peers looks like.
func TestLateRankIsNotAccused(t *testing.T) {
	for name, tc := range map[string]struct {
		trained int
		phase   int // seconds that it is used to sleep, 0: less than one
		silent  int // seconds without anything
		cpu     time.Duration
		delayed time.Duration // waiting for a CPU, in each second
		accused bool
		waiting bool
		deliver bool // the others are ahead and have sent to rank 2
	}{
		"asleep, nothing learned yet":           {trained: 3, silent: 50, deliver: true},
		"asleep, within twice its phases":       {trained: 12, phase: 10, silent: 18, deliver: true},
		"asleep, beyond twice its phases":       {trained: 12, phase: 10, silent: 24, deliver: true, accused: true, waiting: true},
		"computing, far beyond its phases":      {trained: 12, silent: 500, cpu: time.Second, deliver: true},
		"computing, with a third of a CPU":      {trained: 12, silent: 500, cpu: 300 * time.Millisecond, delayed: 600 * time.Millisecond, deliver: true},
		"asleep, waking up on a full machine":   {trained: 12, phase: 10, silent: 24, cpu: 20 * time.Millisecond, delayed: 40 * time.Millisecond, deliver: true, accused: true, waiting: true},
		"computing, for longer than anybody":    {trained: 12, silent: 605, cpu: time.Second, deliver: true, accused: true, waiting: true},
		"all queues empty, in their phase":      {trained: 12, phase: 10, silent: 18},
		"all queues empty, beyond the phase":    {trained: 12, phase: 10, silent: 24, waiting: true},
		"all queues empty, all of them at work": {trained: 12, silent: 500, cpu: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			for range repeats {
				w.train(1)
				require.Empty(t, w.computeAll(tc.phase, 0, 0), "a pause to learn")
			}
			w.train(tc.trained)
			w.pass(100 * time.Millisecond)
			if tc.deliver {
				w.links[1].deliver(48, 50*time.Millisecond)
			}
			events := w.computeAll(tc.silent, tc.cpu, tc.delayed)
			require.Equal(t, tc.accused, len(accusing(events)) > 0, "%v", short(accusing(events)))
			require.Equal(t, tc.waiting, overdue(events), "%v", short(events[:min(len(events), 20)]))
			if tc.accused {
				require.Equal(t, told{2, socketstall.NotReading, socketstall.Receive, 1, ""}, short(accusing(events))[0])
			}
		})
	}
}

// overdue reports whether the ranks are said to wait in vain.
func overdue(events []Event) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return e.Cause == socketstall.Waiting && e.Rank.Silence == socketstall.Overdue })
}

// computeAll lets all main threads compute, with no data for n seconds, in each
// of which they have a CPU and wait for one for so long.
func (w *world) computeAll(n int, cpu, delayed time.Duration) []Event {
	var events []Event
	for range n {
		for _, p := range w.ranks {
			p.CPU, p.MainCPU, p.Delayed = p.CPU+cpu, p.MainCPU+cpu, p.Delayed+delayed
		}
		events = append(events, w.idle(1)...)
	}
	return events
}

func TestSenderSaysWhatIsBetween(t *testing.T) {
	stuck := func(w *world) *ncclsock.Socket {
		s := w.links[1].out
		s.BytesSent, s.UnackedBytes, s.LastSentAge = s.BytesSent+4096, 4096, 0
		return s
	}
	for name, tc := range map[string]struct {
		make  func(w *world)
		want  []told
		after int
	}{
		"retransmits without an answer": {func(w *world) { s := stuck(w); s.Backoff, s.Retransmits = 3, 3 }, []told{{1, socketstall.Network, socketstall.Send, 2, ""}}, 2},
		"one timeout is a lost tail":    {func(w *world) { stuck(w).Backoff = 1 }, nil, 0},
		"probes without an answer":      {func(w *world) { s := stuck(w); s.Backoff, s.Probing, s.SendWindowBytes = 4, true, 0 }, []told{{1, socketstall.Network, socketstall.Send, 2, ""}}, 2},
		"closed window, peer asleep": {func(w *world) {
			s := stuck(w)
			s.UnackedBytes, s.UnsentBytes, s.SendWindowBytes, s.Probing = 0, 4096, 0, true
		}, []told{{1, socketstall.PeerNotReading, socketstall.Send, 2, ""}}, 3},
		"closed window, peer stopped": {func(w *world) {
			s := stuck(w)
			s.UnsentBytes, s.UnackedBytes, s.SendWindowBytes = 4096, 0, 0
			w.ranks[2].State = socketstall.Stopped
		}, []told{{1, socketstall.PeerNotReading, socketstall.Send, 2, ""}}, 2},
		"full buffer that drops what comes": {func(w *world) {
			stuck(w).Backoff = 3
			w.links[1].in.LastReceivedAge = 0
			w.links[1].in.ReceiveQueueBytes, w.links[1].in.BytesReceived = 1<<20, w.links[1].in.BytesReceived+1<<20
			w.ranks[2].State = socketstall.Stopped
		}, []told{{1, socketstall.PeerNotReading, socketstall.Send, 2, ""}, {2, socketstall.NotReading, socketstall.Receive, 1, ""}}, 2},
		"peer that has died": {func(w *world) { w.remote[2] = true; stuck(w).Backoff = 3 }, []told{{1, socketstall.Network, socketstall.Send, 2, ""}}, 2},
		"peer on another node": {func(w *world) {
			w.remote[2] = true
			w.tracker = New(Defaults())
			w.train(12)
			stuck(w).Backoff = 3
		}, []told{{1, socketstall.Network, socketstall.Send, Unknown, ""}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(12)
			w.pass(time.Second)
			tc.make(w)
			require.Empty(t, w.look())
			if tc.want == nil {
				require.Empty(t, accusing(w.idle(20)))
				return
			}
			events, seconds := w.firstAfter(6)
			require.Equal(t, tc.after, seconds)
			require.Equal(t, tc.want, short(accusing(events)))
		})
	}
}

// TestAJobThatIsKilledAccusesNobody: between SIGKILL and their ends, ranks are zombies that
// still have sockets, of which some are full.
func TestAJobThatIsKilledAccusesNobody(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	w.pass(time.Second)
	out := w.links[0].out
	out.BytesSent, out.UnsentBytes, out.LastSentAge, out.SendWindowBytes = out.BytesSent+4096, 4096, 0, 0
	w.links[1].deliver(4096, 0)
	require.Empty(t, accusing(w.idle(2))) // what a job does whose ranks compute
	for _, r := range w.ranks {
		r.State, r.Ending = socketstall.Zombie, true
	}
	require.Empty(t, w.idle(1))
	w.remote[0], w.remote[3] = true, true
	require.Empty(t, accusing(w.idle(100)))
	w.remote[1], w.remote[2] = true, true
	require.Empty(t, accusing(w.idle(1)))
}

// TestARankThatDoesNotEndIsNamed: it was killed, and hangs in its own end, or its main thread
// alone has ended.
func TestARankThatDoesNotEndIsNamed(t *testing.T) {
	for name, ending := range map[string]bool{"in its end": true, "its main thread has ended": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(12)
			w.ranks[2].State, w.ranks[2].Ending = socketstall.Zombie, ending
			w.links[1].deliver(4096, 0)
			early := accusing(w.idle(8))
			require.Equal(t, ending, len(early) == 0, "%v", early)
			events := append(early, accusing(w.idle(120))...)
			require.NotEmpty(t, events)
			require.Equal(t, told{2, socketstall.NotReading, socketstall.Receive, 1, ""}, short(events)[0])
		})
	}
}

// TestTheDeathOfThePeerEndsNoStall: nothing has moved, also where another process is at the other end.
func TestTheDeathOfThePeerEndsNoStall(t *testing.T) {
	for name, far := range map[string]int{"who sent what is unread": 1, "who is to read": 2} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(12)
			w.pass(time.Second)
			w.links[1].deliver(4096, 0)
			out := w.links[1].out
			out.BytesSent, out.UnsentBytes, out.LastSentAge, out.SendWindowBytes = out.BytesSent+4096, 4096, 0, 0
			w.ranks[2].State = socketstall.Stopped
			first := accusing(w.idle(4))
			require.Equal(t, []told{{1, socketstall.PeerNotReading, socketstall.Send, 2, ""}, {2, socketstall.NotReading, socketstall.Receive, 1, ""}}, short(first))
			w.remote[far] = true
			for _, e := range w.idle(4) {
				if e.End != "" && e.Process.Rank != far {
					require.NotEqual(t, first[0].ID, e.ID)
					require.NotEqual(t, first[1].ID, e.ID)
				}
			}
		})
	}
}

// TestWhatIsInFlightAfterAStallIsNoNewOne: the network is back, and of what came
// through the peer has not read the last yet.
func TestWhatIsInFlightAfterAStallIsNoNewOne(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	out := w.links[1].out
	out.BytesSent, out.UnackedBytes, out.LastSentAge, out.Backoff = out.BytesSent+4096, 4096, 0, 3
	require.Equal(t, []told{{1, socketstall.Network, socketstall.Send, 2, ""}}, short(accusing(w.idle(4))))
	w.pass(time.Second)
	out.BytesAcked, out.UnackedBytes, out.LastSentAge, out.Backoff = out.BytesAcked+4096, 0, 0, 0
	w.links[1].deliver(48, 0)
	out.UnackedBytes, out.UnsentBytes, out.BytesAcked = 24, 24, out.BytesAcked-48
	ended := w.look()
	require.Empty(t, accusing(ended))
	require.Contains(t, short(ended), told{1, socketstall.Network, socketstall.Send, 2, socketstall.Progress})
}

func TestServicesAreReadInAnyPhase(t *testing.T) {
	for name, tc := range map[string]struct {
		local, remote string
		want          []socketstall.Kind
	}{
		"RAS":                      {"10.0.0.3:41000", "10.0.0.2:28028", []socketstall.Kind{socketstall.RAS}},
		"store":                    {"10.0.0.3:29500", "10.0.0.9:39000", []socketstall.Kind{socketstall.Store}},
		"a download's full buffer": {"10.0.0.3:41000", "10.9.9.9:443", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(3)
			s := w.add(2, 900, tc.local, tc.remote)
			w.train(1)
			w.pass(time.Second)
			s.BytesReceived, s.ReceiveQueueBytes, s.LastReceivedAge = 32, 32, 0
			require.Empty(t, w.look())
			events := w.computeAll(12, time.Second, 0)
			var kinds []socketstall.Kind
			for _, e := range accusing(events) {
				kinds = append(kinds, e.Kind)
				require.Equal(t, told{2, socketstall.NotReading, socketstall.Receive, Unknown, ""}, short([]Event{e})[0])
				require.Equal(t, 5*time.Second, e.Age)
			}
			require.Equal(t, tc.want, kinds)
		})
	}
}

// A store that looks up the names of its clients, while its job starts up, reads from one after the other.
func TestAStoreIsSlowWhileItsJobStartsUp(t *testing.T) {
	for name, tc := range map[string]struct {
		local, remote string
		serves        time.Duration // every so often it reads from another client; 0: never
		halted        bool
		want          time.Duration // age at which it is told; 0: never
	}{
		"names are looked up":              {"10.0.0.1:29500", "10.0.0.9:39000", 10 * time.Second, false, 0},
		"nothing is read":                  {"10.0.0.1:29500", "10.0.0.9:39000", 0, false, 30 * time.Second},
		"its process is stopped":           {"10.0.0.1:29500", "10.0.0.9:39000", 0, true, 2 * time.Second},
		"RAS does not look up names":       {"10.0.0.1:28028", "10.0.0.9:39000", 0, false, 5 * time.Second},
		"it stops after it has read a few": {"10.0.0.1:29500", "10.0.0.9:39000", -10 * time.Second, false, 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.links = nil // groups are not made yet
			other := w.add(0, 901, tc.local, "10.0.0.8:39000")
			other.BytesReceived, other.BytesRead, other.LastReceivedAge = 8, 8, 0
			s := w.add(0, 900, tc.local, tc.remote)
			require.Empty(t, w.look())
			w.pass(time.Second)
			s.BytesReceived, s.ReceiveQueueBytes, s.LastReceivedAge = 10, 10, 0
			if tc.halted {
				w.ranks[0].State = socketstall.Stopped
			}
			require.Empty(t, w.look())
			told := time.Duration(0)
			for age := time.Second; age <= 90*time.Second && told == 0; age += time.Second {
				w.pass(time.Second)
				if tc.serves > 0 && age%tc.serves == 0 || tc.serves < 0 && age == -tc.serves {
					other.BytesReceived, other.BytesRead, other.LastReceivedAge = other.BytesReceived+8, other.BytesRead+8, 0
				}
				if len(accusing(w.look())) > 0 {
					told = age
				}
			}
			require.Equal(t, tc.want, told)
		})
	}
}

func TestConnectionThatDoesNotComeAbout(t *testing.T) {
	w := newWorld(t, 2, Defaults())
	s := w.add(1, 900, "10.0.0.2:41000", "10.0.0.1:29500")
	s.State = ncclsock.SynSent
	w.train(1)
	events, seconds := w.firstAfter(6)
	require.Equal(t, 2, seconds, "its age was one at the first snapshot")
	require.Equal(t, []told{{1, socketstall.Connecting, socketstall.Send, Unknown, ""}}, short(events))
	require.Equal(t, socketstall.Store, events[0].Kind)
	s.State = ncclsock.Established
	require.Equal(t, []told{{1, socketstall.Connecting, socketstall.Send, Unknown, socketstall.Progress}}, short(w.idle(1)))
}

// TestSocketMetBeforeItHadItsPort: a socket that just began to connect is there
// without addresses. It is the same one later, and its peer knows it.
func TestSocketMetBeforeItHadItsPort(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	out := w.links[1].out
	local := out.Local
	out.State, out.Local, out.SendWindowBytes = ncclsock.SynSent, netip.AddrPortFrom(netip.IPv4Unspecified(), 0), 0
	require.Empty(t, w.look())
	out.State, out.Local, out.SendWindowBytes = ncclsock.Established, local, 65536
	stopReading(t, w)
	require.Len(t, w.tracker.sockets.pairs, 8, "nothing is left of what was met first")
}

// TestConnectionInPlaceOfAnother: the ports of a connection that is gone serve a
// new one before the old one is forgotten.
func TestConnectionInPlaceOfAnother(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(3)
	w.links[1].out.Cookie = 9001
	stopReading(t, w)
}

// stopReading stops rank 2 and expects that each end knows the other.
func stopReading(t *testing.T, w *world) {
	t.Helper()
	w.train(3)
	w.pass(time.Second)
	w.links[1].deliver(48, 900*time.Millisecond)
	w.ranks[2].State = socketstall.Stopped
	events, _ := w.firstAfter(5)
	require.Equal(t, []told{{2, socketstall.NotReading, socketstall.Receive, 1, ""}}, short(accusing(events)))
	require.Contains(t, short(events), told{1, socketstall.Waiting, socketstall.Receive, 0, ""})
	require.Equal(t, uint32(1001), w.tracker.sockets.byCookie[w.links[1].in.Cookie].peer.rank.now.PID)
	require.Equal(t, uint32(1002), w.tracker.sockets.byCookie[w.links[1].out.Cookie].peer.rank.now.PID)
}

func TestConnectionThatIsRefusedAgainAndAgain(t *testing.T) {
	w := newWorld(t, 2, Defaults())
	refuse := func(seconds int, remote string) (events []Event) {
		for range seconds {
			c := ncclsock.Change{PID: 1001, NetNS: 4001, Kind: ncclsock.StateChanged, Old: ncclsock.SynSent, New: ncclsock.Close, Error: 111}
			c.Local, c.Remote = w.add(1, 1, "10.0.0.2:41000", remote).Local, w.extra[len(w.extra)-1].Remote
			w.extra = nil
			w.tracker.Note(&c)
			events = append(events, w.idle(1)...)
		}
		return events
	}
	require.Empty(t, w.look()) // a change is told of processes that a snapshot had
	require.Empty(t, refuse(2, "10.0.0.1:29500"))
	events := refuse(1, "10.0.0.1:29500")
	require.Equal(t, []told{{1, socketstall.Connecting, socketstall.Send, Unknown, ""}}, short(events))
	require.EqualValues(t, 111, events[0].Errno)
	require.Equal(t, []told{{1, socketstall.Connecting, socketstall.Send, Unknown, socketstall.Progress}}, short(w.idle(6)))
	require.Empty(t, refuse(6, "10.9.9.9:443"), "an object store is nobody's peer")
	for i := range 2 * maxRefusals {
		w.tracker.Note(&ncclsock.Change{PID: 1000, NetNS: uint64(i), Old: ncclsock.SynSent, Error: 111})
	}
	require.Len(t, w.tracker.refused.of, maxRefusals)
	require.NotZero(t, w.tracker.Counters().ChangesDropped)
}

func TestTimeInWhichNobodyLookedAgesNobody(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	w.links[1].deliver(48, 0)
	w.pass(time.Hour) // suspended
	require.Empty(t, w.look())
	w.pass(-time.Minute) // a clock set back
	require.Empty(t, w.look())
}

func TestStallEndsWithItsSocketOrProcess(t *testing.T) {
	stall := func(t *testing.T) *world {
		w := newWorld(t, 4, Defaults())
		w.train(12)
		w.links[1].deliver(48, 0)
		w.ranks[2].State = socketstall.Stopped
		require.Len(t, accusing(w.idle(5)), 1)
		return w
	}
	culprit := func(events []Event) (reasons []socketstall.EndReason) {
		for _, e := range events {
			if e.Process.Rank == 2 && e.Cause == socketstall.NotReading {
				reasons = append(reasons, e.End)
			}
		}
		return reasons
	}
	t.Run("exited", func(t *testing.T) {
		w := stall(t)
		w.remote[2] = true
		require.Equal(t, []socketstall.EndReason{socketstall.Exited}, culprit(w.idle(2)))
	})
	t.Run("closed", func(t *testing.T) {
		w := stall(t)
		w.tracker.Note(&ncclsock.Change{Cookie: w.links[1].in.Cookie, Error: 104})
		w.links = append(w.links[:1], w.links[2:]...)
		events := w.idle(1)
		require.Empty(t, culprit(events), "one snapshot without it may be one that could not read")
		events = w.idle(1)
		require.Equal(t, []socketstall.EndReason{socketstall.Closed}, culprit(events))
		for _, e := range events {
			if e.Process.Rank == 2 && e.Cause == socketstall.NotReading {
				require.EqualValues(t, 104, e.Errno)
			}
		}
	})
	t.Run("pid reused", func(t *testing.T) {
		w := stall(t)
		w.ranks[2].StartTime = w.at
		w.ranks[2].State = socketstall.Running
		require.Equal(t, []socketstall.EndReason{socketstall.Exited}, culprit(w.idle(1)))
	})
}

func TestStripeIsOneStall(t *testing.T) {
	w := newWorld(t, 2, Defaults())
	w.links = w.links[:1]
	for i := range 15 { // as on AWS: 16 sockets to the port where the peer listens
		w.links = append(w.links, w.connect(0, 1, uint64(200+2*i), uint16(41000+i), 50000))
	}
	for _, remote := range []int{1, 0} { // seen from the sender's node, then from the receiver's
		w.remote = map[int]bool{remote: true}
		w.tracker = New(Defaults())
		w.train(12)
		events := w.idle(3)
		require.Len(t, events, 1)
		require.Equal(t, 16, events[0].Count)
		ports := [2]uint16{events[0].Socket.Local.Port(), events[0].Socket.Remote.Port()}
		require.Contains(t, [][2]uint16{{40000, 50000}, {50000, 40000}}, ports, "both nodes name the same socket")
	}
}

func TestNothingGrowsWithoutBound(t *testing.T) {
	o := Defaults()
	o.MaxSockets, o.MaxStalls, o.MaxPeers = 6, 1, 2
	w := newWorld(t, 8, o)
	w.train(12)
	w.idle(5)
	c := w.tracker.Counters()
	require.Equal(t, Counters{
		Sockets: 6, Ranks: 8, Jobs: 1, Open: 1, SocketsSkipped: c.SocketsSkipped, StallsDropped: c.StallsDropped, PeersFolded: c.PeersFolded,
	}, c)
	require.NotZero(t, c.SocketsSkipped)
	require.NotZero(t, c.StallsDropped)
	require.NotZero(t, c.PeersFolded)

	w.links, w.ranks = nil, nil
	w.idle(3)
	require.Empty(t, w.tracker.sockets.byCookie)
	require.Empty(t, w.tracker.sockets.pairs)
	require.Empty(t, w.tracker.sockets.ports)
	require.Empty(t, w.tracker.ranks)
	require.Empty(t, w.tracker.open)
	for range 3700 {
		w.idle(1)
	}
	require.Empty(t, w.tracker.jobs.of)
	w.tracker.Traffic(func(s *Series) { require.Fail(t, "left over", "%v", s) })
}

func TestTrafficOfAJobByPeer(t *testing.T) {
	w := newWorld(t, 2, Defaults())
	w.train(3)
	w.links[0].out.Retransmits = 7
	w.train(10)
	w.links[0].deliver(48, 0)
	w.ranks[1].State = socketstall.Stopped
	w.idle(6)
	got := map[string]*Series{}
	w.tracker.Traffic(func(s *Series) { got[s.Peer.String()] = s })
	require.Len(t, got, 2)
	require.EqualValues(t, 12<<20+48, got["10.0.0.2"].SentBytes, "what moved before the first snapshot does not count")
	require.EqualValues(t, 7, got["10.0.0.2"].Retransmits)
	require.EqualValues(t, 12<<20, got["10.0.0.2"].ReceivedBytes)
	require.Equal(t, 5*time.Second, got["10.0.0.1"].Stalled[socketstall.NotReading])
}

// What a rank moves is counted by the address of its machine that it goes over.
func TestLinesOfARank(t *testing.T) {
	w := newWorld(t, 2, Defaults())
	w.train(13)
	got := map[string]Line{}
	w.tracker.Lines(func(of *Process, local netip.Addr, moved Line) { got[fmt.Sprint(of.Rank, " ", local)] = moved })
	require.Equal(t, map[string]Line{"0 10.0.0.1": {12 << 20, 12 << 20}, "1 10.0.0.2": {12 << 20, 12 << 20}}, got)

	r := &rank{}
	for n := range 2 * mostLines {
		s := socket{met: 1, round: 2, change: change{sent: 1}}
		s.now.Local = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 1)
		r.carry(&s)
		s.now.Local = netip.MustParseAddrPort("127.0.0.1:1")
		r.carry(&s)
	}
	require.Len(t, r.lines, mostLines, "bounded, and without loopback")
}

// Whose stall it is that a series counts is told once, of the one that lasts longest.
func TestTheLongestStallOfASeries(t *testing.T) {
	w := newWorld(t, 2, Defaults())
	w.train(13)
	w.links[0].deliver(48, 0)
	w.ranks[1].State = socketstall.Stopped
	longest := func() (all []Standing) {
		w.tracker.Traffic(func(s *Series) {
			if one, stands := s.Longest[socketstall.NotReading]; stands {
				all = append(all, one)
			}
		})
		return all
	}
	require.Empty(t, longest())
	w.idle(6)
	told := longest()
	require.Len(t, told, 1)
	require.Equal(t, 1, told[0].Process.Rank)
	require.GreaterOrEqual(t, told[0].Age, 5*time.Second)
	require.Empty(t, longest(), "it was told")
	w.idle(1)
	again := longest()
	require.Len(t, again, 1)
	require.Greater(t, again[0].Age, told[0].Age)

	var s Series
	for _, e := range []Event{
		{Process: identity.Process{Rank: 5}, Age: 2}, {Process: identity.Process{Rank: 3}, Age: 2}, {Process: identity.Process{Rank: 4}, Age: 2}, {Process: identity.Process{Rank: 1}, Age: 1},
	} {
		s.meet(&e)
	}
	require.Equal(t, 3, s.Longest[""].Process.Rank)
}

// A process takes part in its job once data of collectives has moved, or it has connections of a communicator.
// A connection to the store or to a server is none of these.
func TestWhoTakesPartInAJobIsToldOnce(t *testing.T) {
	w := newWorld(t, 3, Defaults())
	joined := func() (ranks []int) {
		w.pass(time.Second)
		w.look()
		for _, p := range w.tracker.Joined() {
			ranks = append(ranks, p.Rank)
		}
		slices.Sort(ranks)
		return ranks
	}
	w.add(2, 900, "10.0.0.3:41000", "10.0.0.1:29500")
	w.add(2, 901, "10.0.0.3:41001", "10.9.0.1:443")
	require.Empty(t, joined())
	w.links[0].send(100, 0)
	require.Equal(t, []int{0, 1}, joined())
	w.links[0].send(100, 0)
	require.Empty(t, joined())
	proxy := w.add(2, 902, "10.0.0.3:41002", "10.0.0.1:41003")
	proxy.Handshake = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, magicNCCL), typeProxy)
	require.Equal(t, []int{2}, joined())
}

// The last stage of a pipeline that runs one way sent once, long ago. It owes nothing, and when it sent is not told; nor by
// the next tracker. Once it sends again it is as any other.
func TestARankThatOnlyReceivesOwesNothing(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(2)
	step := func(takes bool) {
		w.pass(time.Second)
		for i, l := range w.links {
			if i != 3 || !takes {
				l.send(1<<20, 10*time.Millisecond)
			}
		}
		require.Empty(t, w.look())
	}
	last := func() *rank { return w.tracker.ranks[w.ranks[3].PID] }
	for range takesOnly - 1 {
		step(true)
	}
	require.True(t, last().owes(), "it may answer yet")
	step(true)
	require.False(t, last().owes())
	m, _ := w.tracker.Memory(&w.ranks[3].Process)
	require.True(t, m.Takes)

	next := New(Defaults())
	next.Recall(map[identity.Born]Memory{w.ranks[3].Born(): m}, w.at)
	w.tracker = next
	w.pass(time.Second)
	w.look()
	require.False(t, last().owes())
	events, _ := w.firstAfter(90)
	told := false
	for _, e := range events {
		if e.Process.Rank == 3 {
			told = true
			require.Negative(t, e.Rank.LastSentAge)
			require.GreaterOrEqual(t, e.Rank.LastReceivedAge, time.Duration(0))
		} else {
			require.GreaterOrEqual(t, e.Rank.LastSentAge, time.Duration(0))
		}
		require.Equal(t, 10*time.Millisecond, e.Rank.Tick)
	}
	require.True(t, told)
	w.pass(time.Second)
	w.links[3].send(1<<20, 10*time.Millisecond)
	w.look()
	require.False(t, last().onlyTakes())
}
