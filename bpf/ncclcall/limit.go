package ncclcall

import (
	"maps"
	"slices"
	"time"
)

// Limit says which calls of a process are counted no more, because it, or another process
// of its user, makes too many of them.
type Limit uint8

// The limits.
const (
	// Unlimited: all calls are counted.
	Unlimited Limit = iota
	// NoPointToPoint: ncclSend and ncclRecv are not.
	NoPointToPoint
	// NoCalls: only those that make and end communicators are.
	NoCalls
)

// String says it in one word.
func (l Limit) String() string {
	return [...]string{"none", "point_to_point", "calls"}[min(l, NoCalls)]
}

// Calls a second of one process above which they are counted no more. At 0.65 µs each,
// 20,000 are 1.3 % of one thread. Where the kernel steps over a function each costs up to 20 µs: 250 are
// 0.5 % (README.md).
const (
	DefaultMaxPointToPoint = 20_000
	DefaultMaxCalls        = 50_000
	DefaultMaxStepped      = 250
)

// stepCost is how many times as long a call takes that is stepped over: 11 µs and 0.65 µs (README.md).
const stepCost = 16

// steppedOver is the time over which calls that are stepped over are averaged: a training step makes
// hundreds at once, and then none for seconds.
const steppedOver = 10 * time.Second

// How long calls are not counted. Who calls too often again waits twice as long.
const (
	firstPause = time.Minute
	lastPause  = time.Hour
)

// limits decides whose calls are left uncounted, and which libraries are not traced.
//
// A process above the cap is spared: its calls are skipped, and it alone pays for its
// breakpoints. A file is detached from only while nobody else uses it, so nobody blinds
// another by what he calls.
type limits struct {
	maxPointToPoint, maxCalls, maxStepped float64 // a second

	at        time.Time // of the last scan
	last      map[uint32]made
	began     map[uint32]stepped // by process
	processes map[uint32]*pause  // by process
	libraries map[uint32]*pause  // by slot
}

// made are the calls of a process, and those of them on libraries that are stepped over.
type made struct{ pointToPoint, all, stepped float64 }

// stepped are the calls that were stepped over when an average of them began.
type stepped struct {
	at    time.Time
	calls float64
}

// pause is what is not counted, and until when.
type pause struct {
	limit  Limit
	until  time.Time
	length time.Duration
}

// slot is what is known of the file, or the files, in a slot of libraries.
type slot struct {
	stepped bool            // calls there cost more than those that the kernel emulates, in all files
	steps   map[uint32]bool // the same, of processes that use such a file beside others
	users   []Process
}

func newLimits(maxPointToPoint, maxCalls, maxStepped float64) *limits {
	return &limits{maxPointToPoint: maxPointToPoint, maxCalls: maxCalls, maxStepped: maxStepped, began: map[uint32]stepped{}, processes: map[uint32]*pause{}, libraries: map[uint32]*pause{}}
}

// judge looks at the calls since the last scan. Gone tells of processes that have ended.
func (l *limits) judge(now time.Time, communicators []Communicator, slots map[uint32]slot, gone func(pid uint32) bool) {
	before, seconds := l.last, now.Sub(l.at).Seconds()
	l.last, l.at = sums(communicators, slots), now
	maps.DeleteFunc(l.began, func(pid uint32, _ stepped) bool { _, there := l.last[pid]; return !there })
	maps.DeleteFunc(l.processes, func(pid uint32, p *pause) bool { return gone(pid) || p.over(now) })
	maps.DeleteFunc(l.libraries, func(slot uint32, p *pause) bool { _, there := slots[slot]; return !there || p.over(now) })
	for pid, is := range l.last {
		was, known := before[pid]
		p := l.processes[pid]
		if p != nil && p.limit > Unlimited && !now.Before(p.until) {
			p.end(now) // what it does from now on is judged by the next scan
			delete(l.began, pid)
			continue
		}
		if limit := max(l.asksFor(was, is, seconds), l.steps(pid, is, now)); known && seconds > 0 && (p == nil && limit > Unlimited || p != nil && limit > p.limit) {
			l.processes[pid] = p.begin(limit, now)
		}
	}
	for number, s := range slots {
		l.judgeLibrary(number, &s, communicators, now)
	}
}

func sums(communicators []Communicator, slots map[uint32]slot) map[uint32]made {
	total := map[uint32]made{}
	for i := range communicators {
		c := &communicators[i]
		m, all := total[c.PID], float64(c.Collectives+c.PointToPoint())
		m.pointToPoint += float64(c.PointToPoint())
		m.all += all
		if s := slots[c.slot]; s.stepped || s.steps[c.PID] {
			m.stepped += all
		}
		total[c.PID] = m
	}
	return total
}

func (l *limits) asksFor(was, is made, seconds float64) Limit {
	switch {
	case (is.all-was.all)/seconds > l.maxCalls, (is.stepped-was.stepped)/seconds > l.maxCalls/stepCost:
		return NoCalls
	case (is.pointToPoint-was.pointToPoint)/seconds > l.maxPointToPoint:
		return NoPointToPoint
	}
	return Unlimited
}

// steps is what the calls of a process that are stepped over ask for, once there is an average of them.
func (l *limits) steps(pid uint32, is made, now time.Time) Limit {
	from, began := l.began[pid]
	passed := now.Sub(from.at)
	if began && passed < steppedOver {
		return Unlimited
	}
	l.began[pid] = stepped{now, is.stepped}
	if began && (is.stepped-from.calls)/passed.Seconds() > l.maxStepped {
		return NoCalls
	}
	return Unlimited
}

// judgeLibrary detaches from a file that nobody but the owner of a process above the cap
// uses, and attaches again when the time is over or somebody else comes.
func (l *limits) judgeLibrary(number uint32, s *slot, communicators []Communicator, now time.Time) {
	p := l.libraries[number]
	var wanted pause // as long as any of its processes has to wait
	for i := range communicators {
		over := l.processes[communicators[i].PID]
		if over == nil || over.limit == Unlimited || communicators[i].slot != number {
			continue
		}
		wanted.limit = max(wanted.limit, over.limit)
		if over.until.After(wanted.until) {
			wanted.until, wanted.length = over.until, over.until.Sub(now)
		}
	}
	alone := s.alone(number, communicators)
	switch {
	case p != nil && p.limit > Unlimited && (!alone || !now.Before(p.until)):
		p.end(now)
	case !alone || wanted.limit == Unlimited || p != nil && (p.limit >= wanted.limit || p.limit == Unlimited && now.Before(p.rested())):
	default:
		l.libraries[number] = &wanted
	}
}

// alone reports whether all that use the library are of one owner, as user space and as the
// kernel see them.
func (s *slot) alone(number uint32, communicators []Communicator) bool {
	var callers []Communicator
	for i := range communicators {
		if communicators[i].slot == number {
			callers = append(callers, communicators[i])
		}
	}
	for i := range callers {
		stranger := len(s.users) > 0 && !slices.ContainsFunc(s.users, func(u Process) bool { return u.PID == callers[i].PID })
		if stranger || callers[i].owner != callers[0].owner {
			return false
		}
	}
	for _, u := range s.users {
		if u.Owner != s.users[0].Owner {
			return false
		}
	}
	return true
}

// begin is a pause that begins now, twice as long as the one before.
func (p *pause) begin(limit Limit, now time.Time) *pause {
	length := firstPause
	if p != nil {
		length = p.length
		if p.limit == Unlimited {
			length = min(2*p.length, lastPause)
		}
	}
	return &pause{limit: limit, length: length, until: now.Add(length)}
}

func (p *pause) end(now time.Time) { p.limit, p.until = Unlimited, now }

// rested is when a library may be detached again: two users who come and go do not have it
// attached and detached without end.
func (p *pause) rested() time.Time { return p.until.Add(p.length) }

// over reports whether it is long enough ago to be forgotten.
func (p *pause) over(now time.Time) bool {
	return p.limit == Unlimited && !now.Before(p.until.Add(2*p.length))
}

// limited is which calls of which processes are not counted.
func (l *limits) limited(communicators []Communicator, slots map[uint32]slot) map[uint32]Limit {
	all := map[uint32]Limit{}
	for pid, p := range l.processes {
		all[pid] = p.limit
	}
	for i := range communicators {
		c := &communicators[i]
		all[c.PID] = max(all[c.PID], l.libraryLimit(c.slot))
	}
	for number, s := range slots {
		for _, u := range s.users {
			all[u.PID] = max(all[u.PID], l.libraryLimit(number))
		}
	}
	maps.DeleteFunc(all, func(_ uint32, limit Limit) bool { return limit == Unlimited })
	return all
}

func (l *limits) libraryLimit(number uint32) Limit {
	if p := l.libraries[number]; p != nil {
		return p.limit
	}
	return Unlimited
}
