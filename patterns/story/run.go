package story

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Result is what became of a story.
type Result struct {
	Name     string
	Comment  string
	Verdicts []verdict.Verdict // the newest revision of each, in order of first appearance
	Stats    engine.Stats
	// Diff is empty when the story came out as wanted, else says in which way it
	// did not: lines with - were wanted, lines with + came.
	Diff string
}

// Passed reports whether the story came out as wanted.
func (r Result) Passed() bool { return r.Diff == "" }

// Run plays one archive to the rules: each record arrives as a batch of its
// own, and time advances with the arrivals. Names that neither known nor a rule has are errors;
// a nil vocabulary knows all.
func Run(rules []rule.Rule, known *rule.Vocabulary, name string, archive []byte) (Result, error) {
	s, err := Parse(name, archive)
	if err != nil {
		return Result{}, err
	}
	if known != nil {
		if err := s.checkNames(known.With(rules)); err != nil {
			return Result{}, err
		}
	}
	return s.Run(rules)
}

// RunDir runs every story below a folder, each *.txtar in order of its path.
func RunDir(rules []rule.Rule, known *rule.Vocabulary, fsys fs.FS) ([]Result, error) {
	var results []Result
	var errs []error
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".txtar" {
			return err
		}
		archive, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		r, err := Run(rules, known, name, archive)
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		results = append(results, r)
		return nil
	})
	if err != nil {
		errs = append(errs, fmt.Errorf("read stories: %w", err))
	}
	return results, errors.Join(errs...)
}

// Run plays s to the rules.
func (s *Story) Run(rules []rule.Rule) (Result, error) {
	e, err := engine.New(rules, engine.Options{
		Lateness: time.Duration(s.Input.Options.Lateness),
		Waiting:  s.Input.Options.Waiting, OpenVerdicts: s.Input.Options.OpenVerdicts,
	})
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", s.Name, err)
	}
	arrivals := s.Input.arrivals()
	verdicts, err := s.play(e, arrivals, last(arrivals))
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", s.Name, err)
	}
	r := Result{Name: s.Name, Comment: s.Comment, Verdicts: verdicts, Stats: e.Stats()}
	r.Diff = s.diff(&r)
	return r, nil
}

// last is when the last of arrivals comes.
func last(arrivals []arrival) time.Time {
	end := start
	for i := range arrivals {
		if arrivals[i].at.After(end) {
			end = arrivals[i].at
		}
	}
	return end
}

// play feeds arrivals to e, lets time go on from end, and returns the newest
// revision of each verdict.
func (s *Story) play(e *engine.Engine, arrivals []arrival, end time.Time) ([]verdict.Verdict, error) {
	slices.SortStableFunc(arrivals, func(a, b arrival) int { return a.at.Compare(b.at) })
	var all []verdict.Verdict
	at := map[string]int{}
	collect := func() {
		for _, v := range e.Verdicts() {
			if i, known := at[v.ID]; known {
				all[i] = v
				continue
			}
			at[v.ID] = len(all)
			all = append(all, v)
		}
	}
	for i := range arrivals {
		a := &arrivals[i]
		e.Advance(a.at)
		if err := s.feed(e, a); err != nil {
			return nil, err
		}
		collect()
	}
	for _, at := range s.Input.clock(end) {
		e.Advance(at)
		collect()
	}
	return all, nil
}

// clock returns the times that pass after the last record: the story's advance,
// at least the second after which counts are given out, in up to 100 steps.
func (in *Input) clock(end time.Time) []time.Time {
	whole := max(time.Duration(in.Advance), 2*time.Second)
	step := max(time.Second, whole/100)
	var times []time.Time
	for passed := step; passed < whole; passed += step {
		times = append(times, end.Add(passed))
	}
	return append(times, end.Add(whole))
}

func (s *Story) feed(e *engine.Engine, a *arrival) error {
	if a.record.Metric != "" {
		md, err := a.metrics(s.Input.Resource)
		if err != nil {
			return err
		}
		if s.MarkMetrics != nil {
			s.MarkMetrics(md)
		}
		e.Metrics(md)
		return nil
	}
	ld, err := a.logs(s.Input.Resource)
	if err != nil {
		return err
	}
	if s.MarkLogs != nil {
		s.MarkLogs(ld)
	}
	e.Logs(ld)
	return nil
}

// order sorts verdicts for comparison, whatever order they came in.
func order(verdicts []verdict.Verdict) []verdict.Verdict {
	sorted := slices.Clone(verdicts)
	slices.SortStableFunc(sorted, func(a, b verdict.Verdict) int {
		return cmp.Or(a.Onset.Compare(b.Onset), cmp.Compare(a.PatternID, b.PatternID), cmp.Compare(a.ID, b.ID))
	})
	return sorted
}
