//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/truth/judge"
)

// tally is all trials of one kind.
type tally struct {
	kind                         kind
	trials, void, culprit, cause int
	placed, line                 int // trials with a line of code to be told, and those in which it was
	wrong, doubled, heals        int
	inTime                       int // of those that heal and whose culprit was told
	first, resolve               []time.Duration
}

// resolveIn is how soon after its end a fault is told to be over.
const resolveIn = 15 * time.Second

// tellIn is how soon after a fault it is told.
const tellIn = 5 * time.Second

// account is what one run has shown, or several together.
type account struct {
	Runs    []string     `json:"runs"` // on what machine each was measured
	Results []result     `json:"results"`
	Between []judge.Line `json:"between"` // false statements between the trials
	Others  int          `json:"others"`  // verdicts about other processes of the machine
}

// account is that of this run.
func (b *bench) account() *account {
	return &account{Runs: []string{b.conditions()}, Results: b.results.all(), Between: b.between.all(), Others: b.owners.others()}
}

// since adds the runs that a file holds to this one, and leaves all of them there. Of what was told in a trial
// it leaves what the page lists: the file is kept with the code.
func (a *account) since(file string) error {
	var sum account
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist): // this is the first
	case err != nil:
		return fmt.Errorf("read earlier runs: %w", err)
	default:
		if err := json.Unmarshal(text, &sum); err != nil {
			return fmt.Errorf("read earlier runs in %s: %w (without that file this run is the first)", file, err)
		}
	}
	sum.Runs, sum.Results, sum.Between = append(sum.Runs, a.Runs...), append(sum.Results, a.Results...), append(sum.Between, a.Between...)
	sum.Others += a.Others
	*a = sum
	for i := range a.Results {
		if r := &a.Results[i]; r.miss(io.Discard) == 0 {
			r.Outcome.Told, r.Outcome.Beside = nil, nil
		}
	}
	if text, err = json.Marshal(a); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

func (a *account) tallies() []tally {
	at := map[string]int{}
	var all []tally
	for _, k := range kinds() {
		at[k.name] = len(all)
		all = append(all, tally{kind: k})
	}
	for _, r := range a.Results {
		all[at[r.Kind.name]].add(&r)
	}
	return slices.DeleteFunc(all, func(t tally) bool { return t.trials+t.void == 0 })
}

func (t *tally) add(r *result) {
	if r.Void != "" {
		t.void++
		return
	}
	o := &r.Outcome
	t.trials++
	if o.Placed {
		t.placed++
	}
	if o.Line {
		t.line++
	}
	t.wrong += len(o.Wrong)
	t.doubled += o.Doubled
	if o.Culprit {
		t.culprit++
		if r.Heals {
			t.heals++
		}
	}
	if o.Cause {
		t.cause++
		t.first = append(t.first, o.First)
	}
	if o.Resolved {
		t.resolve = append(t.resolve, o.Resolve)
		if o.Resolve <= resolveIn {
			t.inTime++
		}
	}
}

// tell prints the sums.
func (a *account) tell(w io.Writer) {
	faults, health := a.sums()
	fmt.Fprintf(w, "\n%d faults: culprit right in %d, and cause in %d; line right in %s; %d wrong and %d doubled statements\n", faults.trials, faults.culprit, faults.cause, share(faults.line, faults.placed), faults.wrong, faults.doubled)
	fmt.Fprintf(w, "%d healthy, %.2f h of healthy jobs: %d false statements; %d between the trials; %d trials void\n", health.trials, a.healthy().Hours(), health.wrong, len(a.Between), faults.void+health.void)
	if len(faults.first) > 0 {
		fmt.Fprintf(w, "from fault to right statement: median, p99, worst: %s s; over within %s: %s\n", quantiles(faults.first), resolveIn, share(faults.inTime, faults.heals))
	}
	if a.Others > 0 {
		fmt.Fprintf(w, "%d verdicts about other processes of this machine, not judged\n", a.Others)
	}
	for _, l := range a.Between {
		fmt.Fprintf(w, "    between: %s (%s): %s\n", l.Pattern, l.Severity, l.Headline)
	}
}

// sums leaves the documented exceptions out: what is told late by design.
func (a *account) sums() (faults, health tally) {
	for _, r := range a.Results {
		switch {
		case r.Kind.healthy:
			health.add(&r)
		case r.Kind.late == 0:
			faults.add(&r)
		}
	}
	return faults, health
}

// healthy is the time of all jobs in which nothing was broken and they trained or paused.
func (a *account) healthy() (sum time.Duration) {
	for _, r := range a.Results {
		sum += r.Healthy
	}
	return sum
}

// target is the share of faults whose culprit and cause must be right.
const target = 0.98

// verdict fails where the target is missed.
func (a *account) verdict() error {
	faults, health := a.sums()
	switch accused := health.wrong + len(a.Between); {
	case faults.trials+health.trials == 0:
		return errors.New("no trial showed anything")
	case accused > 0:
		return fmt.Errorf("%d false statements about healthy jobs", accused)
	case float64(faults.cause) < target*float64(faults.trials):
		return fmt.Errorf("culprit and cause are right in %s, and must be in %.0f %%", share(faults.cause, faults.trials), 100*target)
	case faults.wrong > 0:
		return fmt.Errorf("%d wrong statements beside a fault", faults.wrong)
	case faults.inTime < faults.heals:
		return fmt.Errorf("%d of %d faults were told to be over within %s", faults.inTime, faults.heals, resolveIn)
	}
	return nil
}

func quantile(all []time.Duration, q float64) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

// write writes docs/truth.md.
func (a *account) write(w io.Writer) error {
	faults, health := a.sums()
	fmt.Fprintf(w, `# Truth: how often tracecore is right

For operators: how far you can believe a verdict. `+"`make truth`"+` writes this page: real PyTorch jobs (Gloo, each rank on a network
namespace of its own, or all started by a real torchrun or mpirun) are broken or pause. A judge that shares no code with tracecore
compares what it prints with what was done.
`+"`truth/README.md`"+` says how to run it and how to add a kind.

%s

| | |
| --- | --- |
| faults | %d |
| culprit right | %s |
| culprit and cause right | %s |
| and the line of code, where one is to be told | %s |
| wrong statements beside a fault | %d |
| faults told as more than one incident | %d |
| from fault to right statement, without the time in which no agent runs or one starts: median, p99, worst (s) | %s |
| told to be over within 15 s of its end | %s |
| healthy trials | %d |
| hours of jobs that trained or paused in health, all jobs together | %.2f |
| false statements in them | %d |
| false statements between the trials (starts, steps, restarts) | %d |
| trials that showed nothing (the job did not do what it was told) | %d |
| verdicts about other processes of the machine, not judged | %d |

A statement is the open root cause of an incident above severity info. Faults that are told late by design are listed and not counted.

## By kind

| kind | what is done | trials | culprit | cause | line | wrong | median, worst (s) | over within 15 s |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
`, strings.Join(a.Runs, "\n\n"), faults.trials, share(faults.culprit, faults.trials), share(faults.cause, faults.trials), share(faults.line, faults.placed), faults.wrong, faults.doubled, quantiles(faults.first), share(faults.inTime, faults.heals),
		health.trials, a.healthy().Hours(), health.wrong, len(a.Between), faults.void+health.void, a.Others)
	for _, t := range a.tallies() {
		fmt.Fprintln(w, t.row())
	}
	a.weigh(w)
	fmt.Fprintf(w, "\n## Every miss\n\n")
	misses := 0
	for _, r := range a.Results {
		misses += r.miss(w)
	}
	for _, l := range a.Between {
		misses++
		fmt.Fprintf(w, "- between trials: %s: %s\n", l.Pattern, plain(l.Headline))
	}
	if misses == 0 {
		fmt.Fprintln(w, "None.")
	}
	return nil
}

func (t *tally) row() string {
	culprit, cause, line, over := share(t.culprit, t.trials), share(t.cause, t.trials), "", ""
	if t.placed > 0 {
		line = share(t.line, t.placed)
	}
	if t.kind.healthy {
		culprit, cause = "", ""
	}
	if t.heals > 0 {
		over = fmt.Sprintf("%d of %d", t.inTime, t.heals)
	}
	name := t.kind.name
	switch {
	case t.kind.healthy:
		name += " (healthy)"
	case t.kind.late > 0:
		name += fmt.Sprintf(" (told after %s)", t.kind.late)
	}
	return fmt.Sprintf("| %s | %s | %d | %s | %s | %s | %d | %s | %s |", name, t.kind.cause, t.trials, culprit, cause, line, t.wrong, times(t.first), over)
}

// miss lists what was not right of a trial.
func (r *result) miss(w io.Writer) int {
	o := &r.Outcome
	head := fmt.Sprintf("- %s, %d ranks, %s: ", r.Kind.name, r.World, r.Style)
	switch {
	case r.Void != "":
		fmt.Fprintf(w, "%sshowed nothing: %s\n", head, plain(r.Void))
	case !r.Kind.healthy && o.Cause && o.Line != o.Placed && len(o.Wrong)+o.Doubled == 0:
		fmt.Fprintf(w, "%sline not told. %s\n", head, plain(strings.Join(r.misses(), "; ")))
	case r.Kind.late > 0 && len(o.Wrong) == 0:
		return 0
	case !r.Kind.healthy && o.Cause && r.Heals && (!o.Resolved || o.Resolve > resolveIn):
		fmt.Fprintf(w, "%snot told to be over within %s\n", head, resolveIn)
	case r.Kind.late == 0 && o.First > tellIn && len(o.Wrong)+o.Doubled == 0:
		fmt.Fprintf(w, "%stold after %.2f s\n", head, o.First.Seconds())
	case r.Kind.healthy && len(o.Wrong) == 0, !r.Kind.healthy && o.Cause && len(o.Wrong)+o.Doubled == 0:
		return 0
	case !r.Kind.healthy && !o.Culprit:
		fmt.Fprintf(w, "%snot told. %s\n", head, plain(strings.Join(r.misses(), "; ")))
	case !r.Kind.healthy && !o.Cause:
		fmt.Fprintf(w, "%scause not told. %s\n", head, plain(strings.Join(r.misses(), "; ")))
	default:
		fmt.Fprintf(w, "%s%d wrong, %d doubled. %s\n", head, len(o.Wrong), o.Doubled, plain(strings.Join(r.misses(), "; ")))
	}
	return 1
}

// plain keeps text from a job on one line of a page.
func plain(text string) string {
	return strings.NewReplacer("\n", " ", "|", `\|`, "<", "&lt;", "`", "'").Replace(text)
}

func share(part, all int) string {
	if all == 0 {
		return "none"
	}
	return fmt.Sprintf("%d of %d (%.0f %%)", part, all, 100*float64(part)/float64(all))
}

func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f, %.2f, %.2f", quantile(all, 0.5).Seconds(), quantile(all, 0.99).Seconds(), slices.Max(all).Seconds())
}

func times(all []time.Duration) string {
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f, %.2f", quantile(all, 0.5).Seconds(), slices.Max(all).Seconds())
}

// conditions say on what machine the figures were measured.
func (b *bench) conditions() string {
	var u unix.Utsname
	kernel := "unknown"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:])
	}
	commit := "unknown"
	if out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		commit = strings.TrimSpace(string(out))
	}
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%s, commit %s, Linux %s, %d CPUs shared by all ranks and the agent, load %s at the end, seed %d, %d jobs side by side, up to %d ranks each%s.",
		time.Now().UTC().Format(time.DateOnly), commit, kernel, runtime.NumCPU(), cmp.Or(strings.SplitN(string(load), " ", 2)[0], "unknown"), b.seed, b.jobs, b.most, b.chosen())
}

// chosen says what was left out of a run on purpose.
func (o *options) chosen() (text string) {
	for _, one := range []struct{ says, value string }{{"only the kinds", o.only}, {"without the kinds", o.skip}, {"only jobs started by", o.launcher}, {"without the receivers", o.without}} {
		if one.value != "" {
			text += fmt.Sprintf(", %s %s", one.says, one.value)
		}
	}
	return text
}
