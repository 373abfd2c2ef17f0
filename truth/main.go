//go:build linux

// Command truth runs tracecore beside real training jobs, breaks them or lets them pause,
// and writes how often it was right. See README.md.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
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
	flag.StringVar(&o.only, "only", "", "names of kinds, with commas; all of them if empty")
	flag.DurationVar(&o.lasts, "for", 15*time.Minute, "how long to try; a trial that has begun is finished")
	flag.IntVar(&o.trials, "trials", 0, "how many trials at most; 0 for as many as there is time for")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of all that is chosen by chance")
	flag.IntVar(&o.most, "ranks", 8, "ranks of the largest job but for one in eight, which has up to twice as many")
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
	binary, root, report, only, launcher, without string
	lasts                                         time.Duration
	trials, most                                  int
	keep                                          bool
	seed                                          uint64
}

// bench is the run of the benchmark.
type bench struct {
	options
	chance  *rand.Rand
	agent   *agent
	disk    *disk
	folder  string
	job     *job // nil when none trains
	last    *job // the one before, which may start again
	log     io.Writer
	words   *os.File
	results []result
	pids    sync.Map        // of the ranks, as their readers hear them
	ids     map[string]bool // of the jobs
	others  map[string]bool // verdicts about other processes of this machine
	ended   time.Time       // of the trial before
	before  judge.Truth     // of it
	between []judge.Line    // statements that accuse somebody while nothing was done
}

// result is one trial.
type result struct {
	Kind    kind
	World   int
	Style   string
	Outcome judge.Outcome
	Heals   bool  // it ended in the trial, which has to be told
	Void    error // why it shows nothing
}

func run(o options, log io.Writer) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("it takes root: it makes network namespaces, cgroups and mounts")
	}
	chosen, err := choose(o.only)
	if err != nil {
		return err
	}
	b := &bench{ids: map[string]bool{"launched": true}, others: map[string]bool{}, options: o, chance: rand.New(rand.NewPCG(o.seed, 0)), log: log}
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
	fmt.Fprintf(log, "seed %d, words of jobs and agent in %s\n", o.seed, b.folder)
	b.try(chosen)
	b.tell(log)
	if o.report == "" {
		return nil
	}
	var text strings.Builder
	if err := b.write(&text); err != nil {
		return err
	}
	if err := os.WriteFile(o.report, []byte(text.String()), 0o644); err != nil {
		return err
	}
	return b.verdict()
}

// choose returns the kinds of these names.
func choose(names string) ([]kind, error) {
	all := kinds()
	if names == "" {
		return all, nil
	}
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
	if b.disk, err = mount(b.root, filepath.Join(b.folder, "disk"), "data"); err != nil {
		return err
	}
	b.agent = &agent{binary: b.binary, folder: b.folder, without: b.without}
	b.ended = time.Now()
	return b.agent.start()
}

func (b *bench) close() error {
	var errs []error
	if b.job != nil {
		errs = append(errs, b.job.close())
	}
	if b.last != nil && b.last != b.job {
		errs = append(errs, b.last.close())
	}
	if b.agent != nil {
		errs = append(errs, b.agent.stop())
	}
	if b.disk != nil {
		errs = append(errs, b.disk.close())
	}
	return errors.Join(errs...)
}

// try makes trials in random order, each kind once before any comes again.
func (b *bench) try(chosen []kind) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(stop)
	end := time.Now().Add(b.lasts)
	for n := 0; time.Now().Before(end) && (b.trials == 0 || n < b.trials); {
		b.chance.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		for _, k := range chosen {
			select {
			case <-stop:
				return
			default:
			}
			if !time.Now().Before(end) || b.trials > 0 && n >= b.trials {
				return
			}
			n++
			r := b.trial(k, n)
			b.results = append(b.results, r)
			fmt.Fprintln(b.log, r.line())
		}
	}
}

// trial does one kind to a job that trains.
func (b *bench) trial(k kind, number int) result {
	r := result{Kind: k}
	if r.Void = b.train(&k); r.Void != nil {
		return r
	}
	t := &trial{job: b.job, agent: b.agent, disk: b.disk, chance: b.chance, folder: b.folder, number: number, rank: b.chance.IntN(b.job.world)}
	r.World, r.Style = t.world, t.how.name
	at, err := k.do(t)
	if err == nil && at == healed {
		t.after()
	}
	r.Outcome = judge.Judge(t.truth, b.news(t.truth.Began))
	r.Heals = !t.truth.Healed.IsZero()
	b.quiet(t.truth)
	r.Void = errors.Join(err, t.undo())
	if at == ended || r.Void != nil {
		r.Void = errors.Join(r.Void, t.end())
		b.last, b.job = b.job, nil
	}
	if at == ended { // what is left of a broken job was killed
		time.Sleep(3 * time.Second)
	}
	b.ended, b.before = time.Now(), t.truth
	return r
}

// news are the lines since then. Those of a verdict that was told before are marked.
func (b *bench) news(since time.Time) []judge.Line {
	var news []judge.Line
	old := map[string]bool{}
	for _, l := range b.agent.since(time.Time{}) {
		switch {
		case !b.ours(&l):
		case l.At.Before(since):
			old[l.ID] = true
		default:
			l.Old = old[l.ID]
			news = append(news, l)
		}
	}
	return news
}

// ours reports whether a statement is about what this program started. Other tests may
// run on the machine; what is said of them is counted and not judged.
func (b *bench) ours(l *judge.Line) bool {
	pid, _ := strconv.Atoi(l.Culprit["pid"])
	_, known := b.pids.Load(pid)
	switch mine := known || b.ids[l.Culprit["job"]] || strings.Contains(l.Culprit["cgroup"], "/truth-") || strings.Contains(l.Culprit["mount"], "/mnt/data"); {
	case mine:
		return true
	case l.Culprit["pid"] == "" && l.Culprit["job"] == "" && l.Culprit["mount"] == "" && l.Culprit["gpu"] == "": // of nobody: it can be about ours
		return true
	default:
		b.others[l.ID] = true
		return false
	}
}

// quiet looks at what was said between the trial before and the present one. What either
// is about may be told there.
func (b *bench) quiet(now judge.Truth) {
	lines := slices.DeleteFunc(b.news(b.ended), func(l judge.Line) bool { return !l.At.Before(now.Began) })
	o := judge.Judge(judge.Truth{Also: slices.Concat(b.before.Right, b.before.Also, now.Right, now.Also)}, lines)
	b.between = append(b.between, o.Wrong...)
}

// known is how long after its start a job is known: until then only what is beyond doubt is
// told of it (receivers/ncclsockreceiver/README.md).
const known = 25 * time.Second

// train sees to a job that trains, long enough for its usual pauses to be known.
func (b *bench) train(k *kind) error {
	if b.job != nil && k.apart && !b.job.apart() {
		if err := b.job.end(); err != nil {
			return err
		}
		b.job = nil
	}
	if b.job != nil {
		time.Sleep(max(time.Duration(2+b.chance.IntN(4))*time.Second, known-time.Since(b.job.began)))
		return b.job.moves(30 * time.Second)
	}
	j := b.last
	switch again := j != nil && (j.apart() || !k.apart) && b.chance.IntN(3) == 0; {
	case again: // the same job, started again
	default:
		if j != nil {
			if err := j.close(); err != nil {
				return err
			}
		}
		j = b.draw(k)
	}
	b.last, b.job = nil, j
	j.started = func(pid int) { b.pids.Store(pid, true) }
	j.named = func(id string) { b.ids[id] = true }
	if err := j.start(-1, 0); err != nil {
		b.last, b.job = j, nil
		return err
	}
	time.Sleep(time.Duration(12+b.chance.IntN(8)) * time.Second)
	return j.moves(30 * time.Second)
}

// draw makes another job, as chance has it. One of eight is larger than most.
func (b *bench) draw(k *kind) *job {
	fit := slices.DeleteFunc(styles(), func(s style) bool { return k.apart && s.starts != nil })
	if asked := slices.DeleteFunc(slices.Clone(fit), func(s style) bool { return !strings.Contains(s.name, b.launcher) }); len(asked) > 0 {
		fit = asked
	}
	world := 2 + b.chance.IntN(b.most-1)
	if b.chance.IntN(8) == 0 {
		world = b.most + 1 + b.chance.IntN(b.most)
	}
	j := &job{root: b.root, world: world, how: fit[b.chance.IntN(len(fit))], words: b.words, chance: b.chance}
	j.fresh()
	return j
}

// line is what is printed of a trial.
func (r *result) line() string {
	head := fmt.Sprintf("%-32s %d ranks, %s: ", r.Kind.name, r.World, r.Style)
	o := &r.Outcome
	switch {
	case r.Void != nil:
		head += fmt.Sprintf("void: %v", r.Void)
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
	if o.Culprit && (!o.Cause || o.Line != o.Placed) {
		show(o.Told[len(o.Told)-1])
	}
	if !r.Kind.healthy && !o.Culprit {
		for _, l := range o.Beside {
			show(l)
		}
	}
	return all
}
