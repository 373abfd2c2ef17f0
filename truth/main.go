//go:build linux

// Command truth runs tracecore beside real training jobs, breaks them or lets them pause,
// and writes how often it was right. See README.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tracecoreai/tracecore/truth/judge"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == diskFlag {
		exit(serveDisk(os.Args[2], os.Args[3]))
	}
	if len(os.Args) == 4 && os.Args[1] == traceFlag {
		exit(trace(os.Args[2], os.Args[3]))
	}
	o := options{}
	flag.StringVar(&o.binary, "binary", "bin/tracecore", "the tracecore to try")
	flag.StringVar(&o.root, "root", ".cache/truth/root", "a Debian with PyTorch, as truth/root.sh makes it")
	flag.StringVar(&o.report, "report", "", "file to write the results to, as Markdown")
	flag.StringVar(&o.sum, "sum", "", "file of earlier runs, to which this one is added; the report is about all of them")
	flag.StringVar(&o.only, "only", "", "names of kinds, with commas, or one of faults and healthy; all of them if empty")
	flag.DurationVar(&o.lasts, "for", 15*time.Minute, "how long to try; a trial that has begun is finished")
	flag.IntVar(&o.atMost, "trials", 0, "how many trials at most; 0 for as many as there is time for")
	flag.IntVar(&o.jobs, "jobs", 1, "how many jobs train side by side, each with trials of its own")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of all that is chosen by chance")
	flag.IntVar(&o.most, "ranks", 8, "ranks of the largest job but for one in eight, which has up to twice as many")
	flag.StringVar(&o.skip, "skip", "", "names of kinds to leave out, with commas")
	flag.StringVar(&o.launcher, "launcher", "", "only jobs that are started in a way whose name has this in it, such as mpirun")
	flag.StringVar(&o.without, "without", "", "receivers that the agent's pipelines leave out, with commas: ncclsock")
	flag.BoolVar(&o.keep, "keep", false, "leave what jobs and agent wrote")
	flag.Parse()
	exit(run(o, os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "truth:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

type options struct {
	binary, root, report, sum, only, skip, launcher, without string
	lasts                                                    time.Duration
	atMost, most, jobs                                       int
	keep                                                     bool
	seed                                                     uint64
}

// bench is the run of the benchmark.
type bench struct {
	options
	agent   *agent
	folder  string
	log     io.Writer
	words   *os.File
	lanes   []*lane
	owners  *owners
	trials  sync.RWMutex  // held by each trial, alone by one that touches the whole machine
	starts  chan struct{} // has room for as many lanes as may start a job at a time
	results list[result]
	between list[judge.Line] // statements that accuse somebody while nothing was done
	past    list[span]
}

// span is a trial that has ended.
type span struct {
	from, to time.Time // in which it may be told
	truth    judge.Truth
	host     bool // it touched the whole machine
}

// list is one that all lanes add to.
type list[T any] struct {
	mu   sync.Mutex // guards what follows
	what []T
}

func (l *list[T]) add(more []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.what = append(l.what, more...)
}

// all returns what was added up to now.
func (l *list[T]) all() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clip(l.what)
}

// result is one trial.
type result struct {
	Kind    kind
	Lane    int
	World   int
	Style   string
	Outcome judge.Outcome
	Heals   bool          // it ended in the trial, which has to be told
	Void    string        // why it shows nothing, empty where it shows something
	Healthy time.Duration // in which the job trained or paused in health
}

func run(o options, log io.Writer) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("it takes root: it makes network namespaces, cgroups and mounts")
	}
	chosen, err := o.kinds()
	if err != nil {
		return err
	}
	if o.jobs < 1 {
		return errors.New("-jobs is at least 1")
	}
	b := &bench{options: o, owners: newOwners(), log: log}
	if b.root, err = filepath.Abs(o.root); err != nil {
		return err
	}
	if b.folder, err = os.MkdirTemp("", "truth"); err != nil {
		return err
	}
	if !o.keep {
		defer os.RemoveAll(b.folder)
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(); err != nil {
		return err
	}
	fmt.Fprintf(log, "seed %d, %d jobs side by side, words of jobs and agent in %s\n", o.seed, o.jobs, b.folder)
	b.try(chosen)
	b.between.add(b.strays())
	shown := b.account()
	shown.tell(log)
	if o.sum != "" {
		if err := shown.since(o.sum); err != nil {
			return err
		}
		fmt.Fprintf(log, "\nall %d runs in %s:\n", len(shown.Runs), o.sum)
		shown.tell(log)
	}
	if o.report == "" {
		return nil
	}
	var text strings.Builder
	if err := shown.write(&text); err != nil {
		return err
	}
	if err := os.WriteFile(o.report, []byte(text.String()), 0o644); err != nil {
		return err
	}
	return shown.verdict()
}

// kinds are those that the run tries.
func (o *options) kinds() ([]kind, error) {
	chosen, err := choose(o.only)
	if err != nil || o.skip == "" {
		return chosen, err
	}
	left, err := choose(o.skip)
	chosen = slices.DeleteFunc(chosen, func(k kind) bool {
		return slices.ContainsFunc(left, func(l kind) bool { return l.name == k.name })
	})
	if err == nil && len(chosen) == 0 {
		err = errors.New("-skip leaves no kind")
	}
	return chosen, err
}

// choose returns the kinds of these names.
func choose(names string) ([]kind, error) {
	switch names {
	case "":
		return kinds(), nil
	case "faults":
		return faults(), nil
	case "healthy":
		return health(), nil
	}
	all := kinds()
	var chosen []kind
	for name := range strings.SplitSeq(names, ",") {
		at := slices.IndexFunc(all, func(k kind) bool { return k.name == strings.TrimSpace(name) })
		if at < 0 {
			return nil, fmt.Errorf("no kind %q: truth/faults.go and truth/health.go have them", strings.TrimSpace(name))
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}

func (b *bench) open() (err error) {
	if err := furnish(b.root); err != nil {
		return fmt.Errorf("%w (`make truth` makes the root and a mount namespace)", err)
	}
	if b.words, err = os.Create(filepath.Join(b.folder, "jobs.log")); err != nil {
		return err
	}
	b.starts = make(chan struct{}, max(1, runtime.NumCPU()/2))
	b.agent = &agent{binary: b.binary, folder: b.folder, without: b.without}
	for number := range b.jobs {
		b.lanes = append(b.lanes, b.newLane(number))
		if err := b.lanes[number].open(); err != nil {
			return err
		}
	}
	return b.agent.start()
}

func (b *bench) close() error {
	var errs []error
	for _, l := range b.lanes {
		errs = append(errs, l.close())
	}
	if b.agent != nil {
		errs = append(errs, b.agent.stop())
	}
	return errors.Join(errs...)
}

// try lets all lanes make trials. Kinds are dealt in random order, each once before any
// comes again: which lane tries what is decided by the seed alone.
func (b *bench) try(chosen []kind) {
	over, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	over, cancel := context.WithTimeout(over, b.lasts)
	defer cancel()
	var all sync.WaitGroup
	for _, l := range b.lanes {
		all.Go(func() { l.run(over, chosen) })
	}
	all.Wait()
}

// deal is an endless deck, the same for each lane.
func (b *bench) deal(chosen []kind) iter.Seq2[int, kind] {
	return func(yield func(int, kind) bool) {
		chance, deck := rand.New(rand.NewPCG(b.seed, 0)), slices.Clone(chosen) //nolint:gosec // chance that can be repeated
		for n := 1; ; {
			chance.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
			for _, k := range deck {
				if !yield(n, k) {
					return
				}
				n++
			}
		}
	}
}

// strays are the false statements about nobody: no lane's truth of the time has them.
func (b *bench) strays() []judge.Line {
	var about []judge.Line
	for _, line := range b.agent.since(time.Time{}) {
		told := func(s span) bool { return !line.At.Before(s.from) && !line.At.After(s.to) && s.truth.Has(&line) }
		if b.owners.of(&line) == nobody && !slices.ContainsFunc(b.past.all(), told) {
			about = append(about, line)
		}
	}
	return judge.Judge(judge.Truth{}, about).Wrong
}

// line is what is printed of a trial.
func (r *result) line() string {
	head := fmt.Sprintf("%s %d %-32s %d ranks, %s: ", time.Now().UTC().Format(time.TimeOnly), r.Lane, r.Kind.name, r.World, r.Style)
	o := &r.Outcome
	switch {
	case r.Void != "":
		head += "void: " + r.Void
	case r.Kind.healthy && len(o.Wrong) == 0:
		head += "quiet"
	case r.Kind.healthy:
		head += "FALSE"
	case o.Cause:
		head += fmt.Sprintf("right after %.2f s", o.First.Seconds())
	case o.Culprit:
		head += "right culprit, wrong cause"
	case r.Kind.late > 0:
		head += "not told yet"
	default:
		head += "MISSED"
	}
	switch {
	case o.Line:
		head += ", line right"
	case o.Placed && o.Cause:
		head += ", line WRONG"
	}
	if !r.Kind.healthy && len(o.Wrong) > 0 {
		head += fmt.Sprintf(", %d wrong", len(o.Wrong))
	}
	if o.Doubled > 0 {
		head += fmt.Sprintf(", %d doubled", o.Doubled)
	}
	if o.Resolved {
		head += fmt.Sprintf(", over after %.2f s", o.Resolve.Seconds())
	}
	for _, l := range r.misses() {
		head += "\n    " + l
	}
	return head
}

// misses are the statements that a reader of a miss wants to see.
func (r *result) misses() []string {
	var all []string
	o := &r.Outcome
	show := func(l judge.Line) {
		all = append(all, fmt.Sprintf("%s (%s, %s, %s): %s", cmp.Or(l.Pattern, "?"), l.Role, l.Severity, l.Confidence, l.Headline))
	}
	for _, l := range o.Wrong {
		show(l)
	}
	if o.Doubled > 0 {
		seen := map[string]bool{}
		for _, l := range o.Told {
			if !seen[l.ID] {
				seen[l.ID] = true
				show(l)
			}
		}
	}
	if o.Culprit && (!o.Cause || o.Line != o.Placed) && len(o.Told) > 0 {
		show(o.Told[len(o.Told)-1])
	}
	if !r.Kind.healthy && !o.Culprit {
		for _, l := range o.Beside {
			show(l)
		}
	}
	return all
}
