package stacksreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"

	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/stacks"
	"github.com/tracecoreai/tracecore/internal/waitclass"
	"github.com/tracecoreai/tracecore/receivers/internal/silence"
)

// retries is a job in which one rank tries something again and again while two others wait for it in a collective.
type retries struct {
	*bench
	*testing.T
}

const (
	retrier        = 50
	firstW, otherW = 42, 43
)

func newRetries(t *testing.T) *retries {
	r := retriesBefore(t)
	r.start(t)
	return r
}

// retriesBefore is the same before the receiver starts.
func retriesBefore(t *testing.T) *retries {
	r := &retries{newBench(t), t}
	for _, pid := range []uint32{firstW, otherW} {
		r.at(pid, func(p *fake) { p.stack, p.class = waiting(pid), waitclass.Collective })
	}
	r.at(retrier, func(p *fake) { p.class = waitclass.OwnCode })
	r.Wants = func(one plog.LogRecord) bool { return one.Attributes().AsRaw()["process.pid"] == int64(retrier) }
	r.Resolver.Know(rank(firstW, 0), rank(otherW, 1), rank(retrier, 5))
	return r
}

// loads is a rank that is at that line of the function that tries, in one of the functions that this calls.
func loads(line int, inner string) *stacks.Process {
	p := saving(retrier)
	p.Threads[0].Wait = waitclass.Wait{Class: waitclass.OwnCode, Function: "hrtimer_nanosleep"}
	p.Threads[0].Python = []pystack.Frame{
		{File: "/home/ann/vocab.py", Line: line, Function: "load_vocab"}, {File: "/home/ann/train.py", Line: 200, Function: "main"}, {File: "/home/ann/train.py", Line: 210, Function: "<module>"},
	}
	if inner != "" {
		p.Threads[0].Python = append([]pystack.Frame{{File: "/usr/lib/python3.12/urllib/request.py", Line: 7, Function: inner}}, p.Threads[0].Python...)
		p.Threads[0].Wait.Function = "do_poll"
	}
	return p
}

// tries lets the rank be found there at the next look: it has slept, and run, since the one before.
func (r *retries) tries(at *stacks.Process) {
	r.T.Helper()
	r.at(retrier, func(p *fake) {
		frames := at.Threads[0].Python
		p.status.Switches += 5
		p.status.Sleeps += 5
		p.ran += 2 * time.Millisecond
		p.place = pystack.Place{Chain: uint64(1000*len(frames) + frames[0].Line + frames[len(frames)-3].Line), Calls: uint64(len(frames))}
		p.stack = at
	})
	r.looks(r.T, 1)
}

// told is the next record of the rank that tries: its event, and where it is.
func (r *retries) told() []any {
	r.T.Helper()
	record := r.Next(r.T)
	a := record.Attributes().AsRaw()
	return []any{record.EventName(), a["process.stack.reason"], a["process.stack.where"]}
}

func (r *retries) taken() int64 {
	return r.Own(r.T, "taken", attribute.String("reason", string(awaited)))
}

func awaitedAt(where string) []any { return []any{"process.stack", "awaited", where} }

var movesOn = []any{"process.stack.moving", nil, nil}

// A loop of tries never stands: each look finds it elsewhere, or after it ran. Others wait for it.
func TestARankThatTriesAgainIsToldWithTheFramesOfAllLooks(t *testing.T) {
	for name, tc := range map[string]struct {
		at    []*stacks.Process
		where string
	}{
		"it sleeps at one line":           {[]*stacks.Process{loads(12, "")}, "vocab.py:12 in load_vocab < main"},
		"it calls another function":       {[]*stacks.Process{loads(12, ""), loads(12, "urlopen")}, "vocab.py:12 in load_vocab < main"},
		"at several lines":                {[]*stacks.Process{loads(12, ""), loads(10, "urlopen"), loads(11, "")}, "vocab.py:10-12 in load_vocab < main"},
		"in two functions by turns":       {[]*stacks.Process{loads(14, "ping"), loads(14, "pong")}, "vocab.py:14 in load_vocab < main"},
		"in two functions from two lines": {[]*stacks.Process{loads(15, "ping"), loads(16, "pong")}, "vocab.py:15-16 in load_vocab < main"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRetries(t)
			for i := range 12 {
				r.tries(tc.at[i%len(tc.at)])
			}
			require.Equal(t, awaitedAt(tc.where), r.told())
			require.EqualValues(t, 1, r.taken())
		})
	}
}

func TestWhatIsToldOfTriesIsTrueOfEachLook(t *testing.T) {
	r := newRetries(t)
	for range 8 {
		r.tries(loads(12, ""))
	}
	require.Equal(t, awaitedAt("vocab.py:12 in load_vocab < main"), r.told())
	r.tries(loads(10, "urlopen"))
	require.Equal(t, awaitedAt("vocab.py:10-12 in load_vocab < main"), r.told())
	other := saving(retrier)
	other.Threads[0].Wait.Class = waitclass.OwnCode
	other.Threads[0].Python[2].Line = 201
	for range 2 * triesAnew {
		r.tries(other)
	}
	require.Equal(t, awaitedAt("train.py:200-201 in main"), r.told(), "after three looks")
	require.Equal(t, awaitedAt("train.py:120 in save_checkpoint < main"), r.told(), "it has been there for long")
}

func TestATryIsOverWhenTheRankComes(t *testing.T) {
	for name, come := range map[string]func(*retries){
		"it waits with the others": func(r *retries) {
			r.at(retrier, func(p *fake) { p.class = waitclass.Collective })
			at := waiting(retrier)
			at.Threads[0].Python[0].Line = 900
			r.tries(at)
		},
		"two looks find it on its way": func(r *retries) {
			at := saving(retrier)
			at.Threads[0].Wait.Class, at.Threads[0].Python[2].Line = waitclass.OwnCode, 201
			r.tries(at)
			r.tries(at)
			r.at(retrier, func(p *fake) { p.class = waitclass.Collective })
			at = waiting(retrier)
			at.Threads[0].Python[0].Line = 900
			r.tries(at)
		},
		"so its whole stack says alone": func(r *retries) {
			at := waiting(retrier)
			at.Threads[0].Python[0].Line = 900
			r.tries(at)
		},
		"the others go on": func(r *retries) {
			r.works(firstW)
			r.works(otherW)
			r.tries(loads(12, ""))
		},
		"it ended": func(r *retries) {
			r.source.mu.Lock()
			delete(r.source.processes, retrier)
			r.source.mu.Unlock()
			r.looks(r.T, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRetries(t)
			for range 8 {
				r.tries(loads(12, ""))
			}
			require.Equal(t, awaitedAt("vocab.py:12 in load_vocab < main"), r.told())
			come(r)
			require.Equal(t, movesOn, r.told())
		})
	}
}

func TestNobodyIsAwaitedWho(t *testing.T) {
	for name, change := range map[string]func(r *retries, look int){
		"comes at each third look": func(r *retries, look int) {
			at, class := loads(12, ""), waitclass.OwnCode
			if look%3 == 2 {
				at, class = waiting(retrier), waitclass.Collective
			}
			r.at(retrier, func(p *fake) { p.class = class })
			r.tries(at)
		},
		"makes steps with the others": func(r *retries, _ int) {
			r.works(firstW)
			r.works(otherW)
			r.tries(loads(12, ""))
		},
		"waits for its threads of backward": func(r *retries, _ int) {
			at := loads(12, "")
			at.Threads[0].Wait.Class = waitclass.Backward
			r.tries(at)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRetries(t)
			for look := range 20 {
				change(r, look)
			}
			require.Zero(t, r.taken())
		})
	}
}

// inStore lets ranks wait for a key of the store.
func (r *retries) inStore(pids ...uint32) {
	r.T.Helper()
	for _, pid := range pids {
		r.at(pid, func(p *fake) {
			p.class, p.place = waitclass.Store, pystack.Place{Chain: 77, Calls: 77}
			at := loads(31, "")
			at.Threads[0].Wait.Class = waitclass.Store
			p.stack = at
			p.status.Switches++
		})
	}
}

// Who waits in the store waits for who stands elsewhere, and is waited for in collectives.
func TestWhoWaitsInTheStore(t *testing.T) {
	inStore := loads(12, "")
	inStore.Threads[0].Wait.Class = waitclass.Store
	for name, tc := range map[string]struct {
		others []uint32 // that are in the store; the rest of them in a collective
		at     *stacks.Process
		class  waitclass.Class
		told   bool
	}{
		"it tries the store again, and others are in a collective": {at: inStore, class: waitclass.Store, told: true},
		"it tries elsewhere, and others are in the store":          {others: []uint32{firstW, otherW}, at: loads(12, ""), class: waitclass.OwnCode, told: true},
		"it tries the store again, and one other is in it":         {others: []uint32{firstW}, at: inStore, class: waitclass.Store, told: true},
		"all are in the store":                                     {others: []uint32{firstW, otherW}, at: inStore, class: waitclass.Store},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRetries(t)
			r.inStore(tc.others...)
			r.at(retrier, func(p *fake) { p.class = tc.class })
			for range 12 {
				r.tries(tc.at)
			}
			if !tc.told {
				require.Zero(t, r.taken())
				return
			}
			require.Equal(t, awaitedAt("vocab.py:12 in load_vocab < main"), r.told())
		})
	}
}

// Ranks on other nodes wait for one that exchanges nothing with them any more.
func TestARankThatOtherNodesAwait(t *testing.T) {
	inCollective := func(r *retries) { r.at(retrier, func(p *fake) { p.class = waitclass.Collective }) }
	for name, tc := range map[string]struct {
		change func(*retries)
		at     *stacks.Process
		silent []uint32
		told   bool
	}{
		"it is silent":                        {silent: []uint32{retrier}, told: true},
		"it exchanges data":                   {silent: []uint32{firstW}},
		"it waits in a collective":            {change: inCollective, at: waiting(retrier), silent: []uint32{retrier}},
		"all ranks of its job are here":       {change: func(r *retries) { r.alone(1) }, silent: []uint32{retrier}},
		"nobody knows of which job it is":     {change: func(r *retries) { one := rank(retrier, 0); one.JobID = ""; r.Resolver.Know(one) }, silent: []uint32{retrier}},
		"it waits in the store, and no other": {change: func(r *retries) { r.at(retrier, func(p *fake) { p.class = waitclass.Store }) }, silent: []uint32{retrier}, told: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRetries(t)
			t.Cleanup(func() { silence.Tell(silence.Sockets, nil) })
			r.alone(8)
			if tc.change != nil {
				tc.change(r)
			}
			r.now = r.now.Add(r.config.LookInterval)
			silent := map[uint32]time.Time{}
			for _, pid := range tc.silent {
				silent[pid] = r.now
			}
			silence.Tell(silence.Sockets, silent)
			at := tc.at
			if at == nil {
				at = loads(12, "")
			}
			for range 12 {
				r.tries(at)
			}
			if !tc.told {
				require.Zero(t, r.taken())
				return
			}
			require.Equal(t, awaitedAt("vocab.py:12 in load_vocab < main"), r.told())
			silence.Tell(silence.Sockets, nil)
			r.tries(at)
			require.Equal(t, movesOn, r.told(), "data moves")
		})
	}
}

// alone lets the rank be the only one here, of a job of so many.
func (r *retries) alone(world int) {
	one := rank(retrier, 0)
	one.WorldSize = world
	r.Resolver.Know(one)
}

// Processes of one rank, and ranks of another job, do not await a rank.
func TestOnlyOtherRanksOfAJobAwaitARank(t *testing.T) {
	for name, know := range map[string]func(r *retries){
		"one rank": func(r *retries) { r.Resolver.Know(rank(firstW, 5), rank(retrier, 5)) },
		"two jobs": func(r *retries) {
			other := rank(firstW, 1)
			other.JobID = "job-2"
			r.Resolver.Know(other, rank(retrier, 5))
		},
		"no job": func(r *retries) {
			one, other := rank(firstW, 1), rank(retrier, 5)
			one.JobID, other.JobID = "", ""
			r.Resolver.Know(one, other)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRetries(t)
			know(r)
			r.now = r.now.Add(r.config.LookInterval)
			for range 12 {
				r.tries(loads(12, ""))
			}
			require.Zero(t, r.taken())
		})
	}
}

// Between two tries it sleeps for longer than a rank has to stand: the loop, and no sleep of it, is told.
func TestSleepsBetweenTriesAreNotToldOneByOne(t *testing.T) {
	r := newRetries(t)
	var all [][]any
	for range 6 {
		r.tries(loads(12, ""))
		r.looks(t, 4)
	}
	for range 3 {
		all = append(all, r.told())
	}
	require.Equal(t, [][]any{{"process.stack", "asleep", "vocab.py:12 in load_vocab < main"}, movesOn, awaitedAt("vocab.py:12 in load_vocab < main")}, all)
	r.looks(t, 20) // it tries no more
	require.Equal(t, []any{"process.stack", "asleep", "vocab.py:12 in load_vocab < main"}, r.told())
}

// A rank that stood, and goes on, is found once or twice on its way to the others: the line at which it stood stays.
func TestARankThatStoodIsNotToldOnItsWay(t *testing.T) {
	r := newRetries(t)
	r.tries(loads(12, ""))
	r.looks(t, 10)
	at := saving(retrier)
	at.Threads[0].Wait.Class, at.Threads[0].Python[2].Line = waitclass.OwnCode, 201
	r.tries(at)
	r.tries(at)
	r.at(retrier, func(p *fake) { p.class = waitclass.Collective })
	at = waiting(retrier)
	at.Threads[0].Python[0].Line = 900
	r.tries(at)
	require.Equal(t, []any{"process.stack", "asleep", "vocab.py:12 in load_vocab < main"}, r.told())
	require.Equal(t, movesOn, r.told())
	require.Zero(t, r.taken())
}

// A rank that computes for long is in other lines at each look: few stacks are read of it.
func TestStacksOfARankThatIsAwaitedAreBounded(t *testing.T) {
	r := newRetries(t)
	const seconds = 300
	for line := range seconds {
		r.tries(loads(20+line, ""))
	}
	require.LessOrEqual(t, len(r.source.taken), triesAtOnce+seconds/int(triesPause.Seconds())+takesAtOnce+2)
	require.LessOrEqual(t, r.taken(), int64(takesAtOnce+seconds/int(takePause.Seconds())))
}
