package activity

import (
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Bounds of one round, which ranks share. A rank may have thousands of children: what there is
// no time for has its turn in the rounds that follow.
const (
	maxChildren = 256 // read in one round, of all ranks
	maxTree     = 64  // told of one rank
	maxThreads  = 256 // of one process, which are looked at
	maxDelayed  = 16  // children in one round whose threads are asked for their delays
	remembered  = 10  // rounds without a look until it is not known whether a thread polls
	forgotten   = 30  // rounds without a look until what was read of a process is dropped
)

// starves is how many of its threads have no CPU until it is asked who has it.
const starves = 0.1

// trees remembers what the process trees of silent ranks had used when last read.
type trees struct {
	family family
	round  int

	children  shares // that may still be read in this round
	delayed   shares // of them whose threads may still be asked for their delays
	inquiries shares // that may still be asked for whom they wait
	looked    shares // threads that may still be looked at

	next map[uint32]int  // by root: which child has its turn
	uses map[uint32]*use // of roots and of children
}

func newTrees() trees {
	return trees{
		family:   family{met: maxMet, known: maxParents},
		children: newShares(maxChildren), delayed: newShares(maxDelayed), inquiries: newShares(maxAsked), looked: newShares(maxLooked),
		next: map[uint32]int{}, uses: map[uint32]*use{},
	}
}

// use is what a process had used at one moment, and how fast it has used it since the
// look before.
type use struct {
	ticks  uint64 // start of the process
	comm   string
	state  byte // as /proc has it
	round  int
	at     time.Time
	cpu    time.Duration
	io     uint64
	main   turns
	others map[uint32]*turns // of its other threads, nil not read
	then   map[uint32]*turns // the same at the look before
	whole  bool              // these are all that it had

	awake  bool        // when it was asked where it sleeps
	asleep bool        // it was seen asleep, in this look or before:
	wait   procfs.Wait // there
	file   string      // that the call is about

	compared bool    // there was a look before
	seconds  float64 // since then
	was      byte    // its state then
	share    float64 // cores
	rate     float64 // bytes a second
	woken    bool    // its main thread was
	ready    bool    // its main thread could run all the time
	delayed  float64 // share of the time in which that waited for a CPU, 0 where it polls
	starved  float64 // other threads that did, without those that poll
	parked   int     // looks in a row at which one that polls had no turn
	unclear  bool    // whether one polls still that did: it waited for a CPU
	had      float64 // share of the time in which its main thread ran
	groups   []procfs.CPUGroup
	limit    CPULimit // that held it back since the look before
}

// Begin starts a round of looks into trees.
func (r *Reader) Begin() {
	t := &r.trees
	t.round++
	t.family.stale = true
	t.children.begin()
	t.delayed.begin()
	t.inquiries.begin()
	t.looked.begin()
	for pid, u := range t.uses {
		if t.round-u.round > forgotten {
			delete(t.uses, pid)
			delete(t.next, pid)
		}
	}
}

// Inspect looks into the process tree of a rank that Read has read. isRoot tells the
// other ranks, which are no part of it; kin are processes that the rank has started, also those
// whose parents have ended since.
func (r *Reader) Inspect(out *Process, isRoot func(uint32) bool, kin ...uint32) {
	k := r.known[out.PID]
	if k == nil || k.foreign {
		return
	}
	if frozen, err := r.fs.Frozen(out.PID); err == nil && frozen {
		out.State = socketstall.Frozen
	}
	now := r.useOf(out.PID, k.stat.Reaped)
	now.others, now.whole = r.threadsOf(out, out.PID, r.trees.uses[out.PID], out.NCCL)
	now.groups, _ = r.fs.CPUGroups(out.PID) // none: nothing limits it, or nobody can tell
	own := r.compare(out.PID, now, r.trees.uses[out.PID], 1)
	k.polls = own.main.polls
	out.Polls = k.polls
	in := &Inside{Compared: own.compared, IO: own.rate, Ready: own.ready && !k.polls, Starved: own.starved, Limit: own.limit}
	wait := r.whereItSleeps(out, in, own)
	r.trees.family.refresh(r.fs)
	below := r.trees.family.below(out.PID, isRoot, kin)
	room := r.trees.children.take(out.PID, out.Domain, len(below))
	gap := len(below)/max(room, 1) + 1
	if r.readChildren(out, own, below, room, gap) {
		below = r.trees.family.below(out.PID, isRoot, kin)
	}
	in.Tree = below[:min(len(below), maxTree)]
	had, lacked, unclear := own.had, own.delayed, own.unclear
	for _, pid := range below {
		if u := r.trees.uses[pid]; u != nil && u.compared && r.trees.round-u.round <= gap {
			addChild(in, pid, u)
			had, lacked, unclear = had+u.had, lacked+u.delayed, unclear || u.unclear
		}
	}
	in.Children += own.share * slower(had, lacked)
	if in.Compared && in.Children < computes && out.State != socketstall.Running && !out.State.Halted() {
		holder, answered := r.holder(out, wait, below, gap)
		in.Holder, in.Answered = holder, in.Answered || answered
	}
	served := true
	if !in.Answered && in.IO < transfers && in.Children < computes && !out.State.Halted() {
		r.askThreads(out, own, in)
		if !in.Answered {
			in.Unserved, served = r.unserved(out, own, in)
		}
	}
	in.Unsure = k.unsure(in, served && in.unseen == 0 && !unclear, max(own.parked, in.unseen))
	if own.delayed+own.starved >= starves || in.Unserved {
		in.Pressure, _ = r.fs.CPUPressure() // 0 where it is switched off
	}
	out.Inside = in
}

// unsure reports whether the rank may have been answered since the look before: it waits for a file and
// there was none, or nobody knows yet whether it and who serves it have a CPU, or for what a thread waited that was woken.
// That is known after some looks, or not at all: nobody is above all suspicion. While one and the same thread has no
// turn, or is met awake at each look, it may be what the rank waits for.
func (k *known) unsure(in *Inside, served bool, parked int) bool {
	if served && parked == 0 {
		k.unserved = 0
		return !in.Compared && in.OnFile
	}
	k.unserved++
	return k.unserved <= max(looksUntilGivenUp, min(parked, looksWithoutTurn))
}

// useOf reads what a process has used. cpu is what is counted as its own.
func (r *Reader) useOf(pid uint32, cpu time.Duration) use {
	u := use{round: r.trees.round, at: r.clock(), cpu: cpu}
	if k := r.known[pid]; k != nil {
		u.ticks = k.startTicks
	}
	u.io, _ = r.fs.IOBytes(pid)         // 0 where it may not be read: no I/O is seen then
	u.main.status, _ = r.fs.Status(pid) // not read: nobody is woken
	u.main.Turns, _ = r.fs.Turns(pid)   // 0 where the kernel does not count it
	return u
}

// compare takes a new look at a process and works out its rates since the one before, of
// which more than gap rounds would tell of another time.
func (r *Reader) compare(pid uint32, next use, before *use, gap int) *use {
	if before != nil && before.ticks == next.ticks && next.round-before.round <= max(gap, remembered) {
		next.learn(before)
	}
	if before != nil && before.ticks == next.ticks && next.round-before.round <= gap {
		if seconds := next.at.Sub(before.at).Seconds(); seconds > 0 {
			next.compared, next.seconds, next.was, next.then = true, seconds, before.state, before.others
			next.woken, next.ready = next.main.woken(&before.main), next.main.ready(&before.main)
			next.asleep, next.wait, next.file = before.asleep, before.wait, before.file
			next.main.placed, next.main.unseen = before.main.placed, before.main.unseen
			next.share = max(0, next.cpu-before.cpu).Seconds() / seconds
			next.delays(before, seconds)
			next.rate = float64(next.io-min(next.io, before.io)) / seconds
			next.limit = tightest(before.groups, next.groups)
		}
	}
	r.trees.uses[pid] = &next
	return &next
}

// learn notes which threads of the process poll.
func (u *use) learn(before *use) {
	u.main.learn(&before.main)
	for tid, now := range u.others {
		if then := before.thread(tid); then != nil {
			now.learn(then)
		}
	}
}

// thread is a thread as it was then, new if it was not there; nil where nobody knows.
func (u *use) thread(tid uint32) *turns {
	if then := u.others[tid]; then != nil || !u.whole {
		return then
	}
	return &turns{}
}

// delays works out which threads of the process could run and had no CPU.
func (u *use) delays(before *use, seconds float64) {
	u.had = max(0, u.main.Ran-before.main.Ran).Seconds() / seconds
	u.delayed, u.parked, u.unclear = u.main.lacks(&before.main, seconds), u.main.parks(&before.main, seconds), u.main.unclear(&before.main, seconds)
	for tid, now := range u.others {
		if then := before.thread(tid); then != nil {
			u.starved += now.lacks(then, seconds)
			u.parked, u.unclear = max(u.parked, now.parks(then, seconds)), u.unclear || now.unclear(then, seconds)
		}
	}
}

// tightest is the limit that held a process back in most of its periods, nothing where none
// did.
func tightest(before, now []procfs.CPUGroup) (limit CPULimit) {
	for _, g := range now {
		at := slices.IndexFunc(before, func(o procfs.CPUGroup) bool { return o.Path == g.Path })
		if at < 0 || g.Periods <= before[at].Periods || g.Throttled <= before[at].Throttled {
			continue
		}
		share := min(1, float64(g.Throttled-before[at].Throttled)/float64(g.Periods-before[at].Periods))
		if share > limit.Throttled {
			limit = CPULimit{Cgroup: g.Path, Cores: g.Cores, Throttled: share}
		}
	}
	return limit
}

// whereItSleeps notes where the main thread sleeps. A thread that waits for a file, or for
// a page of one, and is woken between two looks, is answered; or it was before, and has had no turn since.
func (r *Reader) whereItSleeps(out *Process, in *Inside, own *use) procfs.Wait {
	r.place(out.PID, own)
	in.Syscall, in.Channel, in.File = own.wait.Syscall, own.wait.Channel, own.file
	in.OnFile = own.onFile() || out.State == socketstall.DiskSleep
	in.Answered = (own.woken || own.ready && own.asleep) && in.OnFile
	if own.woken && !in.Answered {
		in.unseen = max(in.unseen, own.main.sight(own.awake))
	} else {
		own.main.rests()
	}
	in.Pauses = own.compared && !own.woken && own.asleep && !own.awake && own.wait.ForATime()
	return own.wait
}

// place notes where the main thread of a process sleeps. One that is awake just now waits
// where it slept in the look before.
func (r *Reader) place(pid uint32, u *use) {
	now, err := r.fs.Wait(pid)
	if u.awake = now.Awake; now.Awake {
		return
	}
	u.asleep, u.wait, u.file = err == nil, now, ""
	if err == nil && now.FD != procfs.Negative {
		u.file, _ = r.fs.OpenFile(pid, now.FD) // one that was closed has no name
	}
}

// onFile reports whether its main thread waits for a file or for a page of one, outside of a
// system call; or may do so, since it was never seen asleep.
func (u *use) onFile() bool {
	if !u.asleep {
		return u.awake
	}
	return stored(u.file) || u.wait.Syscall == ""
}

// readChildren reads those whose turn it is. Strangers: some were no children any more. A number
// is used again soon, and a neighbour's process is nobody's child here.
func (r *Reader) readChildren(of *Process, own *use, below []uint32, room, gap int) (strangers bool) {
	t := &r.trees
	first := t.next[of.PID]
	t.next[of.PID] = (first + room) % max(len(below), 1)
	for i := range room {
		pid := below[(first+i)%len(below)]
		stat, err := r.fs.Stat(pid)
		if err != nil || stat.Ended() {
			delete(t.uses, pid)
			continue
		}
		if stat.ParentPID != t.family.parent[pid].parent {
			delete(t.uses, pid)
			t.family.forget(pid)
			strangers = true
			continue
		}
		u := r.useOf(pid, stat.CPU+stat.Reaped)
		u.ticks, u.comm, u.state = stat.StartTicks, stat.Name, stat.State
		before := t.uses[pid]
		if before == nil && own.compared && t.family.isNew(pid) && u.cpu.Seconds() <= own.seconds*float64(max(1, stat.Threads)) { // else it was there before
			before = own.unborn(&u)
		}
		// One that computes in another thread than its first, on a host that is short of
		// CPUs, uses little and waits for long. One that uses nothing is asked in every other round.
		if stat.Threads > 1 && (before == nil || before.others == nil || u.cpu > before.cpu || before.waits()) && t.delayed.take(of.PID, of.Domain, 1) > 0 {
			u.others, u.whole = r.threadsOf(of, pid, before, false)
		}
		r.compare(pid, u, before, gap)
	}
	return strangers
}

// waits reports whether one of its threads beside its main one could run when it was looked at.
func (u *use) waits() bool {
	for _, t := range u.others {
		if t.status.State == 'R' {
			return true
		}
	}
	return false
}

// unborn is what a child had used at the look at its root before: it was not there. What it has read
// since may be its own program.
func (u *use) unborn(child *use) *use {
	return &use{ticks: child.ticks, round: child.round - 1, at: u.at.Add(-time.Duration(u.seconds * float64(time.Second))), io: child.io, whole: true}
}

// slower is how many times as long a process of the tree takes as with a CPU of its own. What a child
// had that has ended is known, and not how long it waited: as long as others, for the same.
func slower(had, lacked float64) float64 {
	if had <= 0 {
		return 1
	}
	return 1 + lacked/had
}

// addChild adds what a child does.
func addChild(in *Inside, pid uint32, u *use) {
	wants := u.share + u.delayed + u.starved
	in.Children += wants
	in.IO += u.rate
	if wants > in.Busiest.Share {
		in.Busiest = Child{PID: pid, Comm: u.comm, Share: wants}
	}
}
