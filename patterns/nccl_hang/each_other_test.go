package ncclhang

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// waitsIn is a rank that sleeps in a call of the library, at a line.
func waitsIn(call, where string) stack {
	s := inCollective
	s.call, s.where, s.hash = call, where, call+where
	return s
}

// asked says of each rank, which sleeps, whom it asked last, and whom before: as its connections of Gloo tell.
func (c *calls) asked(tick time.Duration, peers map[int][]int) *calls {
	for rank, to := range peers {
		for i, peer := range to {
			c.record(socketstall.Event, comm{}, rank, func(a pcommon.Map) {
				for name, text := range map[string]string{
					"nccl.socket.cause": "waiting", "nccl.socket.direction": "receive", "nccl.socket.kind": "gloo", "nccl.socket.stall.id": fmt.Sprint(rank, "-", peer),
					"nccl.rank.silence": "overdue", "nccl.rank.activity": "idle", "nccl.rank.state": "sleeping",
					"network.local.address": fmt.Sprintf("10.0.0.%d", rank+1), "network.peer.address": fmt.Sprintf("10.0.0.%d", peer+1),
				} {
					a.PutStr(name, text)
				}
				a.PutInt("network.local.port", int64(1000+100*rank+peer))
				a.PutInt("network.peer.port", int64(1000+100*peer+rank))
				if peer < c.world {
					a.PutInt("nccl.peer.rank", int64(peer))
				}
				a.PutInt("nccl.socket.stall.age_ns", int64(4*time.Second))
				a.PutInt("nccl.rank.tick_ns", tick.Nanoseconds())
				a.PutInt("nccl.socket.last_sent_age_ns", int64(4*time.Second+time.Duration(i)*12*time.Millisecond))
			})
		}
	}
	return c
}

// TestRanksThatWaitForEachOther: no rank is to blame, and who waits in which call, at which line, is said.
func TestRanksThatWaitForEachOther(t *testing.T) {
	sum, gather := waitsIn("all_reduce", "train.py:50 in step < main"), waitsIn("all_gather", "train.py:40 in sync < main")
	receives, sends := waitsIn("recv", "pipe.py:8 in exchange < fwd < main"), waitsIn("send", "pipe.py:8 in exchange < bwd < main")
	for name, tc := range map[string]struct {
		of    []stack
		asked map[int][]int
		odd   []int
		want  string
	}{
		"a circle of receives": {
			of: []stack{receives, receives, receives}, want: "all 3 ranks wait for each other: ranks 0-2 in recv at pipe.py:8 in exchange < fwd < main",
		},
		"1F1B whose sends wait, and connections tell the circle": {
			of: []stack{receives, receives, receives, sends}, asked: map[int][]int{0: {1}, 1: {2, 0}, 2: {3, 1}, 3: {2}},
			want: "ranks 2-3 wait for each other: rank 2 in recv at pipe.py:8 in exchange < fwd < main, rank 3 in send at pipe.py:8 in exchange < bwd < main; " +
				"ranks 0-1 wait for them in recv at pipe.py:8 in exchange < fwd < main",
		},
		"1F1B, and whom a rank asked last is within a tick": {
			of: []stack{receives, receives, receives, sends}, asked: map[int][]int{-1: nil},
			want: "all 4 ranks wait for each other: ranks 0-2 in recv at pipe.py:8 in exchange < fwd < main, rank 3 in send at pipe.py:8 in exchange < bwd < main",
		},
		"two circles": {
			of: []stack{receives, receives, sends, sends}, asked: map[int][]int{0: {1}, 1: {0}, 2: {3}, 3: {2}},
			want: "all 4 ranks wait for each other: ranks 0-1 in recv at pipe.py:8 in exchange < fwd < main, ranks 2-3 in send at pipe.py:8 in exchange < bwd < main",
		},
		"two receive, and the others wait for them in a collective": {
			of:   []stack{receives, sends, sum, sum},
			want: "ranks 0-1 wait for each other: rank 0 in recv at pipe.py:8 in exchange < fwd < main, rank 1 in send at pipe.py:8 in exchange < bwd < main; ranks 2-3 wait for them in all_reduce at train.py:50 in step < main",
		},
		"one receives, and the others wait in a collective": {
			of: []stack{sum, receives, sum}, odd: []int{1}, want: "rank 1 waits itself in recv at pipe.py:8 in exchange < fwd < main; ranks 0, 2 wait for it in all_reduce at train.py:50 in step < main",
		},
		"different collectives": {
			of: []stack{sum, gather, sum, sum}, odd: []int{1}, want: "rank 1 waits itself in all_gather at train.py:40 in sync < main; ranks 0, 2-3 wait for it in all_reduce at train.py:50 in step < main",
		},
		"different collectives, and most are in one": {
			of:  []stack{gather, gather, sum, sum, sum, sum},
			odd: []int{0, 1}, want: "ranks 0-1 wait themselves in all_gather at train.py:40 in sync < main; ranks 2-5 wait for them in all_reduce at train.py:50 in step < main",
		},
		"different collectives, and most are in one that a rank leaves once its part is done": {
			of:   []stack{waitsIn("broadcast", "train.py:45 in share"), waitsIn("broadcast", "train.py:45 in share"), sum},
			want: "all 3 ranks wait for each other: ranks 0-1 in broadcast at train.py:45 in share, rank 2 in all_reduce at train.py:50 in step < main",
		},
		"different collectives, and the last one is in one that a rank leaves once its part is done": {
			of:  []stack{sum, waitsIn("broadcast", "train.py:45 in share"), sum},
			odd: []int{1}, want: "rank 1 waits itself in broadcast at train.py:45 in share; ranks 0, 2 wait for it in all_reduce at train.py:50 in step < main",
		},
		"different collectives, of two halves": {
			of:   []stack{gather, sum, gather, sum},
			want: "all 4 ranks wait for each other: ranks 0, 2 in all_gather at train.py:40 in sync < main, ranks 1, 3 in all_reduce at train.py:50 in step < main",
		},
		"different collectives, and no line is sent": {
			of: []stack{waitsIn("all_reduce", ""), waitsIn("barrier", "")}, want: "both ranks wait for each other: rank 0 in all_reduce, rank 1 in barrier",
		},
		"more lines than there is room for": {
			of:   []stack{waitsIn("all_reduce", "a.py:50 in first < evaluate_all_of_it < train_for_one_epoch < main"), waitsIn("barrier", "a.py:51 in second < evaluate_all_of_it < train_for_one_epoch < main"), waitsIn("broadcast", "a.py:52 in third < evaluate_all_of_it < train_for_one_epoch < main")},
			want: "all 3 ranks wait for each other: rank 0 in all_reduce at a.py:50 in first < evaluate_all_of_it, rank 1 in barrier at a.py:51 in second < evaluate_all_of_it, rank 2 in broadcast at a.py:52 in third < evaluate_all_of_it",
		},
		"one collective, at two lines of most": {
			of: []stack{sum, waitsIn("all_reduce", "train.py:60 in finish"), sum}, want: "all 3 ranks wait in a collective (all_reduce); rank 1 waits at train.py:60 in finish, and the others at train.py:50 in step < main",
		},
		"one collective, at a line of each half": {
			of:   []stack{sum, sum, waitsIn("all_reduce", "train.py:60 in finish"), waitsIn("all_reduce", "train.py:60 in finish")},
			want: "all 4 ranks wait in a collective (all_reduce); ranks 0-1 in all_reduce at train.py:50 in step, ranks 2-3 in all_reduce at train.py:60 in finish",
		},
		"one collective": {of: []stack{sum, sum}, want: "both ranks wait in a collective (all_reduce): the fault is below the program"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(len(tc.of))
			for rank, s := range tc.of {
				c.stand(s, rank)
			}
			if tc.asked[0] == nil {
				c.asked(4*time.Millisecond, circleOf(len(tc.of), tc.asked != nil))
			} else {
				c.asked(4*time.Millisecond, tc.asked)
			}
			j := newJoin(DefaultOptions)
			j.Add(c.list, c.at)
			found := soon(j, c.at)
			require.Len(t, found, 1, "sockets of all are silent, too: nothing is left to wait for")
			require.Equal(t, tc.want, found[0].String())
			require.Equal(t, tc.odd, found[0].Culprits)
			require.Equal(t, append(slices.Clone(tc.odd), -1)[0], found[0].Rank())
			require.Equal(t, but(len(tc.of), tc.odd...), found[0].Waiting)
		})
	}
}

// soon is what is told once records of that time have settled, and the sockets have spoken.
func soon(j joinUnderTest, at time.Time) []Finding {
	return append(findings(j.Advance(at.Add(settled))), findings(j.Advance(at.Add(settled+time.Second)))...)
}

// circleOf are ranks each of which asked the next; with a tick of the clock between, two at once.
func circleOf(world int, unclear bool) map[int][]int {
	peers := map[int][]int{}
	for rank := range world {
		peers[rank] = []int{(rank + 1) % world}
		if unclear {
			peers[rank] = append(peers[rank], (rank+world-1)%world)
		}
	}
	return peers
}

// TestAllWaitIsToldOnceTheirSocketsAreSilent: before, and where one of them is not, a minute is waited.
func TestAllWaitIsToldOnceTheirSocketsAreSilent(t *testing.T) {
	usual := inCollective
	usual.silence = "usual"
	for name, tc := range map[string]struct {
		stands  [2]stack // of most, and of the last
		sockets func(*calls)
		soon    bool
	}{
		"all are": {[2]stack{inCollective, inCollective}, func(c *calls) { c.stalled("overdue", but(4)...) }, true},
		"and their stacks say no more than usual": {[2]stack{usual, inCollective}, func(c *calls) { c.stalled("overdue", but(4)...) }, true},
		"one is not":                    {[2]stack{inCollective, inCollective}, func(c *calls) { c.stalled("overdue", 0, 1, 2) }, false},
		"one is no longer than usual":   {[2]stack{inCollective, inCollective}, func(c *calls) { c.stalled("overdue", 0, 1, 2).stalled("usual", 3) }, false},
		"one waits for its GPU":         {[2]stack{inCollective, gpuAsleep}, func(c *calls) { c.stalled("overdue", but(4)...) }, false},
		"one waits for its own threads": {[2]stack{inCollective, inBackward}, func(c *calls) { c.stalled("overdue", but(4)...) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(4)
			c.stand(tc.stands[0], 0, 1, 2).stand(tc.stands[1], 3)
			j := newJoin(DefaultOptions)
			j.Add(c.list, c.at)
			require.Empty(t, soon(j, c.at))
			c.list, c.at = plog.NewLogs(), c.at.Add(settled+2*time.Second)
			tc.sockets(c)
			j.Add(c.list, c.at)
			require.Equal(t, tc.soon, len(soon(j, c.at)) == 1)
			if !tc.soon {
				require.Len(t, soon(j, c.at.Add(DefaultOptions.StuckWait)), 1)
			}
		})
	}
}

// TestThatRanksWaitForEachOtherIsToldSoon: by their stacks alone, as in the first step of a job, of which no socket is known
// to be silent for too long. No rank of it starts up any more. Where one may, or the fault may be below the program, a
// minute is waited.
func TestThatRanksWaitForEachOtherIsToldSoon(t *testing.T) {
	sum, receives, sends := waitsIn("all_reduce", "train.py:50 in step"), waitsIn("recv", "pipe.py:8 in fwd"), waitsIn("send", "pipe.py:9 in bwd")
	edit := func(s stack, edit func(*stack)) stack {
		edit(&s)
		return s
	}
	for name, tc := range map[string]struct {
		of    []stack
		after time.Duration // since the last one came, 0: not within the hour
	}{
		"a pipeline":                {[]stack{receives, receives, sends, sum}, time.Duration(movingSpeaks)},
		"different collectives":     {[]stack{sum, waitsIn("barrier", "train.py:60 in end"), sum}, time.Duration(movingSpeaks)},
		"ranks of two hosts":        {append(slices.Repeat([]stack{receives}, 8), sends), time.Duration(movingSpeaksAfar)},
		"one collective":            {[]stack{sum, sum, sum}, DefaultOptions.StuckWait},
		"one waits for its GPU":     {[]stack{receives, sends, gpuAsleep}, DefaultOptions.StuckWait},
		"one is in backward":        {[]stack{receives, sends, sum, inBackward}, DefaultOptions.StuckWait},
		"one makes a group":         {[]stack{sum, waitsIn("new_group", "train.py:30 in setup"), sum}, DefaultOptions.StuckWait},
		"one has not come yet":      {[]stack{sum, waitsIn("init_process_group", "train.py:9 in main"), sum}, DefaultOptions.StuckWait},
		"where one is, is not read": {[]stack{sum, waitsIn("", "train.py:9 in main"), waitsIn("barrier", "")}, DefaultOptions.StuckWait},
		"one waits for a driver":    {[]stack{receives, edit(sends, func(s *stack) { s.owner = "nvidia" }), sum}, DefaultOptions.StuckWait},
		"one waits for a socket":    {[]stack{receives, edit(sends, func(s *stack) { s.owner = "tcp" }), sum}, time.Duration(movingSpeaks)},
		"one makes progress beside": {[]stack{receives, edit(sends, func(s *stack) { s.silence, s.activity = "usual", "thread_computing" }), sum}, 0},
		"one polls":                 {[]stack{receives, edit(sends, func(s *stack) { s.reason = "same_call" }), sum}, 0},
		"one compiles":              {[]stack{receives, edit(sends, func(s *stack) { s.class, s.silence, s.activity = "compiling", "usual", "computing" }), sum}, 0},
		"one loads its data":        {[]stack{receives, edit(sends, func(s *stack) { s.class, s.silence, s.activity = "data_loading", "usual", "io" }), sum}, 0},
		"one has no record":         {[]stack{receives, sends, {}}, 0},
		"one is stopped":            {[]stack{receives, edit(sends, func(s *stack) { s.state, s.silence = "stopped", "usual" }), sum}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(len(tc.of))
			for rank, s := range tc.of {
				if s.class != "" {
					c.stand(s, rank)
				}
			}
			j, told := newJoin(DefaultOptions), time.Duration(0)
			j.Add(c.list, c.at)
			for after := 3 * time.Second; after < time.Hour && told == 0; after += time.Second / 2 { // they had stood for three when it was told
				for _, f := range findings(j.Advance(c.at.Add(after - 3*time.Second))) {
					if f.Kind == EachOther || f.below() {
						told = after
					}
				}
			}
			require.Equal(t, tc.after, told)
		})
	}
}

// TestSocketsThatHaveSpokenAreNotWaitedFor: where they have told of all ranks, and single none out, no other word of them is to come.
func TestSocketsThatHaveSpokenAreNotWaitedFor(t *testing.T) {
	unanswered := func(a pcommon.Map) {
		stallOf("overdue")(a)
		a.PutStr("nccl.socket.cause", "network")
		a.PutStr("nccl.socket.direction", "send")
		a.PutInt("nccl.peer.rank", 0)
	}
	for name, tc := range map[string]struct {
		sockets func(*calls)
		wait    int64
	}{
		"of all":                         {func(c *calls) { c.stalled("overdue", 0, 1, 2) }, 0},
		"of all, and one is not overdue": {func(c *calls) { c.stalled("overdue", 0, 1).stalled("usual", 2) }, 0},
		"of all but one":                 {func(c *calls) { c.stalled("overdue", 0, 1) }, socketsSettle},
		"and packets of one are lost":    {func(c *calls) { c.stalled("overdue", 0, 1).record(socketstall.Event, comm{}, 2, unanswered) }, socketsSettle},
		"of none, which are watched yet": {func(c *calls) { c.record("nccl.socket.watched", comm{}, 0, nil) }, socketsSettle},
	} {
		t.Run(name, func(t *testing.T) {
			c, j := newCalls(3), newJoin(DefaultOptions)
			c.stand(waitsIn("send", "pipe.py:9 in around"), 0, 1).stand(waitsIn("recv", "pipe.py:12 in around"), 2)
			c.at = c.at.Add(time.Duration(movingSpeaks))
			tc.sockets(c)
			j.Add(c.list, c.at)
			judged := c.at.Add(settled)
			first := findings(j.Advance(judged))
			require.Equal(t, tc.wait == 0, len(first) == 1)
			require.Len(t, append(first, findings(j.Advance(judged.Add(time.Duration(tc.wait))))...), 1)
		})
	}
}

// TestARankThatGoesOnInTimeIsWaitedFor: in a pipeline that works, one rank has the data of all others in turn. The record
// that it went on comes after the one that the others wait.
func TestARankThatGoesOnInTimeIsWaitedFor(t *testing.T) {
	c, j := newCalls(2), newJoin(DefaultOptions)
	c.stand(waitsIn("recv", "pipe.py:8 in fwd"), 0)
	c.at = c.at.Add(10 * time.Second)
	c.stand(waitsIn("recv", "pipe.py:9 in bwd"), 1)
	j.Add(c.list, c.at)
	require.Empty(t, findings(j.Advance(c.at.Add(time.Second/4))))
	c.list = plog.NewLogs()
	c.record(rule.EventStackMoving, comm{}, 0, nil)
	j.Add(c.list, c.at.Add(1500*time.Millisecond))
	require.Empty(t, findings(j.Advance(c.at.Add(time.Hour))))
}

// TestLinesOfThoseThatWaitComeLater: a rank that waits in a collective says its line once it does so for too long.
func TestLinesOfThoseThatWaitComeLater(t *testing.T) {
	s := &standingJob{newCalls(2), newJoin(DefaultOptions)}
	says := func(c *calls, rank int, of stack) {
		c.record(eventDoes, comm{}, rank, func(a pcommon.Map) {
			a.PutStr("process.stack.hash", of.hash)
			a.PutStr("process.stack.where", of.where)
			of.does(a)
		})
	}
	all := []stack{waitsIn("recv", "pipe.py:7 in fwd"), waitsIn("recv", "pipe.py:9 in bwd")}
	for rank, of := range all {
		line := of.where
		of.where, of.silence = "", "usual"
		s.stand(of, rank)
		all[rank].where, all[rank].hash = line, of.hash
	}
	s.stalled("overdue", 0, 1)
	s.Add(s.list, s.at)
	found := findings(s.Advance(s.at.Add(settled)))
	require.Len(t, found, 1)
	require.Equal(t, "both ranks wait for each other: ranks 0-1 in recv", found[0].String())
	s.list, s.at = plog.NewLogs(), s.at.Add(time.Second)
	for rank, of := range all {
		says(s.calls, rank, of)
	}
	s.Add(s.list, s.at)
	s.joinUnderTest = requireSameState(t, s.joinUnderTest)
	found = soon(s.joinUnderTest, s.at)
	require.Len(t, found, 1)
	require.Equal(t, "both ranks wait for each other: rank 0 in recv at pipe.py:7 in fwd, rank 1 in recv at pipe.py:9 in bwd", found[0].String())
}

// TestRanksAtManyPlaces: ranks may claim as many places as there are ranks.
func TestRanksAtManyPlaces(t *testing.T) {
	var of []stack
	for line := range 40 {
		of = append(of, waitsIn("recv", fmt.Sprintf("a_file_with_a_long_name.py:%d in a_function_with_a_long_name", line)))
	}
	c, j := newCalls(len(of)), newJoin(DefaultOptions)
	for rank := range of {
		c.stand(of[rank], rank)
	}
	c.asked(4*time.Millisecond, circleOf(len(of), true))
	j.Add(c.list, c.at)
	found := soon(j, c.at)
	require.Len(t, found, 1)
	require.Equal(t, EachOther, found[0].Kind)
	require.Contains(t, found[0].Detail, "rank 7 in recv at a_file_with_a_long_name.py:7")
	require.Contains(t, found[0].Detail, ", others at 32 more places")
	require.NotContains(t, found[0].Detail, "rank 8 ")
}

// TestARankThatWaitsForAProcessOfNoRank: an engine that generates may take minutes, and the others wait for the rank that asked it.
// Nothing is told then that stacks alone would show; pattern nccl_socket_stall tells for whom they wait.
func TestARankThatWaitsForAProcessOfNoRank(t *testing.T) {
	const engine = 9
	asks, waits := waitsIn("broadcast", "rl.py:22 in generate"), waitsIn("broadcast", "rl.py:23 in weights")
	for name, tc := range map[string]struct {
		asked map[int][]int
		call  string
		soon  bool
	}{
		"in the same call":              {map[int][]int{0: {engine, 1}, 1: {0}, 2: {0}}, "broadcast", false},
		"in a receive":                  {map[int][]int{0: {engine, 1}, 1: {0}, 2: {0}}, "recv", false},
		"each asks its own":             {map[int][]int{0: {engine, 1}, 1: {engine + 1, 0}, 2: {engine + 2, 0}}, "recv", false},
		"it asked a rank later":         {map[int][]int{0: {1, engine}, 1: {0}, 2: {0}}, "recv", true},
		"of one rank nothing is known":  {map[int][]int{0: {engine, 1}, 1: {0}}, "recv", true},
		"nobody asks a process of none": {map[int][]int{0: {1}, 1: {0}, 2: {0}}, "recv", true},
	} {
		t.Run(name, func(t *testing.T) {
			of := asks
			of.call = tc.call
			c, j := newCalls(3), newJoin(DefaultOptions)
			c.stand(of, 0).stand(waits, 1, 2).asked(4*time.Millisecond, tc.asked)
			j.Add(c.list, c.at)
			require.Equal(t, tc.soon, len(soon(j, c.at)) == 1 || len(findings(j.Advance(c.at.Add(DefaultOptions.StuckWait)))) == 1)
		})
	}
}

// TestARankThatWaitsForAnAnswerIsInformationForAMinute: a service that it asked may compute. Then it is to blame.
func TestARankThatWaitsForAnAnswerIsInformationForAMinute(t *testing.T) {
	for name, service := range map[string]string{"of a service": "10.0.0.9:8000", "of nobody": "", "of what is no address": "the other ranks"} {
		t.Run(name, func(t *testing.T) {
			asks := inLock
			asks.class, asks.function = "network", "do_poll"
			s := &standingJob{newCalls(4), newJoin(DefaultOptions)}
			tell := func(c *calls) {
				c.stalled("overdue", but(4)...)
				c.record(socketstall.Event, comm{}, 2, func(a pcommon.Map) {
					for key, text := range map[string]string{
						"nccl.socket.cause": "waiting", "nccl.socket.direction": "receive", "nccl.socket.kind": "gloo", "nccl.socket.stall.id": "asks", "nccl.rank.silence": "overdue",
						"nccl.rank.activity": "idle", "nccl.rank.state": "sleeping", "nccl.rank.syscall": "poll", "nccl.rank.awaits": service,
					} {
						a.PutStr(key, text)
					}
					a.PutInt("nccl.socket.stall.age_ns", int64(4*time.Second))
				})
			}
			rounds := s.next(t, time.Second, func(c *calls) { tell(c.stand(inCollective, but(4, 2)...).stand(asks, 2)) })
			var kinds []Kind
			for after := 0; after < 90 && len(kinds) < 2; after += 10 {
				for _, r := range rounds {
					for _, f := range r.Findings {
						if len(kinds) == 0 || kinds[len(kinds)-1] != f.Kind {
							kinds = append(kinds, f.Kind)
						}
						require.Equal(t, service == "10.0.0.9:8000", f.Does == "it waits for an answer of the process at 10.0.0.9:8000, no rank of the job", f.Does)
					}
				}
				rounds = s.next(t, 10*time.Second, tell)
			}
			if service == "10.0.0.9:8000" {
				require.Equal(t, []Kind{OutsideWorks, Outside}, kinds)
			} else {
				require.Equal(t, []Kind{Outside}, kinds)
			}
		})
	}
}

// BenchmarkRanksThatWaitForEachOther judges a job of 131,072 ranks in sends and receives: one circle by their stacks.
func BenchmarkRanksThatWaitForEachOther(b *testing.B) {
	const world = 131_072
	j, c := newJoin(DefaultOptions), newCalls(world)
	for rank := range world {
		c.list = plog.NewLogs()
		c.stand(waitsIn("recv", "pipe.py:8 in exchange < fwd < main"), rank)
		j.Add(c.list, c.at)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, run := range j.calls.runs {
			if f := run.analyse(nil, nil, c.at.Add(2*time.Minute).UnixNano()); f == nil || f.Kind != EachOther {
				b.Fatalf("found %v", f)
			}
		}
	}
}
