package stall

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// strange adds ranks of a job that says the same of itself, in another domain: two that talk to
// each other. It returns their connection, which is none of the ring.
func (w *world) strange(first int) *link {
	from := len(w.ranks)
	for r := range 2 {
		p := *w.ranks[0]
		p.PID, p.Rank, p.NetNS, p.Domain = uint32(1000+from+r), first+r, uint64(5000+r), "user 1001"
		w.ranks = append(w.ranks, &p)
	}
	return w.connect(from, from+1, 900, 40000, 50000)
}

// beside takes snapshots beside ranks that move data, and returns what is told of the job.
func (w *world) beside(n int, l *link) (events []Event) {
	for range n {
		w.pass(time.Second)
		l.send(1<<20, 10*time.Millisecond)
		for _, e := range w.look() {
			if e.Process.Domain == "" {
				events = append(events, e)
			}
		}
	}
	return events
}

// A job is its id inside its domain. Ranks of another user that say the same id, and move data,
// start up or make pauses of hours, hide no stall and change nothing of what is told.
func TestRanksOfAnotherDomainAreOfAnotherJob(t *testing.T) {
	stop := func(w *world) {
		w.pass(time.Second)
		w.links[1].deliver(48, 900*time.Millisecond)
		w.ranks[2].State = socketstall.Stopped
		require.Empty(t, w.look())
	}
	alone := newWorld(t, 4, Defaults())
	alone.train(30)
	stop(alone)
	want := short(alone.idle(5))
	require.NotEmpty(t, accusing(alone.idle(20)), "it is told again")

	for name, first := range map[string]int{"of other numbers": 4, "of the same numbers": 2} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(20)
			l := w.strange(first)
			w.links = append(w.links, l)
			w.train(10)
			stop(w)
			require.Equal(t, want, short(w.beside(5, l)))
			require.Equal(t, 2, w.tracker.Counters().Jobs)
		})
	}
	t.Run("that begin while it stands", func(t *testing.T) {
		w := newWorld(t, 4, Defaults())
		w.train(30)
		stop(w)
		l := w.strange(4)
		w.links = append(w.links, l)
		require.Equal(t, want, short(w.beside(5, l)))
	})
	t.Run("without an id, where the ranks meet", func(t *testing.T) {
		w := newWorld(t, 4, Defaults())
		for _, p := range w.ranks {
			p.JobID, p.Rendezvous, p.MasterAddr = "", "node-0:29500/4", "node-0"
		}
		w.ranks[0].MasterAddr = "localhost" // the first may call its own host so
		w.train(20)
		l := w.strange(4)
		w.links = append(w.links, l)
		w.train(10)
		stop(w)
		require.Equal(t, want, short(w.beside(5, l)))
	})
}

// Anybody can give himself any address in a network namespace of his own. A socket there with the
// addresses of a connection of another job is not its other end.
func TestAnAddressInAnotherNamespaceIsNoPeer(t *testing.T) {
	w := newWorld(t, 2, Defaults())
	l := w.strange(2)
	w.links = append(w.links, l)
	w.train(20)
	theirs := w.links[0].in
	forged := w.add(3, 990, theirs.Local.String(), theirs.Remote.String()) // of a rank in another namespace
	forged.ReceiveQueueBytes, forged.BytesReceived = 1, 1
	out := w.tracker.sockets.byCookie[w.links[0].out.Cookie]
	for range 3 {
		w.pass(time.Second)
		w.links[0].send(1<<10, 10*time.Millisecond)
		w.links[1].send(1<<10, 10*time.Millisecond)
		w.look()
		require.Equal(t, w.ranks[1].PID, out.peer.rank.now.PID)
		require.Equal(t, 1, out.far)
	}
	// And where the true end is on another node there is none here.
	w.remote[1] = true
	w.idle(3)
	require.Nil(t, out.peer)
	w.links[0].out.Cookie = 991 // another connection, which meets the forged end
	w.idle(1)
	require.Nil(t, w.tracker.sockets.byCookie[991].peer)
	require.Zero(t, w.tracker.sockets.byCookie[991].farPID)
}

// A job that ends takes its own series with it, and not those of another domain with its id.
func TestSeriesOfADomainAreItsOwn(t *testing.T) {
	o := Defaults()
	o.PhaseMemory = 5 * time.Second
	w := newWorld(t, 2, o)
	l := w.strange(0)
	w.links = append(w.links, l)
	w.train(13)
	sent := func() map[string]uint64 {
		all := map[string]uint64{}
		w.tracker.Traffic(func(s *Series) { all[fmt.Sprint(s.Domain, " ", s.JobID, " ", s.Peer)] = s.SentBytes })
		return all
	}
	before := sent()
	require.Len(t, before, 4)
	w.ranks, w.links, w.extra = w.ranks[:2], w.links[:2], nil
	w.train(20)
	after := sent()
	require.Len(t, after, 2)
	require.Greater(t, after[" job 10.0.0.2"], before[" job 10.0.0.2"])
}

// Peers without end of one domain take room from that domain alone.
func TestPeersOfOneDomainLeaveRoomForOthers(t *testing.T) {
	tr := newTraffic(8)
	for n := range 1000 {
		tr.meet(owner{"user 1001", fmt.Sprint("job-", n%100)}, address(n%200))
	}
	require.Equal(t, 8, tr.peers.Len())
	require.Len(t, tr.of, 100)
	for n := range 4 {
		s := tr.meet(owner{"user 1000", "job"}, address(n))
		require.Equal(t, address(n), s.Peer)
	}
	require.NotZero(t, tr.folded)
}

// refusal is a connection of a process that was refused.
func (w *world) refusal(rank int, remote string) *ncclsock.Change {
	s := w.add(rank, 1, "10.0.0.2:41000", remote)
	w.extra = w.extra[:len(w.extra)-1]
	return &ncclsock.Change{PID: s.PID, NetNS: s.NetNS, Local: s.Local, Remote: s.Remote, Kind: ncclsock.StateChanged, Old: ncclsock.SynSent, New: ncclsock.Close, Error: 111}
}

// Ranks with the network of their host share a namespace, and often the port of their store. Who
// was refused is whose socket it was.
func TestARefusalIsOfItsProcess(t *testing.T) {
	w := newWorld(t, 2, Defaults())
	w.strange(0)
	for _, p := range w.ranks {
		p.NetNS = 4000
	}
	var events []Event
	for range 6 {
		w.tracker.Note(w.refusal(2, "10.9.9.9:29500"))
		w.tracker.Note(w.refusal(3, "10.9.9.9:41000"))
		events = append(events, w.idle(1)...)
	}
	require.NotEmpty(t, events)
	for _, e := range events {
		require.Equal(t, "user 1001", e.Process.Domain, "%+v", e)
	}
}

// Refusals without end of one user hide none of another.
func TestRefusalsOfOneUserHideNoneOfAnother(t *testing.T) {
	w := newWorld(t, 2, Defaults())
	w.strange(0)
	for n := range 2 * maxRefusals {
		w.tracker.Note(w.refusal(2+n%2, fmt.Sprintf("10.9.%d.%d:29500", n/250, n%250)))
	}
	var events []Event
	for range 4 {
		w.tracker.Note(w.refusal(1, "10.0.0.1:29500"))
		for n := range 2 * maxRefusals {
			w.tracker.Note(w.refusal(2+n%2, fmt.Sprintf("10.9.%d.%d:29500", n/250, n%250)))
		}
		events = append(events, w.idle(1)...)
	}
	require.Contains(t, short(events), told{1, socketstall.Connecting, socketstall.Send, Unknown, ""})
	require.LessOrEqual(t, w.tracker.refused.order.Len(), maxRefusals)
}

// Jobs without end, each of a process that lives for a moment, take no memory without end, and
// none of what is known of another domain's job.
func TestJobsOfOneUserHideNoneOfAnother(t *testing.T) {
	w := newWorld(t, 2, Defaults())
	w.train(13)
	mine := w.tracker.jobs.of[keyOf(&w.ranks[0].Process)]
	resting := w.ranks
	w.ranks, w.links = nil, nil
	for n := range 3 * maxResting {
		p := *resting[0]
		p.PID, p.JobID, p.Domain = uint32(1000+n), fmt.Sprint("job-", n), "user 1001"
		w.at = w.at.Add(100 * time.Millisecond)
		w.tracker.Observe(&Round{Time: w.at, Processes: map[uint32]Process{p.PID: p}})
	}
	require.LessOrEqual(t, len(w.tracker.jobs.of), maxResting+1)
	require.Same(t, mine, w.tracker.jobs.of[keyOf(&resting[0].Process)])
}

// A job that has ranks again does not give way, though it was the first of those without.
func TestAJobWithRanksDoesNotGiveWay(t *testing.T) {
	w := newWorld(t, 1, Defaults())
	of := func(n int) Process {
		p := *w.ranks[0]
		p.PID, p.JobID = uint32(1000+n), fmt.Sprint("job-", n)
		return p
	}
	look := func(from, to int) {
		r := Round{Time: w.at, Processes: map[uint32]Process{}}
		for n := from; n < to; n++ {
			p := of(n)
			r.Processes[p.PID] = p
		}
		w.tracker.Observe(&r)
		w.at = w.at.Add(100 * time.Millisecond)
	}
	const more = 64
	look(0, 1)
	look(1, maxResting)
	look(maxResting, maxResting+more)
	back := of(0)
	known := w.tracker.jobs.of[keyOf(&back.Process)]
	require.NotNil(t, known)
	look(0, 1)
	require.Same(t, known, w.tracker.jobs.of[keyOf(&back.Process)])
	require.Equal(t, maxResting, w.tracker.jobs.resting.Len())
}

// Connections that nobody answers, by the thousand, hide no stall of another domain.
func TestStallsOfOneDomainHideNoneOfAnother(t *testing.T) {
	o := Defaults()
	o.MaxStalls = 32
	w := newWorld(t, 4, o)
	w.strange(0)
	w.train(13)
	for n := range 10 * o.MaxStalls {
		s := w.add(4+n%2, uint64(10000+n), fmt.Sprintf("10.8.0.1:%d", 33000+n), fmt.Sprintf("10.9.%d.%d:40000", n/250, n%250))
		s.State, s.Age = ncclsock.SynSent, 0
	}
	w.idle(6)
	require.Len(t, w.tracker.open, o.MaxStalls)
	for _, l := range w.links {
		l.send(48, 0)
	}
	w.pass(time.Second)
	w.look()
	w.links[1].deliver(48, 900*time.Millisecond)
	w.ranks[2].State = socketstall.Stopped
	require.Contains(t, short(accusing(w.idle(5))), told{2, socketstall.NotReading, socketstall.Receive, 1, ""})
	require.Len(t, w.tracker.open, o.MaxStalls)
	require.NotZero(t, w.tracker.Counters().StallsDropped)
	open := slices.Collect(maps.Keys(w.tracker.open))
	w.idle(3)
	require.ElementsMatch(t, open, slices.Collect(maps.Keys(w.tracker.open)), "what has no room makes nothing come and go")
}

// Sockets that come and go without end take no room from those that another domain opens.
func TestSocketsThatComeAndGoHideNoneOfAnother(t *testing.T) {
	o := Defaults()
	o.MaxSockets = 64
	w := newWorld(t, 4, o)
	w.strange(0)
	mine := w.links
	w.links = nil
	for round := range 8 {
		w.extra = nil
		for n := range o.MaxSockets - 2*len(mine) { // the probe shares the room of a snapshot
			w.add(4, uint64(10000+1000*round+n), fmt.Sprintf("10.8.0.1:%d", 33000+1000*round+n), "10.8.0.2:40000")
		}
		if round == 4 {
			w.links = mine
		}
		w.pass(time.Second)
		r := Round{Time: w.at, Processes: map[uint32]Process{}}
		for _, p := range w.ranks {
			r.Processes[p.PID] = *p
		}
		all := w.sockets()
		slices.Reverse(all) // the stranger's come first
		for _, s := range all {
			r.Sockets = append(r.Sockets, *s)
		}
		w.tracker.Observe(&r)
	}
	for _, l := range mine {
		require.NotNil(t, w.tracker.sockets.byCookie[l.in.Cookie])
		require.NotNil(t, w.tracker.sockets.byCookie[l.out.Cookie])
	}
	require.LessOrEqual(t, len(w.tracker.sockets.byCookie), o.MaxSockets)
}

// How a connection ended may be heard after it is gone. Those of one user that come and go without end push out none of another's.
func TestConnectionsThatAreGoneHideNoneOfAnother(t *testing.T) {
	of := func(domain string, pid uint32) *rank {
		r := &rank{}
		r.now.PID, r.now.Domain = pid, domain
		return r
	}
	mine, others := of("user mine", 7), of("user another", 8)
	ss, c := newSockets(new(Defaults())), &clock{}
	cookie := uint64(0)
	gone := func(r *rank, n int) {
		for range n {
			cookie++
			ss.lately.add(&socket{rank: r, now: ncclsock.Socket{Cookie: cookie}}, c)
		}
	}
	gone(mine, maxLately)
	gone(others, 3)
	gone(mine, 2*maxLately)
	for n := range uint64(3) {
		require.NotNil(t, ss.of(&ncclsock.Change{Cookie: maxLately + 1 + n}))
	}
	require.Nil(t, ss.of(&ncclsock.Change{Cookie: 1}))
	require.Len(t, ss.lately.of, maxLately)
	require.Equal(t, maxLately, ss.lately.order.Len())
	c.now += heardFor + 1
	ss.forget(c)
	require.Empty(t, ss.lately.of)
	require.Zero(t, ss.lately.order.Len())
}

// Steps of one Slurm job, or two torchruns with one id, run side by side: that one moves data says
// nothing of the other.
func TestStepsOfOneJobSideBySide(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(20)
	first := len(w.ranks)
	for r := range 2 {
		p := *w.ranks[0]
		p.PID, p.Rank, p.NetNS, p.WorldSize, p.MasterPort = uint32(1000+first+r), r, uint64(5000+r), 2, 29501
		p.StartTime = p.StartTime.Add(30 * time.Minute)
		w.ranks = append(w.ranks, &p)
	}
	other := w.connect(first, first+1, 900, 40000, 50000)
	w.links = append(w.links, other)
	w.train(30)
	w.hang()
	var told []Event
	for range 5 {
		w.pass(time.Second)
		other.send(1<<20, 10*time.Millisecond)
		told = append(told, w.look()...)
	}
	require.NotEmpty(t, told)
	for _, e := range told {
		require.Equal(t, 4, e.Process.WorldSize)
	}
}
