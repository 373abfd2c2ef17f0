package stall

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

var launcherAsks = identity.Sender{Relation: identity.RelationLauncher}

// exits ends a rank. Snapshots lack it from then on.
func (w *world) exits(rank int, change func(*identity.Exit)) {
	e := identity.Exit{Process: w.ranks[rank].Process, Time: w.at}
	change(&e)
	w.remote[rank] = true
	w.tracker.Ended(&e)
}

func well(*identity.Exit)       {}
func byStatus(e *identity.Exit) { e.Code = 1 }
func byItsAbort(e *identity.Exit) {
	e.Signal, e.Signalled = 6, identity.Signal{Number: 6, Time: e.Time, Sender: identity.Sender{Relation: identity.RelationItself}}
}
func bySegv(e *identity.Exit) {
	e.Signal, e.Signalled = 11, identity.Signal{Number: 11, Time: e.Time, Sender: identity.Sender{Relation: identity.RelationKernel}}
}
func byTheLauncher(e *identity.Exit) {
	e.Signal, e.Signalled = 15, identity.Signal{Number: 15, Time: e.Time.Add(-100 * time.Millisecond), Sender: launcherAsks}
}

// failures are what was told of ranks that failed, in short: "0 lost 2 closed", "2 ended, of 0".
func (w *world) failures() (all []string) {
	lost, cut := w.tracker.Lost()
	for _, l := range lost {
		peer := "?"
		if l.Peer != nil {
			peer = fmt.Sprint(l.Peer.Rank)
		}
		all = append(all, fmt.Sprintf("%d lost %s %s", l.Process.Rank, peer, l.How))
	}
	for _, c := range cut {
		all = append(all, fmt.Sprintf("%d %s, of %d", c.Process.Rank, c.End, c.Victim.Rank))
	}
	return all
}

// then is what is told in n more snapshots, in which nothing moves.
func (w *world) then(n int) (all []string) {
	for range n {
		w.idle(1)
		all = append(all, w.failures()...)
	}
	return all
}

// after lets some time pass in which no snapshot is taken.
func (w *world) after(d time.Duration) { w.at = w.at.Add(d) }

// second makes a second group of all ranks.
func (w *world) second() []*link {
	size := len(w.ranks)
	for r := range size {
		w.links = append(w.links, w.connect(r, (r+1)%size, uint64(300+2*r), 41000, 51000))
	}
	w.train(12)
	return w.links[size:]
}

// gives has a rank close its connections of some links, those that stand.
func (w *world) gives(rank int, links []*link) {
	for _, l := range links {
		own, far := l.out, l.in
		if w.rankOf(far) == rank {
			own, far = far, own
		}
		if w.rankOf(own) == rank && own.State == ncclsock.Established {
			w.changes(own, ncclsock.FinWait1, 0)
			w.changes(far, ncclsock.CloseWait, 0)
			w.gone(own)
		}
	}
}

// A rank ends with status 0 in the middle. Another loses it and dies, and the launcher ends the third.
func TestWhoEndsWellIsLostByWhoDiesOfIt(t *testing.T) {
	for name, die := range map[string]func(*identity.Exit){"by a status": byStatus, "by its watchdog": byItsAbort} {
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", its peer ends slowly: ", slow), func(t *testing.T) {
				w := newWatched(t, 3)
				at := w.at
				w.closes(1)
				w.after(20 * time.Millisecond)
				if !slow {
					w.exits(1, well)
				}
				w.after(400 * time.Millisecond)
				w.closes(0)
				w.exits(0, die)
				if slow {
					require.Equal(t, []string{"0 lost 1 closed"}, w.failures(), "what becomes of rank 1 is not known yet")
					w.exits(1, well)
					require.Equal(t, []string{"1 ended, of 0"}, w.failures())
				} else {
					lost, cut := w.tracker.Lost()
					require.Len(t, lost, 1)
					require.Len(t, cut, 1)
					require.Equal(t, at, lost[0].At)
					require.Equal(t, at, cut[0].Time)
					require.Equal(t, socketstall.CutEnded, cut[0].End)
				}
				w.exits(2, byTheLauncher)
				w.closes(2)
				require.Empty(t, w.then(20))
				require.Empty(t, w.kept())
			})
		}
	}
}

// A rank gives up one of its groups, and lives on with the other. Who loses it dies.
func TestWhoGivesUpAGroupThatOthersUse(t *testing.T) {
	for name, tc := range map[string]struct {
		next func(w *world)
		want []string
	}{
		"it lives on":               {func(*world) {}, []string{"2 lives, of 0"}},
		"the launcher ends it":      {func(w *world) { w.after(600 * time.Millisecond); w.closes(2); w.exits(2, byTheLauncher) }, []string{"2 lives, of 0"}},
		"it dies of what it caused": {func(w *world) { w.after(300 * time.Millisecond); w.closes(2); w.exits(2, byStatus) }, []string{"2 lives, of 0"}},
		"it ends well":              {func(w *world) { w.after(300 * time.Millisecond); w.closes(2); w.exits(2, well) }, []string{"2 ended, of 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, 3)
			w.gives(2, w.second())
			w.after(300 * time.Millisecond)
			w.closes(0)
			w.exits(0, byStatus)
			require.Equal(t, []string{"0 lost 2 closed"}, w.failures())
			tc.next(w)
			require.Equal(t, tc.want, append(w.failures(), w.then(20)...))
		})
	}
}

// Who has closed all of its connections, and lives, is told as one that left, and not twice.
func TestWhoLeftIsToldOnce(t *testing.T) {
	w := newWatched(t, 3)
	w.closes(2)
	w.after(300 * time.Millisecond)
	w.closes(0)
	w.exits(0, byStatus)
	require.Equal(t, []string{"0 lost 2 closed"}, w.failures())
	require.Equal(t, []string{"2 first"}, shortLeft(w.whoLeft(20)))
	require.Empty(t, w.failures())
}

// A rank closes its connections because it lost one. The first of the chain is told.
func TestAChainLeadsToTheFirst(t *testing.T) {
	w := newWatched(t, 5)
	w.gives(0, w.links[:1]) // to rank 1 alone, as where the others are told later
	w.exits(0, well)
	w.after(50 * time.Millisecond)
	w.gives(1, w.links[:2])
	w.after(50 * time.Millisecond)
	w.gives(2, w.links[:3])
	w.after(300 * time.Millisecond)
	w.exits(3, byStatus)
	require.Equal(t, []string{"3 lost 2 closed", "0 ended, of 3"}, w.failures())
	require.Empty(t, w.then(20))
}

// What is between the ranks resets all. Nobody closed anything.
func TestWhereARouterResetsNobodyClosedFirst(t *testing.T) {
	w := newWatched(t, 4)
	for _, l := range w.links {
		w.changes(l.out, ncclsock.Close, syscall.ECONNRESET)
		w.changes(l.in, ncclsock.Close, syscall.ECONNRESET)
		w.gone(l.out)
		w.gone(l.in)
	}
	w.after(300 * time.Millisecond)
	w.exits(0, byStatus)
	w.after(300 * time.Millisecond)
	w.exits(1, well)
	require.Equal(t, []string{"0 lost 1 reset"}, sorted(w.failures(), "0 lost 3 reset", "0 lost 1 reset"))
	require.Empty(t, w.then(20))
}

// sorted has one text for another: links have no order.
func sorted(all []string, one, as string) []string {
	for i := range all {
		if all[i] == one {
			all[i] = as
		}
	}
	return all
}

// A process that throws unread data away resets its connection: that is its own doing.
func TestWhoResetsAConnectionClosedItFirst(t *testing.T) {
	w := newWatched(t, 3)
	for own, far := range w.ends(1) {
		w.changes(own, ncclsock.Close, 0)
		w.changes(far, ncclsock.Close, syscall.ECONNRESET)
		w.gone(own)
	}
	w.exits(1, well)
	w.after(300 * time.Millisecond)
	w.exits(0, byStatus)
	require.Equal(t, []string{"0 lost 1 reset", "1 ended, of 0"}, w.failures())
}

// Of these nobody is told to have closed first: somebody ended the first, it failed itself, it had lost one before, or nobody saw.
func TestWhoIsNotToldToHaveClosedFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(w *world)
		end    func(*identity.Exit)
	}{
		"a launcher ended it": {end: byTheLauncher},
		"asked, it ended well": {end: func(e *identity.Exit) {
			e.Signalled = identity.Signal{Number: 15, Time: e.Time.Add(-time.Second), Sender: launcherAsks}
		}},
		"it was killed": {end: func(e *identity.Exit) {
			e.Signal, e.Signalled = 9, identity.Signal{Number: 9, Time: e.Time, Sender: identity.Sender{Relation: identity.RelationOther}}
		}},
		"it failed":            {end: byStatus},
		"it crashed":           {end: bySegv},
		"it had lost one":      {before: func(w *world) { w.changes(w.links[3].out, ncclsock.Close, syscall.ETIMEDOUT) }, end: well},
		"nobody looked before": {before: func(w *world) { w.tracker.Missed(); w.train(2) }, end: well},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, 4)
			if tc.before != nil {
				tc.before(w)
			}
			w.closes(3)
			w.exits(3, tc.end)
			w.after(300 * time.Millisecond)
			w.closes(2)
			w.exits(2, byStatus)
			require.Equal(t, []string{"2 lost 3 closed"}, w.failures())
			require.Empty(t, w.then(20))
		})
	}
}

// Who crashes, is asked to end, ends well, had given up connections itself, or moved data of its job long after, did not die of a loss.
func TestWhoDidNotDieOfALoss(t *testing.T) {
	for name, tc := range map[string]struct {
		between func(w *world)
		end     func(*identity.Exit)
	}{
		"it crashes":           {end: bySegv},
		"the launcher ends it": {end: byTheLauncher},
		"it is aborted by another": {end: func(e *identity.Exit) {
			e.Signal, e.Signalled = 6, identity.Signal{Number: 6, Time: e.Time, Sender: identity.Sender{Relation: identity.RelationOther}}
		}},
		"it ends well": {end: well},
		"it went on without": {between: func(w *world) {
			for range 13 {
				w.links[3].send(1<<20, 10*time.Millisecond)
				w.pass(time.Second)
				w.look()
			}
		}, end: byStatus},
		"it was long ago": {between: func(w *world) { w.idle(310) }, end: byStatus},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, 4)
			w.gives(2, w.links[2:3])
			if tc.between != nil {
				tc.between(w)
			}
			w.after(300 * time.Millisecond)
			w.exits(3, tc.end)
			require.Empty(t, append(w.failures(), w.then(20)...))
		})
	}
}

// All give up a group, one after the other, and one then fails of its own: it had given up some itself before it lost others.
func TestWhoGivesUpAGroupItselfLostNothing(t *testing.T) {
	w := newWatched(t, 4)
	second := w.second()
	w.gives(3, second[3:4])
	w.after(time.Millisecond)
	w.gives(2, second)
	w.after(300 * time.Millisecond)
	w.exits(3, byStatus)
	require.Empty(t, append(w.failures(), w.then(20)...))
}

// Ranks end well one after the other, at the end of a training.
func TestAtTheEndOfATrainingNothingIsTold(t *testing.T) {
	w := newWatched(t, 4)
	for r := range 4 {
		w.closes(r)
		w.exits(r, well)
		w.after(300 * time.Millisecond)
	}
	require.Empty(t, append(w.failures(), w.then(20)...))
}

// Of a far end on another node nothing is known but what the connection shows. Where all ranks are on this node, a far end that is none of them is a stranger.
func TestAFarEndOnAnotherNode(t *testing.T) {
	for name, tc := range map[string]struct {
		world int
		want  []string
	}{"the job has other nodes": {4, []string{"0 lost ? closed"}}, "a stranger": {3, nil}} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, 3)
			for _, p := range w.ranks {
				p.WorldSize = tc.world
			}
			far := w.add(0, 900, "10.0.0.1:41000", "10.9.9.9:50000")
			for range 12 {
				far.BytesReceived, far.BytesRead, far.LastReceivedAge = far.BytesReceived+1<<20, far.BytesRead+1<<20, 10*time.Millisecond
				w.train(1)
			}
			w.changes(far, ncclsock.CloseWait, 0)
			w.after(300 * time.Millisecond)
			w.exits(0, byStatus)
			require.Equal(t, tc.want, append(w.failures(), w.then(20)...))
		})
	}
}

// Losses without end take no memory without end.
func TestLossesTakeBoundedRoom(t *testing.T) {
	w := newWatched(t, 3)
	r := w.tracker.ranks[1000]
	for range 10 * maxLosses {
		w.tracker.loses(&socket{rank: r}, &ncclsock.Change{Time: w.at, New: ncclsock.CloseWait})
	}
	require.Len(t, r.losses, maxLosses)
	w.train(12)
	w.tracker.loses(&socket{rank: r}, &ncclsock.Change{Time: w.at, New: ncclsock.CloseWait})
	require.Len(t, r.losses, 1, "it went on without those")
}

// Each rank dies of the loss of the one before, is started again, and so on without end: what is gone is forgotten.
func TestLossesOfLongAgoAreForgotten(t *testing.T) {
	var ps partings
	chain := func(n int, now time.Duration) (all []*rank) {
		var far *socket
		for i := range n {
			r := &rank{now: Process{Process: identity.Process{PID: uint32(i)}}}
			r.losses = []loss{{s: &socket{rank: r, other: far}}}
			far = r.losses[0].s
			ps.outlive(r, now)
			all = append(all, r)
		}
		return all
	}
	remembered := func(all []*rank) (n int) {
		for _, r := range all {
			require.Equal(t, r.losses == nil, r.forgiven)
			if !r.forgiven {
				n++
			}
		}
		return n
	}
	many := chain(3*maxBygone, time.Minute)
	require.Equal(t, maxBygone, remembered(many))
	few := chain(3, time.Minute+follows)
	require.Equal(t, maxBygone-3, remembered(many), "follows is not over")
	require.Equal(t, 3, remembered(few))
	fewer := chain(1, time.Minute+follows+time.Second)
	require.Zero(t, remembered(many))
	require.Equal(t, 4, remembered(append(few, fewer...)))

	tracker := New(Defaults())
	few[0].forgiven = true
	tracker.loses(&socket{rank: few[0]}, &ncclsock.Change{})
	require.Len(t, few[0].losses, 1, "what is heard of one that is forgotten is not remembered")
}

// Who closes because of others is followed through so many, and no further.
func TestAChainOfLossesIsFollowedSoFar(t *testing.T) {
	for n, found := range map[int]bool{maxChain: true, maxChain + 1: false} {
		tracker := New(Defaults())
		tracker.at = began
		first := &socket{rank: &rank{}, over: closed, free: true, overAt: began}
		at, far := began, first
		var last *rank
		for range n {
			r := &rank{moved: never}
			last = r
			at = at.Add(time.Millisecond)
			r.losses = []loss{{s: &socket{rank: r, other: far}, at: at}}
			far = &socket{rank: r, over: closed, overAt: at}
		}
		require.Equal(t, found, tracker.origin(last, at, map[*rank]bool{}) == first, n)
	}
}
