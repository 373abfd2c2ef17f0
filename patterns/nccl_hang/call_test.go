package ncclhang

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// calls is a job whose ranks call NCCL, eight to a host.
type calls struct {
	world int
	at    time.Time
	job   string
	begun time.Time
	list  plog.Logs
}

func newCalls(world int) *calls {
	return &calls{world: world, at: written, job: "llm", begun: written.Add(-time.Hour), list: plog.NewLogs()}
}

// comm is a communicator, and how far each of its ranks is.
type comm struct {
	name  string
	ranks []int // of the job, in the order of the communicator
}

func (c *calls) all() comm {
	w := comm{name: "0xa11"}
	for rank := range c.world {
		w.ranks = append(w.ranks, rank)
	}
	return w
}

// record adds a record of a rank in a communicator.
func (c *calls) record(event string, in comm, rank int, edit func(pcommon.Map)) {
	resource := c.list.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", fmt.Sprintf("node-%d", rank/8))
	r := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	r.SetEventName(event)
	r.SetTimestamp(pcommon.NewTimestampFromTime(c.at))
	a := r.Attributes()
	a.PutStr("tracecore.trust", "proven")
	a.PutInt("process.pid", int64(1000+rank))
	a.PutStr("process.executable.name", "python")
	a.PutInt("gen_ai.training.rank", int64(rank))
	a.PutInt("gen_ai.training.world_size", int64(c.world))
	a.PutStr("gen_ai.training.job_id", c.job)
	a.PutStr("gen_ai.training.job_domain", "slurm 7")
	a.PutInt("gen_ai.training.rank_pid", int64(1000+rank))
	a.PutInt("gen_ai.training.rank_start_unix_nano", c.begun.UnixNano())
	if in.name != "" {
		a.PutStr("nccl.call.comm", in.name)
		for at, member := range in.ranks {
			if member == rank {
				a.PutInt("nccl.call.comm_rank", int64(at))
			}
		}
		a.PutInt("nccl.call.comm_size", int64(len(in.ranks)))
	}
	if edit != nil {
		edit(a)
	}
}

// stands says that ranks stopped after so many collectives, and what they do since.
func (c *calls) stands(in comm, number int, silence string, ranks ...int) *calls {
	for _, rank := range ranks {
		c.record(eventCallStopped, in, rank, stoodAt(number, c.at.Add(-3*time.Second), silence))
	}
	return c
}

// left says that ranks ended a communicator after so many collectives.
func (c *calls) left(in comm, number int, reason string, ranks ...int) *calls {
	for _, rank := range ranks {
		c.record(eventCallEnd, in, rank, func(a pcommon.Map) {
			stoodAt(number, c.at.Add(-3*time.Second), "")(a)
			a.PutStr("nccl.call.end_reason", reason)
		})
	}
	return c
}

// stopped says that ranks are stopped after so many collectives.
func (c *calls) stopped(in comm, number int, ranks ...int) *calls {
	for _, rank := range ranks {
		c.record(eventCallStopped, in, rank, func(a pcommon.Map) {
			stoodAt(number, c.at.Add(-3*time.Second), "overdue")(a)
			a.PutStr("nccl.rank.state", "stopped")
		})
	}
	return c
}

func stoodAt(number int, last time.Time, silence string) func(pcommon.Map) {
	return func(a pcommon.Map) {
		a.PutBool("nccl.call.exact", true)
		a.PutInt("nccl.call.collectives", int64(number))
		a.PutInt("nccl.call.last_unix_nano", last.UnixNano())
		a.PutStr("nccl.call.last_operation", "AllReduce")
		recent := a.PutEmptySlice("nccl.call.recent")
		for n := max(0, number-32); n < number; n++ {
			recent.AppendEmpty().SetStr(fmt.Sprintf("%d AllReduce %d bf16", n, 4096))
		}
		a.PutStr("nccl.rank.state", "sleeping")
		a.PutStr("nccl.rank.activity", map[string]string{"overdue": "idle", "usual": "computing", "long": "computing"}[silence])
		if silence != "" {
			a.PutStr("nccl.rank.silence", silence)
		}
	}
}

func but(world int, without ...int) (ranks []int) {
	for rank := range world {
		if !contains(without, rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

func contains(ranks []int, rank int) bool {
	for _, one := range ranks {
		if one == rank {
			return true
		}
	}
	return false
}

// found is what the join says of the records after they have settled, and once nothing more
// can be known of a rank that says nothing.
func (c *calls) found(t testing.TB) []Finding {
	t.Helper()
	requireOneStop(t, c)
	j := newJoin(DefaultOptions)
	j.Add(c.list, c.at)
	return append(findings(j.Advance(c.at.Add(settled))), findings(j.Advance(c.at.Add(DefaultOptions.UnknownWait+settled)))...)
}

// requireOneStop has the witnesses speak one after the other. It is one stop as long as they name a rank
// in common, and at last it is what they say together.
func requireOneStop(t testing.TB, c *calls) {
	t.Helper()
	stacks, others := plog.NewLogs(), plog.NewLogs()
	for _, resource := range c.list.ResourceLogs().All() {
		to := others
		if strings.HasPrefix(resource.ScopeLogs().At(0).LogRecords().At(0).EventName(), rule.EventStack) {
			to = stacks
		}
		resource.CopyTo(to.ResourceLogs().AppendEmpty())
	}
	later := c.at.Add(DefaultOptions.UnknownWait + settled)
	together := newJoin(DefaultOptions)
	together.Add(c.list, c.at)
	together.Advance(c.at.Add(settled))
	together.Advance(later)
	for _, order := range [][]plog.Logs{{stacks, others}, {others, stacks}} {
		j := newJoin(DefaultOptions)
		before := map[string]toldStop{}
		for i, logs := range order {
			at := c.at.Add(time.Duration(i) * settled)
			j.Add(logs, at)
			j.Advance(at.Add(settled))
			now := j.told()
			for run, told := range now {
				if was, is := before[run]; is && slices.ContainsFunc(told.Culprits, func(rank int) bool { return has(was.Culprits, rank) }) {
					require.Equal(t, was.Stop, told.Stop)
				}
			}
			before = now
		}
		j.Advance(later)
		require.ElementsMatch(t, saidNow(together), saidNow(j))
	}
}

// saidNow is what is told now. A run has another name where another rank was heard of first.
func saidNow(j joinUnderTest) (all []string) {
	for _, told := range j.told() {
		all = append(all, told.Said)
	}
	return all
}

// told is what is told now of each run.
func (j joinUnderTest) told() map[string]toldStop {
	all := map[string]toldStop{}
	for name, r := range j.calls.runs {
		if r.told != nil {
			all[name] = *r.told
		}
	}
	return all
}

func findings(rounds []Round) (all []Finding) {
	for _, round := range rounds {
		all = append(all, round.Findings...)
	}
	return all
}

func TestRankThatHasNotCalledIsNamed(t *testing.T) {
	c := newCalls(1024)
	f := c.stands(c.all(), 10432, "overdue", but(1024, 5)...).stands(c.all(), 10431, "overdue", 5).found(t)
	require.Len(t, f, 1)
	require.Equal(t, "rank 5 has not called AllReduce #10432 (4,096 x bf16), which 1,023 ranks have called: its main thread is asleep, at 0 % CPU", f[0].String())
	require.Equal(t, NotCalled, f[0].Kind)
	require.Equal(t, Certain, f[0].Sure)
	require.Equal(t, []int{5}, f[0].Culprits)
	require.Equal(t, 5, f[0].Rank())
	require.Equal(t, but(1024, 5), f[0].Waiting)
	require.Equal(t, but(1024), f[0].Affected)
	require.Equal(t, "node-0", f[0].Host.Host)
	require.EqualValues(t, 1005, f[0].Host.PID)
	require.EqualValues(t, 1005, f[0].Process.PID)
}

// sub is a communicator of some ranks.
func sub(name string, ranks ...int) comm { return comm{name, ranks} }

func TestWhatCallsTell(t *testing.T) {
	for name, tc := range map[string]struct {
		calls func(*calls)
		want  string // "" for nothing
		sure  Sureness
		doubt string
		kind  Kind
	}{
		"all have called the same and stand": {
			calls: func(c *calls) { c.stands(c.all(), 10, "overdue", but(8)...) },
		},
		"rank 0 evaluates": {
			calls: func(c *calls) { c.stands(c.all(), 10, "overdue", but(8, 0)...).stands(c.all(), 9, "usual", 0) },
		},
		"rank 0 evaluates for long": {
			calls: func(c *calls) { c.stands(c.all(), 10, "overdue", but(8, 0)...).stands(c.all(), 9, "long", 0) },
			want:  "rank 0 has not yet called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread computes", kind: Works, sure: Likely,
		},
		"rank 0 evaluates, and others wait for it through others": {
			calls: func(c *calls) {
				tensor, data := sub("0x1", 0, 1), sub("0x2", 1, 3, 5, 7)
				c.stands(tensor, 10, "overdue", 1).stands(tensor, 9, "usual", 0)
				c.stands(data, 20, "overdue", 3, 5, 7).stands(data, 19, "overdue", 1)
			},
		},
		"a rank goes on": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
				c.at = c.at.Add(time.Second)
				c.record(eventCallMoving, c.all(), 5, stoodAt(10, c.at, "usual"))
			},
		},
		"a rank goes on, told before it was said to stand": {
			calls: func(c *calls) {
				at := c.at
				c.at = at.Add(time.Second)
				c.record(eventCallMoving, c.all(), 5, stoodAt(10, c.at, "usual"))
				c.at = at
				c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
				c.at = at.Add(time.Second)
			},
		},
		"a rank that lacks it calls elsewhere": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5).stands(sub("0x2", 5, 6), 3, "overdue", 5, 6)
				c.at = c.at.Add(time.Second)
				c.record(eventCallMoving, sub("0x2", 5, 6), 5, stoodAt(4, c.at, ""))
			},
		},
		"the others ran ahead unevenly": {
			calls: func(c *calls) {
				c.stands(c.all(), 12, "overdue", 0, 1, 2).stands(c.all(), 11, "overdue", 3, 4, 6, 7).stands(c.all(), 9, "overdue", 5)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread is asleep, at 0 % CPU", sure: Likely, doubt: doubtUneven,
		},
		"many lack it": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", 0, 1, 2, 3).stands(c.all(), 9, "overdue", 4, 5, 6, 7)
			},
			want: "ranks 4-7 have not called AllReduce #10 (4,096 x bf16), which 4 ranks have called: of rank 4, its main thread is asleep, at 0 % CPU", sure: Likely, doubt: doubtMany,
		},
		"of one rank no record came": {
			calls: func(c *calls) { c.stands(c.all(), 10, "overdue", but(8, 5)...) },
		},
		"of one rank no record came, and another lacks it": {
			calls: func(c *calls) { c.stands(c.all(), 10, "overdue", but(8, 5, 6)...).stands(c.all(), 9, "overdue", 5) },
			want:  "rank 5 has not called AllReduce #10 (4,096 x bf16), which 6 ranks have called: its main thread is asleep, at 0 % CPU", sure: Likely, doubt: "of rank 6 of the communicator no record came",
		},
		"graphs are replayed": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 5)...)
				c.record(eventCallStopped, c.all(), 5, func(a pcommon.Map) {
					stoodAt(9, c.at, "overdue")(a)
					a.PutInt("nccl.call.graph_launches", 7)
				})
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread is asleep, at 0 % CPU", sure: Unsure, doubt: doubtGraphs,
		},
		"calls of another process on its host are not counted": {
			calls: func(c *calls) {
				c.record(eventCallLimited, comm{}, 5, func(a pcommon.Map) {
					a.PutInt("process.pid", 4711)
					a.PutStr("nccl.call.limit", "calls")
				})
				c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread is asleep, at 0 % CPU", sure: Certain,
		},
		"calls of the rank that lacks one are not counted": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
				c.record(eventCallLimited, comm{}, 5, func(a pcommon.Map) { a.PutStr("nccl.call.limit", "calls") })
			},
		},
		"calls of it were not counted, and are again": {
			calls: func(c *calls) {
				c.record(eventCallLimited, comm{}, 5, func(a pcommon.Map) { a.PutStr("nccl.call.limit", "calls") })
				c.record(eventCallLimited, comm{}, 5, func(a pcommon.Map) { a.PutStr("nccl.call.limit", "none") })
				c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread is asleep, at 0 % CPU", sure: Certain,
		},
		"calls of a rank beside it are not counted": {
			calls: func(c *calls) {
				c.record(eventCallLimited, comm{}, 0, func(a pcommon.Map) { a.PutStr("nccl.call.limit", "calls") })
				c.stands(c.all(), 10, "overdue", but(8, 0, 5)...).stands(c.all(), 9, "overdue", 5).stands(c.all(), 2, "overdue", 0)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 6 ranks have called: its main thread is asleep, at 0 % CPU", sure: Unsure, doubt: doubtLimited,
		},
		"GPUs communicate by themselves": {
			calls: func(c *calls) {
				for _, rank := range []int{0, 5} {
					c.record(eventCallLimited, comm{}, rank, func(a pcommon.Map) { a.PutStr("nccl.call.limit", "gpu_initiated") })
				}
				c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread is asleep, at 0 % CPU", sure: Likely,
			doubt: "the GPUs of ranks 0, 5 communicate by themselves, too (NVSHMEM, the device API of NCCL), which makes no call",
		},
		"GPUs communicate by themselves, beside an NCCL that is linked into the program": {
			calls: func(c *calls) {
				for _, why := range []string{"static", "gpu_initiated"} {
					c.record(eventCallLimited, comm{}, 5, func(a pcommon.Map) { a.PutStr("nccl.call.limit", why) })
				}
				c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread is asleep, at 0 % CPU", sure: Likely,
			doubt: "the calls of rank 5 are not seen: NCCL is linked into the program and exports no function",
		},
		"GPUs of another process on its host communicate by themselves": {
			calls: func(c *calls) {
				c.record(eventCallLimited, comm{}, 5, func(a pcommon.Map) {
					a.PutInt("process.pid", 4711)
					a.PutStr("nccl.call.limit", "gpu_initiated")
				})
				c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread is asleep, at 0 % CPU", sure: Certain,
		},
		"sends alone are not counted any more": {
			calls: func(c *calls) {
				c.record(eventCallLimited, comm{}, 0, func(a pcommon.Map) { a.PutStr("nccl.call.limit", "point_to_point") })
				c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread is asleep, at 0 % CPU", sure: Certain,
		},
		"far behind": {
			calls: func(c *calls) { c.stands(c.all(), 1000, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5) },
			want:  "rank 5 has not called collective #10, which 7 ranks have called: its main thread is asleep, at 0 % CPU", sure: Likely, doubt: doubtFar,
		},
		"so far behind that its record is old": {
			calls: func(c *calls) { c.stands(c.all(), 10_000, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5) },
			want:  "rank 5 has not called collective #10, which 7 ranks have called: its main thread is asleep, at 0 % CPU", sure: Unsure, doubt: doubtFar,
		},
		"a rank that is stopped": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 5)...)
				c.record(eventCallStopped, c.all(), 5, func(a pcommon.Map) {
					stoodAt(9, c.at, "overdue")(a)
					a.PutStr("nccl.rank.state", "stopped")
				})
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its process is stopped (SIGSTOP or a debugger)", sure: Certain,
		},
		"a rank that has ended": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 5)...)
				c.record(eventCallEnd, c.all(), 5, func(a pcommon.Map) {
					stoodAt(9, c.at, "overdue")(a)
					a.PutStr("nccl.call.end_reason", "exited")
				})
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its process has ended", sure: Certain,
		},
		"all have ended": {
			calls: func(c *calls) {
				for _, rank := range but(8) {
					c.record(eventCallEnd, c.all(), rank, func(a pcommon.Map) {
						stoodAt(9+rank%2, c.at, "overdue")(a)
						a.PutStr("nccl.call.end_reason", "exited")
					})
				}
			},
		},
		"a rank that has destroyed the communicator": {
			calls: func(c *calls) { c.stands(c.all(), 10, "overdue", but(8, 5)...).left(c.all(), 9, "destroyed", 5) },
			want:  "rank 5 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: it has ended the communicator", sure: Certain,
		},
		"a rank that has aborted the communicator, and waits in another": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 3, 5)...).stands(c.all(), 9, "overdue", 3).left(c.all(), 9, "aborted", 5).stacks("collective", 3, 5)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 6 ranks have called: it has ended the communicator", sure: Likely,
		},
		"a rank has aborted the communicator in which it waited, and another lacks the call": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 2, 5)...).stands(c.all(), 9, "overdue", 5).left(c.all(), 10, "aborted", 2)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 6 ranks have called: its main thread is asleep, at 0 % CPU", sure: Certain,
		},
		"all have called the same, and half of them have destroyed the communicator": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", 0, 1, 2, 3).left(c.all(), 10, "destroyed", 4, 5, 6, 7)
			},
		},
		"all have destroyed the communicator": {
			calls: func(c *calls) { c.left(c.all(), 10, "destroyed", 0, 1, 2, 3).left(c.all(), 9, "aborted", 4, 5, 6, 7) },
		},
		"another communicator of the same name": {
			calls: func(c *calls) {
				at := c.at
				c.at = at.Add(-time.Second)
				c.left(c.all(), 3, "destroyed", but(8)...)
				c.at = at
				c.stands(c.all(), 10, "overdue", but(8, 5)...)
			},
		},
		"numbers that cannot be compared": {
			calls: func(c *calls) {
				for _, rank := range but(8) {
					c.record(eventCallStopped, c.all(), rank, func(a pcommon.Map) {
						stoodAt(9+rank, c.at, "overdue")(a)
						a.PutBool("nccl.call.exact", false)
					})
				}
			},
		},
		"numbers of NCCL itself": {
			calls: func(c *calls) {
				for _, rank := range but(8) {
					c.record(eventCallStopped, c.all(), rank, func(a pcommon.Map) {
						stoodAt(10, c.at, "overdue")(a)
						if rank == 5 {
							stoodAt(9, c.at, "overdue")(a)
						}
						a.PutBool("nccl.call.exact", rank < 3)
						a.PutBool("nccl.call.aligned", rank >= 3)
					})
				}
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread is asleep, at 0 % CPU", sure: Likely, doubt: doubtAligned,
		},
		"numbers of NCCL itself, and one rank had sent to another before": {
			calls: func(c *calls) {
				for _, rank := range but(8) {
					c.record(eventCallStopped, c.all(), rank, func(a pcommon.Map) {
						stoodAt(10, c.at, "overdue")(a)
						if rank < 2 {
							stoodAt(12, c.at, "overdue")(a)
						}
						a.PutBool("nccl.call.exact", false)
						a.PutBool("nccl.call.aligned", true)
					})
				}
			},
		},
		"numbers that cannot be compared, and a rank that is stopped": {
			calls: func(c *calls) {
				for _, rank := range but(8) {
					c.record(eventCallStopped, c.all(), rank, func(a pcommon.Map) {
						stoodAt(9, c.at, "overdue")(a)
						a.PutBool("nccl.call.exact", false)
						if rank == 3 {
							a.PutStr("nccl.rank.state", "stopped")
						}
					})
				}
			},
			want: "7 ranks wait for rank 3 in communicator 0xa11: its process is stopped (SIGSTOP or a debugger)", kind: Halted, sure: Likely, doubt: doubtExact,
		},
		"another operation": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 5)...)
				c.record(eventCallStopped, c.all(), 5, func(a pcommon.Map) {
					stoodAt(10, c.at, "overdue")(a)
					list, _ := a.Get("nccl.call.recent")
					list.Slice().At(9).SetStr("9 AllGather 4096 bf16")
				})
			},
			want: "rank 5 entered something else than its peers under AllReduce #10 of communicator 0xa11: ranks 0-4, 6-7: AllReduce (4,096 x bf16); rank 5: AllGather (4,096 x bf16)", kind: Mismatch, sure: Certain,
		},
		"a pipeline whose first stage stands": { // rank 0 sleeps; 2 waits for its data, and 4 for that of 2
			calls: func(c *calls) {
				for stage, rank := range []int{0, 2, 4} {
					data := sub(fmt.Sprintf("0xd%d", stage), rank, rank+1)
					c.stands(data, 10, "overdue", rank+1).stands(data, 9, "overdue", rank)
					if stage > 0 {
						pair := sub(fmt.Sprintf("0xf%d", stage), rank-2, rank)
						c.record(eventCallStopped, pair, rank-2, stoodAt(0, c.at.Add(-time.Hour), "overdue"))
						c.record(eventCallStopped, pair, rank, func(a pcommon.Map) {
							stoodAt(0, c.at, "overdue")(a)
							a.PutStr("nccl.call.last_operation", "Recv")
							a.PutInt("nccl.call.last_root", 0)
						})
					}
				}
			},
			want: "rank 0 has not called AllReduce #10 (4,096 x bf16), which rank 1 has called: its main thread is asleep, at 0 % CPU", sure: Certain,
		},
		"ranks that wait below the program": { // the tensor group 0, 1 calls and does not go on; its peers in data-parallel groups wait for it
			calls: func(c *calls) {
				c.record(eventCallStopped, sub("0x7e", 0, 1), 0, stoodAt(50, c.at, "overdue"))
				c.record(eventCallStopped, sub("0x7e", 0, 1), 1, stoodAt(50, c.at, "overdue"))
				for rank := range 2 {
					data := sub(fmt.Sprintf("0xd%d", rank), rank, rank+2, rank+4, rank+6)
					c.stands(data, 10, "overdue", rank+2, rank+4, rank+6).stands(data, 9, "overdue", rank)
				}
			},
			want: "both ranks called AllReduce #50 (4,096 x bf16), and all wait: the fault is below the program", kind: AllCalled, sure: Likely,
		},
		"two ranks that stand in communicators of their own": {
			calls: func(c *calls) {
				for rank := range 2 {
					data := sub(fmt.Sprintf("0xd%d", rank), rank, rank+2, rank+4, rank+6)
					c.stands(data, 10, "overdue", rank+2, rank+4, rank+6).stands(data, 9, "overdue", rank)
				}
			},
			want: "ranks 0-1 have not called AllReduce #10 (4,096 x bf16), which 3 ranks have called: of rank 0, its main thread is asleep, at 0 % CPU", sure: Certain,
		},
		"all have called the same, and a rank is stopped": {
			calls: func(c *calls) { c.stands(c.all(), 10, "overdue", but(8, 3)...).stopped(c.all(), 10, 3) },
			want:  "7 ranks wait for rank 3 in communicator 0xa11: its process is stopped (SIGSTOP or a debugger)", kind: Halted, sure: Likely, doubt: doubtCalled,
		},
		"all have called the same, and a rank is stopped of which no stack came": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 3)...).stopped(c.all(), 10, 3).stand(inCollective, but(8, 3)...)
			},
			want: "7 ranks wait for rank 3 in communicator 0xa11: its process is stopped (SIGSTOP or a debugger)", kind: Halted, sure: Likely, doubt: doubtCalled,
		},
		"all have called the same, a rank is stopped, and others wait for clients": {
			calls: func(c *calls) {
				s := inLock.in("own_code")
				s.function = "do_epoll_wait"
				c.stands(c.all(), 10, "overdue", but(8, 3)...).stopped(c.all(), 10, 3).stand(s, 0, 1)
			},
		},
		"all have called the same, a rank is stopped, and another computes": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 1, 3)...).stands(c.all(), 10, "usual", 1).stopped(c.all(), 10, 3)
			},
		},
		"all have called the same long ago on one communicator, and stand in another in which a rank is stopped": {
			calls: func(c *calls) {
				half := sub("0x4", 0, 1, 2, 3)
				c.stoodSince(c.all(), 1, "overdue", time.Hour, but(8)...).stands(half, 10, "overdue", 0, 1, 2).stopped(half, 10, 3)
			},
			want: "3 ranks wait for rank 3 in communicator 0x4: its process is stopped (SIGSTOP or a debugger)", kind: Halted, sure: Likely, doubt: doubtCalled,
		},
		"half of the ranks are stopped": {
			calls: func(c *calls) { c.stands(c.all(), 10, "overdue", 0, 1, 2, 3).stopped(c.all(), 10, 4, 5, 6, 7) },
		},
		"a rank is stopped, and rank 0 evaluates": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 0, 5)...).stands(c.all(), 9, "usual", 0).stopped(c.all(), 9, 5)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 6 ranks have called: its process is stopped (SIGSTOP or a debugger)", sure: Likely,
			doubt: "rank 0 lacks the call, too, and may make it",
		},
		"a rank is stopped, and rank 0 evaluates for long": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 0, 5)...).stands(c.all(), 9, "long", 0).stopped(c.all(), 9, 5)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 6 ranks have called: its process is stopped (SIGSTOP or a debugger)", sure: Likely,
			doubt: "rank 0 lacks the call, too, and may make it",
		},
		"a rank sleeps, and rank 0 evaluates": { // for which it may wait
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 0, 5)...).stands(c.all(), 9, "usual", 0).stands(c.all(), 9, "overdue", 5)
			},
		},
		"two ranks that lack different calls of communicators of their own": {
			calls: func(c *calls) {
				a, b := sub("0xd0", 0, 2, 4, 6), sub("0xd1", 1, 3, 5, 7)
				c.stands(a, 10, "overdue", 0, 4, 6).stands(a, 9, "overdue", 2).stands(b, 501, "overdue", 1, 3, 7).stands(b, 500, "overdue", 5)
			},
			want: "rank 2 has not called AllReduce #10 (4,096 x bf16), which 3 ranks have called: its main thread is asleep, at 0 % CPU; " +
				"in communicator 0xd1 rank 5 has not called AllReduce #501 (4,096 x bf16), which 3 ranks have called", sure: Likely, doubt: doubtOther,
		},
		"ranks that wait for the culprit elsewhere": { // the group of 0-3 waits for 1, and all others for that group
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", 4, 5, 6, 7).stands(c.all(), 9, "usual", 0, 2, 3).stands(c.all(), 9, "overdue", 1)
				c.stands(sub("0x7e", 0, 1, 2, 3), 50, "usual", 0, 2, 3).stands(sub("0x7e", 0, 1, 2, 3), 49, "overdue", 1)
			},
			want: "rank 1 has not called AllReduce #50 (4,096 x bf16), which 3 ranks have called: its main thread is asleep, at 0 % CPU", sure: Certain,
		},
		"two lack it, and one of them waits elsewhere for a rank without records": {
			calls: func(c *calls) {
				most := sub("0xa12", but(7)...)
				c.stands(most, 10, "overdue", but(7, 3, 5)...).stands(most, 9, "overdue", 3, 5).stands(sub("0x2", 3, 7), 4, "overdue", 3)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 5 ranks have called: its main thread is asleep, at 0 % CPU", sure: Likely,
			doubt: "rank 3 lacks the call, too, and waits on another communicator, where it is not certain for whom",
		},
		"three lack it, one waits for another, which waits for the third": {
			calls: func(c *calls) {
				c.at = c.at.Add(-time.Minute)
				c.stands(c.all(), 10, "overdue", but(8, 1, 3, 5)...).stands(c.all(), 9, "overdue", 1, 3, 5)
				c.at = c.at.Add(time.Minute)
				c.stands(sub("0x2", 1, 3), 4, "overdue", 1).stands(sub("0x2", 1, 3), 3, "overdue", 3)
				c.stands(sub("0x3", 3, 5), 4, "overdue", 3).stands(sub("0x3", 3, 5), 3, "overdue", 5)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 5 ranks have called: its main thread is asleep, at 0 % CPU", sure: Certain,
		},
		"one communicator stands and is not used": {
			calls: func(c *calls) {
				c.stands(sub("0xe", 0, 1), 3, "overdue", 0, 1)
			},
		},
		"two lack it, and one of them waits for the other in a collective of another library": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 0, 5)...).stands(c.all(), 9, "overdue", 0, 5).stacks("gpu", but(8, 0, 5)...).stacks("collective", 0).stacks("lock", 5)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 6 ranks have called: its main thread is asleep, at 0 % CPU", sure: Likely,
			doubt: "rank 0 lacks the call, too, and waits in a collective or for the GPU, by the stack",
		},
		"two lack it, and the first that stopped waits itself": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 0, 5)...).stands(c.all(), 8, "overdue", 0).stands(c.all(), 9, "overdue", 5).stacks("gpu", but(8, 5)...).stacks("lock", 5)
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 6 ranks have called: its main thread is asleep, at 0 % CPU", sure: Likely,
			doubt: "rank 0 lacks the call, too, and waits in a collective or for the GPU, by the stack",
		},
		"the rank that lacks it waits for its GPU": {
			calls: func(c *calls) {
				c.stands(c.all(), 13, "overdue", but(8, 0)...).stands(c.all(), 9, "overdue", 0).stacks("gpu", but(8)...)
			},
		},
		"the rank that lacks it waited for its GPU before its last call": {
			calls: func(c *calls) {
				c.at = c.at.Add(-20 * time.Second)
				c.stacks("gpu", 0)
				c.at = c.at.Add(20 * time.Second)
				c.stands(c.all(), 10, "overdue", but(8, 0)...).stands(c.all(), 9, "overdue", 0)
			},
			want: "rank 0 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread is asleep, at 0 % CPU", sure: Certain,
		},
		"the rank that lacks it polls its GPU, on which it may evaluate": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 0)...).stands(c.all(), 9, "long", 0).stacks("gpu", but(8)...)
			},
			want: "rank 0 has not yet called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread computes", kind: Works, sure: Likely,
		},
		"the rank that lacks it is stopped while it waits for its GPU": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 0)...).stacks("gpu", but(8)...)
				c.record(eventCallStopped, c.all(), 0, func(a pcommon.Map) {
					stoodAt(9, c.at, "overdue")(a)
					a.PutStr("nccl.rank.state", "stopped")
				})
			},
			want: "rank 0 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its process is stopped (SIGSTOP or a debugger)", sure: Certain,
		},
		"two processes claim one rank": {
			calls: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
				c.record(eventCallStopped, c.all(), 5, func(a pcommon.Map) {
					stoodAt(9, c.at, "overdue")(a)
					a.PutInt("process.pid", 77)
				})
			},
			want: "rank 5 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread is asleep, at 0 % CPU", sure: Unsure, doubt: doubtDispute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(8)
			tc.calls(c)
			f := c.found(t)
			if tc.want == "" {
				require.Empty(t, f)
				return
			}
			require.Len(t, f, 1)
			if tc.kind == "" {
				tc.kind = NotCalled
			}
			require.Equal(t, tc.want, f[0].String())
			require.Equal(t, tc.kind, f[0].Kind)
			require.Equal(t, tc.sure, f[0].Sure, f[0].Because)
			if tc.doubt != "" {
				require.Contains(t, f[0].Because, tc.doubt)
			} else if tc.sure == Certain {
				require.Empty(t, f[0].Because)
			}
		})
	}
}
