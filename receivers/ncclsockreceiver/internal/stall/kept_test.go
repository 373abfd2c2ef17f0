package stall

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
)

// newWatched is a world whose ranks begin under watch, and train.
func newWatched(t *testing.T, size int) *world {
	w := newWorld(t, size, Defaults())
	for r := range size {
		w.remote[r] = true
	}
	w.idle(1)
	w.pass(3 * time.Second)
	for _, p := range w.ranks {
		p.StartTime = w.at
	}
	clear(w.remote)
	w.train(12)
	return w
}

// fails ends a rank by a status. Snapshots lack it from then on.
func (w *world) fails(rank int) {
	w.remote[rank] = true
	w.tracker.Ended(&identity.Exit{Process: w.ranks[rank].Process, Time: w.at, Code: 4})
}

// kept are the ranks of which it is told that they had lost no connection.
func (w *world) kept() (ranks []int) {
	for _, k := range w.tracker.Kept() {
		ranks = append(ranks, k.Process.Rank)
	}
	return ranks
}

// later is what is told in n more snapshots.
func (w *world) later(n int) (ranks []int) {
	for range n {
		w.whoLeft(1)
		ranks = append(ranks, w.kept()...)
	}
	return ranks
}

// Ends of processes and of connections come to the tracker by two ways, and between snapshots or not. Each is told at once, and once.
func TestWhoFailsFirstHasKeptItsConnections(t *testing.T) {
	for name, fail := range map[string]func(w *world){
		"it closes them because it ends": func(w *world) { w.fails(2); require.Empty(t, w.kept()); w.closes(2) },
		"it closes them before":          func(w *world) { w.closes(2); w.fails(2) },
		"a snapshot lacks it before they are closed": func(w *world) {
			w.fails(2)
			require.Empty(t, w.later(3))
			w.closes(2)
		},
		"a snapshot lacks it before its end is heard": func(w *world) {
			w.closes(2)
			w.remote[2] = true
			require.Empty(t, w.later(2))
			w.fails(2)
		},
		"it throws unread data away": func(w *world) {
			w.fails(2)
			for own, far := range w.ends(2) {
				w.changes(own, ncclsock.Close, 0)
				w.changes(far, ncclsock.Close, syscall.ECONNRESET)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, 4)
			fail(w)
			require.Equal(t, []int{2}, w.kept())
			require.Empty(t, w.later(20))
			w.fails(2)
			require.Empty(t, w.kept())
			require.Empty(t, w.tracker.partings.of)
			require.Empty(t, w.tracker.sockets.lately.of)
		})
	}
}

// Who loses a peer and dies milliseconds later has not kept its connections, in whichever order ends are heard.
func TestWhoDiesOfALossHasNotKeptItsConnections(t *testing.T) {
	w := newWatched(t, 4)
	at := w.at
	w.closes(2)
	w.at = at.Add(5 * time.Millisecond)
	w.closes(1)
	w.closes(3)
	w.fails(1)
	w.fails(3)
	w.at = at.Add(10 * time.Millisecond)
	w.closes(0)
	w.fails(0)
	require.Empty(t, w.kept())
	w.at = at
	w.fails(2)
	require.Equal(t, []int{2}, w.kept())
	require.Empty(t, w.later(10))
}

func TestWhatWasLostWasNotKept(t *testing.T) {
	for name, lose := range map[string]func(w *world, own *ncclsock.Socket){
		"the far end closed": func(w *world, own *ncclsock.Socket) { w.changes(own, ncclsock.CloseWait, 0) },
		"it was reset":       func(w *world, own *ncclsock.Socket) { w.changes(own, ncclsock.Close, syscall.ECONNRESET); w.gone(own) },
		"it was killed": func(w *world, own *ncclsock.Socket) {
			w.changes(own, ncclsock.Close, syscall.ECONNABORTED)
			w.gone(own)
		},
		"that was not heard":         func(w *world, own *ncclsock.Socket) { own.State = ncclsock.CloseWait },
		"a snapshot alone showed it": func(w *world, own *ncclsock.Socket) { own.State = ncclsock.CloseWait; w.idle(1) },
		"nobody heard how it ended":  func(w *world, own *ncclsock.Socket) { w.gone(own); w.idle(30); own.State = ncclsock.Close },
		"that is about to be heard":  func(w *world, own *ncclsock.Socket) { w.gone(own); w.idle(3); own.State = ncclsock.Close },
		"four minutes ago": func(w *world, own *ncclsock.Socket) {
			w.changes(own, ncclsock.Close, syscall.ECONNRESET)
			w.gone(own)
			w.idle(240)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, 4)
			lose(w, w.links[2].out)
			w.closes(2)
			w.fails(2)
			require.Empty(t, w.kept())
			require.Empty(t, w.later(20))
		})
	}
}

// What was lost long ago is not why a rank dies.
func TestWhatWasLostLongAgoDoesNotCount(t *testing.T) {
	w := newWatched(t, 4)
	beside := w.add(2, 900, "10.0.0.3:41000", "10.0.9.9:50000")
	w.train(1)
	w.changes(beside, ncclsock.Close, syscall.ECONNRESET)
	w.extra = nil
	w.train(310)
	w.fails(2)
	w.closes(2)
	require.Equal(t, []int{2}, w.kept())
}

// A receiver that begins when the job runs has not seen what a rank lost before; nor one that was blind for a time, or had no room.
func TestWhatWasNotSeenIsNotClaimed(t *testing.T) {
	for name, blind := range map[string]func(w *world){
		"it began later": func(w *world) { w.tracker = New(Defaults()); w.train(12) },
		"it was blind":   func(w *world) { w.tracker.Missed(); w.train(2) },
		"it had no room": func(w *world) { w.partial = true; w.train(1); w.partial = false; w.train(1) },
		"sockets too many": func(w *world) {
			w.tracker.sockets.most = 7
			w.add(0, 900, "10.0.0.1:41000", "10.9.9.9:443")
			w.train(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, 4)
			blind(w)
			w.fails(2)
			w.closes(2)
			require.Empty(t, append(w.kept(), w.later(9)...))
		})
		if name == "sockets too many" {
			continue
		}
		t.Run(name+", long ago", func(t *testing.T) {
			w := newWatched(t, 4)
			blind(w)
			w.train(310)
			w.fails(2)
			w.closes(2)
			require.Equal(t, []int{2}, w.kept())
		})
	}
}

// Of several groups each counts: who gives one up itself has lost nothing, who loses one dies of that.
func TestOfSeveralGroupsNoneMayBeLost(t *testing.T) {
	second := func(w *world) []*link {
		for r := range 4 {
			w.links = append(w.links, w.connect(r, (r+1)%4, uint64(300+2*r), 41000, 51000))
		}
		w.train(12)
		return w.links[4:]
	}
	w := newWatched(t, 4)
	for _, l := range second(w) {
		if w.rankOf(l.out) == 2 { // rank 2 gives up the second group, rank 3 keeps its end
			w.changes(l.out, ncclsock.FinWait1, 0)
			w.changes(l.in, ncclsock.CloseWait, 0)
			w.gone(l.out)
		}
	}
	w.train(5)
	w.fails(2)
	w.closes(2)
	require.Equal(t, []int{2}, w.kept())
	w.closes(3)
	w.fails(3)
	require.Empty(t, append(w.kept(), w.later(9)...))

	w = newWatched(t, 4) // it gives one up, a second later another rank dies, and it dies of that
	for _, l := range second(w) {
		w.changes(l.out, ncclsock.FinWait1, 0)
		w.changes(l.in, ncclsock.FinWait1, 0)
		w.gone(l.out)
		w.gone(l.in)
	}
	w.train(1)
	w.closes(1)
	w.closes(2)
	w.fails(2)
	require.Empty(t, append(w.kept(), w.later(9)...))
}

// A worker that a rank has started may hold its connections for some time after its end: nobody loses them meanwhile.
func TestAWorkerHoldsTheConnectionsOfARankThatFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		after func(w *world, held *ncclsock.Socket)
		want  []int
	}{
		"they stand":          {func(*world, *ncclsock.Socket) {}, []int{2}},
		"one is lost by then": {func(_ *world, held *ncclsock.Socket) { held.State = ncclsock.CloseWait }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, 4)
			worker := *w.ranks[2]
			worker.PID, worker.StartNS, worker.Inherited = 1004, 99, true
			w.ranks = append(w.ranks, &worker)
			w.train(2)
			w.fails(2)
			require.Empty(t, w.kept())
			var one *ncclsock.Socket
			for own := range w.ends(2) {
				one = own
			}
			for own := range w.ends(2) {
				own.PID = worker.PID
			}
			tc.after(w, one)
			require.Equal(t, tc.want, w.later(1))
			require.Empty(t, w.later(9))
		})
	}
}

// Who has the connections of a living process now may lose them unseen by it.
func TestConnectionsThatWereGivenAwayAreNotKept(t *testing.T) {
	w := newWatched(t, 4)
	worker := *w.ranks[2]
	worker.PID, worker.StartNS, worker.Inherited = 1004, 99, true
	w.ranks = append(w.ranks, &worker)
	w.links[2].out.PID = worker.PID
	w.train(2)
	w.fails(2)
	w.closes(2)
	require.Empty(t, append(w.kept(), w.later(9)...))
}

// Strangers who connect and go make nobody the first. What a rank has to others than its job, and its own two ends of a
// connection, say nothing.
func TestStrangersAndOwnConnections(t *testing.T) {
	for name, tc := range map[string]struct {
		local, remote string
		want          []int
	}{
		"a stranger at a port of the job": {"10.0.0.3:41000", "10.9.9.9:50000", nil},
		"a server of others":              {"10.0.0.3:41000", "10.9.9.9:443", []int{2}},
		"a client of the store":           {"10.0.0.3:41000", "10.0.0.1:29500", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, 4)
			beside := w.add(2, 900, tc.local, tc.remote)
			w.train(2)
			w.changes(beside, ncclsock.CloseWait, 0)
			w.fails(2)
			w.closes(2)
			require.Equal(t, tc.want, append(w.kept(), w.later(3)...))
		})
	}
	w := newWatched(t, 4)
	one, other := w.add(2, 900, "10.0.0.3:41000", "10.0.0.3:51000"), w.add(2, 901, "10.0.0.3:51000", "10.0.0.3:41000")
	w.train(2)
	w.fails(2)
	w.changes(one, ncclsock.FinWait1, 0)
	w.changes(other, ncclsock.CloseWait, 0)
	w.closes(2)
	require.Equal(t, []int{2}, w.kept())
}

// In a ring a rank may know by its store, or by its launcher, that others lost a rank which is no neighbour of its own.
func TestWhereAnotherRankLeftNobodyIsTheFirst(t *testing.T) {
	w := newWatched(t, 4)
	w.closes(0)
	w.pass(100 * time.Millisecond)
	w.fails(2)
	w.closes(2)
	require.Empty(t, append(w.kept(), w.later(9)...))
}

// Who ends well, has no connections, or had closed them long before is not told.
func TestOfWhomNothingIsToldAtTheEnd(t *testing.T) {
	w := newWatched(t, 4)
	w.remote[2] = true
	w.tracker.Ended(&identity.Exit{Process: w.ranks[2].Process, Time: w.at})
	w.closes(2)
	require.Empty(t, append(w.kept(), w.later(9)...))

	w = newWatched(t, 4)
	w.closes(2)
	w.idle(5)
	w.fails(2)
	require.Empty(t, append(w.kept(), w.later(9)...))

	w = newWatched(t, 4)
	w.links = nil
	w.idle(30)
	w.fails(2)
	require.Empty(t, append(w.kept(), w.later(9)...))
}
