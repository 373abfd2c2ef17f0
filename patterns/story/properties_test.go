package story

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// told is a story with the rules it is told to.
type told struct {
	*Story
	rules   []rule.Rule
	engines *engines
	delay   time.Duration // MaxDelay of the engine
}

// engines are kept from story to story: to compile the rules takes longer than
// to play. Restore makes one as good as new.
type engines struct {
	of    map[string][]*engine.Engine // by name of their options
	empty []byte
}

var every = flag.Bool("every", false, "do at each record of a story what is done at some of them else; takes five minutes more")

// each runs test on every story of the library and of the engine's operators
// that is small enough to be played many times. A test may change its copy, but not its records.
func each(t *testing.T, test func(t *testing.T, s told)) {
	t.Helper()
	all, err := library()
	require.NoError(t, err)
	for _, one := range all {
		story := *one.Story
		one.Story = &story
		t.Run(one.Name, func(t *testing.T) { test(t, one) })
	}
}

// library are those stories. All tests share them, and their engines.
var library = sync.OnceValues(func() (all []told, err error) {
	rules, err := patterns.Library()
	kept := &engines{of: map[string][]*engine.Engine{}}
	for _, from := range []struct {
		fsys  fs.FS
		rules []rule.Rule
	}{{patterns.FS(), rules}, {os.DirFS("../engine/testdata/operators"), nil}} {
		err = errors.Join(err, fs.WalkDir(from.fsys, ".", func(name string, _ fs.DirEntry, err error) error {
			if err != nil || path.Ext(name) != ".txtar" {
				return err
			}
			content, err := fs.ReadFile(from.fsys, name)
			if err != nil {
				return err
			}
			own, content, err := ownRules(content)
			if err != nil {
				return err
			}
			s, err := Parse(name, content)
			one := told{Story: &s, rules: append(own, from.rules...), engines: kept}
			if len(own) > 0 {
				one.engines = &engines{of: map[string][]*engine.Engine{}}
			}
			if len(s.Input.arrivals()) <= 200 {
				all = append(all, one)
			}
			return err
		}))
	}
	return all, err
})

func ownRules(content []byte) (rules []rule.Rule, rest []byte, err error) {
	archive := txtar.Parse(content)
	archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool {
		if !strings.HasPrefix(f.Name, "rule") {
			return false
		}
		r, wrong := rule.Parse(f.Name, f.Data)
		rules, err = append(rules, r), errors.Join(err, wrong)
		return true
	})
	return rules, txtar.Format(archive), err
}

// some does to one in four of the engines that a story is played to what do does: which, depends on its
// name. With -every to all.
func (s told) some(do func(*engine.Engine) *engine.Engine) func(*engine.Engine) *engine.Engine {
	n := len(s.Name)
	return func(e *engine.Engine) *engine.Engine {
		if n++; n%4 != 0 && !*every {
			return e
		}
		return do(e)
	}
}

// kinds are the first and the last record of each event and metric of each host. With -every all records.
func (s told) kinds() (chosen []*Record) {
	last := map[[2]string]*Record{}
	for i := range s.Input.Records {
		one := &s.Input.Records[i]
		kind := [2]string{cmp.Or(one.Log, one.Metric), word(one.Resource["host.name"])}
		if last[kind] == nil || *every {
			chosen = append(chosen, one)
			last[kind] = one
			continue
		}
		last[kind] = one
	}
	for _, one := range last {
		if !slices.Contains(chosen, one) {
			chosen = append(chosen, one)
		}
	}
	return chosen
}

// options are those of the engine that plays the story, and a name for them.
func (s told) options() (options engine.Options, name string) {
	options = engine.Options{
		Lateness: time.Duration(s.Input.Options.Lateness), MaxDelay: s.delay,
		Waiting: s.Input.Options.Waiting, OpenVerdicts: s.Input.Options.OpenVerdicts,
	}
	return options, fmt.Sprint(options.Lateness, options.MaxDelay, options.Waiting, options.OpenVerdicts)
}

func (s told) engine(t *testing.T) *engine.Engine {
	t.Helper()
	options, name := s.options()
	if kept := s.engines.of[name]; len(kept) > 0 {
		e := kept[len(kept)-1]
		s.engines.of[name] = kept[:len(kept)-1]
		require.NoError(t, e.Restore(s.engines.empty))
		return e
	}
	e, err := engine.New(s.rules, options)
	require.NoError(t, err)
	if s.engines.empty == nil {
		s.engines.empty, err = e.Snapshot()
		require.NoError(t, err)
	}
	return e
}

// done gives an engine back.
func (s told) done(e *engine.Engine) {
	_, name := s.options()
	s.engines.of[name] = append(s.engines.of[name], e)
}

// playback feeds the story to the engine that next returns before each record,
// and returns all revisions that came.
func (s told) playback(t *testing.T, next func(*engine.Engine) *engine.Engine) []verdict.Verdict {
	t.Helper()
	e := s.engine(t)
	var all []verdict.Verdict
	end := start
	for _, a := range s.Input.arrivals() {
		e = next(e)
		e.Advance(a.at)
		end = a.at
		require.NoError(t, s.feed(e, &a))
		all = append(all, e.Verdicts()...)
	}
	for _, at := range s.Input.clock(end) {
		e = next(e)
		e.Advance(at)
		all = append(all, e.Verdicts()...)
	}
	s.done(e)
	return all
}

func text(t *testing.T, v any) string {
	t.Helper()
	data, err := json.MarshalIndent(v, "", " ")
	require.NoError(t, err)
	return string(data)
}

func TestSameBytesInSameBytesOut(t *testing.T) {
	each(t, func(t *testing.T, s told) {
		same := func(e *engine.Engine) *engine.Engine { return e }
		require.Equal(t, text(t, s.playback(t, same)), text(t, s.playback(t, same)))
	})
}

// A crash between any two records, with the state saved after each: the same
// verdicts, with the same ids and revisions.
func TestRestartBetweenAnyTwoRecordsChangesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it restarts after many records of every story")
	}
	each(t, func(t *testing.T, s told) {
		restart := func(e *engine.Engine) *engine.Engine {
			saved, err := e.Snapshot()
			require.NoError(t, err)
			fresh := s.engine(t)
			require.NoError(t, fresh.Restore(saved))
			again, err := fresh.Snapshot()
			require.NoError(t, err)
			require.Equal(t, string(saved), string(again))
			s.done(e)
			return fresh
		}
		want := s.playback(t, func(e *engine.Engine) *engine.Engine { return e })
		require.Equal(t, text(t, want), text(t, s.playback(t, s.some(restart))))
	})
}

// What is saved is a copy: what comes later does not change it.
func TestWhatIsSavedStaysAsItIs(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it saves after many records of every story")
	}
	each(t, func(t *testing.T, s told) {
		var saved []*engine.Saved
		var then [][]byte
		s.playback(t, s.some(func(e *engine.Engine) *engine.Engine {
			one, err := e.Save()
			require.NoError(t, err)
			encoded, err := one.Encode()
			require.NoError(t, err)
			saved, then = append(saved, one), append(then, encoded)
			if len(saved) > mostSaved {
				saved, then = saved[1:], then[1:]
			}
			return e
		}))
		for i, one := range saved {
			now, err := one.Encode()
			require.NoError(t, err)
			require.Equal(t, string(then[i]), string(now))
		}
	})
}

// mostSaved bounds the copies of a long story.
const mostSaved = 100

// What Logs and Metrics return is enough to rebuild the state.
func TestReplayOfWantedRecordsGivesTheSameVerdicts(t *testing.T) {
	each(t, func(t *testing.T, s told) {
		want := s.playback(t, func(e *engine.Engine) *engine.Engine { return e })
		first, second := s.engine(t), s.engine(t)
		var all []verdict.Verdict
		end := start
		for _, a := range s.Input.arrivals() {
			end = a.at
			first.Advance(a.at)
			second.Advance(a.at)
			if a.record.Metric != "" {
				md, err := a.metrics(s.Input.Resource)
				require.NoError(t, err)
				second.Metrics(first.Metrics(md))
			} else {
				ld, err := a.logs(s.Input.Resource)
				require.NoError(t, err)
				second.Logs(first.Logs(ld))
			}
			all = append(all, second.Verdicts()...)
		}
		for _, at := range s.Input.clock(end) {
			second.Advance(at)
			all = append(all, second.Verdicts()...)
		}
		s.done(first)
		s.done(second)
		require.Equal(t, text(t, want), text(t, all))
	})
}

// Records that arrive in another order, none later than the lateness, give the
// same verdicts. Withdrawn verdicts are left out: a verdict that is given out
// at once may be refuted by a record that comes late, and is resolved then.
func TestOrderWithinLatenessDoesNotMatter(t *testing.T) {
	each(t, func(t *testing.T, s told) {
		if s.Input.OrderMatters != "" {
			return
		}
		want := s.outcome(t, s.Input.arrivals())
		for seed := range uint64(8) {
			random := rand.New(rand.NewPCG(seed, 1))
			arrivals := s.Input.arrivals()
			for i := range arrivals {
				arrivals[i].at = arrivals[i].time.Add(time.Duration(random.Int64N(int64(9 * time.Second))))
			}
			require.Equal(t, want, s.outcome(t, arrivals), "seed %d", seed)
		}
	})
}

// outcome is what a reader of the verdicts is left with.
func (s told) outcome(t *testing.T, arrivals []arrival) string {
	t.Helper()
	e := s.engine(t)
	longer := *s.Story
	longer.Input.Advance = max(s.Input.Advance, Offset(5*time.Minute)) // all counts are given out
	verdicts, err := longer.play(e, arrivals, last(s.Input.arrivals()).Add(10*time.Second))
	require.NoError(t, err)
	s.done(e)
	incident := map[string]string{}
	var lines []string
	sorted := order(verdicts)
	for _, v := range sorted {
		if v.Role == verdict.RootCause {
			incident[v.IncidentID] = v.Headline
		}
	}
	for _, v := range sorted {
		if s.withdrawn(v) {
			continue
		}
		v.ID, v.RootCause, v.IncidentID, v.Revision, v.Updated, v.Run = "", "", incident[v.IncidentID], 0, time.Time{}, ""
		lines = append(lines, text(t, v))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (s told) withdrawn(v verdict.Verdict) bool {
	if slices.ContainsFunc(v.Evidence, func(e verdict.Evidence) bool { return e.Name == "withdrawn" }) {
		return true
	}
	for _, r := range s.rules {
		for _, u := range r.Unless {
			if r.Name == v.Pattern && slices.ContainsFunc(v.Evidence, func(e verdict.Evidence) bool { return e.Name == u.Evidence }) {
				return true
			}
		}
	}
	return false
}

// TestAnEndThatComesLateStillEnds: an agent that had no CPU sends the ends of what stood 20 s after they
// happened. What they end is over then, as it would have been, whatever was told of it in the meantime.
func TestAnEndThatComesLateStillEnds(t *testing.T) {
	tried := 0
	each(t, func(t *testing.T, s told) {
		s.delay = 15 * time.Minute
		arrivals := s.Input.arrivals()
		first := slices.IndexFunc(arrivals, s.ends)
		if first < 0 || slices.ContainsFunc(arrivals[first:], func(a arrival) bool { return !s.ends(a) }) {
			return // nothing ends, or what came later may depend on it
		}
		tried++
		want := s.stands(t, arrivals)
		for i := range arrivals[first:] {
			arrivals[first+i].at = arrivals[first+i].time.Add(20 * time.Second)
		}
		require.Equal(t, want, s.stands(t, arrivals))
	})
	require.Greater(t, tried, 10, "the test sees something")
}

// ends reports whether a record is one that a detector takes however late it comes.
func (s told) ends(a arrival) bool {
	return slices.ContainsFunc(s.rules, func(r rule.Rule) bool { return r.Detect != nil && slices.Contains(r.Detect.Ends, a.record.Log) })
}

// stands are the verdicts of a story that are open at last.
func (s told) stands(t *testing.T, arrivals []arrival) (all []string) {
	t.Helper()
	e := s.engine(t)
	verdicts, err := s.play(e, arrivals, last(arrivals).Add(10*time.Second))
	require.NoError(t, err)
	s.done(e)
	for _, v := range verdicts {
		if v.Status == verdict.Open {
			all = append(all, v.Pattern+": "+v.Headline)
		}
	}
	slices.Sort(all)
	return all
}
