// Package run tells the starts of one job apart. A job keeps its id and its ranks through
// a restart, its processes do not: the same rank seen as another, later process is another
// run. It is pure, and knows neither records nor faults.
package run

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const (
	// slack is how far two words about the start of one process may differ: wall clocks
	// are slewed, and those of two machines are not one.
	slack = int64(time.Second)
	// spread is how far apart the ranks of one run start: process groups give up after
	// 10 to 30 minutes (PyTorch, init_process_group).
	spread = int64(30 * time.Minute)

	maxRuns = 8 // of one job; older ones are forgotten
	page    = 64
)

// Job is a job, as far as a record of that trust says: an id inside a domain.
type Job struct {
	ID     string        `json:"id"`
	Domain string        `json:"domain,omitempty"`
	Trust  verdict.Trust `json:"trust"`
}

// Process is the outermost process of a rank. Start is unix nanoseconds, as the wall clock was when
// its agent began, and 0 when not known. Since is its start on the boot clock, which nobody sets: 0
// where the record is about a child of it.
type Process struct {
	Host  string `json:"h,omitempty"`
	Boot  string `json:"b,omitempty"`
	PID   int64  `json:"p"`
	Start int64  `json:"s"`
	Since int64  `json:"n,omitempty"`
}

// same reports whether both are one process: by boot, pid and start, or by the wall clock where one
// side does not know these. A record that says no host is about any. A host may get another name
// while its processes run: its boot keeps its id.
func (p Process) same(o Process) bool {
	switch {
	case p.Since != 0 && o.Since != 0 && p.Boot != "" && p.Boot == o.Boot:
		return p.PID == o.PID && p.Since == o.Since
	case p.Host != o.Host && p.Host != "" && o.Host != "", p.PID != o.PID:
		return false
	case p.Since != 0 && o.Since != 0:
		return p.Since == o.Since && (p.Boot == o.Boot || p.Boot == "" || o.Boot == "")
	default:
		return p.near(o)
	}
}

// near reports whether the wall clock said the same of both.
func (p Process) near(o Process) bool { return p.Start-o.Start <= slack && o.Start-p.Start <= slack }

// learns takes what o, the same process, knows better, and reports whether that is anything: its start
// on the boot clock, what the wall clock says since it was set, or the name that its host has now.
func (p *Process) learns(o Process) bool {
	host := cmp.Or(o.Host, p.Host)
	if o.Since == 0 || p.Since == o.Since && p.near(o) && p.Host == host {
		return false
	}
	p.Host, p.Boot, p.Since, p.Start = host, cmp.Or(o.Boot, p.Boot), o.Since, o.Start
	return true
}

// Sighting is what a record says of the run that it is about.
type Sighting struct {
	Job
	Process
	Rank    int   // below 0 when none
	World   int   // ranks of the job, 0 when it does not say
	Attempt int64 // as the launcher counts, below 0 when it does not
	Ended   bool  // the process has ended
	Time    int64 // of the record
}

// Began says that a run took the place of those before it, or that it began earlier than
// was known.
type Began struct {
	Of     Job
	ID     string
	At     int64
	Older  []string // ids of the runs whose place it took
	Stands []string // ids of those that go on: of them it has only some ranks that had died
}

// Run is one start of a job. A rank may begin again alone, as the container of a pod does:
// that is a run, too, and takes the place of none until most of the others follow it.
type Run struct {
	ID      string          `json:"id"`
	Began   int64           `json:"began"`
	Entered int64           `json:"entered,omitempty"` // when the last of its processes was first heard of
	Attempt int64           `json:"attempt"`
	World   int             `json:"world,omitempty"`
	Ranks   map[int]Process `json:"ranks"`
	Gone    map[int]bool    `json:"gone,omitempty"` // ranks whose process has ended; true where a later run has the rank
	Over    bool            `json:"over,omitempty"` // a later run has taken its place

	replaced int // ranks that a later run has
}

type job struct {
	Job
	runs    []*Run // in the order they began
	element *fairlru.Element[*job]
}

// Book has the runs of all jobs. Beyond its size the jobs of the domain that has most are
// forgotten, those of whom nothing was heard for longest first.
type Book struct {
	Evicted uint64 // jobs

	most  int
	jobs  map[Job]*job
	byID  map[string][]*job // of all domains and trusts
	order fairlru.List[*job]
}

// NewBook makes an empty book with room for so many ranks.
func NewBook(most int) *Book {
	return &Book{most: most, jobs: map[Job]*job{}, byID: map[string][]*job{}, order: timeline.NewOrder[*job]()}
}

// Of returns the run that a record is about, "" when nobody can tell, whether the book
// learned something, and which run took the place of others by that.
func (b *Book) Of(s *Sighting) (id string, news bool, began *Began) {
	if s.ID == "" {
		return "", false, nil
	}
	j := b.find(s.Job)
	var better []*Run
	if j != nil && j.Trust != s.Trust {
		better = j.runs
	}
	if s.Start <= 0 || s.Rank < 0 || better != nil && !j.spokenFor(s) { // it says nothing of a process, or is not trusted enough to
		if j == nil {
			return "", false, nil
		}
		return j.at(s), false, nil
	}
	if better != nil {
		if r, _, _ := j.where(s, nil); r != nil {
			return r.ID, false, nil
		}
	}
	if j = b.jobs[s.Job]; j == nil {
		j = b.begin(s.Job)
	}
	b.order.Touch(j.element, fairlru.Some)
	r, news, began := j.see(s, better, func() string { return b.told(s, j.runs) })
	if news {
		b.fit(j)
	}
	return r.ID, news, began
}

// Followed is when the run began that took the place of this one, 0 when none has.
func (b *Book) Followed(of Job, id string) int64 {
	j := b.find(of)
	if j == nil || id == "" {
		return 0
	}
	at := j.index(id)
	if at < 0 || at+1 == len(j.runs) || !j.runs[at].Over {
		return 0
	}
	return j.runs[at+1].Began
}

// Beside returns the earlier start of the job whose ranks live beside that one: it has only some ranks,
// which began again alone, as far as is known. "" where there is none.
func (b *Book) Beside(of Job, id string) string {
	if j := b.find(of); j != nil {
		return j.beside(id)
	}
	return ""
}

// With returns that start where both are one job by then: no more ranks begin again, and the others have
// gone on with those that did.
func (b *Book) With(of Job, id string, at int64) string {
	j := b.find(of)
	if j == nil {
		return ""
	}
	with := j.beside(id)
	if with == "" || at < j.runs[j.index(id)].Entered+together {
		return ""
	}
	return with
}

// Together is since when two starts are one job; 0 where they are not.
func (b *Book) Together(of Job, one, other string) int64 {
	j := b.find(of)
	if j == nil || one == other || cmp.Or(j.beside(one), one) != cmp.Or(j.beside(other), other) {
		return 0
	}
	first, second := j.index(one), j.index(other)
	if first < 0 || second < 0 {
		return 0
	}
	return max(j.runs[first].Entered, j.runs[second].Entered) + together
}

// index is the place of a run, below 0 for none.
func (j *job) index(id string) int {
	return slices.IndexFunc(j.runs, func(r *Run) bool { return r.ID == id && id != "" })
}

// beside is as Beside has it.
func (j *job) beside(id string) string {
	for _, r := range j.runs[:max(0, j.index(id))] {
		if !r.Over && r.replaced > 0 && len(r.Gone) < len(r.Ranks) {
			return r.ID
		}
	}
	return ""
}

// Process returns the outermost process of a rank in a run.
func (b *Book) Process(of Job, id string, rank int) (Process, bool) {
	j := b.find(of)
	if j == nil {
		return Process{}, false
	}
	at := j.index(id)
	if at < 0 {
		return Process{}, false
	}
	p, ok := j.runs[at].Ranks[rank]
	return p, ok
}

// Ranks are the ranks of a run with their outermost processes, as far as they were seen: to be read alone.
func (b *Book) Ranks(of Job, id string) map[int]Process {
	j := b.find(of)
	if j == nil {
		return nil
	}
	if at := j.index(id); at >= 0 {
		return j.runs[at].Ranks
	}
	return nil
}

// Again reports whether a rank of a run has a process in a later one.
func (b *Book) Again(of Job, id string, rank int) bool {
	j := b.find(of)
	if j == nil {
		return false
	}
	at := j.index(id)
	return at >= 0 && slices.ContainsFunc(j.runs[at+1:], func(r *Run) bool { _, has := r.Ranks[rank]; return has })
}

// Left is a rank that ran on a machine which was booted again since: nobody saw its end.
type Left struct {
	Of   Job
	Run  string
	Rank int
}

// Rebooted notes that a machine began that boot then, and returns the ranks that it had before and whose
// end is not known. Where another rank of the run that was there was seen to end, the machine was up by
// then, and the others were ended with it.
func (b *Book) Rebooted(host, boot string, began int64) (left []Left) {
	b.order.Each(func(j *job) {
		for _, r := range j.runs {
			if r.Over {
				continue
			}
			ranks, ended := r.before(host, boot, began)
			for _, rank := range ranks {
				if r.leaves(rank, false); !ended {
					left = append(left, Left{j.Job, r.ID, rank})
				}
			}
		}
	})
	return left
}

// before returns the ranks of r that ran on host in an earlier boot and are not known to have ended, and
// whether another that ran there is.
func (r *Run) before(host, boot string, began int64) (ranks []int, ended bool) {
	for _, rank := range slices.Sorted(maps.Keys(r.Ranks)) {
		p := r.Ranks[rank]
		if p.Host != host || p.Boot == boot && boot != "" || (p.Boot == "" || boot == "") && p.Start >= began-slack || p.Start > began+int64(timeline.MaxAhead) {
			continue
		}
		switch replaced, gone := r.Gone[rank]; {
		case !gone:
			ranks = append(ranks, rank)
		case !replaced:
			ended = true
		}
	}
	return ranks, ended
}

// find returns the job as it is known best: what is trusted more goes before, and a record
// that says no domain is about the only job of that id.
func (b *Book) find(wanted Job) *job {
	var best *job
	for _, j := range b.byID[wanted.ID] {
		switch {
		case j.Trust < wanted.Trust || wanted.Domain != "" && j.Domain != "" && j.Domain != wanted.Domain:
		case best == nil || j.Trust > best.Trust:
			best = j
		case j.Trust == best.Trust && j.Domain != best.Domain && wanted.Domain == "":
			return nil
		}
	}
	return best
}

// told is the id of the run that a sighting is of by what was heard with less trust, "" for none:
// the words of a process about itself may come before what the kernel says of it, and both are
// about one run.
func (b *Book) told(s *Sighting, known []*Run) string {
	var best *job
	for _, o := range b.byID[s.ID] {
		if o.Domain == s.Domain && o.Trust > verdict.Foreign && o.Trust < s.Trust && (best == nil || o.Trust > best.Trust) {
			best = o
		}
	}
	if best == nil {
		return ""
	}
	r, _, _ := best.where(s, known)
	if r == nil || has(known, r.ID) {
		return ""
	}
	if p, ok := r.Ranks[s.Rank]; ok && p.same(s.Process) {
		return r.ID
	}
	// Of another rank: it is of this start unless that is long ago, or another start has been heard of since.
	later := func(k *Run) bool { return k.Began >= r.Began }
	if s.Start-r.Began > together || slices.ContainsFunc(known, later) {
		return ""
	}
	return r.ID
}

// together is how long after the first the last rank of a start begins at most, where nothing but the
// time says that it is the same one.
const together = int64(2 * time.Minute)

func (b *Book) begin(key Job) *job {
	j := &job{Job: key}
	j.element = b.order.Add(j, fairlru.Some, timeline.Path(key.Trust, []string{key.Domain, key.ID})...)
	b.jobs[key] = j
	b.byID[key.ID] = append(b.byID[key.ID], j)
	return j
}

// fit counts j by what it takes now, and makes room for it.
func (b *Book) fit(j *job) {
	ranks := 0
	for _, r := range j.runs {
		ranks += len(r.Ranks)
	}
	b.order.Resize(j.element, 1+ranks/page)
	for b.order.Size() > 1+b.most/page && b.order.Len() > 1 {
		victim, _ := b.order.Victim()
		if victim.Value == j {
			break // it takes all there is, and is the one that is needed
		}
		b.forget(victim.Value)
		b.Evicted++
	}
}

func (b *Book) forget(j *job) {
	b.order.Remove(j.element)
	delete(b.jobs, j.Job)
	left := slices.DeleteFunc(b.byID[j.ID], func(o *job) bool { return o == j })
	if len(left) > 0 {
		b.byID[j.ID] = left
	} else {
		delete(b.byID, j.ID)
	}
}

// at returns the run of a sighting without changing anything: that of its process, or the
// one that stood at its time.
func (j *job) at(s *Sighting) string {
	for _, r := range slices.Backward(j.runs) {
		if p, ok := r.Ranks[s.Rank]; ok && s.Start > 0 && p.same(s.Process) && !r.elsewhere(s) {
			return r.ID
		}
	}
	then := s.Time
	if s.Start > 0 {
		then = s.Start
	}
	for _, r := range slices.Backward(j.runs) {
		if r.Began <= then+slack {
			if r.elsewhere(s) {
				return ""
			}
			return r.ID
		}
	}
	return ""
}

// spokenFor reports whether a process of this machine speaks of itself: it may be of a start of its
// job of which nothing was heard yet that is trusted more.
func (j *job) spokenFor(s *Sighting) bool { return s.Trust > verdict.Foreign && s.Domain == j.Domain }

// where returns the run that a process is of, nil for none, and between which others it belongs. It is
// of none of except, unless it was seen there.
func (j *job) where(s *Sighting, except []*Run) (r *Run, after, before int) {
	after, before = -1, len(j.runs)
	for i, r := range j.runs {
		switch p, ok := r.Ranks[s.Rank]; {
		case !ok:
		case p.same(s.Process):
			return r, after, before
		case p.Start <= s.Start:
			after = i
		case before == len(j.runs):
			before = i
		}
	}
	return j.nearest(s, after+1, before, except), after, before
}

// elsewhere reports whether a stranger speaks of a rank that runs on another machine than
// he does: he may call himself what he likes, but where he sends from is not his word.
func (r *Run) elsewhere(s *Sighting) bool {
	p, ok := r.Ranks[s.Rank]
	return ok && s.Trust == verdict.Foreign && p.Host != "" && p.Host != s.Host
}

// see returns the run of a process, which begins one where the rank was another process: the one
// that was told of, where one was. It is of none of better, which are trusted more.
func (j *job) see(s *Sighting, better []*Run, told func() string) (r *Run, news bool, began *Began) {
	r, after, before := j.where(s, better)
	if r != nil {
		if p, ok := r.Ranks[s.Rank]; ok && p.same(s.Process) {
			learned := p.learns(s.Process)
			r.Ranks[s.Rank] = p
			if _, gone := r.Gone[s.Rank]; gone || !s.Ended {
				return r, learned, nil
			}
			r.leaves(s.Rank, false)
			return r, true, j.began(s, j.settled())
		}
	}
	first := false
	if r == nil {
		r = &Run{Began: s.Start, Attempt: s.Attempt, Ranks: map[int]Process{}}
		r.ID = cmp.Or(told(), j.name(s))
		at := max(after+1, min(before, j.place(s.Start)))
		j.runs = slices.Insert(j.runs, at, r)
		first = true
	}
	earlier := s.Start < r.Began
	r.Began, r.World = min(r.Began, s.Start), max(r.World, s.World)
	j.enter(r, s)
	if first {
		j.settle(slices.Index(j.runs, r))
	}
	last := j.settled()
	j.trim()
	switch at := slices.Index(j.runs, r); {
	case last != nil:
		return r, true, j.began(s, last)
	case earlier && at > 0 && j.runs[at-1].Over, first && (at < 0 || !j.stands(at)):
		return r, true, j.began(s, r)
	}
	return r, true, nil
}

// trim forgets a run beyond the cap: the oldest that is over, or else the oldest.
func (j *job) trim() {
	if len(j.runs) > maxRuns {
		at := max(0, slices.IndexFunc(j.runs, func(r *Run) bool { return r.Over }))
		j.runs = slices.Delete(j.runs, at, at+1)
	}
}

// enter makes the process of s a rank of r, which the runs before it no longer have.
func (j *job) enter(r *Run, s *Sighting) {
	r.Ranks[s.Rank] = s.Process
	r.Entered = max(r.Entered, s.Time)
	if s.Ended {
		r.leaves(s.Rank, false)
	}
	past := true
	for _, o := range j.runs {
		switch _, has := o.Ranks[s.Rank]; {
		case o == r:
			past = false
		case has && past:
			o.leaves(s.Rank, true)
		case has:
			r.leaves(s.Rank, true)
		}
	}
}

// leaves notes that the process of a rank has ended, or that a later run has the rank.
func (r *Run) leaves(rank int, replaced bool) {
	before, gone := r.Gone[rank]
	if gone && (before || !replaced) {
		return
	}
	if r.Gone == nil {
		r.Gone = map[int]bool{}
	}
	r.Gone[rank] = replaced
	if replaced {
		r.replaced++
	}
}

// settled finds the runs whose place a later one has taken by now: most of their ranks begin
// again, or all have ended and as many others begin, or it is of another size, or the
// launcher counts it as a restart. Of those that were not known to be over it returns who follows
// the last, nil for none.
func (j *job) settled() *Run {
	from := len(j.runs)
	for i, r := range j.runs[:max(0, len(j.runs)-1)] {
		if r.Over {
			continue
		}
		another := func(o *Run) bool {
			return r.World > 0 && o.World > 0 && o.World != r.World || r.Attempt >= 0 && o.Attempt > r.Attempt
		}
		ended := len(r.Gone) == len(r.Ranks) && 2*len(j.runs[len(j.runs)-1].Ranks) > len(r.Ranks)
		if r.Over = ended || 2*r.replaced > len(r.Ranks) || slices.ContainsFunc(j.runs[i+1:], another); r.Over {
			from = i + 1
		}
	}
	for _, r := range j.runs[from:] {
		if !r.Over {
			return r
		}
	}
	return nil
}

// stands reports whether a run before that goes on.
func (j *job) stands(at int) bool {
	return slices.ContainsFunc(j.runs[:at], func(r *Run) bool { return !r.Over })
}

// began says whose place r has taken, nil for no r.
func (j *job) began(s *Sighting, r *Run) *Began {
	if r == nil {
		return nil
	}
	b := &Began{Of: s.Job, ID: r.ID, At: r.Began}
	for _, o := range j.runs[:max(slices.Index(j.runs, r), 0)] { // one that is too old for the cap has left
		if o.Over {
			b.Older = append(b.Older, o.ID)
		} else {
			b.Stands = append(b.Stands, o.ID)
		}
	}
	return b
}

// settle moves into the run at that place those that began closer to it than to the run
// before it, which was the only one known when they were seen.
func (j *job) settle(at int) {
	if at == 0 {
		return
	}
	before, r := j.runs[at-1], j.runs[at]
	for rank, p := range before.Ranks {
		if _, has := r.Ranks[rank]; !has && p.Start-before.Began > max(r.Began-p.Start, p.Start-r.Began) {
			replaced, gone := before.Gone[rank]
			delete(before.Ranks, rank)
			delete(before.Gone, rank)
			r.Ranks[rank] = p
			if replaced {
				before.replaced--
			}
			if gone {
				r.leaves(rank, replaced)
			}
		}
	}
}

// place is where a run that began then stands among the others.
func (j *job) place(began int64) int {
	at := slices.IndexFunc(j.runs, func(r *Run) bool { return r.Began > began })
	if at < 0 {
		return len(j.runs)
	}
	return at
}

// nearest returns, of the runs in [from, to), which do not have the rank, the one that
// began closest to its start, nil for none near enough. It is none of except.
func (j *job) nearest(s *Sighting, from, to int, except []*Run) *Run {
	var best *Run
	for i := from; i < to; i++ {
		r := j.runs[i]
		if _, taken := r.Ranks[s.Rank]; taken || has(except, r.ID) || s.Attempt >= 0 && r.Attempt >= 0 && r.Attempt != s.Attempt || distance(r, s) > spread {
			continue
		}
		if best == nil || distance(r, s) < distance(best, s) {
			best = r
		}
	}
	return best
}

func has(runs []*Run, id string) bool {
	return slices.ContainsFunc(runs, func(r *Run) bool { return r.ID == id })
}

func distance(r *Run, s *Sighting) int64 { return max(r.Began-s.Start, s.Start-r.Began) }

// name is the id of a run: when it began, of which job, and with which process, so that no
// two are alike.
func (j *job) name(s *Sighting) string {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%s\x00%s\x00%d\x00%s\x00%d", j.Domain, j.ID, j.Trust, s.Host, s.PID)
	return time.Unix(0, s.Start).UTC().Format("2006-01-02T15:04:05.000Z") + fmt.Sprintf("-%08x", h.Sum32())
}

// Saved is a job as it stands in a snapshot.
type Saved struct {
	Job
	Runs []*Run `json:"runs"`
}

// Save returns a copy of the state, the job first of whom nothing was heard for longest.
func (b *Book) Save() []Saved {
	var saved []Saved
	b.order.Each(func(j *job) {
		one := Saved{Job: j.Job, Runs: make([]*Run, len(j.runs))}
		for i, r := range j.runs {
			r := *r
			r.Ranks, r.Gone = maps.Clone(r.Ranks), maps.Clone(r.Gone)
			one.Runs[i] = &r
		}
		saved = append(saved, one)
	})
	return saved
}

// Restore replaces the state by what was saved.
func (b *Book) Restore(saved []Saved) {
	*b = Book{Evicted: b.Evicted, most: b.most, jobs: map[Job]*job{}, byID: map[string][]*job{}, order: timeline.NewOrder[*job]()}
	for _, one := range saved {
		if b.jobs[one.Job] != nil || one.Trust < verdict.Foreign || one.Trust > verdict.Proven {
			continue
		}
		j := b.begin(one.Job)
		for _, r := range one.Runs {
			if r == nil || len(j.runs) >= maxRuns {
				continue
			}
			if r.Ranks == nil {
				r.Ranks = map[int]Process{}
			}
			j.runs = append(j.runs, r)
		}
		j.recount()
		b.fit(j)
	}
}

// recount works out which ranks later runs have: older states did not say it.
func (j *job) recount() {
	for i, r := range j.runs {
		r.replaced = 0
		for _, replaced := range r.Gone {
			if replaced {
				r.replaced++
			}
		}
		for _, later := range j.runs[i+1:] {
			for rank := range later.Ranks {
				if _, has := r.Ranks[rank]; has {
					r.leaves(rank, true)
				}
			}
		}
	}
	j.settled()
}
