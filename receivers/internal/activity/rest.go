package activity

import (
	"cmp"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// Thresholds of how long a process may not go on. They are those of the receiver
// ncclsock for silent sockets, with the same reasons.
const (
	halted    = 2 * time.Second  // of one that is stopped, or whose main thread alone has ended
	asleep    = 3 * time.Second  // of one that makes no progress, at least
	noticed   = 20 * time.Second // of one that makes progress, until others are said to wait for it
	computing = 10 * time.Minute // of one that makes progress, until that is a fault
	unlearned = 30 * time.Second // usual pause until its pauses are known
	factor    = 2                // usual pauses that a silence may last

	// jitter is how early a look may come: these times are counted from one look to another, at one a second.
	jitter = 100 * time.Millisecond

	learning    = 10              // looks at which it was at work until its pauses are known, two a second,
	learningFor = 9 * time.Second // and for how long it has been
	// Repeats is how many pauses of one kind make it usual: one or two may be the start, or an accident.
	Repeats = 3
	memory  = time.Hour // how long a pause is remembered
	// Least is a pause that is one; shorter ones are in every step.
	Least      = time.Second
	mostPauses = 32

	// looksUntilGivenUp is after how many looks a process is judged that cannot be compared
	// with itself: one that cannot be read must not be above all suspicion.
	looksUntilGivenUp = 4
	lookedFor         = 3 * time.Second // and for how long it has been looked at

	// looksWithoutTurn is for how many looks a thread may wait for its turn until its process is judged: at a
	// look a second, two minutes. A thread waited for 10 s in a cgroup with 1 ms of each second at a load of 40
	// (2 CPUs, Linux 6.18, 2026-11-27).
	looksWithoutTurn = 120
)

// Ending is for how long a process that ends may keep others waiting. It gives back its memory
// first, and its sockets last (do_exit, kernel/exit.c: exit_mm comes before exit_files). Who
// ends jobs waits as long before SIGKILL (stopping in bpf/identity). An estimate, not measured.
const Ending = 2 * time.Minute

// Again is after how long it is told again that a process stands: its verdict stands for an hour without.
const Again = 30 * time.Minute

// Rest measures for how long a process has not gone on: has made no call, or has not run in
// its main thread. It learns which pauses are usual for it.
type Rest struct {
	Last     time.Time           // when it went on last
	Now      Process             // at the last look since
	Looks    int                 // since
	Progress time.Time           // when something of its process tree last went on
	Silence  socketstall.Silence // for what it does and is used to
	Enough   int                 // looks at which it was at work until its pauses are known; 0 stands for ten
	Found    bool                // it has not gone on since it was first looked at, and was there before
	Waits    bool                // for others: how long it rests is no pause of its own

	learned int       // looks at which it was at work
	first   time.Time // the first of them
	pauses  Pauses
	faulty  bool // since Last it was halted, or was silent for too long

	ending   time.Time // the first look since at which it was ending
	before   Usage
	at       time.Time            // of the last look, zero before the first
	how      socketstall.Activity // in what way it made progress, Idle if in none
	worked   bool                 // it has made progress since Last
	compared int                  // looks that could tell
	looked   time.Time            // the first of them
}

// Pauses are times in which something did not go on, and that ended by themselves.
type Pauses []pause

type pause struct {
	end    time.Time
	length time.Duration
	how    socketstall.Activity
}

// Learn keeps a pause, and drops the shortest where there are too many.
func (p *Pauses) Learn(end time.Time, length time.Duration, how socketstall.Activity) {
	all := slices.DeleteFunc(*p, func(o pause) bool { return end.Sub(o.end) > memory })
	if all = append(all, pause{end, length, how}); len(all) > mostPauses {
		shortest := 0
		for i := range all {
			if all[i].length < all[shortest].length {
				shortest = i
			}
		}
		all = slices.Delete(all, shortest, shortest+1)
	}
	*p = all
}

// Repeated is the length that several of the pauses of that kind reached, "" for any.
func (p Pauses) Repeated(how socketstall.Activity, now time.Time) time.Duration {
	var lengths []time.Duration
	for i := range p {
		if one := &p[i]; (how == "" || one.how == how) && now.Sub(one.end) <= memory {
			lengths = append(lengths, one.length)
		}
	}
	if len(lengths) < Repeats {
		return 0
	}
	slices.Sort(lengths)
	return lengths[len(lengths)-Repeats]
}

// Goes takes that the process went on, the first time then. AtWork is true where it does what
// it does in every step: its pauses are known after some of these. What may have been told as a
// fault is no pause to learn: the same hang is told each time.
func (r *Rest) Goes(first, last time.Time, atWork bool) {
	if length := first.Sub(r.Last); !r.Last.IsZero() && length >= Least && !r.faulty {
		r.pauses.Learn(first, length, r.mostly())
	}
	if atWork {
		if r.learned++; r.first.IsZero() {
			r.first = first
		}
	}
	r.faulty = r.faulty && r.Last.IsZero() // of one that is remembered it is not known whether it went on
	r.Last = last
	r.at, r.Progress, r.how, r.worked, r.compared, r.Looks = time.Time{}, last, socketstall.Idle, false, 0, 0
	r.Now, r.ending = Process{}, time.Time{}
	r.Silence = socketstall.Usual
}

// usual is the pause to expect of the process, of that kind; "" for any.
func (r *Rest) usual(how socketstall.Activity, now time.Time) time.Duration {
	if r.learned < r.enough() || now.Sub(r.first) < learningFor {
		return unlearned
	}
	return r.pauses.Repeated(how, now)
}

// longest is how long a rest may last in which nothing goes on. One in which it was found, while its pauses are not
// known, has not just begun: it need not be given twice the time. Where it waits for others, it neither starts up nor
// pauses itself. Whether one of those does, their own rests tell.
func (r *Rest) longest(now time.Time) time.Duration {
	if r.Waits {
		return 0
	}
	if r.Found && r.learned < r.enough() {
		return unlearned
	}
	return factor * r.usual(socketstall.Idle, now)
}

// Faulty reports whether it was halted since it went on last, or was silent for too long.
func (r *Rest) Faulty() bool { return r.faulty }

// Patience is for how long it may not go on, whatever it does, because it often has not.
func (r *Rest) Patience(now time.Time) time.Duration { return factor * r.pauses.Repeated("", now) }

// mostly is what it did in the pause that ended.
func (r *Rest) mostly() socketstall.Activity {
	if !r.worked {
		return socketstall.Idle
	}
	return r.how
}

// Wanted reports whether it has not gone on for longer than it usually does.
func (r *Rest) Wanted(now time.Time) bool {
	idle := now.Sub(r.Last)
	return idle >= Least && (r.Waits || idle >= r.pauses.Repeated("", now))
}

// Look takes what the process does now.
func (r *Rest) Look(does *Process, now time.Time) {
	if r.Looks++; r.Looks == 1 {
		r.looked = now
	}
	if in := does.Inside; in != nil {
		if in.Compared {
			r.compared++
		}
		if at := cmp.Or(r.at, now); in.Unsure && at.After(r.Progress) { // one interval without an answer is no rest
			r.Progress = at
		}
	}
	if !r.at.IsZero() {
		interval := now.Sub(r.at)
		if how, share := does.Does(r.before, interval, 0); how != socketstall.Idle {
			r.how, r.worked = how, true
			r.Progress = r.at.Add(time.Duration(min(1, share) * float64(interval)))
		}
	}
	r.before, r.at, r.Now = does.Usage(), now, *does
	if does.Ending && r.ending.IsZero() {
		r.ending = now
	}
	r.judge(now)
}

// judge measures for how long it has not gone on.
func (r *Rest) judge(now time.Time) {
	idle, rest := now.Sub(r.Last), now.Sub(r.Progress)
	known := r.compared > 0 || r.givenUp(now)
	switch state := r.Now.State; {
	case r.Now.Ending && now.Sub(r.ending) < Ending:
		r.Silence = socketstall.Usual
	case state.Halted() && idle >= halted-jitter:
		r.Silence = socketstall.Overdue
	case known && min(rest, idle) >= asleep-jitter && idle >= r.longest(now):
		r.Silence = socketstall.Overdue
	case known && r.worked && idle >= computing:
		r.Silence = socketstall.Overdue
	case known && r.worked && idle >= max(noticed, factor*r.usual(r.how, now)):
		r.Silence = socketstall.Long
	default:
		r.Silence = socketstall.Usual
	}
	r.faulty = r.faulty || r.Silence == socketstall.Overdue || r.Now.State.Halted()
}

// givenUp reports whether it has been looked at so often and so long, that it will not be
// compared with itself any more.
func (r *Rest) givenUp(now time.Time) bool {
	return r.Looks >= looksUntilGivenUp && now.Sub(r.looked) >= lookedFor
}

// Activity is what it does: what it did last, unless it has rested since. "" until it is known.
func (r *Rest) Activity(now time.Time) socketstall.Activity {
	switch {
	case r.Looks == 0 || r.Now.State.Halted() || r.compared == 0 && !r.givenUp(now):
		return ""
	case now.Sub(r.Progress) >= asleep-jitter:
		return socketstall.Idle
	}
	return r.how
}

// Write writes what the process does, once it has been looked at.
func (r *Rest) Write(a record.DoingAttributes, at time.Time) {
	if r.Looks == 0 {
		return
	}
	a.NcclRankState(string(r.Now.State))
	a.NcclRankActivity(string(r.Activity(at)))
	a.NcclRankSilence(string(r.Silence))
	record.NotNegative(a.NcclRankRestNs, at.Sub(r.Progress))
	if in := r.Now.Inside; in != nil {
		in.Write(a)
	}
}

// Write writes what a look into the process tree has shown.
func (in *Inside) Write(a record.DoingAttributes) {
	a.NcclRankSyscall(in.Syscall)
	a.NcclRankWaitChannel(in.Channel)
	a.NcclRankFile(in.File)
	if in.Pauses {
		a.NcclRankPauses(true)
	}
	if t := in.Blocked; t.TID != 0 {
		a.NcclRankThreadID(int64(t.TID))
		a.NcclRankThreadSyscall(t.Syscall)
		a.NcclRankThreadWaitChannel(t.Channel)
		a.NcclRankThreadFile(t.File)
	}
	switch h := in.Holder; {
	case h != nil:
		a.NcclRankChildName(h.Comm)
		a.NcclRankChildPid(int64(h.PID))
		a.NcclRankChildState(string(h.State))
		a.NcclRankChildAwaited(h.Awaited)
		a.NcclRankChildSyscall(h.Syscall)
		a.NcclRankChildWaitChannel(h.Channel)
		a.NcclRankChildFile(h.File)
	case in.Busiest.PID != 0:
		a.NcclRankChildName(in.Busiest.Comm)
		a.NcclRankChildPid(int64(in.Busiest.PID))
	}
	record.Numbers(a.NcclRankTree, in.Tree)
}
