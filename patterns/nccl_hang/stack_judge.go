package ncclhang

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Doubts of stacks.
const (
	doubtStacks = "which collective it is, is not seen: what the main threads of the ranks do says that they wait"
	doubtHidden = "where other ranks stand could not be read"
	doubtServes = "it waits for somebody who may be no rank of the job"
	doubtStand  = "%s %s outside, too, and may come"
	doubtPhase  = "whether it is a long phase or a loop without end"
)

// ranksByStack are the ranks of a run by where their main threads stand.
type ranksByStack struct {
	run     *callRun
	of      []*caller // by rank; nil where none of its processes stands
	waits   []int     // in a collective, for their GPU, or for a key of the store
	outside []int     // anywhere else
	hidden  []int     // nobody could read where
	ended   []int     // its process has ended, and no other one of it is known
}

// stacked groups the ranks of the run. Of several processes of a rank, as where a launcher in
// Python waits for another Python, that one counts which waits with the others, then the one that
// waits for no child.
func (r *callRun) stacked() *ranksByStack {
	s := &ranksByStack{run: r, of: make([]*caller, r.world)}
	ended, lives := make([]*caller, r.world), make([]bool, r.world)
	for _, c := range r.callers {
		if c.rank < 0 || c.rank >= r.world {
			continue
		}
		if c.end != "" {
			if other := ended[c.rank]; other == nil || c.ended > other.ended || c.ended == other.ended && c.host.PID > other.host.PID {
				ended[c.rank] = c
			}
			continue
		}
		lives[c.rank] = true
		if !c.stack.waits() && !c.stack.outside() && !c.stack.hidden() {
			continue
		}
		if other := s.of[c.rank]; other == nil || c.standsBefore(other) {
			s.of[c.rank] = c
		}
	}
	for rank, c := range s.of {
		switch {
		case c == nil && ended[rank] != nil && !lives[rank]:
			s.of[rank], s.ended = ended[rank], append(s.ended, rank)
		case c == nil:
		case c.stack.waits() && !c.stack.inDriver():
			s.waits = append(s.waits, rank)
		case c.stack.hidden():
			s.hidden = append(s.hidden, rank)
		default:
			s.outside = append(s.outside, rank)
		}
	}
	s.store()
	if len(s.waits) == 0 && !slices.ContainsFunc(s.outside, func(rank int) bool { return !s.of[rank].stack.inDriver() }) {
		s.waits, s.outside = s.outside, nil // nobody waits for them alone: what is common to them is to blame
	}
	return s
}

// store lets ranks that wait for a key of the store wait with the others, unless those wait in a collective for them
// alone: the rank that is to write the key stands elsewhere.
func (s *ranksByStack) store() {
	inStore := func(rank int) bool { return s.of[rank].stack.inStore() }
	inCollective := func(rank int) bool { return s.of[rank].stack.Class == classCollective }
	if slices.ContainsFunc(s.waits, inCollective) && !slices.ContainsFunc(s.outside, func(rank int) bool { return !inStore(rank) }) {
		return
	}
	for rank := range s.of {
		if s.of[rank] != nil && s.of[rank].end == "" && inStore(rank) {
			s.waits = append(s.waits, rank)
		}
	}
	slices.Sort(s.waits)
	s.outside = slices.DeleteFunc(s.outside, inStore)
}

func (who *caller) standsBefore(other *caller) bool {
	if mine, theirs := who.stack.waits(), other.stack.waits(); mine != theirs {
		return mine
	}
	if mine, theirs := who.stack.launches(), other.stack.launches(); mine != theirs {
		return theirs
	}
	return who.host.PID > other.host.PID
}

// byStacks says what the job waits for by the stacks of its ranks alone, on any transport and
// without a call that is seen, or where calls do not show it. Every rank must stand: while one goes
// on, the others may wait for that. nil says nothing.
func (r *callRun) byStacks(limited map[process]int64, unseen map[unseenCalls]int64, now int64) *Finding {
	if r.world < 2 || len(r.callers) < r.world {
		return r.atStart(now)
	}
	s := r.stacked()
	shown, why := false, ""
	switch {
	case s.meet() && r.comesTogether():
		return r.atStart(now)
	case len(s.waits)+len(s.outside)+len(s.hidden)+len(s.ended) < r.world:
		return r.atStart(now)
	case len(s.ended) > 0:
		return s.withoutEnded(now)
	case len(s.outside) == 0 && slices.ContainsFunc(s.hidden, func(rank int) bool { return !s.of[rank].stack.backward() }):
		return nil // those may wait with the others, or be whom they wait for
	default:
		shown, why = r.callsShow(limited, unseen)
	}
	var f *Finding
	if len(s.outside) == 0 {
		f = s.allWait(shown, now)
	} else if f = s.oneMount(now); f == nil {
		if s.lookUp() {
			f = s.nameServer(now)
		} else {
			f = s.few(shown, now)
		}
	}
	if f == nil {
		return r.atStart(now)
	}
	if why != "" {
		f.doubt(Likely, why)
	}
	return f
}

// later has the run judged again then.
func (r *callRun) later(at int64) {
	if r.again == 0 || at < r.again {
		r.again = at
	}
}

// begin begins a finding.
func (s *ranksByStack) begin(kind Kind, waits, culprits []int, now int64) *Finding {
	r := s.run
	since := now
	for _, rank := range waits {
		since = min(since, s.of[rank].stack.Since)
	}
	if len(waits) == 0 {
		for _, rank := range culprits {
			since = min(since, s.of[rank].stack.Since)
		}
	}
	f := &Finding{
		Kind: kind, Sure: Likely, Run: r.name, Job: r.job, Domain: r.domain, World: r.world, Members: r.world, Called: len(waits),
		Since: time.Unix(0, since).UTC(), Waited: time.Duration(max(0, now-since)), Waiting: waits, Culprits: culprits, rank: -1,
	}
	f.CalledBy = f.named(waits)
	if len(waits) > 1 {
		f.CalledBy = verdict.Number(len(waits)) + " ranks"
	}
	f.Affected = slices.Concat(waits, culprits, s.hidden)
	slices.Sort(f.Affected)
	if len(culprits) > 0 {
		first := s.of[culprits[0]]
		f.rank, f.Host, f.Does = culprits[0], first.host, cmp.Or(s.asks(culprits[0], now), first.stack.words())
		if len(culprits) > 1 && f.Does != "" {
			f.Does = "of rank " + strconv.Itoa(f.rank) + ", " + f.Does
		}
	}
	f.In = s.waitsIn(waits)
	s.identify(f)
	return f
}

// waitsIn is where these ranks wait: in the store, or in the one function of the library that all have called; "" where
// that is not known, or more than one.
func (s *ranksByStack) waitsIn(ranks []int) string {
	stored, call := 0, ""
	for i, rank := range ranks {
		p := &s.of[rank].stack
		if p.inStore() {
			stored++
		}
		if mine := p.calls(); i == 0 {
			call = mine
		} else if mine != call {
			call = ""
		}
	}
	switch {
	case stored == 0 && call == "":
		return ""
	case stored == 0:
		return "a collective (" + call + ")"
	case stored < len(ranks):
		return "a collective or the store"
	}
	return "the store"
}

// identify names a standstill by those who are to blame, or else wait, and since when the last of
// them stands there.
func (s *ranksByStack) identify(f *Finding) {
	of := f.Culprits
	if len(of) == 0 {
		of = f.Waiting
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%q stacks %d %d", f.Run, of[0], s.stoodLast(of))
	f.ID = fmt.Sprintf("col-%016x", h.Sum64())
	f.Stop = "stop-" + f.ID
}

// does is what the ranks do that stand outside: what speaks most against their being stuck.
func (s *ranksByStack) does(now int64) doings {
	worst, waited := stuck, s.waited()
	for _, rank := range s.outside {
		does := s.of[rank].stack.does(now, waited)
		if does == stuck && s.run.actedSince(s.of[rank], now) {
			does = acting
		} else if (does == acting || does == untold) && s.run.overdue(s.of[rank], now) {
			does = stuck
		}
		if at := s.of[rank].stack.came() + int64(answerWait); does == stuck && now < at && s.asks(rank, now) != "" {
			does = working
			s.run.laterIf(at, now)
		}
		worst = min(worst, does)
	}
	return worst
}

// asks says for whose answer a rank waits, by its sockets: a process that is no rank of the job, and may work in health.
func (s *ranksByStack) asks(rank int, now int64) string {
	who := s.of[rank]
	if p := s.run.sleepsBySockets(who, now); p != nil && !who.stack.State.Halted() {
		return p.Doing.Asks()
	}
	return ""
}

// overdue reports whether the sockets of a rank that sleeps say so. They learn its pauses from the data that it
// sends. Who looks at stacks has to find it in a collective for that, and one of short collectives is seldom found there.
// An agent that has just begun tells of the same stand anew: what the sockets said of it before counts.
func (r *callRun) overdue(who *caller, now int64) bool {
	p := r.sleepsBySockets(who, now)
	return p != nil && p.Doing.Silence == socketstall.Overdue
}

// lookTime is how old a look at a stack may be that is told now: one is taken each second (receiver stacks).
const lookTime = time.Second

// actedSince reports whether the sockets of a rank that sleeps say that it rests no more: it has done something since it was last seen
// to stand there. If it stands there again, both will say so.
func (r *callRun) actedSince(who *caller, now int64) bool {
	p := r.sleepsBySockets(who, now)
	return p != nil && p.Doing.Silence == socketstall.Usual && p.Doing.Acted > who.stack.told()-int64(lookTime)
}

// sleepsBySockets is what the sockets say of a rank that sleeps, since it came to stand there; nil where they say nothing of that.
func (r *callRun) sleepsBySockets(who *caller, now int64) *socketstall.Process {
	if r.stalls == nil || who.stack.Reason != reasonAsleep {
		return nil
	}
	p := r.stalls.Processes[socketstall.ProcessKey(who.host.Host, who.host.PID)]
	if p == nil || p.Doing.At < who.stack.came() || !p.OpenAt(now) {
		return nil
	}
	return p
}

// waited is since when a rank has slept in one collective; 0: none has, as far as is known.
func (s *ranksByStack) waited() int64 {
	since := int64(0)
	for _, rank := range s.waits {
		if p := &s.of[rank].stack; p.Reason == reasonAsleep && (since == 0 || p.Since < since) {
			since = p.Since
		}
	}
	return since
}

// few finds that a small group stands outside of the collective in which all the others wait. shown
// says that all have called it.
func (s *ranksByStack) few(shown bool, now int64) *Finding {
	// What all have called runs on a GPU whether the rank stands elsewhere or not, unless its driver has
	// not launched it.
	driver := !slices.ContainsFunc(s.outside, func(rank int) bool { return !s.of[rank].stack.inDriver() })
	launched := func(rank int) bool { return shown && !driver && s.of[rank].stack.Class == classGPU }
	if len(s.waits) == 0 || slices.ContainsFunc(s.waits, launched) {
		return nil
	}
	does, outside := s.does(now), s.outside
	if halted := slices.DeleteFunc(slices.Clone(outside), func(rank int) bool { return !s.of[rank].stack.State.Halted() }); does != stuck && len(halted) > 0 {
		does, outside = stuck, halted
	}
	f := s.begin(Outside, s.waits, outside, now)
	f.doubt(Likely, doubtStacks)
	if others := slices.DeleteFunc(slices.Clone(s.outside), func(rank int) bool { return has(outside, rank) }); len(others) > 0 {
		f.Affected = slices.Sorted(slices.Values(append(f.Affected, others...)))
		f.doubt(Likely, fmt.Sprintf(doubtStand, subject(others), plural(others, "stands", "stand")))
	}
	if len(s.hidden) > 0 {
		f.doubt(Likely, doubtHidden)
	}
	switch does {
	case acting:
		return nil // the receiver says when that has lasted for long
	case working:
		f.Kind = OutsideWorks
		f.doubt(Likely, doubtPhase)
		waited := s.waited()
		for _, rank := range outside {
			s.run.laterIf(max(s.of[rank].stack.Since, waited)+int64(tooFarTime), now)
		}
	case untold:
		if at := s.cameLast(outside) + int64(s.run.options.UnknownWait); now < at {
			s.run.later(at)
			return nil
		}
		f.doubt(Likely, doubtDoing)
	}
	if s.cameLast(s.waits)-s.cameLast(outside) > int64(tooFarTime) {
		f.doubt(Unsure, doubtFar)
	}
	if len(s.outside) > 1 && 2*len(s.outside) > s.run.world {
		f.doubt(Unsure, doubtMany)
	}
	if slices.ContainsFunc(outside, func(rank int) bool { return s.of[rank].stack.serves() }) {
		f.doubt(Unsure, doubtServes)
	}
	return f
}

// withoutEnded finds that all ranks that live wait for ranks that have ended. One that fails ends the others: it is told by its
// end. But who ends with status 0 before the others connect to it, or in a group that is not theirs, is waited for.
func (s *ranksByStack) withoutEnded(now int64) *Finding {
	if len(s.waits) == 0 || len(s.outside)+len(s.hidden) > 0 || 2*len(s.ended) > s.run.world {
		return nil
	}
	last, end := s.cameLast(s.waits), ""
	for _, rank := range s.waits {
		if p := &s.of[rank].stack; p.Class == classGPU || p.Reason != reasonAsleep && p.Reason != reasonSameCall {
			return nil
		}
	}
	for _, rank := range s.ended {
		last, end = max(last, s.of[rank].ended), cmp.Or(end, s.of[rank].end)
	}
	if at := last + int64(s.run.options.Stopped); now < at {
		s.run.later(at)
		return nil
	}
	f := s.begin(Outside, s.waits, s.ended, now)
	f.ended, f.Does = true, plural(s.ended, "its process has ended: ", "their processes have ended, that of the first with ")+end
	f.doubt(Likely, doubtStacks)
	return f
}

func (r *callRun) laterIf(at, now int64) {
	if at > now {
		r.later(at)
	}
}

// cameLast is when the last of these ranks came to stand there.
func (s *ranksByStack) cameLast(ranks []int) int64 {
	last := int64(0)
	for _, rank := range ranks {
		last = max(last, s.of[rank].stack.Since)
	}
	return last
}

// oneMount finds that all who stand outside, several ranks, wait for one file system.
func (s *ranksByStack) oneMount(now int64) *Finding {
	if len(s.outside) < 2 || s.does(now) != stuck {
		return nil
	}
	first := &s.of[s.outside[0]].stack
	for _, rank := range s.outside {
		p := &s.of[rank].stack
		if p.Storage == "" || p.Storage != first.Storage || p.State.Halted() {
			return nil
		}
	}
	f := s.begin(OneMount, s.waits, s.outside, now)
	f.Mount = first.Mount
	return f
}

// nameWait is how long ranks wait for a name server until that is told, where it is not known how long they usually do. The
// resolver asks up to three servers, each for 5 s, and all of them twice: then the look-up fails (resolv.conf(5)).
const nameWait = 30 * time.Second

// stoodLast is when the last of these ranks came to stand there, whatever it was told for first: an agent that has just begun
// knows of less.
func (s *ranksByStack) stoodLast(ranks []int) int64 {
	last := int64(0)
	for _, rank := range ranks {
		last = max(last, s.of[rank].stack.came())
	}
	return last
}

// lookUp reports whether all who stand outside wait for the answer of a name server.
func (s *ranksByStack) lookUp() bool {
	return !slices.ContainsFunc(s.outside, func(rank int) bool {
		p := &s.of[rank].stack
		return p.Class != classNameServer || p.State.Halted()
	})
}

// nameServer tells of that: often all ranks, as they start, ask for the address of their store. Then nobody waits for them. At the
// start of a job nobody knows how long its look-ups take.
func (s *ranksByStack) nameServer(now int64) *Finding {
	starts := len(s.waits) == 0 || slices.ContainsFunc(s.waits, func(rank int) bool { return s.of[rank].stack.meets() })
	if at := s.stoodLast(s.outside) + int64(nameWait); now < at && (starts || s.does(now) != stuck) {
		s.run.later(at)
		return nil
	}
	f := s.begin(NameServer, s.waits, s.outside, now)
	between(f, s.outsiders(), func(c *caller) socketstall.Identity { return c.host })
	if len(f.Hosts) > 0 {
		f.Host = socketstall.Identity{}
	}
	return f
}

// outsiders are the processes of the ranks that stand outside.
func (s *ranksByStack) outsiders() iter.Seq[*caller] {
	return func(yield func(*caller) bool) {
		for _, rank := range s.outside {
			if !yield(s.of[rank]) {
				return
			}
		}
	}
}

// allWait finds that every rank has waited in a collective, for its GPU, or for its threads of backward, for longer than a
// collective takes, and that nothing else of their processes goes on. Long work of GPUs looks the
// same from outside where nobody is in a collective; and what calls show is told by them. Where all are in collectives or in
// the store and no data of any of them moves, for longer than it ever rests, nothing is left to wait for. Nor is it where they
// wait for each other: then no collective is slow that is to be waited for.
func (s *ranksByStack) allWait(shown bool, now int64) *Finding {
	if shown {
		return nil
	}
	r := s.run
	newest, forRanks, silent := int64(0), 0, true
	for _, c := range s.of {
		p := &c.stack
		quiet := r.overdue(c, now)
		if p.Reason != reasonAsleep || p.Doing.Silence != socketstall.Overdue && !quiet {
			return nil
		}
		waits := p.Class == classCollective || p.inStore()
		if waits {
			forRanks++
		}
		newest, silent = max(newest, p.Since), silent && quiet && waits
	}
	if 2*forRanks < r.world {
		return nil
	}
	circle, odd := s.eachOther(now)
	patience := s.patience(circle != nil)
	if r.stalls != nil && len(r.stalls.Outside(now)) > 0 { // a rank waits for a process that is none, which may generate or compute for long
		patience, silent = outsideWait, false
	}
	if at := newest + patience; now < at && !silent {
		r.later(at)
		return nil
	}
	return s.below(circle, odd, now)
}

// below begins a finding about ranks that all wait: for each other, where there is a circle, of which some may be odd.
func (s *ranksByStack) below(circle, odd []int, now int64) *Finding {
	f := s.begin(AllWait, s.waits, nil, now)
	f.stands = s.of
	if f.Detail = s.elsewhere(); f.Detail != "" && s.inCollectives() {
		f.Kind = Apart
	}
	if circle != nil {
		f = s.begin(EachOther, besides(s.waits, odd), odd, now)
		f.stands, f.Does, f.Detail = s.of, "", s.eachOtherText(circle, odd)
	}
	if slices.ContainsFunc(s.waits, func(rank int) bool { return s.of[rank].stack.inStore() }) {
		f.Kind, f.Detail = Apart, s.stores()
	}
	if lack := s.run.lack(); lack != "" {
		f.Kind, f.Detail = Apart, lack
	}
	between(f, slices.Values(s.of), func(c *caller) socketstall.Identity { return c.host })
	f.doubt(Likely, doubtBelow)
	if len(s.hidden) > 0 {
		f.doubt(Likely, fmt.Sprintf(doubtBackward, subject(s.hidden), plural(s.hidden, "stands", "stand")))
	}
	return f
}

// inCollectives reports whether all wait in collectives. Where a thread waits for its GPU says less of what that does.
func (s *ranksByStack) inCollectives() bool {
	return !slices.ContainsFunc(s.of, func(c *caller) bool { return c.stack.Class != classCollective })
}

// elsewhere says which few ranks wait at another place of the program than most others, and of two ranks that they wait
// at two. Nobody is to blame by that: stages of a pipeline do, ranks that call one collective at two lines, and one that
// left a collective before the others.
func (s *ranksByStack) elsewhere() string {
	places, most, world := map[string][]int{}, "", s.run.world
	for rank, c := range s.of {
		places[c.stack.Hash] = append(places[c.stack.Hash], rank)
	}
	if len(places) == 1 || len(places[""]) > 0 {
		return ""
	}
	for hash, ranks := range places {
		if n := len(ranks); 4*n >= 3*world || n == world-1 && (n > 1 || ranks[0] == 0) {
			most = hash
		}
	}
	if most == "" {
		return s.placesKnown()
	}
	var others []int
	for rank, c := range s.of {
		if c.stack.Hash != most {
			others = append(others, rank)
		}
	}
	theirs, line := "the others", s.of[places[most][0]].stack.Where
	if len(places[most]) == 1 {
		theirs = subject(places[most])
	}
	if at := s.of[others[0]].stack.Where; at != "" && line != "" && len(places) == 2 {
		return socketstall.Clip(subject(others) + plural(others, " waits", " wait") + " at " + at + ", and " + theirs + " at " + line)
	}
	return subject(others) + plural(others, " waits", " wait") + " at another place of the program than " + theirs
}

// placesKnown says which ranks wait where, "" where a line is not known.
func (s *ranksByStack) placesKnown() string {
	if slices.ContainsFunc(s.of, func(c *caller) bool { return c.stack.Where == "" }) {
		return ""
	}
	return socketstall.Clip(placesText(s.places(s.waits), "", 0))
}

// words says what a process does whose main thread stands.
func (p *stackPlace) words() string {
	switch halted := p.State.Halted(); {
	case p.inDriver() && p.Function != "" && p.Owner != "":
		return "its main thread is blocked in the kernel, in " + p.Function + " of " + p.Owner
	case p.Reason == reasonSpins && !halted:
		return "its main thread executes nothing but a loop"
	case p.Reason == reasonSameCall && p.Doing.Activity == "" && !halted:
		return "its main thread is in the same call all the time"
	}
	return doesInWords(p.State, &p.Doing)
}
