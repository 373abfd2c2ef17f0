package stall

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// memory is what the tracker knows of the ranks that live, as it is kept.
func (w *world) memory() map[identity.Born]Memory {
	all := map[identity.Born]Memory{}
	for _, p := range w.ranks {
		if m, is := w.tracker.Memory(&p.Process); is {
			text, err := json.Marshal(m)
			require.NoError(w.t, err)
			var kept Memory
			require.NoError(w.t, json.Unmarshal(text, &kept))
			all[p.Born()] = kept
		}
	}
	return all
}

// restart begins with another tracker, which knows so much.
func (w *world) restart(known map[identity.Born]Memory) {
	w.tracker, w.looked = New(w.tracker.o), map[uint32]bool{}
	w.tracker.Recall(known, w.at)
}

// absent is what is known after an absence.
func absent(all map[identity.Born]Memory, absence time.Duration) map[identity.Born]Memory {
	for born, m := range all {
		all[born] = m.After(absence)
	}
	return all
}

// again starts the processes of the job again: other pids, other connections.
func (w *world) again(ranks ...int) {
	for _, r := range ranks {
		p := w.ranks[r]
		p.PID, p.StartTime, p.StartNS = p.PID+100, w.at, p.StartNS+1e9
	}
	for r := range w.ranks {
		w.links[r] = w.connect(r, (r+1)%len(w.ranks), uint64(300+2*r), 41000, 51000)
	}
}

func TestAHangThroughARestartIsToldAsSoonAsEver(t *testing.T) {
	for name, restart := range map[string]func(w *world){
		"it begins before": func(w *world) { w.hang(); w.restart(w.memory()) },
		"it begins after":  func(w *world) { w.restart(w.memory()); w.train(1); w.hang() },
		"it was told before": func(w *world) {
			w.hang()
			w.idle(20)
			w.restart(w.memory())
		},
		"and through two": func(w *world) { w.hang(); w.restart(w.memory()); w.idle(1); w.restart(w.memory()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(12)
			restart(w)
			events, seconds := w.firstAfter(10)
			require.LessOrEqual(t, seconds, 4, "3 s, and the first look")
			require.Equal(t, socketstall.Overdue, of(t, events).Silence)
		})
	}
}

func TestWithoutAMemoryAHangWaitsUntilPausesAreKnown(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	w.restart(nil)
	w.train(1)
	w.hang()
	_, seconds := w.firstAfter(90)
	require.Greater(t, seconds, 50)
}

// The first 10 snapshots teach a job's pauses at rest; here three of 20 s.
func TestPausesAreAsUsualAfterARestart(t *testing.T) {
	for name, tc := range map[string]struct {
		restart func(w *world)
		usual   time.Duration
	}{
		"with a memory":    {func(w *world) { w.restart(w.memory()) }, 20 * time.Second},
		"after an hour":    {func(w *world) { m := w.memory(); w.pass(time.Hour); w.restart(absent(m, time.Hour)) }, 20 * time.Second},
		"after two":        {func(w *world) { w.restart(w.memory()); w.train(1); w.restart(w.memory()) }, 20 * time.Second},
		"of another start": {func(w *world) { m := w.memory(); w.again(0, 1, 2, 3); w.restart(m); w.train(12) }, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(1)
			for range 3 {
				w.hang()
				require.Empty(t, w.idle(20))
				w.rest()
			}
			w.train(12)
			tc.restart(w)
			w.train(1)
			j := w.tracker.ranks[w.ranks[2].PID].job
			require.InDelta(t, tc.usual, j.phases.usual(2, socketstall.Idle, w.tracker.now, &w.tracker.o), float64(time.Second))
			require.Zero(t, j.phases.usual(1, socketstall.Idle, w.tracker.now, &w.tracker.o), "of another rank")
			w.hang()
			_, seconds := w.firstAfter(60)
			require.InDelta(t, max(3, 2*tc.usual.Seconds()), seconds, 2)
		})
	}
}

// A pause of 20 s is usual, of this rank or of one on another node. It stands when the agent is back, or
// begins then, or once pauses are known again: nobody is accused.
func TestAUsualPauseAfterAnAbsence(t *testing.T) {
	for name, away := range map[string]time.Duration{"a minute": time.Minute, "an hour": time.Hour, "a day": 24 * time.Hour} {
		for _, trained := range []int{0, 1, 12} {
			t.Run(fmt.Sprint(name, ", then moving for ", trained), func(t *testing.T) {
				w := newWorld(t, 4, Defaults())
				w.train(1)
				for range 3 {
					w.hang()
					require.Empty(t, w.idle(20))
					w.rest()
				}
				w.train(12)
				w.tracker.ranks[1002].job.phases.learn(Unknown, socketstall.Idle, pause{w.tracker.now - 5*time.Second, w.tracker.now})
				known := w.memory()
				w.pass(away)
				w.restart(absent(known, away))
				w.train(trained)
				j := w.tracker.jobs.of[keyOf(&w.ranks[0].Process)]
				require.Equal(t, away <= time.Hour || trained > w.tracker.o.PhaseLearning, j.phases.known(&w.tracker.o))
				w.hang()
				require.Empty(t, w.idle(20))
				require.Len(t, j.phases.pauses[kindOfPause{Unknown, socketstall.Idle}], 1)
			})
		}
	}
}

// What a rank did in its pause before the restart is not known after it.
func TestAPauseThatBeganWithWorkMayEndAtRest(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(1)
	for range 3 {
		w.hang()
		w.idle(6)
		w.rest()
	}
	w.train(12)
	w.hang()
	require.Empty(t, w.busy(14, func(p *Process) { p.CPU, p.MainCPU = p.CPU+time.Second, p.MainCPU+time.Second }))
	w.restart(w.memory())
	require.Empty(t, w.idle(6))
}

func TestARankThatPausesOnAnotherNodeIsRemembered(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	j := w.tracker.ranks[w.ranks[0].PID].job
	for i := range time.Duration(3) {
		j.phases.learn(Unknown, socketstall.Idle, pause{i * time.Second, i*time.Second + time.Second/2})
	}
	w.restart(w.memory())
	w.train(1)
	require.Equal(t, time.Second/2, w.tracker.ranks[w.ranks[0].PID].job.phases.usual(Unknown, socketstall.Idle, w.tracker.now, &w.tracker.o))
}

func TestAJobOfWhichARankIsNewStartsUp(t *testing.T) {
	for name, fresh := range map[string][]int{"all": {0, 1, 2, 3}, "one of them": {2}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(12)
			known := w.memory()
			w.again(fresh...)
			w.restart(known)
			require.Empty(t, w.idle(3))
			w.links[1].deliver(10, 0)
			require.Empty(t, accusing(w.idle(20)), "rank 2 sleeps with ten unread bytes, as at a start")
			w.links[1].read()
			w.train(12)
			w.hang()
			require.Equal(t, socketstall.Overdue, of(t, w.idle(5)).Silence, "it trains: a hang is told as soon as ever")
		})
	}
}

func TestAnotherProcessOfThatNumberIsNotRemembered(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	known := w.memory()
	for _, p := range w.ranks {
		p.StartNS++
	}
	w.restart(known)
	w.train(1)
	require.Equal(t, 1, w.tracker.ranks[w.ranks[0].PID].job.phases.traffic)
}

// A launch script that has the rank in its environment moves no data: it is no new start, and what it
// runs beside the rank is none either.
func TestALaunchScriptIsRemembered(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	script := *w.ranks[1]
	script.PID, script.StartNS, script.Comm, script.RankPID = 5000, 60, "bash", 5000
	w.ranks = append(w.ranks, &script)
	w.train(12)
	w.restart(w.memory())
	beside := *w.ranks[1]
	beside.PID, beside.StartNS, beside.Comm = 5001, 1e9, "sleep"
	w.ranks = append(w.ranks, &beside)
	w.train(1)
	require.GreaterOrEqual(t, w.tracker.ranks[1000].job.phases.traffic, w.tracker.o.PhaseLearning)
}

// What was told as a fault before the restart, or was none's own doing, is no pause after it.
func TestAHangThroughARestartTeachesNoPause(t *testing.T) {
	for name, tc := range map[string]struct {
		seconds int
		held    socketstall.State
	}{
		"told":                      {10, socketstall.Sleeping},
		"of a rank that is stopped": {1, socketstall.Stopped},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(12)
			for range 5 {
				w.hang()
				w.ranks[2].State = tc.held
				w.idle(tc.seconds)
				w.ranks[2].State = socketstall.Sleeping
				w.restart(w.memory())
				w.idle(2)
				w.rest()
				require.Empty(t, w.tracker.ranks[1002].job.phases.pauses)
				w.train(3)
			}
			w.hang()
			_, seconds := w.firstAfter(10)
			require.LessOrEqual(t, seconds, 3)
		})
	}
}

// What is kept of a process has room for all its pauses (learned.mostBytes).
func TestAMemoryIsSmall(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	j := w.tracker.ranks[1000].job
	for _, how := range []socketstall.Activity{
		socketstall.Idle, socketstall.Computing, socketstall.ThreadComputing, socketstall.ChildComputing, socketstall.Starved, socketstall.IO,
	} {
		for i := range time.Duration(2 * mostPauses) {
			for _, rank := range []int{0, Unknown} {
				j.phases.learn(rank, how, pause{10 * i * time.Minute, (10*i + 9) * time.Minute})
			}
		}
	}
	m, is := w.tracker.Memory(&w.ranks[0].Process)
	require.True(t, is)
	m.Elsewhere = m.Elsewhere[:mostPauses] // of one on another node nobody knows more than that it is silent
	m.JobID = strings.Repeat("j", 200)
	text, err := json.Marshal(m)
	require.NoError(t, err)
	require.Less(t, len(text), 4<<10)
}

func TestADamagedMemoryIsNone(t *testing.T) {
	now := began.UnixMilli()
	bad := []activity.Kept{
		{End: now, Length: -1}, {End: now, Length: 0}, {End: now + 1000, Length: 20_000}, {End: now, Length: 1 << 62}, {End: -1 << 62, Length: 1000}, {End: 1 << 62, Length: 1000},
	}
	for i, m := range []Memory{{}, {Traffic: -1 << 62}, {Traffic: 1 << 62, Rank: -7}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			key := keyOf(&w.ranks[0].Process)
			m.JobID, m.Port, m.World, m.Pauses, m.Elsewhere = key.id, key.port, key.world, bad, bad
			w.restart(map[identity.Born]Memory{w.ranks[0].Born(): m, {}: m, {PID: 1}: {}})
			j := w.tracker.jobs.of[key]
			require.Empty(t, j.phases.pauses)
			require.GreaterOrEqual(t, j.phases.traffic, 0)
			require.LessOrEqual(t, j.phases.traffic, w.tracker.o.PhaseLearning)
			w.train(12)
		})
	}
}
