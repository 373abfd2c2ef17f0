package ncclcallreceiver

import (
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// Thresholds of how long a process may make no call. They are those of the receiver
// ncclsock for silent sockets, with the same reasons.
const (
	halted    = 2 * time.Second  // of one that is stopped
	dying     = 10 * time.Second // of one whose main thread has ended: it may be giving back its memory
	asleep    = 3 * time.Second  // of one that makes no progress, at least
	noticed   = 20 * time.Second // of one that makes progress, until others are said to wait for it
	unlearned = 30 * time.Second // usual pause until its pauses are known
	factor    = 2                // usual pauses that a silence may last

	learning    = 10              // scans with calls until its pauses are known,
	learningFor = 9 * time.Second // and for how long it has called
	repeats     = 3               // pauses of one kind that make it usual: one or two may be the start, or an accident
	memory      = time.Hour       // how long a pause is remembered
	// least is a pause that is one; shorter ones are in every step.
	least      = time.Second
	mostPauses = 32

	// looksUntilGivenUp is after how many looks a process is judged that cannot be compared
	// with itself: one that cannot be read must not be above all suspicion.
	looksUntilGivenUp = 4
	lookedFor         = 3 * time.Second // and for how long it has been looked at
)

// process is one that calls NCCL.
type process struct {
	round int
	calls uint64    // on all of its communicators
	last  time.Time // its newest call

	learned int       // scans in which it called
	first   time.Time // its first call that was seen
	pauses  []pause

	before   activity.Usage
	at       time.Time // of the last look, zero before the first since it stopped
	now      activity.Process
	progress time.Time            // when it last made progress
	how      socketstall.Activity // in what way, Idle if in none
	worked   bool                 // it has made progress since its last call
	compared int                  // looks that could tell
	looks    int
	looked   time.Time // the first of them

	silence  socketstall.Silence
	told     bool // that it stands, on one communicator at least
	toldAs   socketstall.Silence
	toldLike socketstall.State
}

// pause is a time without a call that ended by itself.
type pause struct {
	end    time.Time
	length time.Duration
	how    socketstall.Activity
}

// called takes that the process has made calls, the first of them then.
func (p *process) called(calls uint64, first, last time.Time) {
	if length := first.Sub(p.last); p.calls > 0 && length >= least {
		p.learn(pause{first, length, p.mostly()})
	}
	if p.learned++; p.first.IsZero() {
		p.first = first
	}
	p.calls, p.last = calls, last
	p.at, p.progress, p.how, p.worked, p.compared, p.looks = time.Time{}, last, socketstall.Idle, false, 0, 0
	p.now = activity.Process{}
	p.silence = socketstall.Usual
}

// learn keeps a pause, and drops the shortest where there are too many.
func (p *process) learn(one pause) {
	p.pauses = slices.DeleteFunc(p.pauses, func(o pause) bool { return one.end.Sub(o.end) > memory })
	if p.pauses = append(p.pauses, one); len(p.pauses) > mostPauses {
		shortest := 0
		for i := range p.pauses {
			if p.pauses[i].length < p.pauses[shortest].length {
				shortest = i
			}
		}
		p.pauses = slices.Delete(p.pauses, shortest, shortest+1)
	}
}

// usual is the pause to expect of the process, of that kind; "" for any.
func (p *process) usual(how socketstall.Activity, now time.Time) time.Duration {
	if p.learned < learning || now.Sub(p.first) < learningFor {
		return unlearned
	}
	return p.repeated(how, now)
}

// repeated is the length that several of its pauses reached.
func (p *process) repeated(how socketstall.Activity, now time.Time) time.Duration {
	var lengths []time.Duration
	for i := range p.pauses {
		if one := &p.pauses[i]; (how == "" || one.how == how) && now.Sub(one.end) <= memory {
			lengths = append(lengths, one.length)
		}
	}
	if len(lengths) < repeats {
		return 0
	}
	slices.Sort(lengths)
	return lengths[len(lengths)-repeats]
}

// mostly is what it did in the pause that ended.
func (p *process) mostly() socketstall.Activity {
	if !p.worked {
		return socketstall.Idle
	}
	return p.how
}

// wanted reports whether it has made no call for longer than it usually does.
func (p *process) wanted(now time.Time) bool {
	return now.Sub(p.last) >= max(least, p.repeated("", now))
}

// look takes what the process does now.
func (p *process) look(does *activity.Process, now time.Time) {
	if p.looks++; p.looks == 1 {
		p.looked = now
	}
	if in := does.Inside; in != nil && in.Compared {
		p.compared++
	} else if in != nil && in.OnFile && p.looks == 1 { // it may have been answered until now
		p.progress = now
	}
	if !p.at.IsZero() {
		interval := now.Sub(p.at)
		if how, share := does.Does(p.before, interval, 0); how != socketstall.Idle {
			p.how, p.worked = how, true
			p.progress = p.at.Add(time.Duration(min(1, share) * float64(interval)))
		}
	}
	p.before, p.at, p.now = does.Usage(), now, *does
	p.judge(now)
}

// judge measures for how long it has made no call.
func (p *process) judge(now time.Time) {
	idle, rest := now.Sub(p.last), now.Sub(p.progress)
	known := p.compared > 0 || p.givenUp(now)
	switch state := p.now.State; {
	case state == socketstall.Zombie && idle < dying:
		p.silence = socketstall.Usual
	case state.Halted() && idle >= halted:
		p.silence = socketstall.Overdue
	case known && min(rest, idle) >= asleep && idle >= factor*p.usual(socketstall.Idle, now):
		p.silence = socketstall.Overdue
	case known && p.worked && idle >= computing:
		p.silence = socketstall.Overdue
	case known && p.worked && idle >= max(noticed, factor*p.usual(p.how, now)):
		p.silence = socketstall.Long
	default:
		p.silence = socketstall.Usual
	}
}

// givenUp reports whether it has been looked at so often and so long, that it will not be
// compared with itself any more.
func (p *process) givenUp(now time.Time) bool {
	return p.looks >= looksUntilGivenUp && now.Sub(p.looked) >= lookedFor
}

// computing is the patience with a process that makes progress.
const computing = 10 * time.Minute

// activity is what it does: what it did last, unless it has rested since.
func (p *process) activity(now time.Time) socketstall.Activity {
	switch {
	case p.looks == 0 || p.now.State.Halted() || p.compared == 0 && !p.givenUp(now):
		return ""
	case now.Sub(p.progress) >= asleep:
		return socketstall.Idle
	}
	return p.how
}
