package ncclhang

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	starts "github.com/tracecoreai/tracecore/patterns/engine/run"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// Bounds and times of what calls tell.
const (
	maxSkew = 10 * time.Second
	// maxWindows bounds the windows of last collectives that are held. Ranks of a
	// communicator that stand in one place share one.
	maxWindows = 65_536
	// keepCalls is how long a communicator that stands is remembered: a job of which
	// nobody says more has gone with its hosts.
	keepCalls = 2 * time.Hour
	// keepMoving is how long it is remembered that a rank calls again: a record of its
	// standstill may arrive after that.
	keepMoving = time.Minute
	// longestSettle is after how many times Options.Settle a run is judged that never gets quiet.
	longestSettle = 10
)

// callRun is what the processes of one start of a job say of their communicators.
type callRun struct {
	options                  *Options
	name, job, domain, begun string
	anew                     map[int]string // by rank: a later start, of which only some ranks began again alone
	world                    int
	comms                    map[string]*communicator
	callers                  map[process]*caller
	shares                   map[string]*callShare // by host
	element                  *fairlru.Element[*callRun]
	texts                    map[string]string

	heard, pending int64 // newest and first record that no round has seen
	again          int64 // when time alone changes something, 0 never
	last           int64 // when the newest record arrived
	lost           bool  // records of it were given up: cap
	told           *toldStop
	held           int64 // since when there is a stop that is not told
	stopped        int64 // when a rank of it ended last because somebody ends the job
	asked          int64 // when a rank of it was asked first to end with its job, and lived on
	askedLast      int64 // and when one was last: who asks again and again ends nothing
	watched        int64 // when it was last said that data of the job moves over sockets that are watched
	resumed        int64 // when this program began anew, with what was known of the run before

	stalls  *socketstall.Job       // of its sockets, as the round finds them; nil for none
	running map[int]starts.Process // by rank, those of this start that were seen, as the round finds them
}

// toldStop is what was told of a run, until it is taken back.
type toldStop struct {
	Stop     string `json:"stop"`
	Comm     string `json:"comm"`
	Desc     string `json:"desc"`
	Culprits []int  `json:"culprits,omitempty"`
	Circle   bool   `json:"circle,omitempty"` // they wait for each other
	Below    bool   `json:"below,omitempty"`  // all have called it
	Own      string `json:"own,omitempty"`    // the name that the finding itself would have
	Stacks   bool   `json:"stacks,omitempty"` // stacks alone tell it
	Start    bool   `json:"start,omitempty"`  // the job does not come together
	Device   string `json:"device,omitempty"` // GPU that was named
	Said     string `json:"said"`             // all of it
	At       int64  `json:"at,omitempty"`     // when that was told
}

type process struct {
	host string
	pid  int64
}

// callShare is what one host holds of one run: it takes room as a whole.
type callShare struct {
	run     *callRun
	host    string
	element *fairlru.Element[*callShare]
	callers map[*caller]struct{}
	size    int // callers, and their places
}

// caller is a process that calls NCCL.
type caller struct {
	host   socketstall.Identity
	rank   int // in the job, -1 not known
	world  int // ranks of the job by its own word, 0 where it does not say
	at     int64
	state  socketstall.State
	doing  socketstall.Doing
	unread bool   // it calls on communicators that nobody can tell apart
	gpu    string // PCI address of the one that it calls for, "" not known, or severalGPUs
	stack  stackPlace
	end    string // how it ended, where that was told
	ended  int64  // when that was
	early  string // hash of a stack of which it is known what the process does, and nothing else yet
	places []placeOf
}

// placeOf is a place of a caller, seen from the caller.
type placeOf struct {
	comm *communicator
	rank int
}

// communicator is what its ranks say.
type communicator struct {
	name     string
	size     int
	places   map[int]*place // by rank in it
	windows  map[uint64][]calledAt
	disputed bool // two processes say that they are the same rank of it, or they differ about its size
	heard    int64

	dirty   bool     // something of it has changed since the last round
	again   int64    // when time alone changes something, 0 never
	finding *Finding // of the last round
	even    evenness // of ranks that all stand
}

// evenness says how far the ranks of a communicator have called the same.
type evenness uint8

const (
	uneven    evenness = iota // a rank goes on, or lacks a call, or nobody knows
	alike                     // every rank has called the same, and stands
	waiting                   // ranks lack a call, and wait themselves, by their stacks
	uncounted                 // their numbers cannot be compared, and all stand
	pairwise                  // none has called a collective: they send and receive alone, and stand
)

// place is where one rank of a communicator stands.
type place struct {
	caller    *caller
	at        int64 // of the record
	standing  bool  // it calls no more
	making    bool  // it waits in the function that makes the communicator, or has not used it since
	ended     bool  // its process has ended while it stood
	left      bool  // its process has ended the communicator
	exact     bool
	aligned   bool // not exact, but its number is that of NCCL itself
	graphs    bool
	number    int64 // collectives that it has called; of those in an open group the last does not count
	grouped   bool  // the last is in a group that has not ended
	last      int64
	since     int64 // of making
	operation string
	peer      int
	window    []calledAt
}

// callBook is what the ranks of all jobs say of their communicators. Its room is shared
// between hosts, domains and runs.
type callBook struct {
	options *Options
	runs    map[string]*callRun
	order   *fairlru.List[*callRun]
	shares  *fairlru.List[*callShare]
	limited map[process]int64     // whose calls are not counted, and when that was told
	unseen  map[unseenCalls]int64 // when that was told last
	gpus    *gpuBook
	windows int
	swept   int64

	callCounts
}

// callCounts are since the start of the program.
type callCounts struct{ records, invalid, evicted, unidentified int64 }

func newCallBook(options *Options) *callBook {
	return &callBook{
		options: options, runs: map[string]*callRun{}, order: &fairlru.List[*callRun]{}, shares: &fairlru.List[*callShare]{},
		limited: map[process]int64{}, unseen: map[unseenCalls]int64{}, gpus: newGPUBook(),
	}
}

// take takes in a record, and reports whether it changes anything.
func (b *callBook) take(c *callRecord, begun start, now int64) bool {
	b.ofStart(c, begun, now)
	if c.event == rule.EventExit || c.event == rule.EventGone {
		return b.exit(c, begun, now)
	}
	if c.event == rule.EventAsked {
		b.ask(c, begun, now)
		return false
	}
	b.records++
	switch c.event {
	case eventCallLimited:
		return b.limit(c, now)
	case socketstall.EventWatched:
		return b.watch(c, begun, now)
	}
	r := b.run(c, begun)
	who := b.caller(r, c)
	if who == nil {
		return false
	}
	r.last = now
	b.order.Touch(r.element, fairlru.Some)
	r.job, r.domain, r.world = cmp.Or(r.job, c.job), cmp.Or(r.domain, c.domain), max(r.world, c.world)
	if c.ofStack() {
		r.shareStack(&c.stack)
	}
	who.world = max(who.world, c.world)
	changed := who.learn(c)
	if c.gpu != "" && c.gpu != who.gpu {
		if who.gpu == "" {
			who.gpu = r.one(c.gpu)
		} else { // nobody knows for which of them it calls now
			who.gpu = severalGPUs
		}
	}
	switch {
	case c.event == eventCallDoing || c.ofStack():
		for _, at := range who.places {
			at.comm.heard = max(at.comm.heard, c.at) // its ranks stand yet
		}
	case c.unidentified:
		b.unidentified++
		changed = changed || !who.unread
		who.unread = true
	default:
		changed = b.stand(r, who, c) || changed
		if begun.own != begun.of && r.anew[who.rank] != begun.own {
			r.anew, changed = put(r.anew, who.rank, begun.own), true
		}
	}
	if changed {
		who.touch()
	} else if !r.dueAgain() {
		return false
	}
	r.changed(now)
	return true
}

// watch notes that the sockets of a run would be told if they stalled. It takes no room from runs
// of which more is known.
func (b *callBook) watch(c *callRecord, begun start, now int64) bool {
	if len(b.runs) >= b.options.Runs && b.runs[socketstall.RunName(c.run, begun.of)] == nil {
		return false
	}
	r := b.run(c, begun)
	b.order.Touch(r.element, fairlru.Some)
	r.last, r.watched = now, now
	if c.moving != 0 && r.moved(c) {
		r.changed(now)
	}
	return true
}

// moved ends what was told of the stacks of a host before its agent began to watch the job: all ranks there
// have moved data since. It reports whether that changed anything.
func (r *callRun) moved(c *callRecord) bool {
	here := r.shares[c.host.Host]
	if here == nil {
		return false
	}
	changed := false
	for who := range here.callers {
		if who.stack.Standing && who.stack.told() < c.moving {
			who.stack, who.early, changed = stackPlace{At: c.moving, Doing: socketstall.Doing{At: c.moving, Silence: socketstall.Usual}}, "", true
		}
	}
	return changed
}

// Resumed notes that this program goes on at that time with what an earlier process has left.
func (j *Join) Resumed(now time.Time) {
	for _, r := range j.calls.runs {
		r.resumed, r.held = now.UnixNano(), 0
	}
}

// exit notes that a process has ended, and how. As a record of sockets that are watched it takes no
// room from runs of which more is known.
func (b *callBook) exit(c *callRecord, begun start, now int64) bool {
	r := b.runs[socketstall.RunName(c.run, begun.of)]
	if c.stops && (r != nil || len(b.runs) < b.options.Runs) {
		r = b.run(c, begun)
		b.order.Touch(r.element, fairlru.Some)
		r.last, r.stopped = now, max(r.stopped, min(c.at, now)) // a clock that is ahead hides nothing
	}
	if r == nil {
		return false
	}
	who := r.callers[process{c.host.Host, c.host.PID}]
	if who == nil || who.end != "" {
		return c.stops
	}
	who.end, who.ended = r.one(c.end), c.at
	for _, at := range who.places {
		p := at.comm.places[at.rank]
		if p.at > c.at || !p.standing && c.event != rule.EventGone {
			continue // the receiver of calls tells of its end, and how many it had called
		}
		if c.event == rule.EventGone { // it may have called more
			p.exact, p.aligned, p.window = false, false, nil
		}
		p.at, p.standing, p.ended = c.at, false, true
	}
	who.touch()
	r.changed(now)
	return true
}

// anotherAsk is after how long without a rank that was asked to end the next one counts as the first.
const anotherAsk = 10 * time.Minute

// ask notes that a rank was asked to end with its job, and lives. As its end it takes no room from runs of which more
// is known.
func (b *callBook) ask(c *callRecord, begun start, now int64) {
	if len(b.runs) >= b.options.Runs && b.runs[socketstall.RunName(c.run, begun.of)] == nil {
		return
	}
	r := b.run(c, begun)
	b.order.Touch(r.element, fairlru.Some)
	at := min(c.at, now)
	if r.asked == 0 || at > r.askedLast+int64(anotherAsk) {
		r.asked = at
	}
	r.last, r.asked, r.askedLast = now, min(r.asked, at), max(r.askedLast, at)
}

// limit notes that the calls of a process are not counted any more, or are again.
func (b *callBook) limit(c *callRecord, now int64) bool {
	who := process{c.host.Host, c.host.PID}
	if c.unseen != "" {
		return b.blind(who, c, now)
	}
	_, known := b.limited[who]
	switch {
	case !c.limited:
		delete(b.limited, who)
	case known || len(b.limited) < maxRanks:
		b.limited[who] = c.at
	}
	if _, is := b.limited[who]; is == known {
		return false
	}
	for _, r := range b.runs {
		if caller := r.callers[who]; caller != nil && len(caller.places) > 0 {
			caller.touch()
			r.changed(now)
		}
	}
	return true
}

// unseenCalls is a process of which not all calls are seen, and one reason.
type unseenCalls struct {
	process
	why string
}

// blind notes that not all calls of a process are seen.
func (b *callBook) blind(who process, c *callRecord, now int64) bool {
	one := unseenCalls{who, c.unseen}
	before, known := b.unseen[one]
	if !known && len(b.unseen) >= maxRanks {
		return false
	}
	b.unseen[one] = max(before, c.at)
	if known {
		return false
	}
	for _, r := range b.runs {
		if r.callers[who] != nil {
			r.changed(now)
		}
	}
	return true
}

// touch has the communicators of a process judged again.
func (who *caller) touch() {
	for _, at := range who.places {
		at.comm.dirty = true
	}
}

// changed has the run judged again.
func (r *callRun) changed(now int64) {
	r.heard = now
	if r.pending == 0 {
		r.pending = now
	}
}

// stalled has a run judged again where its sockets say that a rank has rested for too long which stands outside of
// collectives, or which waits with all others and nothing is told of that yet. It reports whether they do.
func (b *callBook) stalled(s *socketstall.Record, now int64) bool {
	r := b.runs[s.Job]
	if r == nil || s.Ended() || s.Doing.Silence != socketstall.Overdue {
		return false
	}
	who := r.callers[process{s.Host, s.PID}]
	switch {
	case who == nil:
		return false
	case who.stack.outside() && who.stack.Doing.Silence != socketstall.Overdue:
	case r.told != nil || !who.stack.waits():
		return false
	}
	r.changed(now)
	return true
}

// run finds or makes the run of a record.
func (b *callBook) run(c *callRecord, begun start) *callRun {
	name := socketstall.RunName(c.run, begun.of)
	if r := b.runs[name]; r != nil {
		return r
	}
	if len(b.runs) >= b.options.Runs {
		victim, _ := b.order.Victim()
		b.evict(victim.Value)
	}
	r := &callRun{
		options: b.options, name: name, begun: begun.of, domain: c.domain, comms: map[string]*communicator{}, callers: map[process]*caller{}, shares: map[string]*callShare{},
		texts: map[string]string{},
	}
	b.enter(r, c.host.Host)
	return r
}

func (b *callBook) enter(r *callRun, host string) {
	b.runs[r.name] = r
	r.element = b.order.Add(r, fairlru.Some, host, r.domain)
}

func (b *callBook) evict(r *callRun) {
	for _, s := range r.shares {
		b.evicted += int64(s.size)
	}
	b.forget(r)
}

func (b *callBook) forget(r *callRun) {
	for _, s := range r.shares {
		b.shares.Remove(s.element)
	}
	for _, c := range r.comms {
		b.windows -= len(c.windows)
	}
	b.order.Remove(r.element)
	delete(b.runs, r.name)
}

// caller finds or makes the process of a record, nil where there is no room for it.
func (b *callBook) caller(r *callRun, c *callRecord) *caller {
	key := process{c.host.Host, c.host.PID}
	if known := r.callers[key]; known != nil {
		return known
	}
	if !b.room(r, key.host) {
		return nil
	}
	made := &caller{host: c.host, rank: c.rank} // its rank comes with its first record
	r.shareTexts(&made.host)
	b.add(r, made)
	return made
}

func (b *callBook) add(r *callRun, c *caller) {
	host := c.host.Host
	r.callers[process{host, c.host.PID}] = c
	s := r.shares[host]
	if s == nil {
		s = &callShare{run: r, host: host, callers: map[*caller]struct{}{}}
		s.element = b.shares.Add(s, fairlru.Some, host, r.domain, r.name)
		r.shares[host] = s
	}
	s.callers[c] = struct{}{}
	b.grow(s, 1)
}

func (b *callBook) grow(s *callShare, more int) {
	s.size += more
	b.shares.Resize(s.element, max(s.size, 1))
}

// room makes room for one more of that host and run: the host that holds most gives way,
// and on it the domain and the run. False: it is the one that holds most.
func (b *callBook) room(r *callRun, host string) bool {
	if b.shares.Size() < b.options.Calls {
		return true
	}
	victim, _ := b.shares.Victim()
	s := victim.Value
	s.run.lost = true
	if s.run == r && s.host == host {
		b.evicted++
		return false
	}
	b.evicted += int64(s.size)
	b.drop(s)
	return true
}

// drop forgets what one host holds of one run.
func (b *callBook) drop(s *callShare) {
	for c := range s.callers {
		for _, at := range c.places {
			delete(at.comm.places, at.rank)
			at.comm.dirty = true
		}
		delete(s.run.callers, process{c.host.Host, c.host.PID})
	}
	b.shares.Remove(s.element)
	delete(s.run.shares, s.host)
}

// learn takes what the process does, unless something newer is known.
func (who *caller) learn(c *callRecord) bool {
	if c.ofStack() {
		return who.stacks(c)
	}
	switch {
	case c.at < who.at:
		return false
	case c.event == eventCallMoving:
		c.doing = socketstall.Doing{At: c.at, Silence: socketstall.Usual} // it calls
	case c.event != eventCallStopped && c.event != eventCallDoing:
		return false
	}
	changed := who.state != c.state || who.doing.Silence != c.doing.Silence || who.doing.Activity != c.doing.Activity
	who.at, who.state, who.doing = c.at, c.state, c.doing
	if who.rank < 0 && c.rank >= 0 {
		who.rank, changed = c.rank, true
	}
	return changed
}

// stand takes where the process stands in a communicator.
func (b *callBook) stand(r *callRun, who *caller, c *callRecord) bool {
	comm := r.comms[c.comm]
	if comm == nil {
		comm = &communicator{name: r.one(c.comm), size: c.commSize, places: map[int]*place{}, windows: map[uint64][]calledAt{}}
		r.comms[comm.name] = comm
	}
	comm.heard = max(comm.heard, c.at)
	if comm.size != c.commSize {
		comm.disputed = true
		return true
	}
	at := comm.places[c.commRank]
	switch {
	case at == nil:
		if !b.room(r, who.host.Host) {
			return false
		}
		at = &place{caller: who}
		comm.places[c.commRank] = at
		who.places = append(who.places, placeOf{comm, c.commRank})
		b.grow(r.shares[who.host.Host], 1)
	case c.at < at.at:
		return false // a later one has come before it
	case at.caller != who && (at.ended || !at.standing): // that process has gone, or never stood
		at.caller.leave(comm, c.commRank)
		b.grow(r.shares[at.caller.host.Host], -1)
		who.places = append(who.places, placeOf{comm, c.commRank})
		b.grow(r.shares[who.host.Host], 1)
	case at.caller != who:
		comm.disputed = true
		return true
	}
	if at.left && c.event != eventCallEnd {
		comm.reuse()
	}
	caller := who
	*at = place{
		caller: caller, at: c.at, standing: c.event == eventCallStopped || c.event == eventCallInit, making: c.event == eventCallInit, ended: c.event == eventCallEnd && c.exited,
		left:  c.event == eventCallEnd && c.left,
		exact: c.exact || c.event == eventCallInit, aligned: c.aligned, graphs: c.graphs, number: c.number, grouped: c.grouped, last: c.last, since: c.since, operation: r.one(cmp.Or(c.function, c.operation)), peer: c.peer,
		window: b.window(r, comm, c.window),
	}
	comm.dirty = true
	return true
}

// reuse takes back who has left: another communicator has the same name. Two splits of one
// communicator with one color have, before NCCL 2.24.
func (c *communicator) reuse() {
	for _, p := range c.places {
		p.left = false
	}
}

func (who *caller) leave(comm *communicator, rank int) {
	who.places = slices.DeleteFunc(who.places, func(p placeOf) bool { return p.comm == comm && p.rank == rank })
}

// window is one that others of the communicator have, too, where there is one; nil beyond
// the bound.
func (b *callBook) window(r *callRun, comm *communicator, window []calledAt) []calledAt {
	if len(window) == 0 {
		return nil
	}
	hash := windowHash(window)
	if known, found := comm.windows[hash]; found {
		if slices.Equal(known, window) {
			return known
		}
		return nil
	}
	if b.windows >= maxWindows {
		return nil
	}
	b.windows++
	for i := range window {
		window[i].what = r.one(window[i].what)
	}
	comm.windows[hash] = window
	return window
}

func windowHash(window []calledAt) uint64 {
	h := fnv.New64a()
	var number [8]byte
	for i := range window {
		binary.LittleEndian.PutUint64(number[:], uint64(window[i].number)) //nolint:gosec // never below zero
		_, _ = h.Write(number[:])
		_, _ = h.Write([]byte(window[i].what))
	}
	return h.Sum64()
}

func (r *callRun) one(s string) string {
	if known, found := r.texts[s]; found {
		return known
	}
	if len(r.texts) < maxTexts {
		r.texts[s] = s
	}
	return s
}

func (r *callRun) shareStack(p *stackPlace) {
	for _, s := range []*string{&p.Class, &p.Reason, &p.Function, &p.Owner, &p.Mount, &p.Storage, &p.Hash} {
		*s = r.one(*s)
	}
}

func (r *callRun) shareTexts(h *socketstall.Identity) {
	for _, s := range []*string{&h.Host, &h.Node, &h.Process, &h.Namespace, &h.Workload} {
		*s = r.one(*s)
	}
}

// sweep forgets what is over: communicators in which nobody stands, and processes that
// stand in none.
func (b *callBook) sweep(now int64) {
	if now-b.swept < int64(keepMoving)/2 {
		return
	}
	b.swept = now
	maps.DeleteFunc(b.limited, func(_ process, at int64) bool { return now-at >= int64(keepCalls) })
	maps.DeleteFunc(b.unseen, func(_ unseenCalls, at int64) bool { return now-at >= int64(keepCalls) })
	for _, name := range slices.Sorted(maps.Keys(b.runs)) {
		r := b.runs[name]
		for _, comm := range r.comms {
			if old := now - comm.heard; old >= int64(keepCalls) || old >= int64(keepMoving) && !comm.stands() {
				b.leave(r, comm)
			}
		}
		waited := r.mayWaitForEnded()
		for _, s := range r.shares {
			for c := range s.callers {
				if len(c.places) == 0 && c.old(now) && !waited {
					delete(s.callers, c)
					delete(r.callers, process{c.host.Host, c.host.PID})
					b.grow(s, -1)
				}
			}
			if len(s.callers) == 0 {
				b.shares.Remove(s.element)
				delete(r.shares, s.host)
			}
		}
		if len(r.callers) == 0 && r.pending == 0 && now-r.last >= int64(keepMoving) && !r.sockets(now) && !r.stopping(now) {
			b.forget(r)
		}
	}
}

// old reports whether nothing is left of a process that calls on no communicator.
func (who *caller) old(now int64) bool {
	keep := keepMoving
	if who.stack.Standing {
		keep = keepCalls
	}
	return now-max(who.at, who.stack.At, who.stack.Doing.At) >= int64(keep)
}

// mayWaitForEnded reports whether a living process of the run stands, by its stack, and another one has ended: then it counts
// which ranks have another process.
func (r *callRun) mayWaitForEnded() bool {
	stands, ended := false, false
	for _, c := range r.callers {
		stands, ended = stands || c.end == "" && c.stack.Standing, ended || c.end != ""
	}
	return stands && ended
}

// stands reports whether a living process stands in it.
func (c *communicator) stands() bool {
	for _, p := range c.places {
		if p.standing {
			return true
		}
	}
	return false
}

func (b *callBook) leave(r *callRun, comm *communicator) {
	for rank, p := range comm.places {
		p.caller.leave(comm, rank)
		b.grow(r.shares[p.caller.host.Host], -1)
	}
	b.windows -= len(comm.windows)
	delete(r.comms, comm.name)
}

// held is how many places and processes are held.
func (b *callBook) held() int64 {
	n := int64(0)
	b.shares.Each(func(s *callShare) { n += int64(s.size) })
	return n
}

// sockets reports whether data of the job moves over sockets whose stall would be told, as far as
// is known.
func (r *callRun) sockets(now int64) bool {
	return r.watched != 0 && now-r.watched < int64(socketstall.Unwatched)
}

// stopping reports whether somebody ends the job, as ranks of it ended lately, or were asked to and live: what is left
// of it may wait for them, until it is killed.
func (r *callRun) stopping(now int64) bool {
	return now < r.stoppedUntil()
}

// stoppedUntil is until when it is, 0 where nobody did.
func (r *callRun) stoppedUntil() int64 {
	if last := max(r.stopped, r.asked); last != 0 {
		return last + int64(r.options.Stopped)
	}
	return 0
}

// due is when the run is to be judged, 0 when nothing waits.
func (r *callRun) due() int64 {
	due := r.again
	if r.pending != 0 {
		if at := min(r.heard+int64(r.options.Settle), r.pending+longestSettle*int64(r.options.Settle)); due == 0 || at < due {
			due = at
		}
	}
	return due
}
