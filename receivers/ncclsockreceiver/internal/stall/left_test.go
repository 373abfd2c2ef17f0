package stall

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// changes tells the tracker that a socket went from one state to the next.
func (w *world) changes(s *ncclsock.Socket, to ncclsock.State, errno syscall.Errno) {
	w.tracker.Note(&ncclsock.Change{
		Time: w.at, Cookie: s.Cookie, NetNS: s.NetNS, PID: s.PID, Local: s.Local, Remote: s.Remote, Kind: ncclsock.StateChanged, Old: s.State, New: to, Error: int32(errno),
	})
	s.State = to
}

// ends are the sockets of a rank in the ring, and for each the other end.
func (w *world) ends(rank int) map[*ncclsock.Socket]*ncclsock.Socket {
	ends := map[*ncclsock.Socket]*ncclsock.Socket{}
	for _, l := range w.links {
		switch rank {
		case w.rankOf(l.out):
			ends[l.out] = l.in
		case w.rankOf(l.in):
			ends[l.in] = l.out
		}
	}
	return ends
}

// closes has a rank close its connections, as far as they are open, as destroy_process_group() does. They are gone then.
func (w *world) closes(rank int) {
	for own, far := range w.ends(rank) {
		switch {
		case own.State == ncclsock.CloseWait:
			w.changes(own, ncclsock.LastAck, 0)
		case own.State == ncclsock.Established && far.State == ncclsock.Established:
			w.changes(own, ncclsock.FinWait1, 0)
			w.changes(far, ncclsock.CloseWait, 0)
		}
		w.gone(own)
	}
}

// gone takes a socket out of what snapshots show.
func (w *world) gone(s *ncclsock.Socket) {
	for _, l := range w.links {
		if l.out == s || l.in == s {
			l.hidden = append(l.hidden, s)
		}
	}
}

// whoLeft takes n snapshots, a second apart, in which nothing moves, and says who left in them.
func (w *world) whoLeft(n int) (all []Left) {
	for range n {
		w.idle(1)
		all = append(all, w.tracker.Left()...)
	}
	return all
}

func shortLeft(all []Left) (out []string) {
	for _, l := range all {
		text := string(rune('0' + l.Process.Rank))
		if l.First {
			text += " first"
		}
		if l.End != "" {
			text += " " + string(l.End)
		}
		out = append(out, text)
	}
	return out
}

// A rank gives up its group and lives on: it is told, as of the moment in which it closed its connections.
func TestWhoClosesItsConnectionsAndLivesOnHasLeft(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	at := w.at
	w.closes(2)
	all := w.whoLeft(30)
	require.Equal(t, []string{"2 first"}, shortLeft(all), "the others hold their ends")
	require.Equal(t, at, all[0].Time)
	require.Equal(t, 2, all[0].Closed)
}

// A process that ends closes its connections, too.
func TestWhoEndsHasNotLeft(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"it is gone":              func(w *world) { w.remote[2] = true },
		"its threads end, slowly": func(w *world) { w.ranks[2].State, w.ranks[2].Ending = socketstall.Zombie, true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(12)
			w.closes(2)
			end(w)
			require.Empty(t, w.whoLeft(20))
		})
	}
}

// The others follow a rank that left, in health: each is told, and that it was not the first. In a ring who is no
// neighbour of those that left may close its connections first, too.
func TestWhoFollowsIsToldAsThat(t *testing.T) {
	w := newWorld(t, 3, Defaults())
	w.train(12)
	w.closes(1)
	all := w.whoLeft(4)
	w.closes(2)
	all = append(all, w.whoLeft(4)...)
	w.closes(0)
	all = append(all, w.whoLeft(10)...)
	require.Equal(t, []string{"1 first", "2", "0"}, shortLeft(all))
}

// Who lost a connection and closes the others because of that is not the first: a peer has ended, a router resets, packets are
// lost, an administrator kills the connection.
func TestWhoLostAConnectionIsNotTheFirst(t *testing.T) {
	for name, lose := range map[string]func(w *world, own *ncclsock.Socket){
		"the far end closed":  func(w *world, own *ncclsock.Socket) { w.changes(own, ncclsock.CloseWait, 0) },
		"it was reset":        func(w *world, own *ncclsock.Socket) { w.changes(own, ncclsock.Close, syscall.ECONNRESET) },
		"nobody acknowledges": func(w *world, own *ncclsock.Socket) { w.changes(own, ncclsock.Close, syscall.ETIMEDOUT) },
		"it was killed":       func(w *world, own *ncclsock.Socket) { w.changes(own, ncclsock.Close, syscall.ECONNABORTED) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(12)
			lose(w, w.links[2].out)
			require.Empty(t, w.whoLeft(20), "it has closed nothing itself")
			w.closes(2)
			require.Equal(t, []string{"2"}, shortLeft(w.whoLeft(20)))
		})
	}
}

// Resets that all ranks get accuse nobody, though all close what is left.
func TestWhereARouterResetsNobodyIsTheFirst(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	for _, l := range w.links {
		w.changes(l.out, ncclsock.Close, syscall.ECONNRESET)
		w.changes(l.in, ncclsock.Close, syscall.ECONNRESET)
		w.gone(l.out)
		w.gone(l.in)
	}
	require.Empty(t, w.whoLeft(20))
}

// A process that throws unread data away, or does not linger, resets its connection. That is its own doing, too.
func TestWhoResetsItsConnectionsHasLeft(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	for own, far := range w.ends(2) {
		w.changes(own, ncclsock.Close, 0)
		w.changes(far, ncclsock.Close, syscall.ECONNRESET)
		w.gone(own)
		w.gone(far)
	}
	require.Equal(t, []string{"2 first"}, shortLeft(w.whoLeft(20)))
}

// Of several groups one is given up: the connections of the others live.
func TestWhoGivesUpOneOfItsGroupsHasNotLeft(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	for r := range 4 {
		w.links = append(w.links, w.connect(r, (r+1)%4, uint64(300+2*r), 41000, 51000))
	}
	w.train(12)
	for _, l := range w.links[4:] {
		w.changes(l.out, ncclsock.FinWait1, 0)
		w.changes(l.in, ncclsock.CloseWait, 0)
		w.gone(l.out)
		w.gone(l.in)
	}
	w.links = w.links[:4]
	var all []Left
	for range 310 { // what a far end closed so long ago says nothing
		w.train(1)
		all = append(all, w.tracker.Left()...)
	}
	require.Empty(t, all)
	w.closes(2)
	require.Equal(t, []string{"2 first"}, shortLeft(w.whoLeft(20)))
}

// A group is given up by all ranks and made again, at once or after a while.
func TestWhoMakesItsGroupAgainHasNotLeft(t *testing.T) {
	again := func(w *world) {
		w.links = nil
		for r := range 4 {
			w.links = append(w.links, w.connect(r, (r+1)%4, uint64(300+2*r), 41000, 51000))
		}
	}
	w := newWorld(t, 4, Defaults())
	w.train(12)
	w.closes(2)
	all := w.whoLeft(1)
	again(w)
	all = append(all, w.whoLeft(20)...)
	require.Empty(t, all, "at once")

	w = newWorld(t, 4, Defaults())
	w.train(12)
	w.closes(2)
	all = w.whoLeft(9)
	again(w)
	all = append(all, w.whoLeft(9)...)
	require.Equal(t, []string{"2 first", "2 first joined"}, shortLeft(all))
}

// Where the others move data long after a rank has left, they do not need it: it has stopped early by agreement.
func TestAJobThatGoesOnWithoutARank(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	beside := w.connect(0, 1, 300, 41000, 51000)
	w.links = append(w.links, beside)
	w.train(12)
	w.closes(2)
	var all []Left
	for range 20 {
		beside.send(1<<20, 10*time.Millisecond)
		w.pass(time.Second)
		w.look()
		all = append(all, w.tracker.Left()...)
	}
	require.Equal(t, []string{"2 first", "2 first goes_on"}, shortLeft(all))
}

// A stranger who connects to a rank and is turned away, and what a rank has to others than its job, say nothing.
func TestWhatIsNoConnectionOfTheJobEndsUnheard(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	other := w.add(2, 900, "10.0.0.3:41000", "10.9.9.9:443")
	other.BytesReceived = 1 << 30
	stranger := w.add(2, 901, "10.0.0.3:41000", "10.9.9.9:50000")
	stranger.BytesReceived = 12
	w.train(12)
	w.changes(other, ncclsock.FinWait1, 0)
	w.changes(stranger, ncclsock.FinWait1, 0)
	w.extra = nil
	require.Empty(t, w.whoLeft(20))
	w.closes(2)
	require.Equal(t, []string{"2 first"}, shortLeft(w.whoLeft(20)))
}

// Where others of the job die of what a rank left, their launcher may end it before it is seen to live on. It had closed its
// connections before anybody asked it to end. Where it closes them because it ends, or it ends by itself, it had not left.
func TestWhoIsEndedByTheLauncherHadLeftBefore(t *testing.T) {
	launcher := identity.Sender{Relation: identity.RelationLauncher}
	for name, tc := range map[string]struct {
		closes, asked time.Duration // after the last snapshot
		by            identity.Sender
		late          bool // its end is told after the snapshot that lacks it
		some          bool // of its connections are closed before, the others by its end
		unheard       int  // so many snapshots lack its sockets before the changes of these are heard
		want          []string
	}{
		"before":                 {closes: 100 * time.Millisecond, asked: 600 * time.Millisecond, by: launcher, want: []string{"2 first"}},
		"before, told later":     {closes: 100 * time.Millisecond, asked: 600 * time.Millisecond, by: launcher, late: true, want: []string{"2 first"}},
		"by somebody else":       {closes: 100 * time.Millisecond, asked: 600 * time.Millisecond, by: identity.Sender{Relation: identity.RelationOther}, want: []string{"2 first"}},
		"before, heard later":    {closes: 100 * time.Millisecond, asked: 600 * time.Millisecond, by: launcher, unheard: 1, want: []string{"2 first"}},
		"before, heard late":     {closes: 100 * time.Millisecond, asked: 600 * time.Millisecond, by: launcher, unheard: 4, want: []string{"2 first"}},
		"because of that":        {closes: 601 * time.Millisecond, asked: 600 * time.Millisecond, by: launcher},
		"some because of that":   {closes: 100 * time.Millisecond, asked: 600 * time.Millisecond, by: launcher, some: true},
		"some of them, later":    {closes: 100 * time.Millisecond, asked: 600 * time.Millisecond, by: launcher, some: true, late: true},
		"by itself":              {closes: 100 * time.Millisecond, asked: 600 * time.Millisecond, by: identity.Sender{Relation: identity.RelationItself}},
		"by a fault":             {closes: 100 * time.Millisecond, asked: 600 * time.Millisecond, by: identity.Sender{Relation: identity.RelationKernel}},
		"by itself, by a status": {closes: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(12)
			began := w.at
			w.at = began.Add(tc.closes)
			if tc.some {
				w.changes(w.links[2].out, ncclsock.FinWait1, 0)
				w.at = began.Add(tc.asked + time.Millisecond)
			}
			if tc.unheard > 0 {
				for own := range w.ends(2) {
					w.gone(own)
				}
				w.idle(tc.unheard)
				w.at = began.Add(tc.closes)
			}
			w.closes(2)
			w.at = began
			e := identity.Exit{Process: w.ranks[2].Process, Time: began.Add(700 * time.Millisecond)}
			if tc.asked > 0 {
				e.Signal, e.Signalled = 15, identity.Signal{Number: 15, Time: began.Add(tc.asked), Sender: tc.by}
			}
			w.remote[2] = true
			if !tc.late {
				w.tracker.Ended(&e)
			}
			all := w.whoLeft(2)
			if tc.late {
				w.tracker.Ended(&e)
			}
			all = append(all, w.whoLeft(10)...)
			w.tracker.Ended(&e)
			require.Equal(t, tc.want, shortLeft(append(all, w.whoLeft(3)...)))
			require.Empty(t, w.tracker.partings.of)
		})
	}
}

// Processes without end that close a connection and are gone take no memory without end, and none of another domain's.
func TestWhoIsGoneTakesBoundedRoom(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	w.closes(2)
	w.remote[2] = true
	w.idle(1)
	for n := range 2 * maxParted {
		w.tracker.partings.add(&parted{process: identity.Process{PID: uint32(10000 + n), Domain: "user 1001"}, of: &rank{}, until: forever})
	}
	require.Len(t, w.tracker.partings.of, maxParted)
	w.tracker.Ended(&identity.Exit{Process: w.ranks[2].Process, Signalled: identity.Signal{Number: 9, Time: w.at.Add(time.Second), Sender: identity.Sender{Relation: identity.RelationLauncher}}})
	require.Equal(t, []string{"2 first"}, shortLeft(w.whoLeft(1)))
}

// A rank that keeps its connections when the others have left waits for nobody: it computes, sleeps, or ends some time.
func TestNobodyWaitsForThoseWhoLeft(t *testing.T) {
	w := newWorld(t, 3, Defaults())
	w.train(12)
	w.closes(0)
	w.closes(1)
	for range 60 {
		require.Empty(t, short(w.idle(1)))
	}
}
