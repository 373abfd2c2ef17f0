package ncclhang

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

var (
	meets = waitsAtStart("asleep")
	polls = waitsAtStart("same_call") // it has the store
)

func waitsAtStart(reason string) stack {
	s := inCollective
	s.call, s.reason, s.silence = "init_process_group", reason, "usual"
	return s
}

// claims says where ranks stand that say that their job has so many.
func (c *calls) claims(world int, s stack, ranks ...int) {
	for _, rank := range ranks {
		c.record(rule.EventStack, comm{}, rank, func(a pcommon.Map) {
			s.put(a)
			a.PutInt("gen_ai.training.world_size", int64(world))
		})
	}
}

// starts says that processes of ranks run.
func (c *calls) starts(ranks ...int) *calls {
	for _, rank := range ranks {
		c.record(rule.EventStart, comm{}, rank, nil)
	}
	return c
}

// TestRanksThatWaitForOthersThatHaveNotCome: after a minute as information, after five as an error, until these come or
// those end.
func TestRanksThatWaitForOthersThatHaveNotCome(t *testing.T) {
	const text = "6 ranks wait in init_process_group for ranks 3, 7: nothing is seen of them; the first since 11:59:57 UTC, on node-0"
	for name, end := range map[string]func(*calls){
		"one comes, and loads": func(c *calls) { c.starts(3) },
		"the others go on":     func(c *calls) { c.stand(inLock, 2) },
		"the others end": func(c *calls) {
			c.ends(rule.EventExit, map[string]any{"process.exit.code": 1, "process.exit.signal": 0}, 0, 1, 2, 4, 5, 6)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &standingJob{newCalls(8), newJoin(DefaultOptions)}
			s.at = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
			s.begun = s.at.Add(-20 * time.Second)
			require.Empty(t, s.next(t, 0, func(c *calls) { c.starts(0, 1, 2, 4, 5, 6).stand(polls, 0).stand(meets, 1, 2, 4, 5) }))
			require.Empty(t, s.next(t, 50*time.Second, func(c *calls) { c.stand(meets, 6) }))
			require.Empty(t, s.Advance(s.at.Add(56*time.Second)), "one came a minute ago, but for a second")
			told := findings(s.Advance(s.at.Add(58 * time.Second)))
			require.Len(t, told, 1)
			f := told[0]
			require.Equal(t, []any{Gathers, Likely, []int{0, 1, 2, 4, 5, 6}, []int{3, 7}, -1}, []any{f.Kind, f.Sure, f.Waiting, f.Culprits, f.Rank()})
			require.Equal(t, text, f.String())
			require.Empty(t, f.Host.Host, "of none of them")
			require.Empty(t, findings(s.Advance(s.at.Add(4*time.Minute))))
			told = findings(s.Advance(s.at.Add(298 * time.Second)))
			require.Len(t, told, 1)
			require.Equal(t, []any{Absent, Likely, f.Stop, text}, []any{told[0].Kind, told[0].Sure, told[0].Stop, told[0].String()})
			rounds := s.next(t, 6*time.Minute, end)
			require.Len(t, rounds, 1)
			require.Empty(t, rounds[0].Findings)
			require.Equal(t, f.Stop, rounds[0].Cleared[0].Stop)
		})
	}
}

// TestRanksComeOneAfterTheOther: what is told goes on, of those that are still missing.
func TestRanksComeOneAfterTheOther(t *testing.T) {
	s := &standingJob{newCalls(4), newJoin(DefaultOptions)}
	require.Empty(t, s.next(t, 0, func(c *calls) { c.starts(0).stand(polls, 0) }))
	for rank := 1; rank < 3; rank++ {
		require.Empty(t, s.next(t, 45*time.Second, func(c *calls) { c.starts(rank).stand(meets, rank) }), "a launcher starts them so")
	}
	first := findings(s.Advance(s.at.Add(time.Minute)))
	require.Len(t, first, 1)
	require.Equal(t, []int{3}, first[0].Culprits)
	require.Equal(t, "3 ranks wait in init_process_group for rank 3: nothing is seen of it; the first since "+first[0].Since.Format("15:04:05 UTC")+", on node-0", first[0].String())
}

// TestAJobThatMayComeTogetherIsNotTold: a rank that is seen elsewhere may come.
func TestAJobThatMayComeTogetherIsNotTold(t *testing.T) {
	sum := inCollective
	sum.call = "all_reduce"
	untold := func(c *calls, s stack, rank int) { // nobody says which process of which start it is
		c.record(rule.EventStack, comm{}, rank, func(a pcommon.Map) {
			s.put(a)
			a.Remove("gen_ai.training.rank_start_unix_nano")
		})
	}
	for name, records := range map[string]func(*calls){
		"a rank of no start stands elsewhere": func(c *calls) { c.stand(meets, 0, 1); untold(c, inLock, 5) },
		"sockets of a rank of no start": func(c *calls) {
			c.stand(meets, 0, 1).record(socketstall.Event, comm{}, 5, func(a pcommon.Map) {
				stallOf("usual")(a)
				a.Remove("gen_ai.training.rank_start_unix_nano")
			})
		},
		"a rank loads":            func(c *calls) { c.starts(5).stand(meets, 0, 1) },
		"a rank stands elsewhere": func(c *calls) { c.stand(meets, 0, 1).stand(inLock, 5) },
		"a rank has ended": func(c *calls) {
			c.stand(meets, 0, 1, 5).ends(rule.EventExit, map[string]any{"process.exit.code": 1, "process.exit.signal": 0}, 5)
		},
		"it has come together":                      func(c *calls) { c.stand(sum, 0, 1, 2) },
		"one is in a collective":                    func(c *calls) { c.stand(meets, 0, 1).stand(sum, 2) },
		"it makes a group":                          func(c *calls) { s := meets; s.call = "new_group"; c.stand(s, 0, 1) },
		"ranks call NCCL":                           func(c *calls) { c.stand(meets, 0, 1).stands(c.all(), 3, "usual", 0) },
		"sockets of another are seen":               func(c *calls) { c.stand(meets, 0, 1).stalled("usual", 5) },
		"one is stopped":                            func(c *calls) { s := meets; s.state = "stopped"; c.stand(meets, 0, 1).stand(s, 2) },
		"a process claims a million ranks":          func(c *calls) { c.claims(1_000_000, meets, 0) },
		"a process claims more ranks than another":  func(c *calls) { c.stand(meets, 0, 1); c.claims(16, meets, 2) },
		"a rank beyond the size":                    func(c *calls) { c.stand(meets, 0, 1, 8) },
		"nobody says which processes are its start": func(c *calls) { c.begun = time.Unix(0, 0); c.stand(meets, 0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			s := &standingJob{newCalls(8), newJoin(DefaultOptions)}
			told := findings(s.next(t, 0, records))
			for range 11 {
				s.at = s.at.Add(30 * time.Second)
				told = append(told, findings(s.Advance(s.at))...)
			}
			for _, f := range told {
				require.False(t, f.atStart(), f.String())
			}
		})
	}
}

// TestRanksMeetInOtherLibrariesToo: what is told names the function that the program has called.
func TestRanksMeetInOtherLibrariesToo(t *testing.T) {
	for _, call := range []string{"init_distributed", "initialize", "MPI_Init_thread"} {
		comes := waitsAtStart("asleep")
		comes.call = call
		s := &standingJob{newCalls(4), newJoin(DefaultOptions)}
		require.Empty(t, s.next(t, 0, func(c *calls) { c.starts(0, 1, 2).stand(comes, 0, 1, 2) }))
		told := findings(s.Advance(s.at.Add(time.Minute)))
		require.Len(t, told, 1)
		require.Equal(t, []any{Gathers, []int{3}, call}, []any{told[0].Kind, told[0].Culprits, told[0].Operation})
		require.Contains(t, told[0].String(), "3 ranks wait in "+call+" for rank 3: nothing is seen of it; ")

		s = &standingJob{newCalls(3), newJoin(DefaultOptions)}
		require.Empty(t, s.next(t, 0, func(c *calls) { c.stand(comes, 0, 1, 2) }))
		told = findings(s.Advance(s.at.Add(time.Minute)))
		require.Len(t, told, 1, "the fault is not below the program")
		require.Contains(t, told[0].String(), "all 3 ranks wait in "+call+", and do not meet; ")
	}
}

// TestRanksThatAllCameAndDoNotMeet: one of them, as with another port, waits for itself alone.
func TestRanksThatAllCameAndDoNotMeet(t *testing.T) {
	s := &standingJob{newCalls(4), newJoin(DefaultOptions)}
	require.Empty(t, s.next(t, 0, func(c *calls) { c.stand(polls, 0).stand(meets, 1, 2, 3) }))
	told := findings(s.Advance(s.at.Add(time.Minute)))
	require.Len(t, told, 1)
	require.Equal(t, []any{Gathers, []int{0, 1, 2, 3}}, []any{told[0].Kind, told[0].Waiting})
	require.Empty(t, told[0].Culprits)
	require.Contains(t, told[0].String(), "all 4 ranks wait in init_process_group, and do not meet; the first since ")
	stop := told[0].Stop
	told = findings(s.Advance(s.at.Add(5 * time.Minute)))
	require.Len(t, told, 1)
	require.Equal(t, []any{Absent, stop}, []any{told[0].Kind, told[0].Stop})
	require.Empty(t, s.next(t, 6*time.Minute, func(c *calls) { c.leave(0, 1, 2, 3) }), "they may try again")
	require.Len(t, s.Advance(s.at.Add(36 * time.Second))[0].Cleared, 1)
}

// leave says that ranks have left their place at the start.
func (c *calls) leave(ranks ...int) {
	for _, rank := range ranks {
		c.record(rule.EventStackMoving, comm{}, rank, func(a pcommon.Map) { a.PutStr("process.stack.hash", "collective") })
	}
}

// TestARankThatTriesToConnectAgain: it sleeps between its tries, for longer each time. It waits since the first, and what is told
// does not end with each.
func TestARankThatTriesToConnectAgain(t *testing.T) {
	s := &standingJob{newCalls(2), newJoin(DefaultOptions)}
	require.Empty(t, s.next(t, 0, func(c *calls) { c.stand(meets, 1) }))
	for range 2 {
		require.Empty(t, s.next(t, 14*time.Second, func(c *calls) { c.leave(1) }))
		require.Empty(t, s.next(t, 4*time.Second, func(c *calls) { c.stand(meets, 1) }))
	}
	told := findings(s.Advance(s.at.Add(22 * time.Second)))
	require.Len(t, told, 1)
	require.Equal(t, []any{written.Add(-3 * time.Second).UTC(), 61 * time.Second}, []any{told[0].Since, told[0].Waited}, "since its first try")
	for range 12 {
		require.Empty(t, s.next(t, 17*time.Second, func(c *calls) { c.leave(1) }))
		require.Empty(t, s.next(t, 3*time.Second, func(c *calls) { c.stand(meets, 1) }))
	}
	told = findings(s.Advance(s.at.Add(22 * time.Second)))
	require.Len(t, told, 1)
	require.Equal(t, Absent, told[0].Kind)
	require.Len(t, s.next(t, 17*time.Second, func(c *calls) { c.leave(1); c.starts(0) })[0].Cleared, 1, "the other has come")
}

// TestARankThatComesBackToTheStartWaitsAnew: it was elsewhere meanwhile.
func TestARankThatComesBackToTheStartWaitsAnew(t *testing.T) {
	s := &standingJob{newCalls(2), newJoin(DefaultOptions)}
	require.Empty(t, s.next(t, 0, func(c *calls) { c.stand(meets, 1) }))
	require.Empty(t, s.next(t, 30*time.Second, func(c *calls) { c.leave(1) }))
	require.Empty(t, s.next(t, 30*time.Second, func(c *calls) { c.stand(meets, 1) }))
	require.Empty(t, s.Advance(s.at.Add(55*time.Second)))
	require.Len(t, findings(s.Advance(s.at.Add(57*time.Second))), 1)
}

// TestTheAddressAtWhichRanksWaitIsSaid: of a job without an id, which is named by it. Ranks with another address are another
// job by that.
func TestTheAddressAtWhichRanksWaitIsSaid(t *testing.T) {
	s := &standingJob{newCalls(4), newJoin(DefaultOptions)}
	s.next(t, 0, func(c *calls) {
		c.job = "master-0:29500/4"
		c.stand(polls, 0).stand(meets, 1, 2)
		c.job = "master-0:29501/4"
		c.stand(meets, 3)
	})
	var texts []string
	for _, f := range findings(s.Advance(s.at.Add(time.Minute))) {
		texts = append(texts, f.CalledBy+" "+f.who()+" "+f.Detail)
	}
	since := "the first since " + s.at.Add(-3*time.Second).UTC().Format("15:04:05 UTC") + ", on node-0, at "
	require.Equal(t, []string{"3 ranks rank 3 " + since + "master-0:29500", "rank 3 ranks 0-2 " + since + "master-0:29501"}, texts)
	for job, want := range map[string]string{"llm": "", "llm/4": "", "node-3:launcher-7/4": "", "[fd00::1]:29500/4": "[fd00::1]:29500", "a:0/4": "", "a:29500/x": ""} {
		require.Equal(t, want, meetingAddress(job), job)
	}
}

// TestAStartOfSomeRanksAlone: the others of the last start do not run any more, and that is not known. What is told of the new
// start ends with it, also once it counts as one job with the last.
func TestAStartOfSomeRanksAlone(t *testing.T) {
	s := &standingJob{newCalls(4), newJoin(DefaultOptions)}
	require.Empty(t, s.next(t, 0, func(c *calls) { c.starts(0, 1, 2, 3) }))
	s.begun = s.at.Add(time.Minute)
	require.Empty(t, s.next(t, 80*time.Second, func(c *calls) { c.starts(0).stand(polls, 0) }))
	told := findings(s.Advance(s.at.Add(time.Minute)))
	require.Len(t, told, 1)
	require.Equal(t, []int{1, 2, 3}, told[0].Culprits)
	require.Len(t, findings(s.Advance(s.at.Add(5*time.Minute))), 1, "an error by now")
	require.Empty(t, s.next(t, 6*time.Minute, func(c *calls) { c.leave(0) }))
	rounds := s.Advance(s.at.Add(36 * time.Second))
	require.Len(t, rounds, 1)
	require.Len(t, rounds[0].Cleared, 1)
}

// meetsAt says how the ranks stand to the store of their job: its address by their environment, the other end of the socket for which
// they wait, and how that stands.
func (c *calls) meetsAt(s stack, server, peer, link string, ranks ...int) {
	for _, rank := range ranks {
		c.record(rule.EventStack, comm{}, rank, func(a pcommon.Map) {
			s.put(a)
			for name, address := range map[string]string{"server": server, "network.peer": peer} {
				if host, port, err := net.SplitHostPort(address); err == nil {
					number, _ := strconv.ParseInt(port, 10, 32)
					a.PutStr(name+".address", host)
					a.PutInt(name+".port", number)
				}
			}
			if link != "" {
				a.PutStr("network.connection.state", link)
			}
		})
	}
}

// TestRanksThatAllSleepAtTheStart: none of them polls, since none has the store. That is no fault below the program, also where
// nothing of them has gone on for longer than is usual, and it is told to which address they want, and whether that answers.
func TestRanksThatAllSleepAtTheStart(t *testing.T) {
	sleeps := meets
	sleeps.silence, sleeps.activity = "overdue", "idle"
	const store = "master-0:29500"
	for name, tc := range map[string]struct {
		records       func(*calls)
		detail, doubt string
	}{
		"it does not answer": {func(c *calls) { c.meetsAt(sleeps, store, "10.0.0.9:29500", "syn_sent", 0, 1, 2) }, ", at master-0:29500, which does not answer", doubtStore},
		"nobody listens":     {func(c *calls) { c.meetsAt(sleeps, store, "", "closed", 0, 1, 2) }, ", at master-0:29500, to which no connection comes about", doubtStore},
		"a key that nobody writes": {
			func(c *calls) { c.meetsAt(sleeps, store, "10.0.0.9:29500", "established", 0, 1, 2) }, ", at master-0:29500, from which no data comes", doubtStore,
		},
		"it answers some": {
			func(c *calls) {
				c.meetsAt(sleeps, store, "10.0.0.9:29500", "established", 0)
				c.meetsAt(sleeps, store, "10.0.0.9:29500", "syn_sent", 1, 2)
			},
			"; rank 0 at master-0:29500, from which no data comes; ranks 1-2 at master-0:29500, which does not answer", doubtPlace,
		},
		"one has the store": {
			func(c *calls) {
				c.meetsAt(polls, store, "", "", 0)
				c.meetsAt(sleeps, store, "10.0.0.9:29500", "syn_sent", 1, 2)
			}, ", at master-0:29500, which does not answer ranks 1-2", doubtStore,
		},
		"one has the store, and tries fail": {
			func(c *calls) { c.meetsAt(polls, store, "", "", 0); c.meetsAt(sleeps, store, "", "closed", 1, 2) }, ", at master-0:29500, to which no connection of ranks 1-2 comes about", doubtStore,
		},
		"one has another port": {
			func(c *calls) {
				c.meetsAt(sleeps, store, "", "closed", 0, 1)
				c.meetsAt(sleeps, "master-0:29501", "", "closed", 2)
			},
			"; ranks 0-1 at master-0:29500, to which no connection comes about; rank 2 at master-0:29501, to which no connection comes about", doubtPlace,
		},
		"the program says another address": {func(c *calls) { c.meetsAt(sleeps, store, "10.0.0.7:1234", "syn_sent", 0, 1, 2) }, ", at 10.0.0.7:1234, which does not answer", doubtStore},
		"the environment says another number": {
			func(c *calls) { c.meetsAt(sleeps, "10.0.0.9:29500", "10.0.0.7:29500", "syn_sent", 0, 1, 2) }, ", at 10.0.0.7:29500, which does not answer", doubtStore,
		},
		"no address is known":           {func(c *calls) { c.meetsAt(sleeps, "", "", "closed", 0, 1, 2) }, "", doubtMeet},
		"an address and no port":        {func(c *calls) { c.meetsAt(sleeps, "master-0:0", "", "", 0, 1, 2) }, "", doubtMeet},
		"a state that nobody has heard": {func(c *calls) { c.meetsAt(sleeps, store, "", "asleep", 0, 1, 2) }, ", at master-0:29500", doubtStore},
		"nobody says which is its start": {
			func(c *calls) { c.begun = time.Unix(0, 0); c.meetsAt(sleeps, store, "", "closed", 0, 1, 2) }, ", at master-0:29500, to which no connection comes about", doubtStore,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &standingJob{newCalls(3), newJoin(DefaultOptions)}
			require.Empty(t, s.next(t, 0, tc.records))
			told := findings(s.Advance(s.at.Add(time.Minute)))
			require.Len(t, told, 1)
			f := told[0]
			require.Equal(t, []any{Gathers, Likely, []int{0, 1, 2}, []string{tc.doubt}}, []any{f.Kind, f.Sure, f.Waiting, f.Because})
			require.Equal(t, "all 3 ranks wait in init_process_group, and do not meet; the first since "+f.Since.Format("15:04:05 UTC")+", on node-0"+tc.detail, f.String())
			told = findings(s.Advance(s.at.Add(5 * time.Minute)))
			require.Len(t, told, 1)
			require.Equal(t, Absent, told[0].Kind)
		})
	}
}

// TestAnAddressOfEachHost: ranks of several hosts that have the same loopback address do not meet there.
func TestAnAddressOfEachHost(t *testing.T) {
	for address, want := range map[string]string{"127.0.0.1:29500": "127.0.0.1:29500 of each host", "localhost:29500": "localhost:29500 of each host", "[::1]:29500": "[::1]:29500 of each host", "master-0:29500": "master-0:29500"} {
		require.Equal(t, want, (&meetingPlace{store: address}).text(2))
		require.Equal(t, address, (&meetingPlace{store: address}).text(1))
	}
}

// TestTheAddressOfAStoreIsSaid: all ranks wait there for a key, outside of a collective.
func TestTheAddressOfAStoreIsSaid(t *testing.T) {
	s := &standingJob{newCalls(3), newJoin(DefaultOptions)}
	require.Empty(t, s.next(t, 0, func(c *calls) { c.meetsAt(inStore, "10.0.0.9:29500", "10.0.0.9:29500", "established", 0, 1, 2) }))
	told := findings(s.Advance(s.at.Add(time.Minute)))
	require.Len(t, told, 1)
	require.Equal(t, []any{Apart, "all 3 ranks wait in the store; at 10.0.0.9:29500, from which no data comes"}, []any{told[0].Kind, told[0].String()})
}
