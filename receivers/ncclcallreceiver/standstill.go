package ncclcallreceiver

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclcall"
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// standstill remembers which communicators are used. It holds what the probe's map
// holds, which is bounded.
type standstill struct {
	patience  time.Duration
	known     map[key]*place
	processes map[uint32]*process
	inits     map[identity.Born][]*making
	limits    map[uint32]ncclcall.Limit // of processes, at the last scan
	round     int
	arrivals  *arrivals
	// does says what processes do, of those that can be read.
	does func(pids []uint32) map[uint32]*activity.Process
	// meets makes a process that is new here.
	meets func(pid uint32, at time.Time) *process
}

// key is one rank of a communicator.
type key struct {
	pid     uint32
	address uint64
}

// place is where it stands.
type place struct {
	calls    [ncclcall.Operations]uint64
	total    uint64
	last     time.Time
	launches uint64          // of CUDA graphs, before the last call as far as is known
	replays  bool            // it was told that graphs were launched since
	rests    activity.Pauses // between its calls
	stopped  bool
	grouped  bool                  // it was told that its last call is in a group that has not ended
	used     int                   // round in which it was last seen to be used
	seen     ncclcall.Communicator // as the last scan had it
	twin     bool                  // the process has another that nobody can tell from it
	ending   string                // why it is about to be gone
	endedAt  time.Time             // of that
}

// making is a call of a function that makes a communicator. Where it makes it of another, rank and size
// are those in that; rank -1: not known.
type making struct {
	event ncclcall.Event
	by    identity.Process
	told  time.Time // the last time; zero for not
}

// Bounds and times of inits that are waited for.
const (
	initPatience  = 10 * time.Second // ranks come apart
	maxInits      = 64               // of a process; the oldest are forgotten
	maxInitialize = 4096             // processes, between domains
)

// what is told.
type what uint8

const (
	stopped what = iota // a communicator is used no more
	moving              // it is used again
	ended               // it is gone
	doing               // a process does something else
	waiting             // it waits in a function that makes a communicator
	done                // it does not any more
	arrival             // when it made some of its calls
)

// change is what is told of a communicator, or of a process.
type change struct {
	*ncclcall.Communicator // nil of doing, waiting and done
	what                   what
	pid                    uint32
	by                     *identity.Process // of waiting and done, as it was known then
	at                     time.Time
	idle                   time.Duration // without a call
	launches               uint64        // of CUDA graphs meanwhile, at least
	process                *process      // nil where nothing is known of what it does
	init                   *ncclcall.Event
	signal                 identity.Signal
	reason                 string // of an end
	twins                  bool   // the process has two communicators that nobody can tell apart
	samples                []ncclcall.Sample
	peers                  []uint64 // communicators on which the process sends and receives
}

// look is what one scan came to.
type look struct {
	changes []change
	calls   [ncclcall.Operations]uint64 // since the last
	limited []limited                   // limits that have changed
	unknown int                         // communicators without rank and size
}

func newStandstill(patience, arrivalInterval time.Duration) *standstill {
	return &standstill{
		patience: patience, arrivals: newArrivals(arrivalInterval), known: map[key]*place{}, processes: map[uint32]*process{}, inits: map[identity.Born][]*making{},
		does:  func([]uint32) map[uint32]*activity.Process { return nil },
		meets: func(uint32, time.Time) *process { return &process{} },
	}
}

// silent are the processes that use none of their communicators any more, and since when.
func (s *standstill) silent() map[uint32]time.Time {
	last, uses := map[uint32]time.Time{}, map[uint32]bool{}
	for k, p := range s.known {
		if p.total == 0 {
			continue
		}
		if uses[k.pid] = uses[k.pid] || !p.stopped; p.last.After(last[k.pid]) {
			last[k.pid] = p.last
		}
	}
	maps.DeleteFunc(last, func(pid uint32, _ time.Time) bool { return uses[pid] })
	return last
}

// look compares a scan with those before.
func (s *standstill) look(scan *ncclcall.Scan) look {
	l := look{limited: s.limited(scan)}
	s.round++
	there := make(map[key]bool, len(scan.Communicators))
	moved := map[uint32]*calls{}
	for i := range scan.Communicators {
		c := &scan.Communicators[i]
		k := key{c.PID, c.Address}
		there[k] = true
		if c.Identity != ncclcall.Known {
			l.unknown++
		}
		s.count(scan, c, k, &l, moved)
	}
	s.see(scan, moved)
	s.lookInto(scan.Time)
	twins := twinsOf(scan)
	l.changes = append(l.changes, s.arrivals.look(scan, twins)...)
	for i := range scan.Communicators {
		c := &scan.Communicators[i]
		s.stand(scan, c, twins[c], &l)
	}
	s.gone(scan, there, &l)
	s.doings(scan.Time, &l)
	s.makings(scan, &l)
	return l
}

// limited is a process of which other calls are counted than before.
type limited struct {
	pid   uint32
	limit ncclcall.Limit
}

// limited compares limits with those of the scan before.
func (s *standstill) limited(scan *ncclcall.Scan) (changed []limited) {
	before := s.limits
	s.limits = scan.Limited
	for pid := range before {
		if _, still := scan.Limited[pid]; !still {
			changed = append(changed, limited{pid, ncclcall.Unlimited})
		}
	}
	for pid, limit := range scan.Limited {
		if before[pid] != limit {
			changed = append(changed, limited{pid, limit})
		}
	}
	slices.SortFunc(changed, func(a, b limited) int { return cmp.Compare(a.pid, b.pid) })
	return changed
}

// calls are those of one process since the scan before.
type calls struct {
	total       uint64
	first, last time.Time
}

// count takes the calls on a communicator.
func (s *standstill) count(scan *ncclcall.Scan, c *ncclcall.Communicator, k key, l *look, moved map[uint32]*calls) {
	total := c.Collectives + c.PointToPoint()
	p := s.known[k]
	if p == nil || total < p.total || p.ending != "" && c.First.After(p.endedAt) { // another one at the same address
		if p != nil && p.tellsEnd() {
			l.changes = append(l.changes, p.end(scan.Time, cmp.Or(p.ending, "destroyed")))
		}
		p = &place{}
		s.known[k] = p
	}
	if p.ending == "" {
		p.seen = *c
		p.seen.Recent, p.seen.Samples = nil, nil
	}
	l.add(p, &c.Calls)
	m := moved[c.PID]
	if m == nil {
		m = &calls{}
		moved[c.PID] = m
	}
	m.total += total
	if c.Last.Time.After(m.last) {
		m.last = c.Last.Time
	}
	if total == p.total {
		return
	}
	began := c.Last.Time
	if p.total > 0 {
		began = goesOn(c, p.last)
		if gap := began.Sub(p.last); gap >= activity.Least && !s.faulty(c.PID) {
			p.rests.Learn(began, gap, "")
		}
	}
	if m.first.IsZero() || began.Before(m.first) {
		m.first = began
	}
	if p.stopped {
		l.changes = append(l.changes, change{Communicator: c, what: moving, pid: c.PID, at: began, idle: began.Sub(p.last)})
	}
	p.total, p.last, p.stopped, p.replays, p.used = total, c.Last.Time, false, false, s.round
	graphs := scan.Graphs[c.PID]
	if p.launches = graphs.Count; graphs.Last.After(p.last) { // the last of them at least came after it
		p.launches--
	}
}

// faulty reports whether what a process has not called until now may have been told as a fault.
func (s *standstill) faulty(pid uint32) bool {
	p := s.processes[pid]
	return p != nil && p.Faulty()
}

// see takes what each process has called.
func (s *standstill) see(scan *ncclcall.Scan, moved map[uint32]*calls) {
	for pid, m := range moved {
		p := s.processes[pid]
		if p == nil {
			p = s.meets(pid, scan.Time)
			s.processes[pid] = p
		}
		p.round = s.round
		if m.total != p.calls {
			first := m.first
			if first.IsZero() {
				first = m.last
			}
			p.called(m.total, first, m.last)
		}
		if s.limits[pid] == ncclcall.NoCalls {
			p.Last = scan.Time // what is not counted does not stand
		}
	}
	maps.DeleteFunc(s.processes, func(_ uint32, p *process) bool { return p.round != s.round })
}

// lookInto looks into the processes that have made no call for longer than usual.
func (s *standstill) lookInto(now time.Time) {
	var pids []uint32
	for pid, p := range s.processes {
		if p.Wanted(now) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	for pid, does := range s.does(pids) {
		s.processes[pid].Look(does, now)
	}
}

// rare is how many times the patience a communicator may rest while its process calls on
// others.
const rare = 6

// stand tells of a communicator that is used no more: when its process calls on none, or
// it is used rarely and that for long.
func (s *standstill) stand(scan *ncclcall.Scan, c *ncclcall.Communicator, twin bool, l *look) {
	p, process := s.known[key{c.PID, c.Address}], s.processes[c.PID]
	idle := scan.Time.Sub(c.Last.Time)
	p.twin = twin
	graphs := scan.Graphs[c.PID].Count
	launches := graphs - min(p.launches, graphs)
	if p.stopped && (launches > 0 && !p.replays || p.grouped && c.GroupDepth == 0) { // which says more than that it stands
		p.replays, p.grouped = launches > 0, c.GroupDepth > 0
		l.changes = append(l.changes, change{Communicator: c, what: stopped, pid: c.PID, at: scan.Time, idle: idle, launches: launches, process: process, twins: twin})
	}
	if p.stopped || p.used == s.round || !s.sees(c) { // one just met may be about to call
		return
	}
	all := scan.Time.Sub(process.Last) >= max(s.patience, process.Patience(scan.Time))
	if idle < s.patience || !all && idle < max(rare*s.patience, 2*p.rests.Repeated("", scan.Time)) {
		return
	}
	p.stopped, p.replays, p.grouped = true, launches > 0, c.GroupDepth > 0
	process.told, process.toldAs, process.toldLike, process.toldAt = true, process.Silence, process.Now.State, scan.Time
	l.changes = append(l.changes, change{
		Communicator: c, what: stopped, pid: c.PID, at: scan.Time, idle: idle, launches: launches, process: process, twins: twin,
	})
}

// twinsOf are communicators of one process that have one hash and one rank: before NCCL
// 2.24 two splits with one color have.
func twinsOf(scan *ncclcall.Scan) map[*ncclcall.Communicator]bool {
	type name struct {
		pid  uint32
		hash uint64
		rank int32
	}
	first, twins := map[name]*ncclcall.Communicator{}, map[*ncclcall.Communicator]bool{}
	for i := range scan.Communicators {
		c := &scan.Communicators[i]
		if c.Hash == 0 || c.Identity != ncclcall.Known {
			continue
		}
		n := name{c.PID, c.Hash, c.Rank}
		if other := first[n]; other != nil {
			twins[other], twins[c] = true, true
			continue
		}
		first[n] = c
	}
	return twins
}

// gone tells of communicators that stood, or were ended, and are there no more.
func (s *standstill) gone(scan *ncclcall.Scan, there map[key]bool, l *look) {
	var keys []key
	for k := range s.known {
		if !there[k] {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.address, b.address)) })
	for _, k := range keys {
		if p := s.known[k]; p.tellsEnd() {
			l.changes = append(l.changes, p.end(scan.Time, cmp.Or(p.ending, "exited")))
		}
		delete(s.known, k)
	}
}

// tellsEnd reports whether its end is told: where others may wait in it for this rank.
func (p *place) tellsEnd() bool {
	return p.stopped || p.ending != "" && p.seen.Identity == ncclcall.Known && p.seen.Size > 1 && !p.twin
}

func (p *place) end(at time.Time, reason string) change {
	return change{Communicator: &p.seen, what: ended, pid: p.seen.PID, at: at, idle: at.Sub(p.last), reason: reason, twins: p.twin}
}

// doings tells of processes that were said to stand and do something else now, or stand for long.
func (s *standstill) doings(now time.Time, l *look) {
	for _, pid := range slices.Sorted(maps.Keys(s.processes)) {
		p := s.processes[pid]
		if p.told && (p.Silence != p.toldAs || p.Now.State.Halted() != p.toldLike.Halted() || now.Sub(p.toldAt) >= activity.Again) {
			p.toldAs, p.toldLike, p.toldAt = p.Silence, p.Now.State, now
			l.changes = append(l.changes, change{what: doing, pid: pid, at: now, idle: now.Sub(p.Last), process: p})
		}
	}
}

// begin takes that a process calls a function that makes a communicator.
func (s *standstill) begin(e *ncclcall.Event, by *identity.Process) (l look) {
	if !e.Kind.Init() && !splits(e.Kind) || e.Kind.Init() && e.Rank < 0 || e.Hash == 0 {
		return l
	}
	m := &making{event: *e, by: *by}
	if splits(e.Kind) {
		m.event.Rank, m.event.Size = -1, 0
		s.place(m)
	}
	list := s.inits[by.Born()]
	// The thread that makes another one has made the one before.
	list = slices.DeleteFunc(list, func(m *making) bool {
		over := m.event.Thread == e.Thread
		if over && !m.told.IsZero() {
			l.changes = append(l.changes, m.done(e.Time, ""))
		}
		return over
	})
	if len(list) < maxInits {
		list = append(list, m)
	}
	s.inits[by.Born()] = list
	if len(s.inits) > maxInitialize {
		l.changes = append(l.changes, s.trim(e.Time)...)
	}
	return l
}

// initializing are the processes that make communicators, in order.
func (s *standstill) initializing() []identity.Born {
	return slices.SortedFunc(maps.Keys(s.inits), func(a, b identity.Born) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.StartNS, b.StartNS))
	})
}

// splits reports whether a function makes a communicator of another.
func splits(k ncclcall.Kind) bool {
	return k == ncclcall.Split || k == ncclcall.Shrink || k == ncclcall.Grow
}

// place finds which rank of the communicator that is split has called: that is known by its calls, or
// by the call that made it.
func (s *standstill) place(m *making) {
	e := &m.event
	if p := s.known[key{e.PID, e.Address}]; p != nil && p.seen.Identity == ncclcall.Known && p.seen.Hash == e.Hash && !p.twin {
		e.Rank, e.Size = p.seen.Rank, p.seen.Size
		return
	}
	for _, other := range s.inits[m.by.Born()] {
		if other.event.Hash == e.Hash && other.event.Rank >= 0 {
			e.Rank, e.Size = other.event.Rank, other.event.Size
		}
	}
}

// trim makes room for an eighth of the processes that make communicators: those of the domain that
// has most are forgotten, the oldest first. Who was told to wait is told to wait no more: nobody
// would say when it is over.
func (s *standstill) trim(now time.Time) (ends []change) {
	last := func(of identity.Born) *making { return s.inits[of][len(s.inits[of])-1] }
	byAge := s.initializing()
	slices.SortStableFunc(byAge, func(a, b identity.Born) int { return last(a).event.Time.Compare(last(b).event.Time) })
	stay := fairlru.Trim(byAge, maxInitialize-maxInitialize/8, func(of identity.Born) []string { return []string{last(of).by.Domain} })
	kept := make(map[identity.Born][]*making, len(stay))
	for _, of := range stay {
		kept[of] = s.inits[of]
	}
	for _, of := range s.initializing() {
		if kept[of] != nil {
			continue
		}
		for _, m := range s.inits[of] {
			if !m.told.IsZero() {
				ends = append(ends, m.done(now, ""))
			}
		}
	}
	s.inits = kept
	return ends
}

func (m *making) done(at time.Time, reason string) change {
	return change{what: done, pid: m.event.PID, by: &m.by, at: at, idle: at.Sub(m.event.Time), init: &m.event, reason: reason}
}

// makings tells of processes that wait for others in a function that makes a communicator.
// One that has called on a communicator which was new since then waits no more; nor does one that has
// split a communicator and made any call since: of those it may never use the new one.
func (s *standstill) makings(scan *ncclcall.Scan, l *look) {
	if len(s.inits) == 0 {
		return
	}
	newest, last := map[uint32]time.Time{}, map[uint32]time.Time{}
	for i := range scan.Communicators {
		c := &scan.Communicators[i]
		if c.First.After(newest[c.PID]) {
			newest[c.PID] = c.First
		}
		if c.Last.Time.After(last[c.PID]) {
			last[c.PID] = c.Last.Time
		}
	}
	for _, of := range s.initializing() {
		list := slices.DeleteFunc(s.inits[of], func(m *making) bool {
			waited := scan.Time.Sub(m.event.Time)
			switch {
			case newest[of.PID].After(m.event.Time), splits(m.event.Kind) && last[of.PID].After(m.event.Time):
				if !m.told.IsZero() {
					l.changes = append(l.changes, m.done(scan.Time, ""))
				}
				return true
			case s.limits[of.PID] == ncclcall.NoCalls: // that it calls on it would not be seen
			case waited >= initPatience && scan.Time.Sub(m.told) >= activity.Again:
				if m.event.Rank < 0 {
					s.place(m)
				}
				if m.event.Rank < 0 {
					return false // nobody could say who waits
				}
				m.told = scan.Time
				l.changes = append(l.changes, change{what: waiting, pid: of.PID, by: &m.by, at: scan.Time, idle: waited, init: &m.event})
			}
			return false
		})
		if s.inits[of] = list; len(list) == 0 {
			delete(s.inits, of)
		}
	}
}

// exited takes that a process has ended.
func (s *standstill) exited(of identity.Born, at time.Time) (l look) {
	for _, m := range s.inits[of] {
		if !m.told.IsZero() {
			l.changes = append(l.changes, m.done(at, "exited"))
		}
	}
	delete(s.inits, of)
	return l
}

// sees reports whether a call on the communicator would be counted.
func (s *standstill) sees(c *ncclcall.Communicator) bool {
	switch s.limits[c.PID] {
	case ncclcall.Unlimited:
		return true
	case ncclcall.NoPointToPoint:
		return c.Collectives > 0
	default:
		return false
	}
}

// goesOn is when a communicator was used again, as far as its last calls tell. The times
// of one call differ by some nanoseconds between scans.
func goesOn(c *ncclcall.Communicator, last time.Time) time.Time {
	const jitter = time.Millisecond
	for i := range c.Recent {
		if at := c.Recent[i].Time; at.After(last.Add(jitter)) {
			return at
		}
	}
	return c.Last.Time
}

// ended counts the calls that a communicator made between the last scan and its end, by which others
// may see what its process lacks.
func (s *standstill) ended(e *ncclcall.Event) look {
	var l look
	if e.Kind != ncclcall.Destroy && e.Kind != ncclcall.Abort {
		return l
	}
	p := s.known[key{e.PID, e.Address}]
	if p == nil {
		p = &place{}
	}
	p.ending = map[ncclcall.Kind]string{ncclcall.Destroy: "destroyed", ncclcall.Abort: "aborted"}[e.Kind]
	p.endedAt = e.Time
	p.seen.Collectives, p.seen.Calls = max(p.seen.Collectives, e.Collectives), e.Calls
	l.add(p, &e.Calls)
	return l
}

// add counts what is more than before.
func (l *look) add(p *place, now *[ncclcall.Operations]uint64) {
	for operation, calls := range now {
		if calls > p.calls[operation] {
			l.calls[operation] += calls - p.calls[operation]
			p.calls[operation] = calls
		}
	}
}
