package stacksreceiver

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/attribute"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/internal/stacks"
	"github.com/tracecoreai/tracecore/internal/unwind"
	"github.com/tracecoreai/tracecore/internal/waitclass"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
)

// restart is another follower, with what was known of the process.
func (t *thread) restart() { t.absent(0) }

// absent is restart after an absence.
func (t *thread) absent(absence time.Duration) {
	before := newWatch(&stacksReceiver{}, nil)
	before.follows[processOf(&t.follower.Process)] = t.follower
	m, is := before.memory(&t.follower.Process)
	require.True(t, is)
	text, err := json.Marshal(m)
	require.NoError(t, err)
	var kept memory
	require.NoError(t, json.Unmarshal(text, &kept))
	next := newThread(t.T, t.python)
	next.began = time.Time{}
	kept = kept.After(absence)
	t.now = t.now.Add(absence)
	next.recall(&kept, t.now)
	t.follower = next.follower
}

// hangs lets receivers follow each other while rank 42, which was in collectives for so long, stands.
// It returns after how many seconds of the last the rank was told to be overdue, 0 where it never was.
func hangs(t *testing.T, keeps bool, next identity.Process) int {
	b := newBench(t)
	b.at(42, func(p *fake) {
		p.class, p.does = waitclass.Collective, &activity.Process{Process: rank(42, 3), State: socketstall.Sleeping, Inside: &activity.Inside{Compared: true}}
	})
	b.Resolver.Know(rank(42, 3))
	if keeps {
		b.config.Storage = b.Keeps()
	}
	r := b.receiver(t, b.Sink)
	require.NoError(t, r.Start(t.Context(), b.Host))
	for range 15 {
		b.at(42, func(p *fake) { p.status.Switches++; p.place.Chain++ })
		b.looks(t, 1)
	}
	b.at(42, func(p *fake) { // it falls asleep in its own function
		p.status.Switches++
		p.place, p.class = pystack.Place{Chain: 9, Calls: 9}, waitclass.OwnCode
	})
	b.looks(t, 1)
	require.NoError(t, r.Shutdown(context.Background()))
	require.Empty(t, b.Records)

	b.Resolver.Know(next)
	r = b.receiver(t, b.Sink)
	require.NoError(t, r.Start(t.Context(), b.Host))
	began := b.now
	b.looks(t, 30)
	require.NoError(t, r.Shutdown(context.Background()))
	for len(b.Records) > 0 {
		r := b.Next(t)
		if s, _ := r.Attributes().Get("nccl.rank.silence"); s.Str() == "overdue" {
			return int(r.Timestamp().AsTime().Sub(began).Seconds())
		}
	}
	return 0
}

func TestAHangThroughARestartIsOverdueAsSoonAsEver(t *testing.T) {
	another := rank(42, 3)
	another.StartNS++
	require.Equal(t, 4, hangs(t, true, rank(42, 3)), "3 s, and the first look")
	require.Zero(t, hangs(t, false, rank(42, 3)), "without a storage")
	require.Zero(t, hangs(t, true, another), "another process of that number")
}

// What was told of a rank stands through a restart of its agent, until the rank is elsewhere: one that waits in a collective or for
// its GPU runs meanwhile, for it polls.
func TestWhatWasToldThroughARestartStandsUntilItIsElsewhere(t *testing.T) {
	for name, tc := range map[string]struct {
		keeps bool
		goes  bool // elsewhere, while no agent is there
		first string
	}{
		"it polls":                          {keeps: true, first: "process.stack"},
		"it went on":                        {keeps: true, goes: true, first: "process.stack.moving"},
		"nobody knows what was told":        {first: "process.stack.moving"},
		"nobody knows, and it went on, too": {goes: true, first: "process.stack.moving"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			older := rank(42, 3)
			older.StartTime = start.Add(-time.Hour)
			b.at(42, func(p *fake) { p.class = waitclass.Collective })
			b.Resolver.Know(older)
			if tc.keeps {
				b.config.Storage = b.Keeps()
			}
			polls := func(seconds int) {
				for range seconds {
					b.at(42, func(p *fake) { p.status.Switches++; p.status.Sleeps++ })
					b.looks(t, 1)
				}
			}
			r := b.receiver(t, b.Sink)
			require.NoError(t, r.Start(t.Context(), b.Host))
			polls(30)
			require.NoError(t, r.Shutdown(context.Background()))
			told := ""
			for len(b.Records) > 0 {
				told = b.Next(t).EventName()
			}
			require.Equal(t, "process.stack", told)

			if tc.goes {
				b.works(42)
			}
			r = b.receiver(t, b.Sink)
			require.NoError(t, r.Start(t.Context(), b.Host))
			polls(30)
			b.works(42)
			b.looks(t, 1)
			require.NoError(t, r.Shutdown(context.Background()))
			var events []string
			for len(b.Records) > 0 {
				events = append(events, b.Next(t).EventName())
			}
			require.Equal(t, tc.first, events[0])
			require.Equal(t, "process.stack.moving", events[len(events)-1], "it is elsewhere")
		})
	}
}

// What was learned of times in one call, and for how long the process is known, goes on.
func TestLongStepsAcrossARestartAreNotToldAndALoopIs(t *testing.T) {
	one := newThread(t, true)
	one.began = time.Time{}
	for step := range 20 {
		for range 25 {
			require.Empty(t, one.works(3).take, "step %d", step)
		}
		for range 4 {
			require.Empty(t, one.works(2).take)
		}
		if step%5 == 4 {
			one.absent(time.Duration(step) * time.Minute) // up to 19
		}
	}
	looks := 0
	for one.works(7).take == "" {
		looks++
	}
	require.Equal(t, 50, looks, "twice as long as usual")
}

func TestALoopAfterARestartIsToldAfterPatience(t *testing.T) {
	for absence, patience := range map[time.Duration]int{0: 20, time.Hour: 20, 2 * time.Hour: 50} {
		t.Run(absence.String(), func(t *testing.T) {
			one := newThread(t, true)
			for call := range uint64(20) {
				one.works(call + 10)
			}
			one.absent(absence)
			looks := 0
			for one.works(3).take == "" {
				looks++
			}
			require.Equal(t, patience, looks)
		})
	}
}

func TestSleepsThatAreUsualAreSoAfterARestart(t *testing.T) {
	one := newThread(t, true)
	for range 3 {
		one.sleeps('S', 8)
		one.works(2)
	}
	one.restart()
	one.sleeps('S', 7)
	require.False(t, one.unusual(one.now))
	one.now = one.now.Add(2 * time.Second)
	require.True(t, one.unusual(one.now))
}

// What is kept of a process has room for all that is remembered of it (learned.mostBytes).
func TestAMemoryIsSmall(t *testing.T) {
	one := newThread(t, true)
	for i := range time.Duration(100) {
		at := start.Add(i * time.Minute / 2)
		one.rest.Goes(at, at, true)
		one.inCalls.note(at, 59*time.Minute)
		one.asleepFor.note(at, 59*time.Minute)
	}
	one.now = start.Add(50 * time.Minute)
	w := newWatch(&stacksReceiver{}, nil)
	w.follows[processOf(&one.follower.Process)] = one.follower
	m, is := w.memory(&one.follower.Process)
	require.True(t, is)
	require.NotEmpty(t, m.Rest.Pauses)
	text, err := json.Marshal(m)
	require.NoError(t, err)
	require.Less(t, len(text), 4<<10)
}

func TestADamagedMemoryIsNone(t *testing.T) {
	one := newThread(t, true)
	one.began = time.Time{}
	bad := make([]activity.Kept, 100)
	for i := range bad {
		bad[i] = activity.Kept{End: start.UnixMilli() + int64(i), Length: int64(-i)}
	}
	one.recall(&memory{Rest: activity.Memory{AtWork: -1, First: 1 << 62, Pauses: bad}, Began: 1 << 62, AsleepFor: bad, InCalls: bad}, start)
	require.True(t, one.began.IsZero())
	require.Zero(t, one.asleepFor.next)
	require.Zero(t, one.inCalls.next)
	require.Zero(t, one.rest.Patience(start))
}

// killed lets another receiver follow on the one that is, which a SIGKILL ends, and returns what that has told last.
func (b *bench) killed(t *testing.T, r receiver.Logs) (receiver.Logs, map[string]any) {
	t.Helper()
	kept := b.Host.Extensions[probereceivertest.StorageID].(*probereceivertest.Storage).Killed()
	require.NoError(t, r.Shutdown(context.Background()))
	last := map[string]any{}
	for len(b.Records) > 0 {
		last = b.Next(t).Attributes().AsRaw()
	}
	b.Host.Extensions[probereceivertest.StorageID] = kept
	next := b.receiver(t, b.Sink)
	require.NoError(t, next.Start(t.Context(), b.Host))
	return next, last
}

// ends ends a receiver, and returns what it has told: the reason of each stack, or that the rank moves.
func (b *bench) endsAfter(t *testing.T, r receiver.Logs) (told []any) {
	t.Helper()
	require.NoError(t, r.Shutdown(context.Background()))
	for len(b.Records) > 0 {
		one := b.Next(t)
		if one.EventName() == "process.stack.moving" {
			told = append(told, "moving")
		} else if reason, is := one.Attributes().Get("process.stack.reason"); is && one.EventName() == "process.stack" {
			told = append(told, reason.Str())
		}
	}
	return told
}

// lives is a rank that began before any receiver.
func lives(pid uint32, number int) identity.Process {
	p := rank(pid, number)
	p.StartTime = start.Add(-time.Hour)
	return p
}

// A rank that tries something again and again is elsewhere at each look. What was told of it stands through a SIGKILL of the
// agent, at whatever moment that comes, for as long as others wait for it. Who waits shows only after some looks.
func TestWhatWasToldOfTriesStandsThroughARestart(t *testing.T) {
	again := []*stacks.Process{loads(10, "urlopen"), loads(11, ""), loads(12, "")}
	tries := func(r *retries, look int) { r.tries(again[look%3]) }
	for name, tc := range map[string]struct {
		works int                        // looks before the others wait: what is known is kept every five
		after int                        // looks since it was told
		then  func(r *retries, look int) // at each look since the restart
		want  []any                      // since then
	}{
		"at once":                    {0, 0, tries, []any{"awaited"}},
		"at once, at another moment": {1, 0, tries, []any{"awaited"}},
		"at once, at a third":        {2, 0, tries, []any{"awaited"}},
		"some looks later":           {0, 7, tries, []any{"awaited"}},
		"it has come meanwhile": {0, 7, func(r *retries, look int) {
			r.at(retrier, func(p *fake) { p.class = waitclass.Collective })
			at := waiting(retrier)
			at.Threads[0].Python[0].Line = 900 + look
			r.tries(at)
		}, []any{"moving"}},
		"nobody waits any more": {0, 7, func(r *retries, look int) {
			for _, pid := range []uint32{firstW, otherW} {
				r.at(pid, func(p *fake) { p.class = waitclass.OwnCode })
				r.works(pid)
			}
			tries(r, look)
		}, []any{"moving"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := retriesBefore(t)
			r.config.Storage = r.Keeps()
			r.Resolver.Know(lives(firstW, 0), lives(otherW, 1), lives(retrier, 5))
			one := r.receiver(t, r.Sink)
			require.NoError(t, one.Start(t.Context(), r.Host))
			for look := 0; r.taken() == 0; look++ {
				require.Less(t, look, 100)
				if look < tc.works {
					r.works(firstW)
					r.works(otherW)
				}
				tries(r, look)
			}
			for look := range tc.after {
				tries(r, look)
			}
			next, last := r.killed(t, one)
			require.Equal(t, "awaited", last["process.stack.reason"])
			for look := range 40 {
				tc.then(r, look)
			}
			require.Equal(t, tc.want, r.endsAfter(t, next))
		})
	}
}

// A rank that was told to spin is not told to be in the same call after a restart, where it spins on. Where it turns
// out to compute, it is.
func TestARankThatSpinsDoesSoThroughARestart(t *testing.T) {
	for name, tc := range map[string]struct {
		then func(p *fake)
		want []any
	}{
		"it spins on":  {func(*fake) {}, []any{"spinning"}},
		"it computes":  {func(p *fake) { p.usage.faults += 1000 }, []any{"same_call"}},
		"it has moved": {func(p *fake) { p.place.Calls++ }, []any{"moving"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.config.Storage = b.Keeps()
			b.Resolver.Know(lives(42, 3))
			b.at(42, func(p *fake) {
				p.status.State = 'R'
				p.stack.Threads[0].Wait.Class = waitclass.OwnCode
				p.stack.Threads[0].Native = []unwind.Frame{{Object: "/usr/bin/python3.14", Symbol: "_PyEval_EvalFrameDefault"}}
			})
			one := b.receiver(t, b.Sink)
			require.NoError(t, one.Start(t.Context(), b.Host))
			for range int(recentCalls/b.config.ScanInterval) + 1 { // its calls are known then
				b.works(42)
				b.looks(t, 1)
			}
			for looks := 0; b.Own(t, "taken", attribute.String("reason", "spinning")) == 0; looks++ {
				require.Less(t, looks, 100)
				b.at(42, func(p *fake) { p.stack.Threads[0].Place = p.place })
				b.looks(t, 1)
			}
			next, last := b.killed(t, one)
			require.Equal(t, "spinning", last["process.stack.reason"])
			for range 55 {
				b.at(42, tc.then)
				b.looks(t, 1)
			}
			require.Equal(t, tc.want, b.endsAfter(t, next))
		})
	}
}

// A look-up of a name that fails is tried again. What was told of it stands through a restart that comes between two tries.
func TestALookUpStandsThroughARestart(t *testing.T) {
	lookUp, pauses := pystack.Place{Chain: 11, Calls: 1}, pystack.Place{Chain: 12, Calls: 2}
	for name, tc := range map[string]struct {
		tries bool // again
		want  any
	}{
		"it is tried again": {true, "asleep"},
		"it is over":        {false, "moving"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.config.Storage = b.Keeps()
			begins := func(in pystack.Place) func(*fake) {
				return func(p *fake) {
					p.status.Switches, p.status.Sleeps, p.place = p.status.Switches+3, p.status.Sleeps+3, in
				}
			}
			b.at(42, func(p *fake) {
				p.class, p.stack.Threads[0].Wait.Class, p.stack.Threads[0].Place = waitclass.NameServer, waitclass.NameServer, lookUp
			})
			b.at(42, begins(lookUp))
			b.Resolver.Know(lives(42, 3))
			one := b.receiver(t, b.Sink)
			require.NoError(t, one.Start(t.Context(), b.Host))
			b.looks(t, 30)
			b.at(42, begins(pauses))
			b.looks(t, 1)
			next, last := b.killed(t, one)
			require.Equal(t, "asleep", last["process.stack.reason"])
			for range 20 {
				b.at(42, begins(pauses))
				b.looks(t, 2)
				if tc.tries {
					b.at(42, begins(lookUp))
					b.looks(t, 9)
				} else {
					b.at(42, func(p *fake) { p.class = waitclass.OwnCode })
				}
			}
			require.Equal(t, tc.want, b.endsAfter(t, next)[0])
		})
	}
}
