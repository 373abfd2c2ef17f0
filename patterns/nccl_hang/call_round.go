package ncclhang

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// calledRounds judges every run that is due by what its calls tell.
func (j *Join) calledRounds(now int64) (rounds []Round) {
	j.calls.sweep(now)
	for _, name := range slices.Sorted(maps.Keys(j.calls.runs)) {
		r := j.calls.runs[name]
		if at := r.due(); at != 0 && at <= now {
			if round := j.calledRound(r, now); len(round.Findings)+len(round.Cleared) > 0 {
				rounds = append(rounds, round)
			}
		}
	}
	return rounds
}

// toldAgain is how long a stop has been told at least when it is told again, as agents do of its ranks: after
// half an hour (activity.Again). Its verdict stands for an hour without (expires).
const toldAgain = int64(20 * time.Minute)

// dueAgain reports whether agents spoke of the run so long after what was told of it.
func (r *callRun) dueAgain() bool { return r.told != nil && r.last >= r.told.At+toldAgain }

// calledRound is what a run has to say that is new, or lasts for long.
func (j *Join) calledRound(r *callRun, now int64) (round Round) {
	r.stalls, r.running = j.book.Job(r.name), j.runningRanks(r)
	f := r.analyse(j.calls.limited, j.calls.unseen, now)
	f.doubtUnseen(r, j.calls.unseen)
	if f != nil && f.ended && slices.ContainsFunc(f.Culprits, func(rank int) bool { return j.starts.Again(jobOf(r.job, r.domain), r.begun, rank) }) {
		f = nil // it lives as another process: a launcher has left it, or it was started again alone
	}
	r.pending = 0
	if f == nil && r.mayMeetAgain(now) {
		return round
	}
	if f == nil {
		if r.told != nil && !r.told.gone(r) {
			round.Cleared = []Cleared{r.told.cleared(r)}
		}
		r.told, r.held = nil, 0
		return round
	}
	if j.othersFirst(r, f, now) {
		return round
	}
	if f.below() {
		j.calls.gpus.ask(f)
	}
	j.process2(r, f)
	own := f.Stop
	if r.told != nil && r.told.goesOn(f) {
		f.Stop = r.told.Stop
		if r.told.Stacks && f.ofStacks() { // it stands since other times, as far as is known now
			own, f.ID = r.told.Own, strings.TrimPrefix(r.told.Own, "stop-")
		}
		if r.told.Device != "" && r.told.Device != f.Device { // what was named is taken back
			f.Stop = fmt.Sprintf("%s-%x", own, now)
		}
	}
	told := &toldStop{
		Stop: f.Stop, Own: own, Comm: f.Comm, Desc: f.Desc, Culprits: f.involved(), Circle: f.Kind == Circle, Below: f.below(), Stacks: f.ofStacks(), Start: f.atStart(), Device: f.Device, Said: said2(f),
	}
	if r.told != nil && r.told.Stop != told.Stop {
		round.Cleared = []Cleared{r.told.cleared(r)}
	}
	if told.At = now; r.told == nil || r.told.Said != told.Said || r.dueAgain() {
		round.Findings = []Finding{*f}
	} else {
		told.At = r.told.At
	}
	r.told = told
	return round
}

// othersFirst reports whether a stop that was not told yet waits for what other witnesses say of
// it: it is one incident from the beginning.
//
// Where data of the job runs over sockets, they have named who holds it up, with the kernel's
// word, or are about to: who looks at sockets and who looks at stacks do so once a second, and
// not in the same moment. Where a rank to blame waits for a FUSE mount, that is the cause, and the
// probe of FUSE is about to name it. Where the process of a rank to blame has ended, its exit says
// why. Where somebody ends the job, what waits for those that have ended is killed soon. And after a
// restart the receivers say of each rank whether it goes on, which no earlier record shows.
func (j *Join) othersFirst(r *callRun, f *Finding, now int64) bool {
	if r.told != nil {
		return false
	}
	if r.held == 0 {
		r.held = now
	}
	wait := int64(0)
	if r.sockets(now) || openData(j.book.Job(r.name), now) {
		if wait = socketsSpeak; f.ofStacks() && f.below() {
			if wait = socketsSettle; f.Kind == EachOther && r.socketsHaveSpoken(f, now) {
				wait = 0
			}
		}
	}
	if r.waitForMount(f) {
		wait = max(wait, mountSpeaks)
	}
	if r.waitForExit(f) {
		wait = max(wait, exitSpeaks)
	}
	until := r.held + wait
	if r.resumed != 0 {
		until = max(until, r.resumed+resumedSpeak)
	}
	until = max(until, r.stoppedUntil())
	if now >= until {
		return false
	}
	r.later(until)
	return true
}

// socketsHaveSpoken reports whether sockets of every rank have told of it, and single none out: what ranks that wait for each
// other do wrong, they do not see.
func (r *callRun) socketsHaveSpoken(f *Finding, now int64) bool {
	if r.stalls == nil {
		return false
	}
	view := viewAt(r.stalls, now)
	return view != nil && len(view.singled) == 0 && !slices.ContainsFunc(f.stands, func(c *caller) bool { return c == nil || !has(view.open, c.rank) })
}

// waitForMount reports whether a rank to blame waits for a FUSE mount.
func (r *callRun) waitForMount(f *Finding) bool {
	if f.Local || f.Kind == OneMount { // that names it
		return false
	}
	for _, c := range r.callers {
		if c.rank >= 0 && has(f.Culprits, c.rank) && (c.doing.MountSpeaks(c.state) || c.stack.Standing && c.stack.Doing.MountSpeaks(c.stack.State)) {
			return true
		}
	}
	return false
}

// waitForExit reports whether the process of a rank has ended, and nothing says how, nor that somebody
// ends the job.
func (r *callRun) waitForExit(f *Finding) bool {
	c := r.comms[f.Comm]
	if c == nil || r.stopped != 0 {
		return false
	}
	for _, p := range c.places {
		if p.ended && p.caller.end == "" {
			return true
		}
	}
	return false
}

// openData reports whether a socket for data of the job stalls.
func openData(job *socketstall.Job, now int64) bool {
	if job == nil {
		return false
	}
	for _, p := range job.Processes {
		for _, one := range p.Stalls {
			if (one.Kind == socketstall.Data || one.Kind == socketstall.Gloo) && one.OpenAt(now) {
				return true
			}
		}
	}
	return false
}

// goesOn reports whether a finding is about the stop that was told: the same one, or what another
// witness says of it.
func (t *toldStop) goesOn(f *Finding) bool {
	switch {
	case f.Stop == cmp.Or(t.Own, t.Stop):
		return true
	case !t.Stacks && !f.ofStacks() && !t.Circle && f.Kind != Circle:
		return false
	}
	return t.Below && f.below() || slices.ContainsFunc(t.Culprits, func(rank int) bool { return has(f.involved(), rank) })
}

// involved are the ranks to blame, or those that wait for each other.
func (f *Finding) involved() []int {
	if f.Kind == Circle || f.atStart() && len(f.Culprits) == 0 {
		return f.Waiting
	}
	return f.Culprits
}

// below reports whether all ranks are where they should be.
func (f *Finding) below() bool {
	return f.Kind == AllCalled || f.Kind == AllWait || f.Kind == Apart || f.Kind == EachOther
}

// said2 is all of a finding that may change.
func said2(f *Finding) string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %s %q %v %d %d %q %d %q", f.Kind, f.Sure, f.Comm, f.Culprits, f.Seq, f.Called, f.Does, len(f.Affected), f.Mount)
	_, _ = fmt.Fprintf(h, " %q %q %q %q", f.GPUs, f.Device, f.Detail, f.In)
	return fmt.Sprintf("%016x", h.Sum64())
}

// gone reports whether what was told ended with processes: that a job has died clears
// nothing.
func (t *toldStop) gone(r *callRun) bool {
	if t.Stacks {
		return false // a rank of it stands there no more
	}
	c := r.comms[t.Comm]
	if c == nil {
		return true
	}
	for _, p := range c.places {
		if p.ended {
			return true
		}
	}
	return false
}

func (t *toldStop) cleared(r *callRun) Cleared {
	return Cleared{Run: r.name, Job: r.job, Domain: r.domain, Group: t.Comm, Desc: t.Desc, Stop: t.Stop}
}

// process2 says which process of which start the rank to blame is.
func (j *Join) process2(r *callRun, f *Finding) {
	if !f.Local {
		f.Process, _ = j.starts.Process(jobOf(r.job, r.domain), cmp.Or(r.anew[f.Rank()], r.begun), f.Rank())
	}
}

// analyse says what the whole of the run stands for: one finding, or none. Calls say most: which
// collective it is. What they cannot tell, stacks may, and what those told stands while calls leave open
// whether a rank comes.
func (r *callRun) analyse(limited map[process]int64, unseen map[unseenCalls]int64, now int64) *Finding {
	r.again = 0
	f, pending := r.byCalls(limited, now)
	if f != nil && f.Kind == Works {
		f = cmp.Or(r.heldUp(f, now), f)
	}
	if f != nil && f.Sure != Unsure || pending && (r.told == nil || !r.told.Stacks) {
		return f
	}
	s := r.byStacks(limited, unseen, now)
	if s == nil || f != nil && s.Sure == Unsure || pending && !r.told.goesOn(s) {
		return f
	}
	return s
}

// heldUp names ranks that are stopped beside those of f, which make progress, whatever the stopped ones
// have called: those of f may come, and these do not. Nil for none.
func (r *callRun) heldUp(f *Finding, now int64) *Finding {
	for _, name := range slices.Sorted(maps.Keys(r.comms)) {
		c := r.comms[name]
		s := r.standings(c)
		halted := s.where(func(p *place) bool { return p.caller.halted() && !p.ended && !p.left && p.caller.newest() == c })
		others := s.where(func(p *place) bool { return p.standing && !p.caller.halted() })
		if len(halted) == 0 || len(others) == 0 || c.many(halted) {
			continue
		}
		h := s.waitFor(halted, others, now)
		h.doubt(Likely, fmt.Sprintf(doubtStraggler, subject(f.Culprits), plural(f.Culprits, "lacks", "lack")))
		s.doubts(h)
		return one([]Finding{*h})
	}
	return nil
}

// doubtUnseen says of which ranks not all calls are seen: who waits for whom may be another than
// those show that are.
func (f *Finding) doubtUnseen(r *callRun, unseen map[unseenCalls]int64) {
	if f == nil || len(unseen) == 0 {
		return
	}
	ranks := map[string][]int{}
	for who, c := range r.callers {
		for why := range doubtUnseen {
			if _, is := unseen[unseenCalls{who, why}]; is && c.rank >= 0 && !slices.Contains(ranks[why], c.rank) {
				ranks[why] = append(ranks[why], c.rank)
			}
		}
	}
	f.Because = slices.Clone(f.Because) // others have them, too
	for _, why := range []string{unseenStatic, unseenGPU} {
		if of := ranks[why]; len(of) > 0 {
			slices.Sort(of)
			f.doubt(Likely, fmt.Sprintf(doubtUnseen[why], subject(of)))
		}
	}
}

// byCalls judges the communicators of the run. A communicator without new records is as it was.
// pending says that a rank lacks a call, and may make it in a moment.
func (r *callRun) byCalls(limited map[process]int64, now int64) (f *Finding, pending bool) {
	var found, waits []*Finding
	for _, name := range slices.Sorted(maps.Keys(r.comms)) {
		c := r.comms[name]
		if c.dirty || c.again != 0 && c.again <= now {
			c.finding, c.again = r.judge(c, limited, now, nil)
			c.dirty = false
		}
		if c.again != 0 && (r.again == 0 || c.again < r.again) {
			r.again = c.again
		}
		if c.finding == nil {
			continue
		}
		if f := *c.finding; f.wait {
			waits = append(waits, &f)
		} else {
			found = append(found, &f)
		}
	}
	r.excuse(found, limited, now)
	if found = r.circles(append(found, waits...), now); len(found) == 0 {
		if found = r.allWait(limited, now); len(found) == 0 {
			return nil, false
		}
	}
	found = append(found, r.below(found, now)...)
	r.followReceives(found)
	pending = slices.ContainsFunc(found, func(f *Finding) bool { return f.Pending && f.Kind == NotCalled })
	return one(rootsOf(found)), pending
}

// circles finds ranks that wait for each other. What they have called may still be under way: they are
// told once they have stood as long as all must that wait.
func (r *callRun) circles(found []*Finding, now int64) []*Finding {
	byRank := r.byRank()
	found = circles(found, func(rank int) socketstall.Identity { return byRank[rank].runsOn() })
	for _, f := range found {
		if f.Kind != Circle {
			continue
		}
		newest := int64(0)
		for _, rank := range f.Waiting {
			newest = max(newest, byRank[rank].last())
		}
		if at := newest + int64(r.options.StuckWait); r.told == nil && now < at {
			f.Pending = true
			r.later(at)
		}
	}
	return found
}

// excuse takes from those to blame in a communicator the ranks that wait in another one,
// where others remain.
func (r *callRun) excuse(found []*Finding, limited map[process]int64, now int64) {
	waits, byRank := map[int][]int{}, r.byRank() // rank → findings in which it waits
	for i, f := range found {
		if f.Local || !accuses(f) {
			continue
		}
		for _, rank := range f.Waiting {
			if len(waits[rank]) < maxWaits {
				waits[rank] = append(waits[rank], i)
			}
		}
	}
	for i, f := range found {
		if f.Local || len(f.Culprits) < 2 {
			continue
		}
		excused := map[int]bool{}
		for _, rank := range f.Culprits {
			if !byRank[rank].elsewhere() && slices.ContainsFunc(waits[rank], func(in int) bool { return found[in].Comm != f.Comm }) {
				excused[rank] = false
			}
		}
		if len(excused) > 0 && len(excused) < len(f.Culprits) {
			ascertain(excused, f, found, waits)
			c := r.comms[f.Comm]
			if better, _ := r.judge(c, limited, now, excused); better != nil {
				found[i] = better
			}
		}
	}
}

// ascertain enters which of the excused ranks certainly wait for those that remain to blame: in
// findings that are certain, and name no other, or name ranks that certainly wait for these.
func ascertain(excused map[int]bool, f *Finding, found []*Finding, waits map[int][]int) {
	other := func(rank int) bool {
		sure, is := excused[rank]
		return is && !sure || !is && !has(f.Culprits, rank)
	}
	for more := true; more; {
		more = false
		for rank, sure := range excused {
			if !sure && slices.ContainsFunc(waits[rank], func(in int) bool {
				g := found[in]
				return g.Comm != f.Comm && g.Sure == Certain && len(g.Culprits) > 0 && !slices.ContainsFunc(g.Culprits, other)
			}) {
				excused[rank], more = true, true
			}
		}
	}
}

// below finds communicators that all of their ranks have called alike, in which several of
// those stand whom others wait for elsewhere: they wait there.
func (r *callRun) below(found []*Finding, now int64) (more []*Finding) {
	blamed := map[*communicator]map[int]struct{}{}
	byRank := r.byRank()
	for _, f := range found {
		if f.Kind == AllCalled || f.Local || f.Pending || f.Sure == Unsure {
			continue
		}
		for _, rank := range f.Culprits {
			if c := byRank[rank].newest(); c != nil && c.name != f.Comm && c.even == alike {
				if blamed[c] == nil {
					blamed[c] = map[int]struct{}{}
				}
				blamed[c][rank] = struct{}{}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.comms)) {
		c := r.comms[name]
		if len(blamed[c]) < 2 || c.finding != nil {
			continue
		}
		s := r.standings(c)
		if !s.named || s.any(func(p *place) bool { return p.caller.newest() != c }) {
			continue // a rank of it has gone on
		}
		f := s.allCalled(now)
		for _, p := range s.places {
			f.stands = append(f.stands, p.caller)
		}
		between(f, slices.Values(s.places), func(p *place) socketstall.Identity { return p.caller.host })
		f.identify()
		more = append(more, f)
	}
	return more
}

// allWait finds where the whole job waits: every rank has called the same as its peers, or waits
// itself, or has sent and received alone, and by its stack it waits in a collective or for its GPU,
// all for longer than a collective takes. A job that has nothing to do looks the same by its calls, and another way by
// its stacks.
func (r *callRun) allWait(limited map[process]int64, now int64) []*Finding {
	var in *communicator
	ranks, drivers, newest, same := 0, 0, int64(0), true
	looked := r.told != nil && r.told.Below // a debugger comes after the hang, and takes nothing back
	for _, who := range r.callers {
		if len(who.places) == 0 {
			continue // a launcher
		}
		if _, is := limited[process{who.host.Host, who.host.PID}]; is {
			return nil // what it calls is not seen
		}
		c := who.newest()
		if c == nil || c.even == uneven || c.disputed || c.size < 2 || !who.stuckInCall() && !who.stuckInBackward() && !(looked && who.halted()) {
			return nil
		}
		ranks++
		if who.stack.inDriver() {
			drivers++
		}
		same = same && c.even == alike
		newest = max(newest, who.last())
		if in == nil || in != c && c.widerThan(in) {
			in = c
		}
	}
	if in == nil || ranks < r.world || drivers > 0 && drivers < ranks { // its driver holds one up: stacks say whom
		return nil
	}
	if at := newest + int64(r.options.StuckWait); now < at {
		if r.again == 0 || at < r.again {
			r.again = at
		}
		return nil
	}
	if !same {
		return r.allStand(now)
	}
	s := r.standings(in)
	if !s.named {
		return nil
	}
	f := s.allCalled(now)
	byRank := r.byRank()
	f.Affected = slices.DeleteFunc(slices.Sorted(maps.Keys(byRank)), func(rank int) bool { return has(f.Waiting, rank) })
	f.stands = slices.Collect(maps.Values(byRank))
	if back := slices.DeleteFunc(slices.Sorted(maps.Keys(byRank)), func(rank int) bool { return !byRank[rank].stuckInBackward() }); len(back) > 0 {
		f.doubt(Likely, fmt.Sprintf(doubtBackward, subject(back), plural(back, "stands", "stand")))
	}
	between(f, maps.Values(r.callers), (*caller).runsOn) // in which of its communicators it began, nobody knows
	s.doubts(f)
	return []*Finding{f}
}

// callsShow reports whether calls show that no rank lacks one: each has called the same as its peers
// and stands, and none makes calls that are not counted. why is the reason why not, "" for none that
// is to be said beside a stack.
func (r *callRun) callsShow(limited map[process]int64, unseen map[unseenCalls]int64) (all bool, why string) {
	if len(r.comms) == 0 {
		return false, ""
	}
	byRank := r.byRank()
	all = len(byRank) >= r.world
	for _, who := range byRank {
		is := process{who.host.Host, who.host.PID}
		c := who.newest()
		all = all && c != nil && c.even == alike && !c.disputed
		for reason := range doubtUnseen {
			_, hidden := unseen[unseenCalls{is, reason}]
			all = all && !hidden
		}
		_, uncalled := limited[is]
		switch {
		case slices.ContainsFunc(who.places, func(at placeOf) bool { return at.comm.places[at.rank].graphs }):
			return false, doubtGraphs
		case uncalled:
			all, why = false, doubtLimited
		case c != nil && c.even == uncounted:
			all, why = false, cmp.Or(why, doubtExact)
		}
	}
	return all, why
}

// allStand says that all ranks wait, some of which have called less than others, as far as is known,
// or have last sent to another or received from it.
func (r *callRun) allStand(now int64) []*Finding {
	stacks := r.stacked()
	if len(stacks.waits) < r.world {
		return nil
	}
	circle, odd := stacks.eachOther(now)
	f := stacks.below(circle, odd, now)
	said := map[evenness]bool{}
	for _, name := range slices.Sorted(maps.Keys(r.comms)) {
		c := r.comms[name]
		if said[c.even] {
			continue
		}
		said[c.even] = true
		switch c.even {
		case waiting:
			f.doubt(Likely, r.standings(c).waiters())
		case uncounted:
			f.doubt(Likely, doubtExact)
		case pairwise:
			f.doubt(Likely, doubtPairs)
		}
	}
	return []*Finding{f}
}

// lack says which ranks lack a call and wait themselves, "" where none does.
func (r *callRun) lack() string {
	for _, name := range slices.Sorted(maps.Keys(r.comms)) {
		if c := r.comms[name]; c.even == waiting && c.finding != nil {
			return c.finding.callText()
		}
	}
	return ""
}

// waiters says who lacks a call and waits.
func (s *standings) waiters() string {
	top := int64(0)
	for _, p := range s.places {
		top = max(top, p.number)
	}
	of, _ := s.ranksOf(s.where(func(p *place) bool { return p.number < top }))
	return fmt.Sprintf(doubtWaiters, subject(of), plural(of, "lacks", "lack"), plural(of, "waits", "wait"))
}

// runsOn is where a process that calls runs, nowhere for a launcher.
func (who *caller) runsOn() socketstall.Identity {
	if who == nil || len(who.places) == 0 {
		return socketstall.Identity{}
	}
	return who.host
}

// widerThan orders communicators in which the job may wait: the one of most ranks stands for
// all, then the first.
func (c *communicator) widerThan(other *communicator) bool {
	return cmp.Or(cmp.Compare(other.size, c.size), cmp.Compare(c.name, other.name)) < 0
}

// stuckInCall reports whether a process waits in a collective or for its GPU, and nothing
// else of it goes on as usual.
func (who *caller) stuckInCall() bool {
	return who.stack.waits() && who.stack.At >= who.last() && !who.halted() && (who.doing.Silence == socketstall.Overdue || who.doing.Silence == socketstall.Long)
}

// stuckInBackward reports whether a process waits for its threads of backward since its last call,
// and nothing of it goes on.
func (who *caller) stuckInBackward() bool {
	return who.stack.backward() && who.stack.At >= who.last() && !who.halted() && who.doing.Silence == socketstall.Overdue
}

// elsewhere reports whether a process certainly waits in no collective: it is stopped, or stands
// somewhere else since its last call, by its stack.
func (who *caller) elsewhere() bool {
	return who != nil && (who.halted() || who.stack.outside() && who.stack.At >= who.last())
}

// last is when the process made its last call.
func (who *caller) last() (last int64) {
	if who == nil {
		return 0
	}
	for _, at := range who.places {
		last = max(last, at.comm.places[at.rank].last)
	}
	return last
}

// allCalled begins a finding about a communicator in which all wait for what they have called.
func (s *standings) allCalled(now int64) *Finding {
	c := s.comm
	f := s.begin(AllCalled, s.earliest(s.ranks), now)
	f.Seq = c.places[s.ranks[0]].number
	f.Operation, f.Elements = inWords(s.what(f.Seq-1, s.ranks))
	f.Waiting, _ = s.inJob(s.ranks)
	f.Called = len(s.ranks)
	f.doubt(Likely, doubtBelow)
	return f
}

func (r *callRun) byRank() map[int]*caller {
	all := make(map[int]*caller, len(r.callers))
	for _, c := range r.callers {
		if c.rank >= 0 && len(c.places) > 0 {
			all[c.rank] = c
		}
	}
	return all
}

// newest is the communicator on which a process called last.
func (who *caller) newest() *communicator {
	p := who.newestPlace()
	if p == nil {
		return nil
	}
	return p.comm
}

func (who *caller) newestPlace() (newest *placeOf) {
	if who == nil {
		return nil
	}
	last := int64(0)
	for i := range who.places {
		at := &who.places[i]
		if p := at.comm.places[at.rank]; p.standing && p.last > last {
			newest, last = at, p.last
		}
	}
	return newest
}

// followReceives has ranks wait for those whose data they asked for last: a stage of a
// pipeline that calls nothing waits for the stage before it.
func (r *callRun) followReceives(found []*Finding) {
	byRank := r.byRank()
	waits := map[int][]int{} // rank → those that wait for data of it
	for _, f := range found {
		if f.Local || f.Kind == AllCalled || f.Kind == NoCall {
			continue
		}
		for _, rank := range f.Culprits {
			if peer := byRank[rank].peer(); peer != nil && peer.rank >= 0 {
				waits[peer.rank] = append(waits[peer.rank], rank)
				f.From = append(f.From, peer.rank)
			}
		}
	}
	for _, f := range found {
		for _, rank := range f.Culprits {
			f.Waiting = append(f.Waiting, waits[rank]...)
		}
		slices.Sort(f.Waiting)
		f.Waiting = slices.Compact(f.Waiting)
	}
	blamed := map[int]bool{}
	for _, f := range found {
		for _, rank := range f.Culprits {
			blamed[rank] = true
		}
	}
	for _, f := range found {
		if at := slices.IndexFunc(f.From, func(rank int) bool { return !blamed[rank] }); at >= 0 {
			f.doubt(Likely, fmt.Sprintf("its last call is to rank %d alone, for which it may wait", f.From[at]))
		}
	}
}

// peer is the process that the last call of a process is to, nil where that call is one of
// all ranks.
func (who *caller) peer() *caller {
	at := who.newestPlace()
	if at == nil {
		return nil
	}
	if p := at.comm.places[at.rank]; p.peer >= 0 && at.comm.places[p.peer] != nil {
		return at.comm.places[p.peer].caller
	}
	return nil
}

// one makes one finding of those that nothing explains: a job that stands still is one
// question. The surest is told. Who is to blame in other communicators is added where it is the same
// call that they lack, and said beside it where it is another.
func one(roots []Finding) *Finding {
	roots = slices.DeleteFunc(roots, func(f Finding) bool { return f.Pending })
	if len(roots) == 0 {
		return nil
	}
	f := roots[0]
	f.Culprits, f.Affected = slices.Clone(f.Culprits), slices.Clone(f.Affected)
	var others []string
	for i := range roots[1:] {
		o := &roots[1+i]
		if o.Kind != f.Kind || o.Sure != f.Sure || o.Local || f.Local || len(o.Culprits) == 0 {
			continue
		}
		f.Affected, f.Downstream = append(f.Affected, o.Affected...), f.Downstream+o.Downstream+1
		if o.Operation == f.Operation && o.Seq == f.Seq {
			f.Culprits = append(f.Culprits, o.Culprits...)
			if o.halted && !f.halted { // the first of them that cannot go on by itself
				f.Host, f.Does, f.rank, f.halted = o.Host, o.Does, o.rank, true
			}
		} else {
			o.Does = ""
			others = append(others, fmt.Sprintf("in %s %s", o.Desc, o))
		}
	}
	if len(others) > 0 {
		f.doubt(Likely, doubtOther)
		if f.Detail == "" {
			f.Detail = others[0]
		}
		if len(others) > 1 {
			f.Detail += fmt.Sprintf("; other ranks lack other calls in %s", count(len(others)-1, "more communicator", "more communicators"))
		}
		f.Detail = socketstall.Clip(f.Detail)
	}
	slices.Sort(f.Culprits)
	slices.Sort(f.Affected)
	f.Culprits, f.Affected = slices.Compact(f.Culprits), slices.Compact(f.Affected)
	if len(f.Culprits) > len(roots[0].Culprits) && f.World > 0 && 4*len(f.Culprits) > f.World {
		f.doubt(Likely, doubtMany)
	}
	f.Waiting = slices.DeleteFunc(slices.Clone(f.Waiting), func(rank int) bool { return has(f.Culprits, rank) })
	if len(f.Culprits) > 1 && f.Does != "" && !f.Local {
		f.Does = fmt.Sprintf("of rank %d, %s", f.rank, f.Does)
	}
	f.Stop = "stop-" + f.ID
	return &f
}

// confirm holds what dumps tell against what the calls of the same start of the job told
// before: it is one stop, told twice.
func (b *callBook) confirm(r *run, f *Finding) {
	for _, name := range slices.Sorted(maps.Keys(b.runs)) {
		c := b.runs[name]
		if c.told == nil || !may(c.begun, r.begun) || !may(c.domain, r.domain) || c.name != r.name && (r.job == "" || c.job != r.job) {
			continue
		}
		if c.told.Below && (f.Kind == Stuck || f.Kind == NotStarted) {
			f.Stop = c.told.Stop
			return
		}
		blames := slices.ContainsFunc(c.told.Culprits, func(rank int) bool {
			return has(f.Culprits, rank) || len(f.Culprits) == 0 && (len(f.NoDump) == 0 || has(f.NoDump, rank))
		})
		if !blames {
			continue
		}
		f.Stop = c.told.Stop
		if at := slices.Index(f.Because, doubtNoDump); at >= 0 && len(f.Culprits) == 0 && !c.told.Circle {
			f.rank = c.told.Culprits[0]
			f.Because[at] = "that it is to blame is told by its calls alone"
			if f.Sure == Unsure {
				f.Sure = Likely
			}
		}
		return
	}
}
