package ncclhang

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// socket is one stall record of a test.
type socket struct {
	rank, peer int
	cause      string
	direction  string        // receive unless it says otherwise
	at         time.Duration // after the dumps were written; most come before
	age        time.Duration // since the last progress; a minute unless it says otherwise
	end        string        // reason, "" while it lasts
	state      string
	here       bool // the peer is on the same node, so its rank is known
	job        string
	host       string
	world      int
}

// sockets makes the records of stalls of a job in which each rank has an address
// of its own.
func socketLogs(all ...socket) plog.Logs {
	logs := plog.NewLogs()
	for _, s := range all {
		s.record(logs.ResourceLogs().AppendEmpty())
	}
	return logs
}

func (s socket) record(resource plog.ResourceLogs) {
	if s.host == "" {
		s.host = fmt.Sprintf("node-%d", s.rank)
	}
	resource.Resource().Attributes().PutStr("host.name", s.host)
	r := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	r.SetEventName(socketstall.Event)
	r.SetTimestamp(pcommon.NewTimestampFromTime(written.Add(s.at)))
	a := r.Attributes()
	if s.end != "" {
		r.SetEventName(socketstall.EventEnd)
		a.PutStr("nccl.socket.stall.end_reason", s.end)
	}
	if s.direction == "" {
		s.direction = "receive"
	}
	switch s.job {
	case "":
		a.PutStr("gen_ai.training.job_id", "llm")
	case "none":
	default:
		a.PutStr("gen_ai.training.job_id", s.job)
	}
	if s.world > 0 {
		a.PutInt("gen_ai.training.world_size", int64(s.world))
	}
	a.PutInt("gen_ai.training.rank", int64(s.rank))
	a.PutInt("process.pid", int64(100+s.rank))
	a.PutStr("nccl.socket.cause", s.cause)
	a.PutStr("nccl.socket.direction", s.direction)
	a.PutStr("nccl.socket.stall.id", fmt.Sprintf("%d-%d-%s", s.rank, s.peer, s.direction))
	age := s.age
	if age == 0 {
		age = time.Minute
	}
	a.PutInt("nccl.socket.stall.age_ns", int64(age))
	if s.state != "" {
		a.PutStr("nccl.rank.state", s.state)
	}
	a.PutStr("network.local.address", fmt.Sprintf("10.0.0.%d", s.rank))
	a.PutInt("network.local.port", int64(40000+s.peer))
	a.PutStr("network.peer.address", fmt.Sprintf("10.0.0.%d", s.peer))
	a.PutInt("network.peer.port", int64(50000+s.rank)) // of another of their sockets: the address has to do
	if s.here {
		a.PutInt("nccl.peer.rank", int64(s.peer))
	}
}

// ring is the wait of each rank for the one before it, five seconds before the
// dumps were written.
func ring(world int, but ...int) []socket {
	var all []socket
	for rank := range world {
		if !has(but, rank) {
			all = append(all, socket{rank: rank, peer: (rank + world - 1) % world, cause: "waiting", at: -5 * time.Second})
		}
	}
	return all
}

func with(all []socket, more ...socket) []socket { return append(all, more...) }

// deaf is a rank that does not read what its peer sent; a wait becomes that.
func deaf(rank, peer int) socket {
	return socket{rank: rank, peer: peer, cause: "not_reading", at: -4 * time.Second}
}

// heard is what the sockets say to a finding.
type heard struct {
	finding string // kind, sureness
	sockets Agreement
	detail  string
	doubts  []string
	rank    int
	host    string
}

// TestWhatSocketsSayToDumps: rank 3 sent no dump, or rank 2 did not enter.
func TestWhatSocketsSayToDumps(t *testing.T) {
	noDump := func() *job { return newJob(4).does(1, steps(reduce, reduce), 0, 1, 2) }
	notEntered := func() *job { return newJob(4).does(1, steps(reduce, reduce), 0, 1, 3).does(1, steps(reduce), 2) }
	bothMissing := func() *job { return newJob(4).does(1, steps(reduce, reduce), 0, 1).does(1, steps(reduce), 2) }
	stuck := func() *job { return newJob(4).does(1, steps(reduce, reduce), 0, 1, 2, 3) }
	for name, tc := range map[string]struct {
		job     *job
		sockets []socket
		want    heard
	}{
		"no stall record": {noDump(), nil, heard{"no_dump unsure", "", "", []string{doubtNoDump}, 3, ""}},
		"all wait, so the rank without a dump lives": {
			noDump(), ring(4),
			heard{"no_dump unsure", Idle, "nobody is singled out, ranks 0-3 stand; 1 rank waits for data from rank 3; rank 3 sent no dump, but lives: its sockets are seen", []string{doubtNoDump}, 3, "node-3"},
		},
		"nothing is seen of the rank without a dump, nor of its node": {
			noDump(), ring(4, 3),
			heard{"no_dump unsure", Idle, "nobody is singled out, ranks 0-2 stand", []string{doubtNoDump}, 3, ""},
		},
		"the rank without a dump does not read": {
			noDump(), with(ring(4), deaf(3, 2)),
			heard{"no_dump likely", Agree, "rank 3: it does not read; rank 3 sent no dump, but lives: its sockets are seen", []string{doubtSockets}, 3, "node-3"},
		},
		"a peer on its node says so of the rank without a dump": {
			noDump(), with(ring(4, 3), socket{rank: 2, peer: 3, cause: "peer_not_reading", direction: "send", at: -5 * time.Second, here: true}),
			heard{"no_dump likely", Agree, "rank 3: 1 peer says that it does not read", []string{doubtSockets}, 3, ""},
		},
		"the process of the rank without a dump has ended": {
			noDump(), with(ring(4, 3), socket{rank: 3, peer: 2, cause: "waiting", at: -5 * time.Second, end: "exited"}),
			heard{"no_dump unsure", Idle, "nobody is singled out, ranks 0-2 stand; of rank 3, which sent no dump, the process had ended", []string{doubtNoDump}, 3, "node-3"},
		},
		"it ended after the dumps, as all ranks do": {
			noDump(), with(ring(4), socket{rank: 3, peer: 2, cause: "waiting", at: time.Second, end: "exited"}),
			heard{"no_dump unsure", Idle, "nobody is singled out, ranks 0-3 stand; 1 rank waits for data from rank 3; rank 3 sent no dump, but lives: its sockets are seen", []string{doubtNoDump}, 3, "node-3"},
		},
		"the sockets single out a rank that entered it, the one without a dump waits": {
			noDump(), with(ring(4), deaf(1, 0)),
			heard{"no_dump unsure", Differ, "rank 1: it does not read; rank 3 sent no dump, but lives: its sockets are seen", []string{doubtNoDump, "the sockets single out rank 1 instead"}, 3, "node-3"},
		},
		"the culprit does not read, and a peer says so": {
			notEntered(), with(ring(4), deaf(2, 1), socket{rank: 1, peer: 2, cause: "peer_not_reading", direction: "send", at: -5 * time.Second}),
			heard{"not_entered certain", Agree, "rank 2: it does not read, 1 peer says that it does not read", nil, 2, "node-2"},
		},
		"the culprit is stopped": {
			notEntered(), with(ring(4, 2), socket{rank: 2, peer: 1, cause: "waiting", state: "stopped", at: -5 * time.Second}),
			heard{"not_entered certain", Agree, "rank 2: its process is stopped", nil, 2, "node-2"},
		},
		"every queue is empty": {
			notEntered(), ring(4),
			heard{"not_entered certain", Idle, "nobody is singled out, ranks 0-3 stand; 1 rank waits for data from rank 2", nil, 2, "node-2"},
		},
		"the sockets single out another": {
			notEntered(), with(ring(4), deaf(0, 3)),
			heard{"not_entered likely", Differ, "rank 0: it does not read", []string{"the sockets single out rank 0 instead"}, 2, "node-2"},
		},
		"back pressure: rank 1 does not read since it cannot send to the culprit": {
			notEntered(), with(ring(4), deaf(2, 1), deaf(1, 0), socket{rank: 1, peer: 2, cause: "peer_not_reading", direction: "send", at: -5 * time.Second}),
			heard{"not_entered certain", Agree, "rank 2: it does not read, 1 peer says that it does not read", nil, 2, "node-2"},
		},
		"packets to the culprit get no answer": {
			notEntered(), with(ring(4), socket{rank: 1, peer: 2, cause: "network", direction: "send", at: -5 * time.Second}),
			heard{"not_entered certain", Agree, "rank 2: packets of 1 rank to it get no answer", nil, 2, "node-2"},
		},
		"one did not enter, the one without a dump does not read": {
			bothMissing(), with(ring(4), deaf(3, 2)),
			heard{"not_entered likely", Differ, "rank 3: it does not read; rank 3 sent no dump, but lives: its sockets are seen", []string{"rank 3 sent no dump and may not have entered it either"}, 2, "node-2"},
		},
		"all entered it and one does not read": {
			stuck(), with(ring(4), deaf(1, 0)),
			heard{"stuck likely", Agree, "rank 1: it does not read", []string{doubtSockets}, 1, "node-1"},
		},
		"all entered it and packets get lost": {
			stuck(), with(ring(4), socket{rank: 0, peer: 3, cause: "network", direction: "send", at: -5 * time.Second}),
			heard{"stuck likely", Agree, "rank 3: packets of 1 rank to it get no answer", []string{doubtSockets}, 3, "node-3"},
		},
		"a stall of long ago, whose end was lost": {
			noDump(), []socket{{rank: 3, peer: 2, cause: "not_reading", at: -time.Minute}},
			heard{"no_dump unsure", "", "", []string{doubtNoDump}, 3, ""},
		},
		"a stall that began after the dumps: the rank aborts": {
			noDump(), with(ring(4), socket{rank: 3, peer: 2, cause: "not_reading", at: 6 * time.Second, age: 3 * time.Second, direction: "send"}),
			heard{"no_dump unsure", Idle, "nobody is singled out, ranks 0-3 stand; 1 rank waits for data from rank 3; rank 3 sent no dump, but lives: its sockets are seen", []string{doubtNoDump}, 3, "node-3"},
		},
		"a stall that changes its cause after the dumps": {
			noDump(), with(ring(4), socket{rank: 3, peer: 2, cause: "not_reading", at: 2 * time.Second}),
			heard{"no_dump unsure", Idle, "nobody is singled out, ranks 0-3 stand; 1 rank waits for data from rank 3; rank 3 sent no dump, but lives: its sockets are seen", []string{doubtNoDump}, 3, "node-3"},
		},
		"a stall that had ended before the dumps": {
			noDump(), with(ring(4), deaf(3, 0), socket{rank: 3, peer: 0, cause: "not_reading", at: -time.Second, end: "progress"}),
			heard{"no_dump unsure", Idle, "nobody is singled out, ranks 0-3 stand; 1 rank waits for data from rank 3; rank 3 sent no dump, but lives: its sockets are seen", []string{doubtNoDump}, 3, "node-3"},
		},
		"sockets of another job": {
			noDump(), []socket{{rank: 3, peer: 2, cause: "not_reading", at: -5 * time.Second, job: "other"}},
			heard{"no_dump unsure", "", "", []string{doubtNoDump}, 3, ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := requireTheSameInEveryOrder(t, tc.job, tc.sockets)
			require.Len(t, want, 1)
			f := want[0]
			require.Equal(t, tc.want, heard{fmt.Sprintf("%s %s", f.Kind, f.Sure), f.Sockets, f.Stalls, f.Because, f.Rank(), f.Host.Host})
		})
	}
}

// requireTheSameInEveryOrder joins dumps and stalls in twenty orders of arrival,
// within the window and some of the stalls after it.
func requireTheSameInEveryOrder(t *testing.T, dumps *job, sockets []socket) []Finding {
	t.Helper()
	var pieces []plog.Logs
	for _, one := range dumps.said {
		single := *dumps
		single.said = []said{one}
		pieces = append(pieces, single.logs())
	}
	first := len(pieces)
	for _, s := range sockets {
		pieces = append(pieces, socketLogs(s))
	}
	all := upToIn(len(pieces))
	want := joinInOrder(t, pieces, all, len(all))
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		require.Equal(t, want, joinInOrder(t, pieces, all, len(all)), "order %v", all)
	}
	late := upToIn(len(pieces))
	require.Equal(t, want, joinInOrder(t, pieces, late, first), "stalls after the first round")
	return want
}

func upToIn(n int) []int { return append([]int(nil), (&run{}).upTo(n)...) }

// joinInOrder returns the findings of the last round: of the pieces before `first`
// in one window, of the rest in another.
func joinInOrder(t *testing.T, pieces []plog.Logs, order []int, first int) []Finding {
	j := newJoin(DefaultOptions)
	now := written
	var last []Finding
	for i, at := range order {
		if i == first {
			now = now.Add(DefaultOptions.Window)
			last = j.Advance(now)[0].Findings
		}
		j.Add(pieces[at], now)
	}
	require.Zero(t, j.Stats().Invalid+j.Stats().InvalidStalls)
	if rounds := j.Advance(now.Add(DefaultOptions.Window)); len(rounds) > 0 {
		last = rounds[0].Findings
	}
	return last
}

// TestStallRecordsFillWhatDumpsLack: the size of the job, and its id.
func TestStallRecordsFillWhatDumpsLack(t *testing.T) {
	dumps := func(name string) *job {
		j := newJob(0)
		j.name = name
		for rank := range 2 {
			j.in(said{rank: rank, group: "0", desc: "default_pg", did: steps(reduce, reduce), finished: 1})
		}
		return j
	}
	t.Run("size", func(t *testing.T) {
		stalls := ring(4, 2, 3)
		stalls[0].world = 4
		found := requireTheSameInEveryOrder(t, dumps("llm"), stalls)
		require.Equal(t, NoDump, found[0].Kind, "without the size all ranks known have entered it")
		require.Equal(t, []int{2, 3}, found[0].NoDump)
		require.Equal(t, 4, found[0].World)
	})
	t.Run("job", func(t *testing.T) {
		found := joined(t, merged(dumps("").logs(), socketLogs(ring(2)...)))
		require.Equal(t, "llm", found[0].Job)
		require.Equal(t, "/fr/rank_", found[0].Run, "its id does not change")
		require.Equal(t, Idle, found[0].Sockets)
	})
	t.Run("ranks of one host without a job id", func(t *testing.T) {
		stalls, on := ring(2), dumps("")
		for i := range stalls {
			stalls[i].job, stalls[i].host, on.said[i].host = "none", "node-a", "node-a"
		}
		found := joined(t, merged(on.logs(), socketLogs(stalls...)))
		require.Empty(t, found[0].Job)
		require.Equal(t, Idle, found[0].Sockets)
	})
	t.Run("two jobs could be meant", func(t *testing.T) {
		other := ring(2)
		for i := range other {
			other[i].job = "other"
		}
		found := joined(t, merged(dumps("").logs(), socketLogs(append(other, ring(2)...)...)))
		require.Empty(t, found[0].Job)
		require.Empty(t, found[0].Sockets)
	})
}

func merged(all ...plog.Logs) plog.Logs {
	out := plog.NewLogs()
	for _, logs := range all {
		logs.ResourceLogs().MoveAndAppendTo(out.ResourceLogs())
	}
	return out
}

// TestStallsAloneSayNothingHere: who waits for whom in a job without dumps is the
// wait-for graph's business.
func TestStallsAloneSayNothingHere(t *testing.T) {
	j := newJoin(DefaultOptions)
	j.Add(socketLogs(with(ring(4), deaf(3, 2))...), written)
	require.Zero(t, j.Due())
	require.Empty(t, j.Advance(written.Add(time.Minute)))
	require.Empty(t, j.Flush())
}

// TestRepetitionsAndEndsAreNoNewRound: what ranks do after their dumps does not
// have the job judged again.
func TestRepetitionsAndEndsAreNoNewRound(t *testing.T) {
	j := newJoin(DefaultOptions)
	j.Add(merged(newJob(4).does(1, steps(reduce, reduce), 0, 1, 2).logs(), socketLogs(ring(4)...)), written)
	now := written.Add(5 * time.Second)
	require.Len(t, j.Advance(now), 1)
	for i, s := range with(ring(4), ring(4)...) {
		if s.at = 6 * time.Second; i >= 4 {
			s.at, s.end = 8*time.Second, "exited"
		}
		j.Add(socketLogs(s), now)
		require.Zero(t, j.Due(), "%+v", s)
	}
}

func TestCapsOfStalls(t *testing.T) {
	options := DefaultOptions
	options.Runs, options.Stalls = 2, 6
	j := newJoin(options)
	j.Add(newJob(4).does(1, steps(reduce, reduce), 0, 1, 2).logs(), written)
	for _, name := range []string{"a", "b", "c"} {
		all := ring(4)
		for i := range all {
			all[i].job = name
		}
		j.Add(socketLogs(all...), written)
	}
	stats := j.Stats()
	require.LessOrEqual(t, stats.HeldStalls, int64(6))
	require.EqualValues(t, 12, stats.Stalls)
	require.Equal(t, stats.Stalls, stats.HeldStalls+stats.EvictedStalls, "each is held or counted")
	require.EqualValues(t, 3, stats.Held, "a flood of stalls costs no dump")
	require.Zero(t, stats.EvictedDumps)

	j.Add(socketLogs(ring(8)...), written)
	stats = j.Stats()
	require.EqualValues(t, 6, stats.HeldStalls, "the newest job keeps what fits")
	require.Equal(t, stats.Stalls, stats.HeldStalls+stats.EvictedStalls)

	j.Advance(written.Add(time.Hour))
	require.Zero(t, j.Stats().HeldStalls, "forgotten when quiet for long")
	require.Zero(t, j.book.Len())
}

// What is left of the stalls of a job, where not all are held, may single out another rank.
func TestStallsThatAreHeldInPartNameNobody(t *testing.T) {
	for _, room := range []int{4, 3} {
		options := DefaultOptions
		options.Stalls = room
		j := newJoin(options)
		all := ring(4)
		all[3].cause = "not_reading"
		j.Add(socketLogs(all...), written)
		j.Add(newJob(4).does(1, steps(reduce, reduce), 0, 1, 2).logs(), written)
		found := findings(j.Flush())
		require.Len(t, found, 1)
		require.Equal(t, room == 4, found[0].Sockets != "", "%+v", found[0])
	}
}
