package crashloop

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

const second = int64(time.Second)

func newDetector() *detector {
	d := &detector{least: 3, apart: int64(30 * time.Minute), close: closeness{int64(250 * time.Millisecond), second, int64(200 * time.Millisecond), int64(100 * time.Millisecond)}}
	d.reset()
	return d
}

// die shows the death of a rank, at that second.
func die(d *detector, job, run string, rank, at int64, signal string) bool {
	return dieAt(d, job, run, rank, at*second, signal)
}

func dieAt(d *detector, job, run string, rank, at int64, signal string) bool {
	a := pcommon.NewMap()
	a.PutStr(rule.AttributeJob, job)
	a.PutInt(rule.AttributeRank, rank)
	a.PutInt("process.exit.code", 1)
	if signal != "" {
		a.PutStr("process.exit.signal_name", signal)
	}
	return d.Observe(&rule.Record{Name: rule.EventExit, Time: at, Run: run, Resource: pcommon.NewMap(), Attributes: a})
}

func TestALongLoopKeepsItsCount(t *testing.T) {
	d := newDetector()
	for i := range int64(100) {
		require.True(t, die(d, "j", fmt.Sprintf("%03d", i), i%2, 60*(i+1), "SIGSEGV"))
	}
	findings := d.Decide(math.MaxInt64)
	require.Len(t, findings, 1)
	require.Subset(t, findings[0].Attributes, map[string]any{
		"crash_loop.starts": int64(100), "crash_loop.lasts": "1h39m0s", "crash_loop.kind": "unlike",
		"crash_loop.deaths": "rank 0 (SIGSEGV) 16 times, rank 1 (SIGSEGV) 16 times", // of those that are remembered
	})
	require.Len(t, d.loops["j\x00"].Starts, maxStarts)
	die(d, "j", "later", 0, 60*100+3600, "SIGSEGV")
	require.Empty(t, d.Decide(math.MaxInt64), "an hour later it is another loop")
}

// ends shows that a rank ended with status 0.
func ends(d *detector, job, run string, rank, at int64) bool {
	a := pcommon.NewMap()
	a.PutStr(rule.AttributeJob, job)
	a.PutInt(rule.AttributeRank, rank)
	return d.Observe(&rule.Record{Name: rule.EventExit, Time: at * second, Run: run, Resource: pcommon.NewMap(), Attributes: a})
}

func TestAStartThatEndsWellEndsTheLoop(t *testing.T) {
	d := newDetector()
	require.False(t, ends(d, "j", "0", 0, 1), "of a job that has not died nothing is kept")
	require.Empty(t, d.loops)
	for i := range int64(40) {
		die(d, "j", fmt.Sprintf("1%02d", i), 0, 60*(i+1), "SIGSEGV")
	}
	require.Len(t, d.Decide(math.MaxInt64), 1)
	require.True(t, ends(d, "j", "200", 0, 2460))
	require.False(t, ends(d, "j", "200", 1, 2461), "it is known")
	over := d.Decide(math.MaxInt64)
	require.Len(t, over, 1)
	require.Equal(t, eventEnd, over[0].Event)
	for i := range int64(3) {
		require.Empty(t, d.Decide(math.MaxInt64))
		require.True(t, die(d, "j", fmt.Sprintf("3%02d", i), 0, 2520+60*i, "SIGSEGV"))
	}
	findings := d.Decide(math.MaxInt64)
	require.Len(t, findings, 1)
	require.Equal(t, int64(3), findings[0].Attributes["crash_loop.starts"])
	require.Equal(t, "2m0s", findings[0].Attributes["crash_loop.lasts"])
	require.False(t, ends(d, "j", "302", 1, 2641), "a rank that ends well in a start that died")
	require.True(t, ends(d, "j", "400", 1, 2700))
	require.True(t, die(d, "j", "400", 0, 2701, "SIGSEGV"), "one leaves early, and another dies")
	findings = d.Decide(math.MaxInt64)
	require.Len(t, findings, 1)
	require.Equal(t, int64(4), findings[0].Attributes["crash_loop.starts"])
	saved, err := d.Snapshot()
	require.NoError(t, err)
	again := newDetector()
	require.NoError(t, again.Restore(saved))
	require.Equal(t, d.loops["j\x00"].Starts, again.loops["j\x00"].Starts)
}

func TestDeathsOfUnknownRunsAreNoStarts(t *testing.T) {
	d := newDetector()
	require.False(t, die(d, "j", "", 0, 1, ""))
	require.False(t, die(d, "", "a", 0, 1, ""))
	require.Empty(t, d.loops)
}

func TestRanksThatAreKilledAtOnceAreNoCrashInAnyOrder(t *testing.T) {
	for _, order := range [][]int64{{0, 1, 2}, {2, 0, 1}, {1, 2, 0}} {
		d := newDetector()
		for run := range int64(3) {
			for _, rank := range order {
				die(d, "j", fmt.Sprint(run), rank, 60*run, "SIGKILL")
			}
		}
		require.Empty(t, d.Decide(math.MaxInt64))
	}
}

// The last of a few deaths is a SIGKILL: whether that ends the job of somebody shows a moment
// later.
func TestALoneSIGKILLIsJudgedWhenNoOtherCame(t *testing.T) {
	for name, deleted := range map[string]bool{"a rank is killed": false, "the job is deleted": true} {
		d := newDetector()
		for run := range int64(2) {
			die(d, "j", fmt.Sprint(run), 0, 60*run, "SIGSEGV")
		}
		require.Empty(t, d.Decide(60*second), name)
		die(d, "j", "2", 0, 120, "SIGKILL")
		require.Equal(t, 120*second+d.close.atOnce, d.Due(), name)
		require.Empty(t, d.Decide(120*second), name)
		if deleted {
			die(d, "j", "2", 1, 120, "SIGKILL")
			require.EqualValues(t, 1, d.Due(), name)
		}
		require.Equal(t, !deleted, len(d.Decide(120*second+d.close.atOnce)) == 1, name)
		require.Zero(t, d.Due(), name)
	}
}

// Which of them was first nobody can tell, and no clock of one host is that good.
func TestRanksThatFailTogetherHaveNoFirst(t *testing.T) {
	const ms = int64(time.Millisecond)
	for name, tc := range map[string]struct {
		how   string
		at    []int64 // of ranks 3, 2, 1, 0, in ms
		named bool
	}{
		"aborts 10 ms apart":                {"SIGABRT", []int64{0, 10, 20, 30}, false},
		"the first aborts 300 ms ahead":     {"SIGABRT", []int64{0, 300, 310, 320}, true},
		"and the others are as far apart":   {"SIGABRT", []int64{0, 300, 400, 600}, false},
		"the others abort seconds later":    {"SIGABRT", []int64{0, 5000, 5010, 5020}, true},
		"statuses 30 ms apart":              {"", []int64{0, 30, 60, 90}, false},
		"the first status 120 ms ahead":     {"", []int64{0, 120, 130, 140}, true},
		"two ranks":                         {"SIGABRT", []int64{0, 10}, true},
		"a crash, and aborts of the others": {"SIGSEGV", []int64{0, 10, 20, 30}, true},
	} {
		for _, backwards := range []bool{false, true} {
			d := newDetector()
			for run := range int64(3) {
				for i := range tc.at {
					if backwards {
						i = len(tc.at) - 1 - i
					}
					how := tc.how
					if how == "SIGSEGV" && i > 0 {
						how = "SIGABRT"
					}
					dieAt(d, "j", fmt.Sprint(run), int64(3-i), 60*second*(run+1)+tc.at[i]*ms, how)
				}
			}
			findings := d.Decide(math.MaxInt64)
			require.Len(t, findings, 1, name)
			rank, named := findings[0].Attributes[rule.AttributeRank]
			require.Equal(t, tc.named, named, "%s: %v", name, findings[0].Attributes)
			if named {
				require.EqualValues(t, 3, rank, name)
			} else {
				require.Contains(t, findings[0].Attributes["crash_loop.deaths"], "several ranks together")
				require.Len(t, findings[0].Attributes["crash_loop.ranks"], len(tc.at), name)
			}
		}
	}
}

// A death like the one before it is a part of the loop at once. Where others turn out to die together with it, none is
// named any more.
func TestADeathLikeTheOneBeforeIsJudgedAtOnce(t *testing.T) {
	const ms = int64(time.Millisecond)
	for how, waits := range map[string]int64{"": 100 * ms, "SIGABRT": second} {
		d := newDetector()
		for run := range int64(2) {
			die(d, "j", fmt.Sprint(run), 3, 60*(run+1), how)
		}
		d.Decide(math.MaxInt64)
		die(d, "j", "2", 3, 180, how)
		findings := d.Decide(180 * second)
		require.Len(t, findings, 1)
		require.EqualValues(t, 3, findings[0].Attributes[rule.AttributeRank])
		dieAt(d, "j", "2", 1, 180*second+30*ms, how)
		dieAt(d, "j", "2", 0, 180*second+60*ms, how)
		require.Empty(t, d.Decide(180*second+60*ms), "others may come before it")
		findings = d.Decide(180*second + waits)
		require.Len(t, findings, 1)
		require.NotContains(t, findings[0].Attributes, rule.AttributeRank)

		die(d, "j", "3", 3, 240, how)
		require.Empty(t, d.Decide(240*second), "the start before had no first")
		d.Decide(math.MaxInt64)
		die(d, "j", "4", 2, 300, how)
		require.Empty(t, d.Decide(300*second), "another rank than before")
	}
}

// A start that lives for long ends the loop, and what dies after it begins another.
func TestAStartThatLivesEndsTheLoop(t *testing.T) {
	d := newDetector()
	require.False(t, begin(d, "0", 1), "no loop is told")
	for run := range int64(3) {
		die(d, "j", fmt.Sprint(run), 0, 100*(run+1), "SIGSEGV")
	}
	require.Len(t, d.Decide(300*second), 1)
	require.False(t, begin(d, "2", 290), "it has died")
	require.True(t, begin(d, "3", 310))
	require.Equal(t, (310+200)*second, d.Due(), "deaths are 100 s apart")
	require.Empty(t, d.Decide(509*second))

	state, err := d.Snapshot()
	require.NoError(t, err)
	again := newDetector()
	require.NoError(t, again.Restore(state))
	for _, d := range []*detector{d, again} {
		ends := d.Decide(510 * second)
		require.Len(t, ends, 1)
		require.Equal(t, eventEnd, ends[0].Event)
		require.Equal(t, "a start has lived for 3m20s, longer than any before", ends[0].Attributes["crash_loop.ended"])
		require.Zero(t, d.Due())
		die(d, "j", "3", 0, 600, "SIGSEGV")
		require.Empty(t, d.Decide(math.MaxInt64), "one death is no loop")
	}

	d = newDetector()
	for run := range int64(3) {
		die(d, "j", fmt.Sprint(run), 0, 100*(run+1), "SIGSEGV")
	}
	require.Len(t, d.Decide(300*second), 1)
	begin(d, "3", 310)
	die(d, "j", "3", 0, 400, "SIGSEGV")
	findings := d.Decide(math.MaxInt64)
	require.Len(t, findings, 1)
	require.EqualValues(t, 4, findings[0].Attributes["crash_loop.starts"])
}

func TestJobsAreBounded(t *testing.T) {
	d := newDetector()
	for i := range int64(maxJobs + 100) {
		die(d, fmt.Sprint(i), "a", 0, i, "")
	}
	require.Len(t, d.loops, maxJobs)
	require.EqualValues(t, 100, d.Evicted())
}

func TestStateComesBack(t *testing.T) {
	d := newDetector()
	for i := range int64(40) {
		die(d, fmt.Sprint(i%3), fmt.Sprint(i), i%4, 10*i, "")
	}
	state, err := d.Snapshot()
	require.NoError(t, err)
	again := newDetector()
	require.NoError(t, again.Restore(state))
	require.Equal(t, d.Decide(math.MaxInt64), again.Decide(math.MaxInt64))
	for _, bad := range []string{`{`, `{"a":null}`, `{"a":{"starts":[null]}}`, `{"a":{}}`} {
		require.Error(t, again.Restore([]byte(bad)), bad)
	}
}

// Who ends all ranks of a host ends the job; a rank that is ended alone is a death.
func TestRanksThatAreAskedToEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		signal, code int64
		spared       any
		counts       bool
	}{
		"alone, by SIGTERM":               {signal: 15, spared: 3, counts: true},
		"alone, with the status of it":    {code: 143, spared: 1, counts: true},
		"all":                             {signal: 15, spared: 0},
		"all, and this turned it into 1":  {code: 1, spared: 0},
		"all, and this crashed meanwhile": {signal: 11, spared: 0, counts: true},
		"the only one of its host":        {signal: 15},
	} {
		t.Run(name, func(t *testing.T) {
			a := pcommon.NewMap()
			require.NoError(t, a.FromRaw(map[string]any{
				rule.AttributeJob: "j", rule.AttributeRank: 1, "process.exit.signal": tc.signal, "process.exit.code": tc.code,
				"signal.number": 15, "signal.sender.relation": "other",
			}))
			if tc.spared != nil {
				a.PutInt("process.exit.spared_ranks", int64(tc.spared.(int)))
			}
			_, counts := end(&rule.Record{Name: rule.EventExit, Run: "1", Resource: pcommon.NewMap(), Attributes: a})
			require.Equal(t, tc.counts, counts)
		})
	}
}

func begin(d *detector, run string, at int64) bool {
	a := pcommon.NewMap()
	a.PutStr(rule.AttributeJob, "j")
	a.PutInt(rule.AttributeRank, 0)
	return d.Observe(&rule.Record{Name: rule.EventStart, Time: at * second, Run: run, Resource: pcommon.NewMap(), Attributes: a})
}

func looping(t *testing.T) *detector {
	d := newDetector()
	for run := range int64(3) {
		die(d, "j", fmt.Sprint(run), 0, 100*(run+1), "SIGSEGV")
	}
	require.Len(t, d.Decide(300*second), 1)
	return d
}

// A start that ended well lives no more, when the job loops again.
func TestALoopAfterAGoodStartStands(t *testing.T) {
	d := looping(t)
	require.True(t, begin(d, "3", 310))
	require.True(t, ends(d, "j", "3", 0, 330))
	require.Equal(t, eventEnd, d.Decide(390 * second)[0].Event)
	for run := int64(4); run < 7; run++ {
		begin(d, fmt.Sprint(run), 100*run+10)
		die(d, "j", fmt.Sprint(run), 0, 100*(run+1), "SIGSEGV")
	}
	for _, f := range d.Decide(700 * second) {
		require.Equal(t, eventLoop, f.Event, "%v", f.Attributes)
	}
}

// isStopped ends rank 0 of a start by SIGTERM.
func isStopped(d *detector, run string, at int64) {
	a := pcommon.NewMap()
	a.PutStr(rule.AttributeJob, "j")
	a.PutInt(rule.AttributeRank, 0)
	a.PutInt("process.exit.signal", 15)
	a.PutStr("process.exit.signal_name", "SIGTERM")
	d.Observe(&rule.Record{Name: rule.EventExit, Time: at * second, Run: run, Resource: pcommon.NewMap(), Attributes: a})
}

// A start that somebody ends by SIGTERM does not live.
func TestAStoppedStartDoesNotLive(t *testing.T) {
	d := looping(t)
	require.True(t, begin(d, "3", 310))
	isStopped(d, "3", 320)
	for _, f := range d.Decide(1000 * second) {
		require.NotEqual(t, eventEnd, f.Event, "%v", f.Attributes)
	}
}

// And the loop goes on by starts that die before their start is told.
func TestALoopGoesOnAfterAStoppedStart(t *testing.T) {
	d := looping(t)
	require.True(t, begin(d, "3", 310))
	isStopped(d, "3", 320)
	for run := int64(4); run < 8; run++ {
		die(d, "j", fmt.Sprint(run), 0, 100*run, "SIGSEGV")
		for _, f := range d.Decide(100 * run * second) {
			require.Equal(t, eventLoop, f.Event, "%v", f.Attributes)
		}
	}
	for _, f := range d.Decide(1000 * second) {
		require.Equal(t, eventLoop, f.Event, "%v", f.Attributes)
	}
}

// One rank ends with status 0, the next dies two seconds later of the same start.
func TestARankThatLeavesFirstEndsNoLoop(t *testing.T) {
	d := looping(t)
	ends(d, "j", "3", 1, 400)
	var events []string
	for _, f := range d.Decide(402 * second) {
		events = append(events, f.Event)
	}
	die(d, "j", "3", 0, 403, "SIGSEGV")
	for _, f := range d.Decide(404 * second) {
		events = append(events, f.Event)
	}
	require.Equal(t, []string{eventLoop}, events)
}

// A start may begin with one rank, and more of its ranks follow once that one has died.
func TestOnlySomeRanksDieWhereOthersLive(t *testing.T) {
	for name, tc := range map[string]struct {
		beside []bool // when each start died
		then   bool   // of the last one, when more is told of it
		want   string
	}{
		"others live":              {[]bool{false, true, true}, true, "beside"},
		"no other lives":           {[]bool{false, false, false}, false, "same"},
		"others of it begin later": {[]bool{false, true, true}, false, "same"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDetector()
			show := func(event string, start int, beside bool) {
				with := ""
				if beside {
					with = "an earlier start"
				}
				a := pcommon.NewMap()
				a.PutStr(rule.AttributeJob, "j")
				a.PutInt(rule.AttributeRank, 3)
				a.PutInt("process.exit.code", 1)
				d.Observe(&rule.Record{Name: event, Time: 60 * int64(start+1) * second, Run: fmt.Sprint(start), Beside: with, Resource: pcommon.NewMap(), Attributes: a})
			}
			for i, is := range tc.beside {
				show(rule.EventExit, i, is)
			}
			show(rule.EventStart, len(tc.beside)-1, tc.then)
			require.Equal(t, tc.want, d.Decide(math.MaxInt64)[0].Attributes["crash_loop.kind"])
		})
	}
}

// starve shows that the kernel killed a rank for want of memory, or a worker of it.
func starve(d *detector, run string, rank, at int64, itself bool) bool {
	a := pcommon.NewMap()
	a.PutStr(rule.AttributeJob, "j")
	a.PutInt(rule.AttributeRank, rank)
	a.PutInt(rule.AttributeRankPID, 100+rank)
	a.PutInt("process.pid", 100+rank)
	if !itself {
		a.PutInt("process.pid", 200+rank)
	}
	return d.Observe(&rule.Record{Name: eventKill, Time: at, Run: run, Resource: pcommon.NewMap(), Attributes: a})
}

// One kill of the kernel takes all ranks of a container: nobody ended the job, whichever record comes first.
func TestRanksThatTheKernelKillsForWantOfMemoryAreACrashInAnyOrder(t *testing.T) {
	for name, order := range map[string][]string{
		"kills, then ends": {"kill 0", "kill 1", "end 0", "end 1"},
		"ends, then kills": {"end 0", "end 1", "kill 1", "kill 0"},
		"by turns":         {"end 1", "kill 1", "end 0", "kill 0"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDetector()
			for run := range int64(3) {
				at := 60 * run * second
				for _, what := range order {
					var rank int64
					var kind string
					_, err := fmt.Sscanf(what, "%s %d", &kind, &rank)
					require.NoError(t, err)
					if kind == "kill" {
						starve(d, fmt.Sprint(run), rank, at+rank*3e6, true)
					} else {
						dieAt(d, "j", fmt.Sprint(run), rank, at+rank*3e6+30e6, "SIGKILL")
					}
				}
			}
			findings := d.Decide(math.MaxInt64)
			require.Len(t, findings, 1)
			require.Equal(t, "several ranks together (out of memory)", findings[0].Attributes["crash_loop.deaths"])
			require.Equal(t, "same", findings[0].Attributes["crash_loop.kind"])
			require.NotContains(t, findings[0].Attributes, rule.AttributeRank, "the kernel chose them")
		})
	}
}

func TestAKilledWorkerIsNoDeathOfItsRank(t *testing.T) {
	d := newDetector()
	for run := range int64(3) {
		require.False(t, starve(d, fmt.Sprint(run), 0, 60*run*second, false))
	}
	require.Empty(t, d.loops)
}
