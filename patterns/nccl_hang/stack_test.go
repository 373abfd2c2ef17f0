package ncclhang

import (
	"cmp"
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// stack is where the main thread of a rank stands, and since when.
type stack struct {
	class, reason, function, owner, silence, activity, state, mount string
	since                                                           time.Duration
	pid                                                             int64
	hash, unread, where, call                                       string
}

func (s stack) put(a pcommon.Map) {
	if s.pid != 0 {
		a.PutInt("process.pid", s.pid)
	}
	a.PutStr("process.stack.wait_class", s.class)
	reason := s.reason
	if reason == "" {
		reason = reasonAsleep
	}
	a.PutStr("process.stack.reason", reason)
	a.PutStr("process.stack.kernel_function", s.function)
	a.PutStr("process.stack.kernel_owner", s.owner)
	hash := s.hash
	if hash == "" {
		hash = s.class
	}
	a.PutStr("process.stack.hash", hash)
	since := s.since
	if since == 0 {
		since = 3 * time.Second
	}
	a.PutInt("process.stack.still_ns", since.Nanoseconds())
	if s.where != "" {
		a.PutStr("process.stack.where", s.where)
	}
	if s.call != "" {
		a.PutStr("process.stack.call", s.call)
	}
	if s.unread != "" {
		a.PutEmptySlice("process.stack.unread").AppendEmpty().SetStr(s.unread)
	}
	if s.mount != "" {
		a.PutStr("process.stack.mount_type", "nfs4")
		a.PutStr("process.stack.mount_source", s.mount)
		a.PutStr("process.stack.mount_point", "/data")
	}
	s.does(a)
}

func (s stack) does(a pcommon.Map) {
	if s.silence != "" {
		a.PutStr("nccl.rank.silence", s.silence)
		a.PutStr("nccl.rank.activity", s.activity)
	}
	if s.state != "" {
		a.PutStr("nccl.rank.state", s.state)
	}
}

var (
	inCollective = stack{class: "collective", function: "futex_do_wait", silence: "overdue", activity: "idle", state: "sleeping"}
	onGPU        = stack{class: "gpu", reason: "same_call"}
	nowhere      = stack{class: "own_code", function: "futex_do_wait", silence: "overdue", activity: "idle", state: "sleeping", unread: "Python: a page is not resident"}
	inBackward   = stack{class: "backward", function: "futex_do_wait", silence: "overdue", activity: "idle", state: "sleeping"}
	inStore      = stack{class: "store", function: "do_poll", silence: "overdue", activity: "idle", state: "sleeping"}
	inLock       = stack{class: "lock", function: "futex_do_wait", silence: "overdue", activity: "idle", state: "sleeping"}
)

// looksUp asks a name server, for no longer than usual as far as is known.
var looksUp = stack{class: "name_server", function: "do_poll", silence: "usual", activity: "idle", state: "sleeping"}

// since30 has stood there for half a minute.
func (s stack) since30() stack {
	s.since = 31 * time.Second
	return s
}

// gpuAsleep waits for its GPU without polling it.
var gpuAsleep = inCollective.in("gpu")

// stoodLike says that all ranks stopped after ten collectives, and something more of each.
func (c *calls) stoodLike(attribute string, value any) *calls {
	for rank := range c.world {
		c.record(eventCallStopped, c.all(), rank, func(a pcommon.Map) {
			stoodAt(10, c.at.Add(-3*time.Second), "overdue")(a)
			if err := a.PutEmpty(attribute).FromRaw(value); err != nil {
				panic(err)
			}
		})
	}
	return c
}

// stand says where ranks stand.
func (c *calls) stand(s stack, ranks ...int) *calls {
	for _, rank := range ranks {
		c.record(rule.EventStack, comm{}, rank, s.put)
	}
	return c
}

// does says what ranks do that were said to stand there.
func (c *calls) does(s stack, ranks ...int) *calls {
	for _, rank := range ranks {
		c.record(eventDoes, comm{}, rank, func(a pcommon.Map) {
			a.PutStr("process.stack.hash", cmp.Or(s.hash, s.class))
			s.does(a)
		})
	}
	return c
}

// asleep sleeps outside of collectives, for no longer than usual as far as its stacks tell.
var asleep = stack{class: "own_code", function: "hrtimer_nanosleep", silence: "usual", activity: "idle", state: "sleeping"}

// tries is awaited: it is woken, and was in the same frames at each look.
var tries = stack{class: "own_code", function: "hrtimer_nanosleep", reason: "awaited", since: 10 * time.Second}

// stalled says that sockets of ranks are silent, and how those judge the rank.
func (c *calls) stalled(silence string, ranks ...int) *calls {
	for _, rank := range ranks {
		c.record(socketstall.Event, comm{}, rank, stallOf(silence))
	}
	return c
}

// stallOf is a stall of a socket, which judges its rank so.
func stallOf(silence string) func(pcommon.Map) {
	return func(a pcommon.Map) {
		for name, text := range map[string]string{
			"nccl.socket.cause": "waiting", "nccl.socket.direction": "receive", "nccl.socket.kind": "gloo", "nccl.socket.stall.id": "s-1",
			"nccl.rank.silence": silence, "nccl.rank.activity": "idle", "nccl.rank.state": "sleeping",
		} {
			a.PutStr(name, text)
		}
		a.PutInt("nccl.socket.stall.age_ns", int64(4*time.Second))
	}
}

// A look at a stack may be a second old when it is told. A rank that its sockets have seen to do something since stands there no more, as
// far as is known: a hang that has just ended is told by nobody.
func TestARankThatHasActedSinceIsNotTold(t *testing.T) {
	for name, tc := range map[string]struct {
		silence string
		rest    time.Duration
		told    bool
	}{
		"it acts":                             {"usual", 0, false},
		"it has acted since":                  {"usual", 400 * time.Millisecond, false},
		"it acted before it came there":       {"usual", 4 * time.Second, true},
		"it rests for too long, as they know": {"overdue", 400 * time.Millisecond, true},
		"nobody knows when it acted":          {"usual", -1, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &standingJob{newCalls(4), newJoin(DefaultOptions)}
			rounds := s.next(t, time.Second, func(c *calls) {
				c.stand(inCollective, but(4, 2)...).stalled("overdue", but(4, 2)...)
				c.record(socketstall.Event, comm{}, 2, func(a pcommon.Map) {
					stallOf(tc.silence)(a)
					if tc.rest >= 0 {
						a.PutInt("nccl.rank.rest_ns", int64(tc.rest))
					}
				})
				c.stand(inLock, 2)
			})
			rounds = append(rounds, s.next(t, 10*time.Second, func(*calls) {})...)
			require.Equal(t, tc.told, len(findings(rounds)) == 1)
			if !tc.told {
				rounds = s.next(t, 5*time.Second, func(c *calls) { c.stalled("overdue", but(4)...) })
				rounds = append(rounds, s.next(t, 10*time.Second, func(*calls) {})...)
				require.Len(t, findings(rounds), 1, "it stands there again")
			}
		})
	}
}

func (c *calls) ranks() []int { return but(c.world) }

func (s stack) in(class string) stack { s.class = class; return s }

// TestWhyNoCallIsSeenIsSaid: a standstill that stacks alone tell says it.
func TestWhyNoCallIsSeenIsSaid(t *testing.T) {
	c := newCalls(8)
	for rank := range 8 {
		c.record(eventCallLimited, comm{}, rank, func(a pcommon.Map) { a.PutStr("nccl.call.limit", "static") })
	}
	found := c.stand(inCollective, but(8, 5)...).stand(inLock, 5).found(t)
	require.Len(t, found, 1)
	require.Equal(t, []any{Outside, Likely}, []any{found[0].Kind, found[0].Sure})
	require.Contains(t, found[0].Because, "the calls of ranks 0-7 are not seen: NCCL is linked into the program and exports no function")
}

// TestWhatStacksAloneTell: no call and no socket is seen.
func TestWhatStacksAloneTell(t *testing.T) {
	for name, tc := range map[string]struct {
		ranks func(*calls)
		want  string // "" for nothing
		kind  Kind
		sure  Sureness
	}{
		"a rank in a lock": {
			ranks: func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(inLock, 5) },
			want:  "7 ranks wait in a collective for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"others wait for a key of the store": {
			ranks: func(c *calls) { c.stand(inStore, but(8, 5)...).stand(inLock, 5) },
			want:  "7 ranks wait in the store for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"some of the others do": {
			ranks: func(c *calls) { c.stand(inStore, 0, 1).stand(inCollective, but(8, 0, 1, 5)...).stand(inLock, 5) },
			want:  "7 ranks wait in a collective or the store for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"others wait in a collective for one in the store": {
			ranks: func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(inStore, 5) },
			want:  "7 ranks wait in a collective for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"others are in the store, and one polls for its GPU": {ranks: func(c *calls) { c.stand(inStore, but(8, 5)...).stand(onGPU, 5) }},
		"others are in the store, and one tries again":       {ranks: func(c *calls) { c.stand(inStore, but(8, 5)...).stand(tries, 5) }},
		"two ranks in a lock": {
			ranks: func(c *calls) { c.stand(inCollective, but(8, 2, 5)...).stand(inLock, 2, 5) },
			want:  "6 ranks wait in a collective for ranks 2, 5: of rank 2, its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"one of two": {
			ranks: func(c *calls) { c.world = 2; c.stand(inCollective, 0).stand(inLock, 1) },
			want:  "rank 0 waits in a collective for rank 1: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"others poll for their GPUs": {
			ranks: func(c *calls) { c.stand(onGPU, but(8, 5)...).stand(inLock, 5) },
			want:  "7 ranks wait in a collective for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"stages of a pipeline wait at other lines": {
			ranks: func(c *calls) {
				for rank := range 8 {
					s := inCollective
					s.hash = fmt.Sprint("stage ", rank/2)
					if rank == 4 {
						s = inLock
					}
					c.stand(s, rank)
				}
			},
			want: "7 ranks wait in a collective for rank 4: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"a rank is stopped in the collective": {
			ranks: func(c *calls) {
				s := inCollective
				s.state = "stopped"
				c.stand(inCollective, but(8, 5)...).stand(s, 5)
			},
			want: "7 ranks wait in a collective for rank 5: its process is stopped (SIGSTOP or a debugger)", kind: Outside, sure: Likely,
		},
		"a rank is stopped that polled in the collective, and others in a loop": {
			ranks: func(c *calls) {
				polls, loops := inCollective, inLock
				polls.state, polls.activity, polls.reason = "stopped", "", "same_call"
				loops.state, loops.activity, loops.reason = "stopped", "", "spinning"
				c.stand(inCollective, but(8, 5, 6)...).stand(polls, 5).stand(loops, 6)
			},
			want: "6 ranks wait in a collective for ranks 5-6: of rank 5, its process is stopped (SIGSTOP or a debugger)", kind: Outside, sure: Likely,
		},
		"a rank is stopped in a loop": {
			ranks: func(c *calls) {
				loops := inLock
				loops.state, loops.activity, loops.reason = "stopped", "", "spinning"
				c.stand(inCollective, but(8, 6)...).stand(loops, 6)
			},
			want: "7 ranks wait in a collective for rank 6: its process is stopped (SIGSTOP or a debugger)", kind: Outside, sure: Likely,
		},
		"a rank is stopped, and another computes for long": {
			ranks: func(c *calls) {
				s := inLock
				s.state = "stopped"
				works := stack{class: "own_code", reason: "same_call", silence: "long", activity: "computing", state: "running", since: 30 * time.Second}
				c.stand(inCollective, but(8, 0, 5)...).stand(works, 0).stand(s, 5)
			},
			want: "6 ranks wait in a collective for rank 5: its process is stopped (SIGSTOP or a debugger)", kind: Outside, sure: Likely,
		},
		"nobody could read where another rank stands": {
			ranks: func(c *calls) { c.stand(inCollective, but(8, 1, 5)...).stand(inLock, 5).stand(nowhere, 1) },
			want:  "6 ranks wait in a collective for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"nobody could read where the only one stands that is not seen to wait": {
			ranks: func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(nowhere, 5) },
		},
		"not all of a stack was read, and all that it waits for was": {
			ranks: func(c *calls) {
				s := nowhere.in("storage")
				c.stand(inCollective, but(8, 5)...).stand(s, 5)
			},
			want: "7 ranks wait in a collective for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"nobody could read the stack of a rank that is stopped": {
			ranks: func(c *calls) {
				s := nowhere
				s.state = "stopped"
				c.stand(inCollective, but(8, 5)...).stand(s, 5)
			},
			want: "7 ranks wait in a collective for rank 5: its process is stopped (SIGSTOP or a debugger)", kind: Outside, sure: Likely,
		},
		"nobody could read where one of several processes of a rank stands": {
			ranks: func(c *calls) {
				launcher := stack{class: "own_code", function: "do_wait", silence: "overdue", activity: "idle", pid: 77}
				c.stand(inCollective, but(8, 1, 5)...).stand(inLock, 5).stand(nowhere, 1).stand(launcher, 1)
			},
			want: "6 ranks wait in a collective for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"a rank sleeps, for too long by its sockets alone": {
			ranks: func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(asleep, 5).stalled("overdue", c.ranks()...) },
			want:  "7 ranks wait in a collective for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"a rank sleeps as it often does, by its sockets": {
			ranks: func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(asleep, 5).stalled("usual", c.ranks()...) },
		},
		"a rank sleeps, and the sockets of others alone say for how long": {
			ranks: func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(asleep, 5).stalled("overdue", but(8, 5)...) },
		},
		"a rank was in one call at each look, and rests too long by its sockets": {
			ranks: func(c *calls) {
				calls := asleep
				calls.reason = "same_call"
				c.stand(onGPU, but(8, 5)...).stand(calls, 5).stalled("overdue", c.ranks()...)
			},
		},
		"a rank tries again and again, and rests too long by its sockets": {
			ranks: func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(tries, 5).stalled("overdue", c.ranks()...) },
		},
		"a rank is awaited, and nobody knows what it does": {
			ranks: func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(tries, 5) },
		},
		"two ranks are awaited, and one of them sleeps": {
			ranks: func(c *calls) { c.stand(inCollective, but(8, 4, 5)...).stand(tries, 4).stand(inLock, 5) },
		},
		"two ranks are awaited, and one of them is stopped": {
			ranks: func(c *calls) {
				s := inLock
				s.state = "stopped"
				c.stand(inCollective, but(8, 4, 5)...).stand(tries, 4).stand(s, 5)
			},
			want: "6 ranks wait in a collective for rank 5: its process is stopped (SIGSTOP or a debugger)", kind: Outside, sure: Likely,
		},
		"a rank spins": {
			ranks: func(c *calls) {
				c.stand(inCollective, but(8, 5)...).stand(stack{class: "own_code", reason: "spinning", since: 30 * time.Second}, 5)
			},
			want: "7 ranks wait in a collective for rank 5: its main thread executes nothing but a loop", kind: Outside, sure: Likely,
		},
		"its launcher waits for it, and so does that of another": {
			ranks: func(c *calls) {
				launcher := stack{class: "own_code", function: "do_wait", silence: "overdue", activity: "idle", pid: 77}
				c.stand(inCollective, but(8, 5)...).stand(inLock, 5)
				c.stand(launcher, 4)
				launcher.pid = 9_000
				c.stand(launcher, 5)
			},
			want: "7 ranks wait in a collective for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"nobody knows what it does": {
			ranks: func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(stack{class: "storage"}, 5) },
			want:  "7 ranks wait in a collective for rank 5", kind: Outside, sure: Likely,
		},
		"half of them wait for one server": {
			ranks: func(c *calls) {
				s := inLock.in("storage")
				s.mount = "filer:/vol"
				c.stand(inCollective, 0, 1, 2).stand(s, 3, 4, 5, 6, 7)
			},
			want: "ranks 3-7 wait for /data (nfs4, filer:/vol); 3 ranks wait for them", kind: OneMount, sure: Likely,
		},
		"all load data from one server": {
			ranks: func(c *calls) {
				s := inLock.in("data_loading")
				s.mount = "filer:/vol"
				c.stand(s, but(8)...)
			},
			want: "ranks 0-7 wait for /data (nfs4, filer:/vol)", kind: OneMount, sure: Likely,
		},
		"all look up a name": {
			ranks: func(c *calls) { c.stand(looksUp.since30(), but(8)...) },
			want:  "ranks 0-7 wait for an answer of the name server", kind: NameServer, sure: Likely,
		},
		"all look up a name, and one is stopped": {
			ranks: func(c *calls) {
				s := looksUp.since30()
				s.state = "stopped"
				c.stand(looksUp.since30(), but(8, 5)...).stand(s, 5)
			},
		},
		"all look up a name, but one computes": {
			ranks: func(c *calls) { c.stand(looksUp.since30(), but(8, 5)...) },
		},
		"some look up a name, and the others wait in the store": {
			ranks: func(c *calls) { c.stand(inStore, 0, 1).stand(looksUp.since30(), 2, 3, 4, 5, 6, 7) },
			want:  "ranks 2-7 wait for an answer of the name server; 2 ranks wait for them", kind: NameServer, sure: Likely,
		},
		"one looks up a name": {
			ranks: func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(looksUp.since30(), 5) },
			want:  "rank 5 waits for an answer of the name server; 7 ranks wait for it", kind: NameServer, sure: Likely,
		},
		"one looks up a name, for longer than it ever does": {
			ranks: func(c *calls) {
				s := looksUp
				s.silence = "overdue"
				c.stand(inCollective, but(8, 5)...).stand(s, 5)
			},
			want: "rank 5 waits for an answer of the name server; 7 ranks wait for it", kind: NameServer, sure: Likely,
		},
		"two wait for other servers": {
			ranks: func(c *calls) {
				one, two := inLock.in("storage"), inLock.in("storage")
				one.mount, two.mount = "filer:/a", "filer:/b"
				c.stand(inCollective, but(8, 2, 5)...).stand(one, 2).stand(two, 5)
			},
			want: "6 ranks wait in a collective for ranks 2, 5: of rank 2, its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"evaluation in rank 0": { // it runs: no stack of it stands
			ranks: func(c *calls) { c.stand(inCollective, but(8, 0)...) },
		},
		"evaluation in rank 0, for which another waits at a lock": {
			ranks: func(c *calls) { c.stand(inCollective, but(8, 0, 1)...).stand(inLock, 1) },
		},
		"evaluation in rank 0, in one call": {
			ranks: func(c *calls) {
				c.stand(inCollective, but(8, 0)...).stand(stack{class: "own_code", reason: "same_call", since: 20 * time.Second}, 0)
			},
			want: "7 ranks wait in a collective for rank 0: its main thread is in the same call all the time", kind: OutsideWorks, sure: Likely,
		},
		"the slowest rank of a healthy job": { // at each look
			ranks: func(c *calls) {
				s := inCollective
				s.reason = "same_call"
				c.stand(s, but(8, 0)...).stand(stack{class: "own_code", reason: "same_call", since: 20 * time.Minute}, 0)
			},
		},
		"a checkpoint that moves": {
			ranks: func(c *calls) {
				s := inLock.in("storage")
				s.silence, s.activity = "usual", "io"
				c.stand(inCollective, but(8, 0)...).stand(s, 0)
			},
		},
		"a checkpoint that moves for long": {
			ranks: func(c *calls) {
				s := inLock.in("storage")
				s.silence, s.activity = "long", "io"
				c.stand(inCollective, but(8, 0)...).stand(s, 0)
			},
			want: "7 ranks wait in a collective for rank 0: it reads or writes, and is answered", kind: OutsideWorks, sure: Likely,
		},
		"the first compilation": {
			ranks: func(c *calls) {
				s := inLock.in("compiling")
				s.silence, s.activity = "usual", "child_computing"
				c.stand(inCollective, but(8, 0)...).stand(s, 0)
			},
		},
		"a tokenizer in threads": {
			ranks: func(c *calls) {
				s := inLock
				s.silence, s.activity = "usual", "thread_computing"
				c.stand(inCollective, but(8, 3)...).stand(s, 3)
			},
		},
		"a server of models without requests": {
			ranks: func(c *calls) {
				s := inLock.in("own_code")
				s.function = "do_epoll_wait"
				c.stand(inCollective, but(8, 0)...).stand(s, 0)
			},
			want: "7 ranks wait in a collective for rank 0: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Unsure,
		},
		"most stand elsewhere": {
			ranks: func(c *calls) { c.stand(inCollective, 0, 1, 2).stand(inLock, 3, 4, 5, 6, 7) },
			want:  "3 ranks wait in a collective for ranks 3-7: of rank 3, its main thread is asleep, at 0 % CPU", kind: Outside, sure: Unsure,
		},
		"its record is old": {
			ranks: func(c *calls) {
				s := inLock
				s.since = 20 * time.Minute
				c.stand(inCollective, but(8, 5)...).stand(s, 5)
			},
			want: "7 ranks wait in a collective for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Unsure,
		},
		"another rank has ended": {
			ranks: func(c *calls) {
				s := inLock
				s.reason = "peer_ended"
				c.stand(inCollective, but(8, 5)...).stand(s, 5)
			},
		},
		"it went on": {
			ranks: func(c *calls) {
				c.stand(inCollective, but(8, 5)...).stand(inLock, 5)
				c.at = c.at.Add(time.Millisecond)
				c.record(rule.EventStackMoving, comm{}, 5, nil)
			},
		},
		"all have called the same, and run it on their GPUs": {
			ranks: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8)...).stand(onGPU, but(8, 5)...).stand(inLock, 5)
			},
		},
		"calls are made within CUDA graphs": {
			ranks: func(c *calls) {
				c.stoodLike("nccl.call.graph_launches", int64(70)).stand(gpuAsleep, but(8, 5)...).stand(inLock, 5)
			},
			want: "7 ranks wait in a collective for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"calls are not counted": {
			ranks: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8)...).stand(gpuAsleep, but(8, 5)...).stand(inLock, 5)
				for rank := range 8 {
					c.record(eventCallLimited, comm{}, rank, func(a pcommon.Map) { a.PutStr("nccl.call.limit", "calls") })
				}
			},
			want: "7 ranks wait in a collective for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"calls are counted since the agent began, and cannot be compared": {
			ranks: func(c *calls) { c.stoodLike("nccl.call.exact", false).stand(gpuAsleep, but(8, 5)...).stand(inLock, 5) },
			want:  "7 ranks wait in a collective for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"GPUs communicate without calls, too": {
			ranks: func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8)...).stand(gpuAsleep, but(8, 5)...).stand(inLock, 5)
				c.record(eventCallLimited, comm{}, 5, func(a pcommon.Map) { a.PutStr("nccl.call.limit", "gpu_initiated") })
			},
			want: "7 ranks wait in a collective for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"calls of one rank are not seen": {
			ranks: func(c *calls) {
				c.stands(sub("0x1", but(8, 5)...), 10, "overdue", but(8, 5)...).stand(gpuAsleep, but(8, 5)...).stand(inLock, 5)
			},
			want: "7 ranks wait in a collective for rank 5: its main thread is asleep, at 0 % CPU", kind: Outside, sure: Likely,
		},
		"nobody stands in a collective":        {ranks: func(c *calls) { c.stand(inLock, but(8)...) }},
		"all compute on their GPUs":            {ranks: func(c *calls) { c.stand(onGPU, but(8)...) }},
		"how many ranks there are is not said": {ranks: func(c *calls) { c.world = 0; c.stand(inCollective, but(8, 5)...).stand(inLock, 5) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(8)
			tc.ranks(c)
			f := c.found(t)
			if tc.want == "" {
				require.Empty(t, f)
				return
			}
			require.Len(t, f, 1)
			require.Equal(t, tc.want, f[0].String())
			require.Equal(t, tc.kind, f[0].Kind)
			require.Equal(t, tc.sure, f[0].Sure)
			require.Equal(t, but(c.world), f[0].Affected)
			require.Equal(t, f[0].Culprits[0], f[0].Rank())
			require.EqualValues(t, 1000+f[0].Rank(), f[0].Host.PID)
		})
	}
}

// TestStacksInAnyOrder: what changed last counts, in whatever order records arrive.
func TestStacksInAnyOrder(t *testing.T) {
	c := newCalls(4)
	slow := inLock
	slow.silence, slow.activity = "usual", "idle"
	c.stand(slow, 2).stand(inCollective, 0, 1, 3)
	c.at = c.at.Add(time.Second)
	c.record(eventDoes, comm{}, 2, func(a pcommon.Map) {
		a.PutStr("process.stack.hash", "lock")
		inLock.does(a)
	})
	want := c.found(t)
	require.Len(t, want, 1)
	for seed := range int64(20) {
		mixed := newCalls(4)
		order := rand.New(rand.NewSource(seed)).Perm(c.list.ResourceLogs().Len()) //nolint:gosec // a test
		for _, i := range order {
			c.list.ResourceLogs().At(i).CopyTo(mixed.list.ResourceLogs().AppendEmpty())
		}
		mixed.at = c.at
		require.Equal(t, anonymous(want), anonymous(mixed.found(t)), seed)
	}
}

// standingJob is a join whose ranks stand, and the next records of it.
type standingJob struct {
	*calls
	joinUnderTest
}

func (s *standingJob) next(t *testing.T, after time.Duration, records func(*calls)) []Round {
	t.Helper()
	s.list, s.at = plog.NewLogs(), s.at.Add(after)
	records(s.calls)
	s.Add(s.list, s.at)
	s.joinUnderTest = requireSameState(t, s.joinUnderTest)
	return s.Advance(s.at.Add(settled))
}

// Ranks that look up a name are told once the last of them has waited for half a minute, also where their agent begins anew
// meanwhile, and until one goes on.
func TestRanksThatWaitForANameServerAreGivenHalfAMinute(t *testing.T) {
	overdue, starts := looksUp, inCollective
	overdue.silence, starts.call = "overdue", "init_process_group"
	for name, begins := range map[string]func(*calls){
		"one, at the start, and nobody knows how long that takes": func(c *calls) { c.stand(starts, but(8, 5)...).stand(overdue, 5) },
		"all of them":                        func(c *calls) { c.stand(looksUp, but(8)...) },
		"one, and the others wait for it":    func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(looksUp, 5) },
		"some, and the others wait for them": func(c *calls) { c.stand(inStore, 0, 1).stand(looksUp, but(8, 0, 1)...) },
	} {
		t.Run(name, func(t *testing.T) {
			s := &standingJob{newCalls(8), newJoin(DefaultOptions)}
			require.Empty(t, s.next(t, 0, begins)) // for 3 s
			require.Empty(t, s.next(t, 20*time.Second, func(c *calls) { c.stand(looksUp, 5) }), "its agent has begun anew")
			require.Empty(t, s.Advance(s.at.Add(6*time.Second)))
			told := findings(s.Advance(s.at.Add(8 * time.Second)))
			require.Len(t, told, 1)
			require.Equal(t, NameServer, told[0].Kind)
			rounds := s.next(t, 10*time.Second, func(c *calls) { c.record(rule.EventStackMoving, comm{}, 5, nil) })
			require.Len(t, rounds, 1)
			require.Len(t, rounds[0].Cleared, 1)
		})
	}
	t.Run("one, in a step, for longer than usual", func(t *testing.T) {
		s := &standingJob{newCalls(8), newJoin(DefaultOptions)}
		told := findings(s.next(t, 0, func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(overdue, 5) }))
		require.Len(t, told, 1)
		require.Equal(t, NameServer, told[0].Kind)
	})
	t.Run("all, and one goes on", func(t *testing.T) {
		s := &standingJob{newCalls(8), newJoin(DefaultOptions)}
		require.Empty(t, s.next(t, 0, func(c *calls) { c.stand(looksUp, but(8)...) }))
		require.Empty(t, s.next(t, 10*time.Second, func(c *calls) { c.record(rule.EventStackMoving, comm{}, 5, nil) }))
		require.Empty(t, s.Advance(s.at.Add(10*time.Minute)))
	})
}

// TestOneStopByAllItsWitnesses: stacks, calls and dumps tell of one stop, in each order. It is
// named once, by the witness that says most, and taken back once.
func TestOneStopByAllItsWitnesses(t *testing.T) {
	stacks := func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(inLock, 5) }
	called := func(c *calls) {
		c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
	}
	for name, order := range map[string][]func(*calls){"stacks first": {stacks, called}, "calls first": {called, stacks}} {
		t.Run(name, func(t *testing.T) {
			s := &standingJob{newCalls(8), newJoin(DefaultOptions)}
			first := findings(s.next(t, 0, order[0]))
			require.Len(t, first, 1)
			second := s.next(t, 2*time.Second, order[1])
			last := append(first, findings(second)...)
			for _, round := range second {
				require.Empty(t, round.Cleared)
			}
			require.Equal(t, NotCalled, last[len(last)-1].Kind)
			for _, f := range last {
				require.Equal(t, first[0].Stop, f.Stop)
				require.Equal(t, []int{5}, f.Culprits)
			}
			later := s.dumped(t, newJob(8).does(1, steps(reduce, reduce), but(8, 5)...).does(1, steps(reduce), 5))
			require.Equal(t, first[0].Stop, later.Stop)

			rounds := s.next(t, 11*time.Minute, func(c *calls) {
				c.record(eventCallMoving, c.all(), 5, stoodAt(11, c.at, "usual"))
				c.record(rule.EventStackMoving, comm{}, 5, nil)
			})
			require.Len(t, rounds, 1)
			require.Len(t, rounds[0].Cleared, 1)
			require.Equal(t, first[0].Stop, rounds[0].Cleared[0].Stop)
		})
	}
}

// TestSocketsSpeakFirst: where data runs over sockets, they are heard first, for two seconds at most.
func TestSocketsSpeakFirst(t *testing.T) {
	for kind, waits := range map[string]bool{"data": true, "gloo": true, "store": false} {
		s := &standingJob{newCalls(4), newJoin(DefaultOptions)}
		s.stand(inCollective, 0, 1, 3).stand(inLock, 2)
		s.record(socketstall.Event, comm{}, 2, func(a pcommon.Map) {
			a.PutStr("nccl.socket.kind", kind)
			a.PutStr("nccl.socket.cause", "waiting")
			a.PutStr("nccl.socket.direction", "receive")
			a.PutStr("nccl.socket.stall.id", "s-1")
			a.PutInt("nccl.socket.stall.age_ns", int64(3*time.Second))
		})
		s.Add(s.list, s.at)
		at := s.at.Add(settled)
		require.Equal(t, waits, len(findings(s.Advance(at))) == 0, kind)
		require.Equal(t, waits, len(findings(s.Advance(at.Add(2*time.Second)))) == 1, kind)
		require.Empty(t, s.Advance(at.Add(4*time.Second)))
	}
}

// TestSocketsThatAreWatchedSpeakFirst: where a stall of the job's sockets would be told, a stop by
// stacks waits for it, for two seconds. Where nobody looks at them, it waits for nothing.
func TestSocketsThatAreWatchedSpeakFirst(t *testing.T) {
	watched := func(s *standingJob) {
		s.record(socketstall.EventWatched, comm{}, 1, nil)
		s.Add(s.list, s.at)
		s.list = plog.NewLogs()
	}
	for name, tc := range map[string]struct {
		before func(*standingJob)
		waits  bool
	}{
		"watched":                        {watched, true},
		"watched by a host with no stop": {func(s *standingJob) { s.record(socketstall.EventWatched, comm{}, 3, nil); watched(s) }, true},
		"nobody looks at sockets":        {func(*standingJob) {}, false},
		"watched long ago":               {func(s *standingJob) { watched(s); s.at = s.at.Add(socketstall.Unwatched) }, false},
		"of another job":                 {func(s *standingJob) { s.job = "other"; watched(s); s.job = "llm" }, false},
		"of its last start":              {func(s *standingJob) { s.begun = s.begun.Add(-time.Hour); watched(s); s.begun = s.begun.Add(time.Hour) }, false},
		"watched while it lasts": {func(s *standingJob) {
			watched(s)
			s.at = s.at.Add(socketstall.WatchedAgain)
			watched(s)
			s.at = s.at.Add(socketstall.WatchedAgain)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &standingJob{newCalls(4), newJoin(DefaultOptions)}
			tc.before(s)
			first := findings(s.next(t, time.Second, func(c *calls) { c.stand(inCollective, 0, 1, 3).stand(inLock, 2) }))
			require.Equal(t, tc.waits, len(first) == 0)
			at := s.at.Add(settled)
			require.Empty(t, s.Advance(at.Add(1900*time.Millisecond)))
			require.Equal(t, tc.waits, len(findings(s.Advance(at.Add(2*time.Second)))) == 1)
			require.Empty(t, s.Advance(at.Add(4*time.Second)))
		})
	}
}

// TestAMountIsHeardFirst: where a rank to blame waits for a FUSE mount, its probe is heard first.
// NFS, a lock and a rank that goes on are waited for by nobody.
func TestAMountIsHeardFirst(t *testing.T) {
	on := func(key string, value any) func(pcommon.Map) {
		return func(a pcommon.Map) {
			inLock.put(a)
			a.PutStr("nccl.rank.syscall", "read")
			if err := a.PutEmpty(key).FromRaw(value); err != nil {
				panic(err)
			}
		}
	}
	worker := func(channel, state string) func(pcommon.Map) {
		return func(a pcommon.Map) {
			inLock.put(a)
			a.PutInt("nccl.rank.child_pid", 212)
			a.PutStr("nccl.rank.child_name", "pt_data_worker")
			a.PutBool("nccl.rank.child_awaited", true)
			a.PutStr("nccl.rank.child_state", state)
			a.PutStr("nccl.rank.child_syscall", "openat")
			a.PutStr("nccl.rank.child_wait_channel", channel)
		}
	}
	for name, tc := range map[string]struct {
		does  func(pcommon.Map)
		waits bool
	}{
		"FUSE":            {on("nccl.rank.wait_channel", "request_wait_answer"), true},
		"a worker, FUSE":  {worker("request_wait_answer", "sleeping"), true},
		"NFS":             {on("nccl.rank.wait_channel", "rpc_wait_bit_killable"), false},
		"a worker, NFS":   {worker("rpc_wait_bit_killable", "disk_sleep"), false},
		"a worker asleep": {worker("hrtimer_nanosleep", "sleeping"), false},
		"a lock":          {inLock.put, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &standingJob{newCalls(4), newJoin(DefaultOptions)}
			first := findings(s.next(t, 0, func(c *calls) {
				c.stand(inCollective, 0, 1, 3)
				c.record(rule.EventStack, comm{}, 2, tc.does)
			}))
			require.Equal(t, tc.waits, len(first) == 0)
			at := s.at.Add(settled)
			require.Empty(t, s.Advance(at.Add(2400*time.Millisecond)))
			require.Equal(t, tc.waits, len(findings(s.Advance(at.Add(2500*time.Millisecond)))) == 1)
			require.Empty(t, s.Advance(at.Add(5*time.Second)))
		})
	}
}

// TestWhatIsWatchedTakesNoRoom: many jobs without a stop push out none of which more is known.
func TestWhatIsWatchedTakesNoRoom(t *testing.T) {
	options := DefaultOptions
	options.Runs = 4
	s := &standingJob{newCalls(4), newJoin(options)}
	s.stand(inCollective, 0, 1, 3).stand(inLock, 2)
	s.Add(s.list, s.at)
	s.list = plog.NewLogs()
	for i := range 20 {
		s.job = fmt.Sprint("other-", i)
		s.record(socketstall.EventWatched, comm{}, 1, nil)
	}
	s.Add(s.list, s.at)
	require.Len(t, s.joinUnderTest.calls.runs, 4)
	require.Len(t, findings(s.Advance(s.at.Add(settled))), 1)
	require.Empty(t, s.Advance(s.at.Add(time.Hour)))
	require.Len(t, s.joinUnderTest.calls.runs, 1, "who moves no data any more is forgotten")
}

// TestAnotherStandstillIsAnotherStop: and the same one, told again with more, is not.
func TestAnotherStandstillIsAnotherStop(t *testing.T) {
	s := &standingJob{newCalls(4), newJoin(DefaultOptions)}
	first := findings(s.next(t, 0, func(c *calls) { c.stand(inCollective, 0, 1, 3).stand(inLock, 2) }))
	require.Len(t, first, 1)
	again := findings(s.next(t, 5*time.Second, func(c *calls) {
		stopped := inLock
		stopped.state = "stopped"
		c.record(eventDoes, comm{}, 2, func(a pcommon.Map) {
			a.PutStr("process.stack.hash", "lock")
			stopped.does(a)
		})
	}))
	require.Len(t, again, 1)
	require.Equal(t, first[0].Stop, again[0].Stop)
	for _, reason := range []string{"same_call", "asleep"} { // told of another reason, in the same place
		s.next(t, 5*time.Second, func(c *calls) {
			polls := inLock
			polls.reason = reason
			c.stand(polls, 2)
		})
	}
	sleeps := findings(s.next(t, 5*time.Second, func(c *calls) { c.stand(inCollective, 0) }))
	for _, f := range sleeps {
		require.Equal(t, first[0].Stop, f.Stop)
	}
	rounds := s.next(t, 5*time.Second, func(c *calls) { c.record(rule.EventStackMoving, comm{}, 2, nil) })
	require.Len(t, rounds[0].Cleared, 1)
	other := s.next(t, 5*time.Second, func(c *calls) {
		c.record(rule.EventStackMoving, comm{}, 1, nil)
		c.at = c.at.Add(time.Millisecond)
		c.stand(inCollective, 2).stand(inLock, 1)
	})
	require.Len(t, findings(other), 1)
	require.NotEqual(t, first[0].Stop, findings(other)[0].Stop)
	require.Empty(t, other[0].Cleared, "it was taken back before")
}

// TestAnAgentThatBeginsAgainTakesNothingBack: it has seen the rank stand for a moment only, and knows no
// pause of it. What moved, or works, is taken back, in whatever order that comes.
func TestAnAgentThatBeginsAgainTakesNothingBack(t *testing.T) {
	fresh := inLock
	fresh.silence, fresh.since = "usual", 2*time.Second
	unknown := fresh
	unknown.silence, unknown.activity = "", ""
	works := fresh
	works.activity = "thread_computing"
	elsewhere := fresh
	elsewhere.hash = "another line"
	told := func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(inLock, 5) }
	for name, tc := range map[string]struct {
		before, after func(*calls)
		back          bool
	}{
		"asleep for a moment":         {told, func(c *calls) { c.stand(fresh, 5) }, false},
		"what it does is not known":   {told, func(c *calls) { c.stand(unknown, 5) }, false},
		"of all ranks":                {told, func(c *calls) { s := fresh.in("collective"); c.stand(s, but(8, 5)...).stand(fresh, 5) }, false},
		"it works":                    {told, func(c *calls) { c.stand(works, 5) }, true},
		"it stands at another line":   {told, func(c *calls) { c.stand(elsewhere, 5) }, true},
		"what it does is told later":  {told, func(c *calls) { c.stand(unknown, 5).does(fresh, 5) }, false},
		"that it works is told later": {told, func(c *calls) { c.stand(fresh, 5).does(works, 5) }, true},
		"it has moved between": {told, func(c *calls) {
			c.record(rule.EventStackMoving, comm{}, 5, nil)
			c.at = c.at.Add(time.Second)
			c.stand(fresh, 5)
		}, true},
		"it has moved between, told last": {told, func(c *calls) {
			c.at = c.at.Add(time.Second)
			c.stand(fresh, 5)
			c.at = c.at.Add(-time.Second)
			c.record(rule.EventStackMoving, comm{}, 5, nil)
			c.at = c.at.Add(time.Second)
		}, true},
		"it was stopped, and is not": {func(c *calls) {
			s := inLock
			s.state = "stopped"
			c.stand(inCollective, but(8, 5)...).stand(s, 5)
		}, func(c *calls) { c.stand(fresh, 5) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &standingJob{newCalls(8), newJoin(DefaultOptions)}
			first := findings(s.next(t, 0, tc.before))
			require.Len(t, first, 1)
			rounds := s.next(t, time.Minute, tc.after)
			if tc.back {
				require.Len(t, rounds, 1)
				require.Len(t, rounds[0].Cleared, 1)
				return
			}
			require.Empty(t, rounds)
			require.Empty(t, s.next(t, 15*time.Second, func(c *calls) { s := inLock; s.since = 17 * time.Second; c.stand(s, 5) }))
		})
	}
}

// TestAnAgentThatBeginsAgainBeforeItSeesSockets: that a rank rests for longer than usual, its sockets alone have told. Until they
// do so again, that counts of one that stands where it stood then.
func TestAnAgentThatBeginsAgainBeforeItSeesSockets(t *testing.T) {
	for name, moves := range map[string]bool{"it stands yet": false, "it has moved between": true} {
		t.Run(name, func(t *testing.T) {
			s := &standingJob{newCalls(8), newJoin(DefaultOptions)}
			require.Empty(t, s.next(t, 0, func(c *calls) {
				c.stand(inCollective, but(8, 5)...).stand(asleep, 5).stalled("overdue", c.ranks()...)
			}), "sockets speak first")
			require.Len(t, findings(s.Advance(s.at.Add(time.Duration(socketsSpeak)+settled))), 1)
			rounds := s.next(t, 10*time.Second, func(c *calls) {
				if moves {
					c.record(rule.EventStackMoving, comm{}, 5, nil)
					c.at = c.at.Add(time.Second)
				}
				stands, line := asleep, inCollective
				stands.since, line.where = 500*time.Millisecond, "train.py:27 in train" // of a rank that waits: all is judged again
				c.stand(stands, 5).stand(line, 0)
			})
			if moves {
				require.Len(t, rounds, 1)
				require.Len(t, rounds[0].Cleared, 1)
				return
			}
			require.Empty(t, rounds)
		})
	}
}

// TestAnAgentThatBeginsAgainWhileAllWait: since when they wait is known from before.
func TestAnAgentThatBeginsAgainWhileAllWait(t *testing.T) {
	s := &standingJob{newCalls(8), newJoin(DefaultOptions)}
	require.Empty(t, s.next(t, 0, func(c *calls) { c.stand(inCollective, but(8)...) }))
	require.Len(t, findings(s.Advance(s.at.Add(DefaultOptions.StuckWait))), 1)
	require.Empty(t, s.next(t, 2*time.Minute, func(c *calls) {
		fresh := inCollective
		fresh.silence = "usual"
		c.stand(fresh, but(8)...)
	}))
}

// TestAllWaitByStacksAlone: a standstill below the program, and what looks like it.
func TestAllWaitByStacksAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		ranks  func(*calls)
		waits  bool
		detail string
	}{
		"all in one place": {ranks: func(c *calls) { c.stand(inCollective, but(8)...) }, waits: true},
		"one waits for its GPU elsewhere": {ranks: func(c *calls) {
			s := gpuAsleep
			s.hash = "loss"
			c.stand(inCollective, but(8, 3)...).stand(s, 3)
		}, waits: true, detail: "rank 3 waits at another place of the program than the others"},
		"stages of a pipeline": {ranks: func(c *calls) {
			for rank := range 8 {
				s := inCollective
				s.hash = fmt.Sprint(rank / 2)
				c.stand(s, rank)
			}
		}, waits: true},
		"a thread beside the main thread of one computes": {ranks: func(c *calls) {
			s := inCollective
			s.silence, s.activity = "long", "thread_computing"
			c.stand(inCollective, but(8, 0)...).stand(s, 0)
		}},
		"calls are made within CUDA graphs": {
			ranks: func(c *calls) { c.stoodLike("nccl.call.graph_launches", int64(70)).stand(inCollective, but(8)...) }, waits: true,
		},
		"calls cannot be compared": {
			ranks: func(c *calls) { c.stoodLike("nccl.call.exact", false).stand(inCollective, but(8)...) }, waits: true,
		},
		"calls cannot be compared, and all wait for their GPUs": {
			ranks: func(c *calls) { c.stoodLike("nccl.call.exact", false).stand(gpuAsleep, but(8)...) }, waits: true,
		},
		"some wait for their threads of backward": {ranks: func(c *calls) { c.stand(inCollective, 0, 1, 2, 6).stand(inBackward, 3, 4, 5, 7) }, waits: true, detail: "+backward"},
		"threads of backward of one go on": {ranks: func(c *calls) {
			s := inBackward
			s.silence, s.activity = "long", "thread_computing"
			c.stand(inCollective, but(8, 3)...).stand(s, 3)
		}},
		"all are in the store": {
			ranks: func(c *calls) { c.stand(inStore, but(8)...) }, waits: true, detail: "all 8 ranks wait in the store",
		},
		"all compute on their GPUs":  {ranks: func(c *calls) { c.stand(gpuAsleep, but(8)...) }},
		"nobody knows what they do":  {ranks: func(c *calls) { c.stand(stack{class: "collective"}, but(8)...) }},
		"one of them wakes":          {ranks: func(c *calls) { c.stand(inCollective, but(8, 7)...).stand(onGPU, 7) }},
		"one has no record":          {ranks: func(c *calls) { c.stand(inCollective, but(8, 7)...) }},
		"calls say that it is idle":  {ranks: func(c *calls) { c.stands(c.all(), 10, "usual", but(8)...).stand(inCollective, but(8)...) }},
		"they run since another end": {ranks: func(c *calls) { s := inCollective; s.reason = "peer_ended"; c.stand(s, but(8)...) }},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range afterAMinute(t, tc.ranks, tc.waits) {
				if f.In == "the store" {
					require.Equal(t, []any{Apart, tc.detail}, []any{f.Kind, f.stackText()})
					continue
				}
				require.Equal(t, AllWait, f.Kind)
				require.Equal(t, Likely, f.Sure)
				if tc.detail == "+backward" {
					require.Equal(t, []int{0, 1, 2, 6}, f.Waiting)
					require.Contains(t, f.Because, "ranks 3-5, 7 stand in backward, whose threads do not show what they wait for: their GPU, or other ranks")
					continue
				}
				require.Equal(t, tc.detail, f.Detail)
				require.Equal(t, but(8), f.Waiting)
			}
		})
	}
}

// TestRanksThatWaitInSeveralCollectives: they may not be in the same one. Nobody is to blame, and the fault is not said to be below the program.
func TestRanksThatWaitInSeveralCollectives(t *testing.T) {
	at := func(hash, where string) stack { s := inCollective; s.hash, s.where = hash, where; return s }
	sum, broadcast := at("1", "train.py:50 in step"), at("2", "train.py:40 in sync")
	const apart = " ranks wait in a collective or for their GPUs; "
	for name, tc := range map[string]struct {
		world int
		of    func(rank int) stack
		want  string
	}{
		"one of three, and no line is sent": {3, func(rank int) stack { return at(fmt.Sprint(rank/2), "") }, "all 3" + apart + "rank 2 waits at another place of the program than the others"},
		"one of three": {3, func(rank int) stack {
			if rank == 0 {
				return broadcast
			}
			return sum
		}, "all 3" + apart + "rank 0 waits at train.py:40 in sync, and the others at train.py:50 in step"},
		"one of eight": {8, func(rank int) stack {
			if rank == 3 {
				return broadcast
			}
			return sum
		}, "all 8" + apart + "rank 3 waits at train.py:40 in sync, and the others at train.py:50 in step"},
		"two ranks": {2, func(rank int) stack {
			if rank == 1 {
				return broadcast
			}
			return sum
		}, "both" + apart + "rank 1 waits at train.py:40 in sync, and rank 0 at train.py:50 in step"},
		"two ranks, and no line is sent":                 {2, func(rank int) stack { return at(fmt.Sprint(rank), "") }, "both" + apart + "rank 1 waits at another place of the program than rank 0"},
		"two ranks in one place":                         {2, func(int) stack { return sum }, "both ranks wait in a collective or for their GPUs: the fault is below the program"},
		"three stages of a pipeline, each at its line":   {3, func(rank int) stack { return at(fmt.Sprint(rank), "") }, "all 3 ranks wait in a collective or for their GPUs: the fault is below the program"},
		"two groups of a job, each at a line of its own": {4, func(rank int) stack { return at(fmt.Sprint(rank/2), "") }, "all 4 ranks wait in a collective or for their GPUs: the fault is below the program"},
	} {
		t.Run(name, func(t *testing.T) {
			found := afterAMinute(t, func(c *calls) {
				c.world = tc.world
				for rank := range tc.world {
					c.stand(tc.of(rank), rank)
				}
			}, true)
			require.Equal(t, tc.want, found[0].String())
			require.Empty(t, found[0].Culprits)
			require.Equal(t, -1, found[0].Rank())
			require.Equal(t, but(tc.world), found[0].Waiting)
		})
	}
}

// TestHostileStacks: records of strangers take no room beyond the bounds, and nothing breaks.
func TestHostileStacks(t *testing.T) {
	c := newCalls(1 << 20)
	for i := range 100 {
		c.record(rule.EventStack, comm{}, i, func(a pcommon.Map) {
			for _, key := range stackAttributes {
				switch i % 4 {
				case 0:
					a.PutInt(key, -1<<62)
				case 1:
					a.PutStr(key, string(make([]byte, 1<<16)))
				case 2:
					a.PutEmptyMap(key).PutStr("x", "y")
				default:
					a.PutDouble(key, 1e300)
				}
			}
		})
	}
	require.Empty(t, c.found(t))
}

// BenchmarkStacks judges a job of 131,072 ranks that stands, of which no call is seen.
func BenchmarkStacks(b *testing.B) {
	const world = 131_072
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	j, c, spent := newJoin(DefaultOptions), newCalls(world), time.Duration(0)
	for rank := range world {
		c.list = plog.NewLogs()
		if rank == 70_000 {
			c.stand(inLock, rank)
		} else {
			c.stand(inCollective, rank)
		}
		at := time.Now()
		j.Add(c.list, c.at)
		spent += time.Since(at)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Len(b, j.calls.runs, 1)
	b.ReportAllocs()
	for b.Loop() {
		for _, run := range j.calls.runs {
			f := run.analyse(nil, nil, c.at.UnixNano())
			if f == nil || !slices.Equal(f.Culprits, []int{70_000}) || len(f.Waiting) != world-1 {
				b.Fatalf("found %v", f)
			}
			if records := (&Round{Findings: []Finding{*f}}).records(1); len(records) != 1 {
				b.Fatal(len(records))
			}
		}
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB-held")
	b.ReportMetric(float64(spent.Microseconds())/float64(world), "µs/rank-taken-in")
	runtime.KeepAlive(j)
}

// TestDataThatMovesEndsStacksFromBefore: an agent that begins anew, and has seen all ranks of its host move data, ends
// what the one before it told of their stacks, and nothing that was told since.
func TestDataThatMovesEndsStacksFromBefore(t *testing.T) {
	for name, tc := range map[string]struct {
		rank    int           // of the record, and so its host
		watched time.Duration // since when, before the record; 0: not all ranks have moved
		over    bool
	}{
		"all have moved since":                 {2, 2 * time.Second, true},
		"all have that wait on another host":   {9, 2 * time.Second, true},
		"not all have":                         {2, 0, false},
		"it was watched before the rank stood": {2, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &standingJob{newCalls(16), newJoin(DefaultOptions)}
			require.Len(t, findings(s.next(t, 0, func(c *calls) { c.stand(inCollective, but(16, 2)...).stand(inLock, 2) })), 1)
			rounds := s.next(t, 10*time.Second, func(c *calls) {
				c.record(socketstall.EventWatched, comm{}, tc.rank, func(a pcommon.Map) {
					if tc.watched != 0 {
						a.PutInt("nccl.socket.watched_ns", int64(tc.watched))
					}
				})
			})
			require.Equal(t, tc.over, len(rounds) == 1 && len(rounds[0].Cleared) == 1)
		})
	}
}

// TestAfterARestartReceiversSpeakFirst: what waited to be told before a restart waits for what the receivers say after
// it. A rank that goes on is told by none of them before.
func TestAfterARestartReceiversSpeakFirst(t *testing.T) {
	stands := func(c *calls) { c.stand(inCollective, 0, 1, 3).stand(inLock, 2) }
	for name, tc := range map[string]struct {
		then func(*calls)
		told int
	}{
		"it stands yet": {func(*calls) {}, 1},
		"it goes on":    {func(c *calls) { c.record(rule.EventStackMoving, comm{}, 2, nil) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &standingJob{newCalls(4), newJoin(DefaultOptions)}
			s.record(socketstall.EventWatched, comm{}, 1, nil)
			s.Add(s.list, s.at)
			require.Empty(t, s.next(t, time.Second, stands), "sockets speak first")
			s.at = s.at.Add(10 * time.Second)
			s.Resumed(s.at)
			s.joinUnderTest = requireSameState(t, s.joinUnderTest)
			require.Empty(t, s.Advance(s.at.Add(2900*time.Millisecond)))
			s.list, s.at = plog.NewLogs(), s.at.Add(3*time.Second)
			tc.then(s.calls)
			s.Add(s.list, s.at)
			require.Empty(t, s.Advance(s.at.Add(1900*time.Millisecond)))
			require.Len(t, findings(s.Advance(s.at.Add(2*time.Second))), tc.told)
		})
	}
	t.Run("what was told stands", func(t *testing.T) {
		s := &standingJob{newCalls(4), newJoin(DefaultOptions)}
		require.Len(t, findings(s.next(t, 0, stands)), 1)
		s.Resumed(s.at.Add(10 * time.Second))
		rounds := s.next(t, 11*time.Second, func(c *calls) { c.record(rule.EventStackMoving, comm{}, 2, nil) })
		require.Len(t, rounds, 1)
		require.Len(t, rounds[0].Cleared, 1, "its end waits for nobody")
	})
}

// TestTheCallInWhichAllWaitIsSaid: the one that all have called. A name that is no identifier is said to nobody.
func TestTheCallInWhichAllWaitIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		calls []string // of ranks 0 to 3 that wait for rank 4
		in    string
	}{
		"the same":             {[]string{"all_reduce", "all_reduce", "all_reduce", "all_reduce"}, "a collective (all_reduce)"},
		"the first of a job":   {[]string{"init_process_group", "init_process_group", "init_process_group", "init_process_group"}, "a collective (init_process_group)"},
		"two":                  {[]string{"all_reduce", "all_reduce", "broadcast", "all_reduce"}, "a collective"},
		"one is not known":     {[]string{"", "all_reduce", "all_reduce", "all_reduce"}, "a collective"},
		"none is known":        {[]string{"", "", "", ""}, "a collective"},
		"words of the program": {[]string{"x) for nobody", "x) for nobody", "x) for nobody", "x) for nobody"}, "a collective"},
		"a line of its own":    {[]string{"x\nRESOLVED", "x\nRESOLVED", "x\nRESOLVED", "x\nRESOLVED"}, "a collective"},
		"too long":             {slices.Repeat([]string{strings.Repeat("a", maxCall+1)}, 4), "a collective"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(5)
			for rank, call := range tc.calls {
				s := inCollective
				s.call = call
				c.stand(s, rank)
			}
			found := c.stand(inLock, 4).found(t)
			require.Len(t, found, 1)
			require.Contains(t, found[0].String(), "4 ranks wait in "+tc.in+" for rank 4")
		})
	}
}

// TestRanksThatWaitForOneThatHasEnded: it ended with status 0 while they waited for it, as one that leaves before the group is
// made. Nobody dies of that, and nothing else tells. While a process of its lives, or one of the others goes on, it may come.
func TestRanksThatWaitForOneThatHasEnded(t *testing.T) {
	status0 := map[string]any{"process.exit.code": 0, "process.exit.signal": 0}
	same := inCollective
	same.reason = "same_call" // it polls its store
	for name, tc := range map[string]struct {
		calls func(*calls)
		told  bool
	}{
		"it alone": {func(c *calls) {}, true},
		"another process of its rank lives": {func(c *calls) {
			c.record(rule.EventStackMoving, comm{}, 5, func(a pcommon.Map) { a.PutInt("process.pid", 2000) })
		}, false},
		"it lives as another process, which its launcher has left": {func(c *calls) {
			c.record(rule.EventStart, comm{}, 5, func(a pcommon.Map) {
				a.PutInt("process.pid", 2000)
				a.PutInt("gen_ai.training.rank_pid", 2000)
				a.PutInt("gen_ai.training.rank_start_unix_nano", c.at.UnixNano())
			})
		}, false},
		"one of the others goes on":       {func(c *calls) { c.record(rule.EventStackMoving, comm{}, 3, nil) }, false},
		"one of the others stands nearby": {func(c *calls) { c.stand(inLock, 3) }, false},
		"one of the others is not read":   {func(c *calls) { c.stand(nowhere, 3) }, false},
		"one of the others waits for its GPU": {func(c *calls) {
			c.stand(gpuAsleep, 3)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &standingJob{newCalls(8), newJoin(DefaultOptions)}
			require.Empty(t, s.next(t, 0, func(c *calls) { c.record(rule.EventStackMoving, comm{}, 5, nil) }))
			require.Empty(t, s.next(t, time.Second, func(c *calls) { c.stand(same, 0).stand(inCollective, but(8, 0, 5)...) }))
			require.Empty(t, s.next(t, 10*time.Second, func(c *calls) { c.ends(rule.EventExit, status0, 5) }))
			tc.calls(s.calls)
			s.Add(s.list, s.at)
			require.Empty(t, findings(s.Advance(s.at.Add(119*time.Second))))
			told := findings(s.Advance(s.at.Add(121 * time.Second)))
			if !tc.told {
				for _, f := range told {
					require.NotContains(t, f.Does, "has ended")
				}
				return
			}
			require.Len(t, told, 1)
			require.Equal(t, []int{5}, told[0].Culprits)
			require.Equal(t, "its process has ended: exit status 0", told[0].Does)
			require.Equal(t, int64(1005), told[0].Host.PID)
			require.Empty(t, s.next(t, 20*time.Minute, func(c *calls) { c.record(rule.EventStackMoving, comm{}, 9, nil) }), "it is not forgotten while they wait")
			rounds := s.next(t, time.Second, func(c *calls) { c.record(rule.EventStackMoving, comm{}, 2, nil) })
			require.Len(t, rounds, 1)
			require.Len(t, rounds[0].Cleared, 1, "the others go on without it")
		})
	}
}
