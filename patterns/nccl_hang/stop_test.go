package ncclhang

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// exits adds the ends of processes of ranks.
func (c *calls) exits(does map[string]any, ranks ...int) *calls {
	return c.ends(rule.EventExit, does, ranks...)
}

func (c *calls) ends(event string, does map[string]any, ranks ...int) *calls {
	for _, rank := range ranks {
		c.record(event, comm{}, rank, func(a pcommon.Map) {
			for key, value := range does {
				if err := a.PutEmpty(key).FromRaw(value); err != nil {
					panic(err)
				}
			}
		})
	}
	return c
}

var (
	askedToEnd = map[string]any{"process.exit.signal": 15, "process.exit.signal_name": "SIGTERM", "signal.number": 15, "signal.sender.relation": "scheduler"}
	askedOfAll = map[string]any{"signal.number": 10, "signal.name": "SIGUSR1", "signal.sender.relation": "scheduler", "process.asked.spared_ranks": 0}
	killed     = map[string]any{"process.exit.signal": 9, "process.exit.signal_name": "SIGKILL", "signal.number": 9, "signal.sender.relation": "scheduler"}
)

// TestAJobThatIsStoppedHangsForNobody: where ranks ended because somebody ends the job, those that are
// left are killed soon, and their wait is told only if it lasts longer than that.
func TestAJobThatIsStoppedHangsForNobody(t *testing.T) {
	interrupted := map[string]any{"process.exit.code": 1, "process.exit.signal": 0, "signal.number": 2, "signal.sender.relation": "kernel"}
	alone := map[string]any{"process.exit.signal": 15, "process.exit.signal_name": "SIGTERM", "signal.number": 15, "process.exit.spared_ranks": 7}
	for name, tc := range map[string]struct {
		calls func(*calls)
		waits bool
	}{
		"all but one end": {func(c *calls) {
			c.exits(askedToEnd, but(8, 7)...).stands(c.all(), 10, "overdue", 7).left(c.all(), 9, "exited", but(8, 7)...)
		}, true},
		"by SIGINT, with a status": {func(c *calls) {
			c.exits(interrupted, but(8, 7)...).stands(c.all(), 10, "overdue", 7).left(c.all(), 9, "exited", but(8, 7)...)
		}, true},
		"the only rank of its host": {func(c *calls) {
			c.exits(askedToEnd, 5).stands(c.all(), 10, "overdue", but(8, 5)...).left(c.all(), 9, "exited", 5)
		}, true},
		"its record comes later": {func(c *calls) {
			c.stands(c.all(), 10, "overdue", but(8, 5)...).left(c.all(), 9, "exited", 5).exits(askedToEnd, 5)
		}, true},
		"none has ended yet": {func(c *calls) {
			c.ends(rule.EventAsked, askedOfAll, but(8)...).stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
		}, true},
		"who asks again and again": {func(c *calls) {
			c.ends(rule.EventAsked, askedOfAll, 0)
			for range 3 {
				c.at = c.at.Add(time.Minute)
				c.ends(rule.EventAsked, askedOfAll, 0)
			}
			c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
		}, false},
		"a person wants stacks": {func(c *calls) {
			c.ends(rule.EventAsked, map[string]any{"signal.number": 10, "signal.sender.relation": "other"}, 0)
			c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
		}, false},
		"by stacks, and none has ended": {func(c *calls) {
			c.ends(rule.EventAsked, askedOfAll, 5).stand(inCollective, but(8, 5)...).stand(inLock, 5)
		}, true},
		"by stacks": {func(c *calls) {
			c.exits(askedToEnd, 5).stand(inCollective, but(8, 5)...).stand(inLock, 5)
		}, true},
		"one alone, and others of its host are spared": {func(c *calls) {
			c.exits(alone, 5).stands(c.all(), 10, "overdue", but(8, 5)...).left(c.all(), 9, "exited", 5)
		}, false},
		"of another job": {func(c *calls) {
			c.job = "another"
			c.exits(askedToEnd, 5)
			c.job = "llm"
			c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
		}, false},
		"of its last start": {func(c *calls) {
			c.begun = c.begun.Add(-time.Hour)
			c.exits(askedToEnd, 5)
			c.begun = c.begun.Add(time.Hour)
			c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, j := newCalls(8), newJoin(DefaultOptions)
			tc.calls(c)
			j.Add(c.list, c.at)
			first := findings(j.Advance(c.at.Add(settled)))
			first = append(first, findings(j.Advance(c.at.Add(settled+2*time.Second)))...)
			require.Equal(t, tc.waits, len(first) == 0)
			if !tc.waits {
				return
			}
			saved, err := j.Snapshot()
			require.NoError(t, err)
			j = newJoin(DefaultOptions)
			require.NoError(t, j.Restore(saved))
			require.Empty(t, j.Advance(c.at.Add(DefaultOptions.Stopped-1)))
			require.Len(t, findings(j.Advance(c.at.Add(DefaultOptions.Stopped))), 1, "the others still stand")

			j = newJoin(DefaultOptions)
			j.Add(c.list, c.at)
			require.Empty(t, j.Advance(c.at.Add(settled)))
			c.list, c.at = plog.NewLogs(), c.at.Add(30*time.Second)
			c.exits(killed, but(8)...)
			j.Add(c.list, c.at)
			if !strings.HasPrefix(name, "by stacks") { // whose receiver says itself that nothing stands there any more
				require.Empty(t, findings(j.Advance(c.at.Add(10*time.Minute))), "all have ended")
			}
		})
	}
}

// TestWhyAProcessEndedIsSaid: the end of the process of a rank to blame is heard first.
func TestWhyAProcessEndedIsSaid(t *testing.T) {
	c, j := newCalls(8), newJoin(DefaultOptions)
	c.stands(c.all(), 10, "overdue", but(8, 5)...).left(c.all(), 9, "exited", 5)
	j.Add(c.list, c.at)
	require.Empty(t, j.Advance(c.at.Add(time.Second)))
	c.list = plog.NewLogs()
	c.exits(map[string]any{"process.exit.signal": 11, "process.exit.signal_name": "SIGSEGV"}, 5)
	j.Add(c.list, c.at.Add(time.Second))
	f := findings(j.Advance(c.at.Add(2 * time.Second)))
	require.Len(t, f, 1)
	require.Equal(t, "rank 5 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its process has ended: SIGSEGV", f[0].String())
}

// TestAnEndIsHeardWithoutItsCommunicators: the kernel says that a process has ended, where the receiver
// of calls says no more.
func TestAnEndIsHeardWithoutItsCommunicators(t *testing.T) {
	c, j := newCalls(8), newJoin(DefaultOptions)
	c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "usual", 5)
	j.Add(c.list, c.at)
	require.Empty(t, j.Advance(c.at.Add(settled)))
	c.list, c.at = plog.NewLogs(), c.at.Add(10*time.Second)
	c.exits(map[string]any{"process.exit.signal": 0, "process.exit.code": 1}, 5)
	j.Add(c.list, c.at)
	f := findings(j.Advance(c.at.Add(settled)))
	require.Len(t, f, 1)
	require.Equal(t, []int{5}, f[0].Culprits)
	require.Equal(t, "its process has ended: exit status 1", f[0].Does)
}

// TestStopsTakeNoRoom: a job that is being stopped takes no room from a job of which more is known.
func TestStopsTakeNoRoom(t *testing.T) {
	options := DefaultOptions
	options.Runs = 1
	c, j := newCalls(8), newJoin(options)
	c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
	c.job = "another"
	c.exits(askedToEnd, 1)
	j.Add(c.list, c.at)
	require.Len(t, findings(j.Advance(c.at.Add(settled))), 1)

	c, j = newCalls(8), newJoin(options)
	c.exits(askedToEnd, 1)
	j.Add(c.list, c.at)
	require.Len(t, j.calls.runs, 1)
	j.Advance(c.at.Add(keepMoving))
	require.Len(t, j.calls.runs, 1)
	j.Advance(c.at.Add(DefaultOptions.Stopped + keepMoving))
	require.Empty(t, j.calls.runs)
}

// TestARankThatEndedUnseenIsNamed: it ended while no agent ran on its host, and the others wait for it.
func TestARankThatEndedUnseenIsNamed(t *testing.T) {
	for name, before := range map[string]func(*calls){
		"it stood":                     func(c *calls) { c.stands(c.all(), 9, "usual", 5) },
		"it went on":                   func(c *calls) { c.record(eventCallMoving, c.all(), 5, stoodAt(3, c.at, "")) },
		"all stand, it had not called": func(c *calls) { c.stands(c.all(), 9, "overdue", 5) },
	} {
		t.Run(name, func(t *testing.T) {
			c, j := newCalls(8), newJoin(DefaultOptions)
			before(c)
			c.at = c.at.Add(10 * time.Second)
			c.ends(rule.EventGone, map[string]any{"process.gone.unwatched_ns": int64(5e9)}, 5)
			c.stands(c.all(), 10, "overdue", but(8, 5)...)
			j.Add(c.list, c.at)
			f := findings(j.Advance(c.at.Add(settled)))
			require.Len(t, f, 1)
			require.Equal(t, []int{5}, f[0].Culprits)
			require.Equal(t, "its process has ended: no agent watched", f[0].Does)
			require.Equal(t, Likely, f[0].Sure, "it may have called more than was told")
		})
	}
}
