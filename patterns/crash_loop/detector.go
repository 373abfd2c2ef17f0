// Package crashloop finds jobs that die, are started again and die again.
package crashloop

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const (
	eventExit = "process.exit"
	eventLoop = rule.FindingPrefix + "crash_loop"
)

// Caps: jobs, and starts of one that are remembered.
const (
	maxJobs   = 4096
	maxStarts = 32
)

// trains is how long a start lives that trains: what a script runs beside the training is over before
// (bpf/identity, longLived).
const trains = int64(5 * time.Second)

// Detector describes the detector for the library.
func Detector() rule.Detector {
	return rule.Detector{
		Name: "crash_loop", Trust: verdict.Proven, Logs: []string{eventExit},
		Findings: map[string][]string{eventLoop: {eventExit}},
		Attributes: []string{
			rule.AttributeRank, rule.AttributeRankStart, rule.AttributeJob, rule.AttributeJobDomain, rule.AttributeRendezvous, rule.AttributeDrill, "host.name", "process.executable.name",
			"process.pid", "process.exit.code", "process.exit.helper", "process.exit.inherited_identity", "process.exit.signal", "process.exit.signal_name",
			"process.exit.spared_ranks", "signal.number", "signal.sender.relation",
		},
		Parameters: map[string]rule.ParameterType{"starts": rule.IntegerParameter, "apart": rule.DurationParameter, "at_once": rule.DurationParameter},
		New: func(l rule.Limits) rule.Algorithm {
			d := &detector{least: l.Values.Integer("starts"), apart: l.Values.Duration("apart"), atOnce: l.Values.Duration("at_once")}
			d.reset()
			return d
		},
	}
}

type detector struct {
	least   int
	apart   int64
	atOnce  int64 // ranks that somebody kills so close together are the end of a job, not a crash
	loops   map[string]*loop
	order   *fairlru.List[string] // their keys, by domain and job
	evicted uint64
}

func (d *detector) reset() { d.loops, d.order = map[string]*loop{}, &fairlru.List[string]{} }

// loop is the starts of one job that has died, in the order of their ends.
type loop struct {
	Job     string   `json:"job"`
	Domain  string   `json:"domain,omitempty"`
	Starts  []*start `json:"starts"`
	Before  int      `json:"before,omitempty"` // starts that were forgotten
	Since   int64    `json:"since,omitempty"`  // and when the first of them died
	Changed bool     `json:"changed,omitempty"`

	element *fairlru.Element[string]
}

// start is one run of the job, by the first of its ranks that died, or that ended well.
type start struct {
	Run    string `json:"run"`
	Time   int64  `json:"time"`
	Rank   int64  `json:"rank"`
	Host   string `json:"host,omitempty"`
	PID    int64  `json:"pid,omitempty"`
	How    string `json:"how"`
	Killed bool   `json:"killed,omitempty"` // with another, at once
	Well   bool   `json:"well,omitempty"`   // none of its ranks has died, and one ended with status 0
	Late   bool   `json:"late,omitempty"`   // it was read late
}

// Observe takes in the end of a rank: its death, or, of a job that has died before, an end with
// status 0. A job does not die at each start when one of them ends well.
func (d *detector) Observe(r *rule.Record) bool {
	s, ok := end(r)
	job := rule.Job(r.Attributes)
	if !ok || job == "" {
		return false
	}
	domain := rule.Text(r.Attributes, rule.AttributeJobDomain)
	key := job + "\x00" + domain
	l := d.loops[key]
	if s.Well {
		if l == nil || !l.takeWell(s) {
			return false
		}
		d.trim(l)
		return true
	}
	if l == nil {
		l = &loop{Job: job, Domain: domain}
		d.enter(key, l)
	}
	d.order.Touch(l.element, fairlru.Some)
	l.take(s, d.atOnce)
	l.Changed = true
	d.trim(l)
	return true
}

// end reads the end of a rank in a run that is known. A drill's ranks die by design.
func end(r *rule.Record) (*start, bool) {
	a := r.Attributes
	rank, ranked := rule.Integer(a, rule.AttributeRank)
	signal, _ := rule.Integer(a, "process.exit.signal")
	code, _ := rule.Integer(a, "process.exit.code")
	if r.Run == "" || !ranked || rank < 0 || stopped(r, signal, code) ||
		rule.Text(a, rule.AttributeDrill) == "true" || rule.Text(a, "process.exit.inherited_identity") == "true" || rule.Text(a, "process.exit.helper") == "true" {
		return nil, false
	}
	if signal == 0 && code == 0 {
		if began, known := rule.Integer(a, rule.AttributeRankStart); known && r.Time-began < trains {
			return nil, false
		}
		return &start{Run: r.Run, Time: r.Time, Rank: rank, Well: true}, true
	}
	how := cmp.Or(rule.Text(a, "process.exit.signal_name"), "exit status "+strconv.FormatInt(code, 10))
	pid, _ := rule.Integer(a, "process.pid")
	return &start{Run: r.Run, Time: r.Time, Rank: rank, Host: rule.Text(r.Resource, "host.name"), PID: pid, How: how, Late: r.Late}, true
}

// stopped reports whether somebody ended the job, not one rank of it, as in rank_exit.
func stopped(r *rule.Record, signal, code int64) bool {
	spared, _ := rule.Integer(r.Attributes, "process.exit.spared_ranks")
	return spared == 0 && (signal == 15 || signal == 2 || code == 143 || code == 130 || ordered(r, signal))
}

// ordered reports whether those who run the job ended the rank, or had asked it to end, as
// in rank_exit: its scheduler, its container, and for a request what started it, too, or
// anybody who asked all ranks of its host.
func ordered(r *rule.Record, ended int64) bool {
	by := rule.Text(r.Attributes, "signal.sender.relation")
	sent, _ := rule.Integer(r.Attributes, "signal.number")
	authority := by == "container" || by == "scheduler"
	if ended == 9 {
		return authority && sent == 9
	}
	_, all := rule.Integer(r.Attributes, "process.exit.spared_ranks")
	return (ended == 0 || ended == 6) && (sent == 15 || sent == 2) && (authority || all || by == "launcher" || by == "host")
}

// take enters a death. Of one run the first counts; of two at one moment the lower rank.
func (l *loop) take(s *start, atOnce int64) {
	at := slices.IndexFunc(l.Starts, func(o *start) bool { return o.Run == s.Run })
	if at >= 0 && l.Starts[at].Well {
		l.Starts[at] = s
	} else if at >= 0 {
		old := l.Starts[at]
		near := max(old.Time-s.Time, s.Time-old.Time) <= atOnce
		killed := old.Killed || near && old.Rank != s.Rank && old.How == "SIGKILL" && s.How == "SIGKILL"
		if s.before(old) {
			l.Starts[at] = s
		}
		l.Starts[at].Killed = killed
	} else {
		l.Starts = append(l.Starts, s)
	}
	l.sort()
}

// takeWell enters a start that ends well, as far as is known, and reports whether it was new.
func (l *loop) takeWell(s *start) bool {
	if slices.ContainsFunc(l.Starts, func(o *start) bool { return o.Run == s.Run }) {
		return false
	}
	l.Starts = append(l.Starts, s)
	l.sort()
	return true
}

func (l *loop) sort() {
	slices.SortFunc(l.Starts, func(a, b *start) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Run, b.Run)) })
}

func (s *start) before(o *start) bool {
	return s.Time < o.Time || s.Time == o.Time && s.Rank < o.Rank
}

func (d *detector) enter(key string, l *loop) {
	d.loops[key] = l
	l.element = d.order.Add(key, fairlru.Some, l.Domain, l.Job)
}

// trim forgets starts and jobs beyond the caps. How many starts there were stays known.
func (d *detector) trim(l *loop) {
	if len(l.Starts) > maxStarts {
		switch gone := l.Starts[0]; {
		case gone.Well:
			l.Before, l.Since = 0, 0
		case !gone.Killed:
			l.Since = cmp.Or(l.Since, gone.Time)
			l.Before++
		}
		l.Starts = l.Starts[1:]
	}
	for len(d.loops) > maxJobs {
		victim, _ := d.order.Victim()
		d.order.Remove(victim)
		delete(d.loops, victim.Value)
		d.evicted++
	}
}

// Due is at once where a job has died; where its first death was a SIGKILL, once another at
// the same moment would have been seen, which is somebody who ends the job.
func (d *detector) Due() (due int64) {
	for _, l := range d.loops {
		if at := max(l.ready(d.atOnce), 1); l.Changed && (due == 0 || at < due) {
			due = at
		}
	}
	return due
}

// ready is when the loop can be judged, 0 for at once.
func (l *loop) ready(atOnce int64) int64 {
	last := l.Starts[len(l.Starts)-1]
	if last.How == "SIGKILL" && !last.Killed {
		return last.Time + atOnce
	}
	return 0
}

// Decide says which jobs die again and again.
func (d *detector) Decide(now int64) []rule.Finding {
	var findings []rule.Finding
	for _, key := range slices.Sorted(maps.Keys(d.loops)) {
		l := d.loops[key]
		if !l.Changed || now < l.ready(d.atOnce) {
			continue
		}
		l.Changed = false
		if f, ok := l.judge(key, d.least, d.apart); ok {
			findings = append(findings, f)
		}
	}
	return findings
}

// judge looks at the latest starts that died less than so long apart, since one ended well.
func (l *loop) judge(key string, least int, apart int64) (f rule.Finding, ok bool) {
	since := l.Starts
	for i, s := range slices.Backward(l.Starts) {
		if s.Well {
			since, l.Before, l.Since = l.Starts[i+1:], 0, 0
			break
		}
	}
	crashes := slices.DeleteFunc(slices.Clone(since), func(s *start) bool { return s.Killed })
	from := len(crashes)
	for from > 0 && (from == len(crashes) || crashes[from].Time-crashes[from-1].Time <= apart) {
		from--
	}
	if from > 0 && from < len(crashes) && crashes[from].Time-crashes[from-1].Time > apart {
		l.Before, l.Since = 0, 0
	}
	crashes = crashes[from:]
	if len(crashes) < least {
		return f, false
	}
	return l.finding(key, crashes, from == 0), true
}

func (l *loop) finding(key string, crashes []*start, whole bool) rule.Finding {
	first, last, count := crashes[0], crashes[len(crashes)-1], len(crashes)
	since := first.Time
	if whole {
		count += l.Before
		since = cmp.Or(l.Since, since)
	}
	a := map[string]any{
		rule.AttributeJob: l.Job, "crash_loop.starts": int64(count), "crash_loop.deaths": inWords(crashes), "crash_loop.ranks": ranks(crashes),
		"crash_loop.same": alike(crashes), "crash_loop.lasts": time.Duration(last.Time - since).Round(time.Second).String(),
	}
	if last.Host != "" && last.PID > 0 {
		a["crash_loop.last_host"], a["crash_loop.last_pid"] = last.Host, last.PID
	}
	if l.Domain != "" {
		a[rule.AttributeJobDomain] = l.Domain
	}
	resource := map[string]any{}
	if same(crashes, func(s *start) string { return s.Host }) && first.Host != "" {
		resource["host.name"] = first.Host
	}
	if same(crashes, func(s *start) int64 { return s.Rank }) {
		a[rule.AttributeRank] = first.Rank
	}
	return rule.Finding{Event: eventLoop, ID: key, Time: first.Time, Last: last.Time, Late: slices.ContainsFunc(crashes, func(s *start) bool { return s.Late }), Attributes: a, Resource: resource}
}

func same[T comparable](crashes []*start, of func(*start) T) bool {
	return !slices.ContainsFunc(crashes, func(s *start) bool { return of(s) != of(crashes[0]) })
}

// alike reports whether each start died in the same way.
func alike(crashes []*start) bool {
	return same(crashes, func(s *start) string { return s.words() })
}

func (s *start) words() string { return fmt.Sprintf("rank %d (%s)", s.Rank, s.How) }

// inWords lists who died first of each start, and how often, in the order of the first time.
func inWords(crashes []*start) string {
	const most = 8
	times, order := map[string]int{}, []string{}
	for _, s := range crashes {
		if times[s.words()]++; times[s.words()] == 1 {
			order = append(order, s.words())
		}
	}
	more := len(order) - most
	order = order[:min(len(order), most)]
	for i, words := range order {
		if n := times[words]; n > 1 && len(times) > 1 {
			order[i] = fmt.Sprintf("%s %d times", words, n)
		}
	}
	if more > 0 {
		order = append(order, fmt.Sprintf("%d others", more))
	}
	return strings.Join(order, ", ")
}

func ranks(crashes []*start) []any {
	var all []int64
	for _, s := range crashes {
		all = append(all, s.Rank)
	}
	slices.Sort(all)
	var list []any
	for _, rank := range slices.Compact(all) {
		list = append(list, rank)
	}
	return list
}

// Evicted counts jobs that were forgotten because of the cap.
func (d *detector) Evicted() uint64 { return d.evicted }

// Snapshot returns the state; maps are written in the order of their keys.
func (d *detector) Snapshot() ([]byte, error) {
	data, err := json.Marshal(d.loops)
	if err != nil {
		return nil, fmt.Errorf("write crash loops: %w", err)
	}
	return data, nil
}

var errState = errors.New("read crash loops: not the state of this detector")

// Restore replaces the state.
func (d *detector) Restore(data []byte) error {
	var all map[string]*loop
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("read crash loops: %w", err)
	}
	for _, l := range all {
		if l == nil || len(l.Starts) == 0 || len(l.Starts) > maxStarts || slices.Contains(l.Starts, nil) {
			return errState
		}
	}
	if len(all) > maxJobs {
		return errState
	}
	d.reset()
	for _, key := range slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		newest := func(l *loop) int64 { return l.Starts[len(l.Starts)-1].Time }
		return cmp.Or(cmp.Compare(newest(all[a]), newest(all[b])), cmp.Compare(a, b))
	}) {
		d.enter(key, all[key])
	}
	return nil
}
