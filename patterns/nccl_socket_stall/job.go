package ncclsocketstall

import (
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// job is what was concluded from the stalls of one job. Ended stalls are held too,
// while their records may still come.
type job struct {
	Onset int64 `json:"onset"`          // of what lasts, as it was last judged; 0: nothing does
	Ended int64 `json:"ended"`          // time of the newest end
	Went  int64 `json:"went,omitempty"` // of the newest end in which bytes moved, as far as that was told
	Thaw  int64 `json:"thaw"`           // when it was heard that a stall has ended, the first since the job was judged: the others may follow
	Late  int64 `json:"late"`           // until when records of other hosts are waited for, because the first came late
	After int64 `json:"after"`          // end of the last episode that was told of
	Told  *told `json:"told"`           // nil: nothing is being told
	Mount int64 `json:"mount"`          // since when the rank that is named is known to wait for a mount which nothing has named; 0: it does not
	// Watched is when an agent last said that data of the job moves, by its host.
	Watched map[string]int64 `json:"watched,omitempty"`
	// Moving is since when that agent had watched the job, where all ranks there had moved data since; 0: not all had.
	Moving map[string]int64 `json:"moving,omitempty"`

	Changed bool  `json:"changed"` // since the last decision
	Decided int64 `json:"decided"` // when that was
	Wake    int64 `json:"wake"`    // when time alone may change it, 0 never

	// Beside is an earlier start of the job whose ranks live beside those of this one.
	Beside string `json:"beside,omitempty"`
	// One are later starts that are one job with this one, Whole that this one is with Beside.
	One   []string `json:"one,omitempty"`
	Whole bool     `json:"whole,omitempty"`

	stalls *socketstall.Job
}

// told is the finding that stands.
type told struct {
	Text string `json:"text"` // all that it says
	Time int64  `json:"time"`
	Last int64  `json:"last"`
	At   int64  `json:"at"` // when it was last told
	// Rest are the processes that are said to rest: the others wait for one of them.
	Rest []string `json:"rests,omitempty"`
	Said int64    `json:"said,omitempty"` // when that, or what else the ranks wait for, was told first
	// Lives is when the ranks were first told to wait for a process, or a path, that a record came from, of a fault; 0: they were not.
	Lives int64  `json:"lives,omitempty"`
	Who   string `json:"who,omitempty"` // that process, or the one at the near end
}

// take notes what a record of the job means for its conclusion.
func (j *job) take(r *socketstall.Record, now int64) {
	j.Changed = true
	if !r.Ended() {
		return
	}
	j.ends(r.Time, now)
	if r.End != socketstall.Closed && r.End != socketstall.Exited {
		j.Went = max(j.Went, r.Time)
	}
}

// ends notes that stalls of the job ended at that time, as is heard now.
func (j *job) ends(at, now int64) {
	j.Ended = max(j.Ended, at)
	if j.Thaw == 0 {
		j.Thaw = max(at, now)
	}
}

// lastsSince reports whether a stall of the job lasts that began by then.
func (j *job) lastsSince(at int64) bool { return j != nil && j.Onset != 0 && j.Onset <= at }

// podOf is all that is known of the pod of p; nobody has seen a nil p.
func podOf(p *socketstall.Process) string {
	if p == nil {
		return ""
	}
	return strings.Join([]string{p.Pod, p.Namespace, p.PodName, p.Workload}, " ")
}

// A job with more stalls than small is judged again after perStall for each: five
// times as long as it takes.
const (
	small    = 1_000
	perStall = int64(5 * time.Microsecond)
)

// due is when the job is to be judged, 0 when nothing has changed. A large job
// is judged more rarely, so that a burst of its records is judged a few times,
// not once for each.
func (j *job) due() int64 {
	if j.Changed {
		at := max(j.Decided+int64(max(j.stalls.Len()-small, 0))*perStall, 1)
		if j.Wake == 0 || at < j.Wake {
			return at
		}
	}
	return j.Wake
}

// judge judges a job at that time.
func (d *detector) judge(j *job, now int64) []rule.Finding {
	j.Changed, j.Decided, j.Wake = false, now, 0
	d.forgetEnded(j, now)
	g := d.graph(j, now)
	j.Onset = g.onset
	var over []rule.Finding
	switch {
	case now-j.stalls.Last > int64(d.lost):
		j.Told, j.Thaw = nil, 0
		d.book.Drop(j.stalls, func(*socketstall.Stall) bool { return true })
		return nil
	case len(g.active) == 0 || d.left(g, now):
		return d.end(j, g, now)
	case now < d.thawed(j, g):
		j.Wake = earliest(g.fades, d.thawed(j, g))
		return nil
	case j.Told != nil && g.onset > j.Told.Last: // all that stands began after what was told
		over = j.over(max(g.moved, j.Told.Last))
	}
	return append(over, d.decide(j, g, now)...)
}

// decide says what holds up a job that stands still.
func (d *detector) decide(j *job, g *graph, now int64) []rule.Finding {
	j.Thaw = 0
	c, wait, stands := g.conclude(now, &d.facts)
	if until := g.mountSpeaks(c, now); until != 0 {
		wait, stands = until, true
	}
	if until := g.ending(c, now); until != 0 {
		wait, stands = until, true
	}
	if until := d.stopping(j, g, now); until != 0 {
		wait, stands = until, true
	}
	j.Wake = earliest(earliest(wait, g.fades), j.stalls.Last+int64(d.lost)+1)
	switch {
	case stands:
		return nil
	case c == nil && g.goesOn(j.Told) != "":
		return j.goesOn(g, g.goesOn(j.Told))
	case c == nil && j.Told != nil && j.Ended > j.Told.Said:
		return j.over(j.Ended)
	case c == nil:
		return j.takeBack()
	}
	if until := d.health(g, c); now < until {
		c.early = true
		j.Wake = earliest(j.Wake, until)
	}
	c.aborts = c.Held != heldWorks && !d.facts.diedIn(j.stalls.Name, 0, g.first) // a pause in health ends no rank
	return d.tell(j, g, c, now)
}

// stopping is until when nothing is told that was not told before, because somebody ends the job: what
// is left of it may wait for those that have ended, until it is killed. 0: nobody does, or others
// still stand after that.
func (d *detector) stopping(j *job, g *graph, now int64) int64 {
	last := d.facts.stopOf(j.stalls.Name)
	if last == 0 || j.Told != nil {
		return 0
	}
	if until := last + int64(d.stopped); now < until {
		return until
	}
	if slices.ContainsFunc(g.active, func(s *socketstall.Stall) bool { return d.facts.endOf(g.procs[s.Process], j.stalls) == 0 }) {
		return 0
	}
	return j.stalls.Last + int64(d.lost) + 1
}

// forgetEnded drops ended stalls of which no record can come any more.
func (d *detector) forgetEnded(j *job, now int64) {
	d.book.Drop(j.stalls, func(s *socketstall.Stall) bool { return s.Ended != 0 && s.Ended+d.lateness+int64(d.wane) < now })
}

// thawed is until when nothing is concluded, because a stall has ended: the
// others may end too, each in the next snapshot of its node. What was told does
// not give way to what is left over while their records may be late. Nor is an episode that is over told again by
// records of it that come after its ends: their own ends may be late, too.
func (d *detector) thawed(j *job, g *graph) int64 {
	wane := int64(d.wane)
	over := func(s *socketstall.Stall) bool { return s.First <= j.Ended && s.Last <= j.Ended+wane }
	stays := func(s *socketstall.Stall) bool { return s.First > j.After || s.Last > j.After+wane }
	switch {
	case j.Told == nil && j.After != 0 && !slices.ContainsFunc(g.active, stays):
		return j.After + wane + d.lateness
	case j.Thaw == 0:
		return 0
	case j.Told != nil && slices.ContainsFunc(g.active, over):
		return j.Thaw + wane + d.lateness
	default:
		return j.Thaw + wane
	}
}

// tell gives out c, if it says something new or was not told for long.
func (d *detector) tell(j *job, g *graph, c *conclusion, now int64) []rule.Finding {
	f := c.finding(g)
	f.Time = max(f.Time, j.After+1)
	f.Last = max(j.stalls.Last, f.Time)
	text := c.text() + " " + podOf(j.stalls.Processes[c.Culprit])
	if j.Told != nil && j.Told.Text == text && j.Told.Time == f.Time && now < j.Told.At+int64(d.refresh) {
		if f.Last > j.Told.Last {
			j.Wake = earliest(j.Wake, j.Told.At+int64(d.refresh))
		}
		return nil
	}
	before := j.Told
	j.Told = &told{Text: text, Time: f.Time, Last: f.Last, At: now, Said: now}
	switch c.Held {
	case heldSilent:
		j.Told.Rest = []string{c.Culprit}
	case heldTied:
		j.Told.Rest = c.tied
	}
	if before != nil && slices.Equal(before.Rest, j.Told.Rest) {
		j.Told.Said = before.Said
	}
	j.Told.lives(c, before)
	return []rule.Finding{f}
}

// lives notes whether the ranks are told to wait for a process that lives, or were before.
func (t *told) lives(c *conclusion, before *told) {
	if before != nil {
		t.Lives, t.Who = before.Lives, before.Who
	}
	if c.lives() {
		t.Lives, t.Who = earliest(t.Lives, t.At), c.Culprit
	}
}

// lives reports whether c names processes, or the end of a path, of which records come, of a fault.
func (c *conclusion) lives() bool {
	return c.Held != heldWorks && c.Held != heldUnseen && c.Held != heldMissing && c.Held != heldDead
}

// goesOn is a process that is said to rest and does not any more, "" for none: what was told of it was
// so, and is over, though nothing has moved yet. One that worked again before it was told refutes it.
func (g *graph) goesOn(of *told) string {
	if of == nil {
		return ""
	}
	for _, key := range of.Rest {
		p := g.procs[key]
		if p != nil && p.Doing.Silence == socketstall.Usual && p.Doing.At > of.Said && (p.Doing.Progress() || max(p.Sent, p.Doing.Acted) > of.Said) {
			return key
		}
	}
	return ""
}

// goesOn ends what is told: a process that rested works.
func (j *job) goesOn(g *graph, key string) []rule.Finding {
	at := max(j.stalls.Last, j.Told.Time)
	a := j.named()
	p := g.procs[key]
	switch {
	case p.Doing.Progress():
		a[attrGoesOn] = g.who(key) + " goes on: " + doing(p)
	case p.Sent > j.Told.Said:
		a[attrGoesOn] = g.who(key) + " goes on: it has sent data again"
	default:
		a[attrGoesOn] = g.who(key) + " goes on: it rests no more"
	}
	j.Told, j.After = nil, at
	return []rule.Finding{{Event: eventEnd, ID: j.stalls.Name, Time: at, Last: at, Attributes: a}}
}

// takeBack withdraws what was told and does not hold with what is known now. Nothing has moved
// since, or it would be over.
func (j *job) takeBack() []rule.Finding {
	if j.Told == nil {
		return nil
	}
	f := rule.Finding{
		Event: eventCulprit, ID: j.stalls.Name, Gone: true, Time: j.Told.Time, Last: j.stalls.Last,
		Attributes: j.named(),
	}
	j.Told = nil
	return []rule.Finding{f}
}

// end says that the stall is over.
func (d *detector) end(j *job, g *graph, now int64) []rule.Finding {
	j.Thaw = 0
	d.book.Drop(j.stalls, func(s *socketstall.Stall) bool { return s.Ended == 0 && d.quiet(s) < now })
	if j.stalls.Len() > 0 {
		j.Wake = max(j.stalls.Last+d.lateness+int64(max(d.wane, socketstall.Fading)), now) + 1
	}
	if j.Told == nil {
		return nil
	}
	return j.over(g.moved)
}

// over ends what is told: something of the job has moved then, or ranks have closed their sockets.
func (j *job) over(at int64) []rule.Finding {
	at = max(at, j.Told.Time)
	a := j.named()
	if at == j.Ended && j.Went < j.Told.Time {
		a[attrClosed] = true
	}
	j.Told, j.After = nil, at
	return []rule.Finding{{Event: eventEnd, ID: j.stalls.Name, Time: at, Last: at, Attributes: a}}
}

// named says which job a finding is about.
func (j *job) named() map[string]any {
	a := map[string]any{attrKey: j.stalls.Name}
	if j.stalls.Run != "" {
		a[rule.AttributeRun] = j.stalls.Run
	}
	return a
}

// earliest is the smaller of two moments that is not 0.
func earliest(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
