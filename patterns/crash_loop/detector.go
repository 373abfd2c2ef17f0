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
	eventKill = "oom.kill"
	eventLoop = rule.FindingPrefix + "crash_loop"
	eventEnd  = rule.FindingPrefix + "crash_loop.end"
)

// Caps: jobs, starts of one that are remembered, and deaths of one of these.
const (
	maxJobs   = 4096
	maxStarts = 32
	maxDeaths = 8
)

// aTie is how many ranks of one start that end alike and together have no first, as in rank_exit.
const aTie = 3

// A start that lives twice as long as any of the loop, and leastLife, is out of it.
const (
	longer    = 2
	leastLife = int64(time.Minute)
)

// trains is how long a start lives that trains: what a script runs beside the training is over before
// (bpf/identity, longLived).
const trains = int64(5 * time.Second)

// Detector describes the detector for the library.
func Detector() rule.Detector {
	return rule.Detector{
		Name: "crash_loop", Trust: verdict.Proven, Logs: []string{rule.EventExit, rule.EventStart, eventKill, rule.EventGone},
		Findings: map[string][]string{eventLoop: {rule.EventExit, eventKill}, eventEnd: {rule.EventExit, rule.EventStart}},
		Attributes: []string{
			rule.AttributeRank, rule.AttributeRankPID, rule.AttributeRankStart, rule.AttributeJob, rule.AttributeJobDomain, rule.AttributeRendezvous, rule.AttributeDrill, "host.name", "process.executable.name",
			"process.pid", "process.exit.code", "process.exit.helper", "process.exit.inherited_identity", "process.exit.signal", "process.exit.signal_name",
			"gen_ai.training.world_size", "process.exit.alike_ranks", "process.exit.spared_ranks", "signal.number", "signal.sender.name", "signal.sender.relation",
		},
		Parameters: map[string]rule.ParameterType{
			"starts": rule.IntegerParameter, "apart": rule.DurationParameter, "at_once": rule.DurationParameter,
			"together": rule.DurationParameter, "ahead": rule.DurationParameter, "tie": rule.DurationParameter,
		},
		New: func(l rule.Limits) rule.Algorithm {
			d := &detector{
				least: l.Values.Integer("starts"), apart: l.Values.Duration("apart"),
				close: closeness{l.Values.Duration("at_once"), l.Values.Duration("together"), l.Values.Duration("ahead"), l.Values.Duration("tie")},
			}
			d.reset()
			return d
		},
	}
}

type detector struct {
	least   int
	apart   int64
	close   closeness
	loops   map[string]*loop
	order   *fairlru.List[string] // their keys, by domain and job
	evicted uint64
}

// closeness is which deaths of one start are one: the parameters of the same names.
type closeness struct {
	atOnce   int64 // ranks that somebody kills so close together are the end of a job, not a crash
	together int64 // aborts, as of watchdogs
	ahead    int64 // the first of these is named
	tie      int64 // ends with a status
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
	Told    bool     `json:"told,omitempty"`  // that it is a loop
	Lives   *life    `json:"lives,omitempty"` // the newest start, of which nobody has died
	// Unseen are starts of which a rank ended while no agent ran on its host: whether it died is not known.
	Unseen []life `json:"unseen,omitempty"`

	element *fairlru.Element[string]
}

// life is a start that goes on, since then, or one that was found to be over.
type life struct {
	Run   string `json:"run"`
	Began int64  `json:"began"`
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
	// Limited: the time of all its ranks was over. What dies after that dies of it.
	Limited bool  `json:"limited,omitempty"`
	Well    bool  `json:"well,omitempty"`   // none of its ranks has died, and one ended with status 0
	Left    int64 `json:"left,omitempty"`   // ranks that ended with status 0, of one that ends well
	World   int64 `json:"world,omitempty"`  // of so many; 0: not known
	Late    bool  `json:"late,omitempty"`   // it was read late
	Beside  bool  `json:"beside,omitempty"` // ranks of an earlier start live beside it
	Life    int64 `json:"life,omitempty"`   // of the rank that died first; 0: not known
	// Deaths are those of other ranks that ended in the same way, in their order.
	Deaths []death `json:"deaths,omitempty"`
}

type death struct {
	Time int64 `json:"time"`
	Rank int64 `json:"rank"`
}

// knows takes over whether ranks of an earlier start live beside that of r: more of its own ranks
// may have begun since it died.
func (l *loop) knows(r *rule.Record) {
	if at := l.at(r.Run); at >= 0 && l.Starts[at].Beside != (r.Beside != "") {
		l.Starts[at].Beside, l.Changed = r.Beside != "", true
	}
}

// Observe takes in the end of a rank: its death, or, of a job that has died before, an end with
// status 0. A job does not die at each start when one of them ends well.
func (d *detector) Observe(r *rule.Record) bool {
	job, domain := rule.Job(r.Attributes), rule.Text(r.Attributes, rule.AttributeJobDomain)
	key := job + "\x00" + domain
	l := d.loops[key]
	if l != nil {
		l.knows(r)
	}
	if r.Name == rule.EventStart {
		return d.begins(r) || l != nil && l.Changed
	}
	if r.Name == rule.EventGone {
		return l != nil && l.gone(r)
	}
	s, ok := end(r)
	if l != nil && l.Lives != nil && l.Lives.Run == r.Run && ofRank(r) { // however it ended
		l.Lives = nil
	}
	if !ok || job == "" {
		return false
	}
	switch {
	case s.Well:
		if l == nil || !l.takeWell(s) {
			return false
		}
		l.Changed = true
		d.trim(l)
		return true
	case l == nil:
		l = &loop{Job: job, Domain: domain}
		d.enter(key, l)
	}
	d.order.Touch(l.element, fairlru.Some)
	l.take(s, &d.close)
	l.Changed = true
	d.trim(l)
	return true
}

// begins takes in that a rank has run for some seconds. Of a job that was told to die at each start
// one may live.
func (d *detector) begins(r *rule.Record) bool {
	a := r.Attributes
	l := d.loops[rule.Job(a)+"\x00"+rule.Text(a, rule.AttributeJobDomain)]
	_, ranked := rule.Integer(a, rule.AttributeRank)
	if l == nil || !l.Told || !ranked || r.Run == "" || rule.Text(a, rule.AttributeDrill) == "true" || l.at(r.Run) >= 0 {
		return false
	}
	if l.Lives == nil || l.Lives.Run != r.Run && r.Time > l.Lives.Began {
		l.Lives = &life{Run: r.Run, Began: r.Time}
	}
	return true
}

// gone takes in that a rank of a job that has died before ended while no agent ran. Its start lives no more.
func (l *loop) gone(r *rule.Record) bool {
	rank, ranked := rule.Integer(r.Attributes, rule.AttributeRank)
	if r.Run == "" || !ranked || rank < 0 || rule.Text(r.Attributes, rule.AttributeDrill) == "true" {
		return false
	}
	if l.Lives != nil && l.Lives.Run == r.Run {
		l.Lives = nil
	}
	if l.at(r.Run) < 0 && !slices.ContainsFunc(l.Unseen, func(o life) bool { return o.Run == r.Run }) {
		l.Unseen = append(l.Unseen, life{r.Run, r.Time})
		l.Unseen = l.Unseen[max(0, len(l.Unseen)-maxStarts):]
	}
	return true
}

// unseen counts the starts between two deaths of a loop of which nobody saw how they ended.
func (l *loop) unseen(since, until int64) (n int64) {
	for _, o := range l.Unseen {
		if o.Began > since && o.Began <= until && l.at(o.Run) < 0 {
			n++
		}
	}
	return n
}

// end reads the end of a rank in a run that is known. A drill's ranks die by design.
func end(r *rule.Record) (*start, bool) {
	if r.Name == eventKill {
		return starved(r)
	}
	a := r.Attributes
	rank, ranked := rule.Integer(a, rule.AttributeRank)
	signal, _ := rule.Integer(a, "process.exit.signal")
	code, _ := rule.Integer(a, "process.exit.code")
	if r.Run == "" || !ranked || rank < 0 || stopped(r, signal, code) ||
		rule.Text(a, rule.AttributeDrill) == "true" || !ofRank(r) {
		return nil, false
	}
	if signal == 0 && code == 0 {
		if began, known := rule.Integer(a, rule.AttributeRankStart); known && r.Time-began < trains {
			return nil, false
		}
		world, _ := rule.Integer(a, "gen_ai.training.world_size")
		return &start{Run: r.Run, Time: r.Time, Rank: rank, Well: true, Left: 1, World: world}, true
	}
	s := ended(r, rank, cmp.Or(rule.Text(a, "process.exit.signal_name"), status+strconv.FormatInt(code, 10)))
	s.Limited = limited(r)
	return s, true
}

// limited reports whether the limit on time around the rank was over, and all others of its host have one, as in rank_exit.
func limited(r *rule.Record) bool {
	alike, known := rule.Integer(r.Attributes, "process.exit.alike_ranks")
	spared, _ := rule.Integer(r.Attributes, "process.exit.spared_ranks")
	return known && alike > 0 && alike == spared && rule.Text(r.Attributes, "signal.sender.name") == "timeout"
}

// ended is a start that the death of this rank ended.
func ended(r *rule.Record, rank int64, how string) *start {
	pid, _ := rule.Integer(r.Attributes, "process.pid")
	s := &start{Run: r.Run, Time: r.Time, Rank: rank, Host: rule.Text(r.Resource, "host.name"), PID: pid, How: how, Late: r.Late, Beside: r.Beside != ""}
	if began, known := rule.Integer(r.Attributes, rule.AttributeRankStart); known {
		s.Life = max(0, r.Time-began)
	}
	return s
}

// outOfMemory is how a rank died that the kernel killed for want of memory. Its exit says SIGKILL, as
// that of a rank which somebody has killed.
const outOfMemory = "out of memory"

// starved reads such a kill. One takes all ranks of a container at once, where its cgroup has memory.oom.group.
func starved(r *rule.Record) (*start, bool) {
	rank, ranked := rule.Integer(r.Attributes, rule.AttributeRank)
	if r.Run == "" || !ranked || rank < 0 || rule.Text(r.Attributes, rule.AttributeDrill) == "true" || !ofRank(r) {
		return nil, false
	}
	return ended(r, rank, outOfMemory), true
}

// ofRank reports whether it is the rank itself that ended, not a process beside it.
func ofRank(r *rule.Record) bool {
	if own, known := rule.Integer(r.Attributes, rule.AttributeRankPID); known && r.Name == eventKill {
		pid, _ := rule.Integer(r.Attributes, "process.pid")
		return pid == own
	}
	return rule.Text(r.Attributes, "process.exit.inherited_identity") != "true" && rule.Text(r.Attributes, "process.exit.helper") != "true"
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
	return (ended == 0 || ended == 6) && (sent == 15 || sent == 2) && (authority || all || by == "launcher" || by == "ancestor" || by == "host")
}

// at is where the start of that run is, negative where it has not ended.
func (l *loop) at(run string) int {
	return slices.IndexFunc(l.Starts, func(o *start) bool { return o.Run == run })
}

// take enters a death. Of one run the first counts; of two at one moment the lower rank.
func (l *loop) take(s *start, c *closeness) {
	if l.Lives != nil && l.Lives.Run == s.Run {
		l.Lives = nil
	}
	switch at := l.at(s.Run); {
	case at < 0:
		l.Starts = append(l.Starts, s)
	case l.Starts[at].Well:
		l.Starts[at] = s
	default:
		old := l.Starts[at]
		near := max(old.Time-s.Time, s.Time-old.Time) <= c.atOnce
		limited := old.Limited || s.Limited
		killed := old.Killed || near && old.Rank != s.Rank && old.How == "SIGKILL" && s.How == "SIGKILL"
		if s.before(old) {
			l.Starts[at] = s
			s.also(old)
		} else {
			old.also(s)
		}
		l.Starts[at].Limited = limited
		l.Starts[at].Killed = killed && l.Starts[at].How == "SIGKILL" // and not for want of memory, which is told of each
	}
	l.sort()
}

// also notes the deaths of others that ended in the same way.
func (s *start) also(o *start) {
	for _, one := range append([]death{{o.Time, o.Rank}}, o.Deaths...) {
		if s.How == o.How && one.Rank != s.Rank && !slices.ContainsFunc(s.Deaths, func(known death) bool { return known.Rank == one.Rank }) {
			s.Deaths = append(s.Deaths, one)
		}
	}
	slices.SortFunc(s.Deaths, func(a, b death) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Rank, b.Rank)) })
	s.Deaths = s.Deaths[:min(len(s.Deaths), maxDeaths)]
}

// crashed reports whether nobody killed its ranks, and no limit on time ended them.
func (s *start) crashed() bool { return !s.Killed && !s.Limited }

// tied reports whether nothing shows which rank of the start failed first, as in rank_exit: several
// aborted as their watchdogs do, or ended with one status at a time.
func (s *start) tied(c *closeness) bool {
	near := slices.DeleteFunc(slices.Clone(s.Deaths), func(o death) bool { return o.Time-s.Time > c.together })
	if s.How == outOfMemory {
		return len(near) > 0 // the kernel chose them
	}
	if len(near)+1 < aTie {
		return false
	}
	lead, spread := near[0].Time-s.Time, near[len(near)-1].Time-near[0].Time
	switch {
	case s.How == "SIGABRT":
		return lead < c.ahead || lead < 2*spread
	case strings.HasPrefix(s.How, status):
		return lead < c.tie
	}
	return false
}

// status begins how a rank died that exited.
const status = "exit status "

// takeWell enters a start that ends well, as far as is known, and reports whether it was new.
func (l *loop) takeWell(s *start) bool {
	if at := l.at(s.Run); at >= 0 {
		if known := l.Starts[at]; known.Well {
			known.Left++
		}
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
		case gone.crashed():
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

// Due is at once where a job has died; where others may die of the same at the same moment, once
// these would have been seen; and where a start lives, once it has for long.
func (d *detector) Due() (due int64) {
	for _, l := range d.loops {
		for _, at := range []int64{l.ready(&d.close), l.outlives()} {
			if at > 0 && (due == 0 || at < due) {
				due = at
			}
		}
	}
	return due
}

// ready is when what is new of the loop can be judged, 0 where nothing is.
func (l *loop) ready(c *closeness) int64 {
	if !l.Changed {
		return 0
	}
	last := l.Starts[len(l.Starts)-1]
	switch {
	case last.Well && (last.World == 0 || last.Left < last.World): // one may have left early, and another die
		return last.Time + leastLife
	case last.How == "SIGKILL" && !last.Killed, last.How == outOfMemory:
		return last.Time + c.atOnce
	case l.asBefore(c):
		return 1
	case last.How == "SIGABRT" && len(l.Starts) > 1:
		return last.Time + c.together
	case strings.HasPrefix(last.How, status):
		return last.Time + c.tie
	}
	return 1
}

// asBefore reports whether the last start ends like the one before it, as far as it is known: the same rank was the
// first to die, in the same way, and clearly so. The death is a part of the loop at once. If others turn out to die
// together with it, the loop is judged again.
func (l *loop) asBefore(c *closeness) bool {
	if len(l.Starts) < 2 {
		return false
	}
	last, before := l.Starts[len(l.Starts)-1], l.Starts[len(l.Starts)-2]
	return !before.Well && before.crashed() && !last.Limited && last.How == before.How && last.Rank == before.Rank && !before.tied(c) && !last.tied(c)
}

// outlives is when the start that lives has done so for longer than those which died; 0: none lives.
func (l *loop) outlives() int64 {
	if l.Lives == nil || !l.Told {
		return 0
	}
	longest := int64(0)
	for i, s := range l.Starts {
		lived := s.Life
		if lived == 0 && i > 0 {
			lived = s.Time - l.Starts[i-1].Time
		}
		longest = max(longest, lived)
	}
	return l.Lives.Began + max(leastLife, longer*longest)
}

// Decide says which jobs die again and again, and which do so no more.
func (d *detector) Decide(now int64) []rule.Finding {
	var findings []rule.Finding
	for _, key := range slices.Sorted(maps.Keys(d.loops)) {
		l := d.loops[key]
		if at := l.ready(&d.close); at > 0 && at <= now {
			l.Changed = false
			if f, ok := l.judge(key, d.least, d.apart, &d.close); ok {
				l.Told = true
				findings = append(findings, f)
			} else if last := l.Starts[len(l.Starts)-1]; l.Told && last.Well {
				findings = append(findings, l.end(key, last.Time, "a start has ended well"))
			}
		}
		if at := l.outlives(); at > 0 && at <= now {
			lived := time.Duration(at - l.Lives.Began).Round(time.Second)
			findings = append(findings, l.end(key, at, "a start has lived for "+lived.String()+", longer than any before"))
			l.Starts = []*start{{Run: l.Lives.Run, Time: l.Lives.Began, Well: true}}
			l.Lives, l.Before, l.Since = nil, 0, 0
		}
	}
	return findings
}

// end says that the job dies at each start no more.
func (l *loop) end(key string, at int64, why string) rule.Finding {
	l.Told = false
	a := map[string]any{rule.AttributeJob: l.Job, "crash_loop.ended": why}
	if l.Domain != "" {
		a[rule.AttributeJobDomain] = l.Domain
	}
	return rule.Finding{Event: eventEnd, ID: key, Time: at, Last: at, Attributes: a, Resource: map[string]any{}}
}

// judge looks at the latest starts that died less than so long apart, since one ended well.
func (l *loop) judge(key string, least int, apart int64, c *closeness) (f rule.Finding, ok bool) {
	since := l.Starts
	for i, s := range slices.Backward(l.Starts) {
		if s.Well {
			since, l.Before, l.Since = l.Starts[i+1:], 0, 0
			break
		}
	}
	crashes := slices.DeleteFunc(slices.Clone(since), func(s *start) bool { return !s.crashed() })
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
	return l.finding(key, crashes, from == 0, c), true
}

// starving are the starts, where a rank that was killed is taken to have died of want of memory as it did
// in another of them: the record of its kill was lost.
func starving(crashes []*start) []*start {
	starved := map[int64]bool{}
	for _, s := range crashes {
		if s.How == outOfMemory {
			starved[s.Rank] = true
		}
	}
	crashes = slices.Clone(crashes)
	for i, s := range crashes {
		if s.How == "SIGKILL" && starved[s.Rank] {
			like := *s
			like.How = outOfMemory
			crashes[i] = &like
		}
	}
	return crashes
}

func (l *loop) finding(key string, crashes []*start, whole bool, c *closeness) rule.Finding {
	crashes = starving(crashes)
	first, last, count := crashes[0], crashes[len(crashes)-1], len(crashes)
	since := first.Time
	if whole {
		count += l.Before
		since = cmp.Or(l.Since, since)
	}
	words := make([]string, len(crashes))
	tied := false
	for i, s := range crashes {
		words[i] = s.words(c)
		tied = tied || s.tied(c)
	}
	if same(crashes, func(s *start) string { return s.How }) && first.How == outOfMemory && kind(crashes, words) == "unlike" {
		words = slices.Repeat([]string{"ranks that the kernel chose (" + outOfMemory + ")"}, len(words)) // of what died with it none is to blame
	}
	a := map[string]any{
		rule.AttributeJob: l.Job, rule.AttributeRun: "", "crash_loop.starts": int64(count), "crash_loop.deaths": inWords(words), "crash_loop.ranks": ranks(crashes, c),
		"crash_loop.kind": kind(crashes, words), "crash_loop.lasts": time.Duration(last.Time - since).Round(time.Second).String(),
	}
	if n := l.unseen(since, last.Time); n > 0 {
		a["crash_loop.unseen"] = n
	}
	if last.Host != "" && last.PID > 0 {
		a["crash_loop.last_host"], a["crash_loop.last_pid"] = last.Host, last.PID
	}
	if l.Domain != "" {
		a[rule.AttributeJobDomain] = l.Domain
	}
	resource := map[string]any{}
	if same(crashes, func(s *start) string { return s.Host }) && first.Host != "" && !tied {
		resource["host.name"] = first.Host
	}
	if same(crashes, func(s *start) int64 { return s.Rank }) && !tied {
		a[rule.AttributeRank] = first.Rank
	}
	return rule.Finding{Event: eventLoop, ID: key, Time: first.Time, Last: last.Time, Late: slices.ContainsFunc(crashes, func(s *start) bool { return s.Late }), Attributes: a, Resource: resource}
}

// kind says whether each start died in the same way, or only some ranks die and begin again, beside
// others that live.
func kind(crashes []*start, words []string) string {
	switch {
	case !slices.ContainsFunc(crashes[1:], func(s *start) bool { return !s.Beside }):
		return "beside"
	case len(slices.Compact(slices.Clone(words))) == 1:
		return "same"
	}
	return "unlike"
}

func same[T comparable](crashes []*start, of func(*start) T) bool {
	return !slices.ContainsFunc(crashes, func(s *start) bool { return of(s) != of(crashes[0]) })
}

// words say who died first of the start, and how.
func (s *start) words(c *closeness) string {
	if s.tied(c) {
		return "several ranks together (" + s.How + ")"
	}
	return fmt.Sprintf("rank %d (%s)", s.Rank, s.How)
}

// inWords lists these words of each start, and how often, in the order of the first time.
func inWords(crashes []string) string {
	const most = 8
	times, order := map[string]int{}, []string{}
	for _, words := range crashes {
		if times[words]++; times[words] == 1 {
			order = append(order, words)
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

// ranks are those that died first, or together.
func ranks(crashes []*start, c *closeness) []any {
	var all []int64
	for _, s := range crashes {
		all = append(all, s.Rank)
		if s.tied(c) {
			for _, o := range s.Deaths {
				all = append(all, o.Rank)
			}
		}
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
		if l == nil || len(l.Starts) == 0 || len(l.Starts) > maxStarts || len(l.Unseen) > maxStarts || slices.Contains(l.Starts, nil) {
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
