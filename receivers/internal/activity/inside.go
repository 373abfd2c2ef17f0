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
	maxThreads  = 256 // of one process, whose delays are read
	maxDelayed  = 16  // children in one round whose threads are asked for their delays
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
	looked    shares // threads of ranks that may still be looked at
	polled    shares // threads without a CPU that may still be asked whether they poll

	next    map[uint32]int   // by root: which child has its turn
	uses    map[uint32]*use  // of roots and of children
	threads map[uint32]slept // of roots
}

func newTrees() trees {
	return trees{
		family:   family{met: maxMet, known: maxParents},
		children: newShares(maxChildren), delayed: newShares(maxDelayed), inquiries: newShares(maxAsked), looked: newShares(maxLooked), polled: newShares(maxLooked),
		next: map[uint32]int{}, uses: map[uint32]*use{}, threads: map[uint32]slept{},
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
	others map[uint32]turns // of its other threads, nil not read

	awake  bool        // when it was asked where it sleeps
	asleep bool        // it was seen asleep, in this look or before:
	wait   procfs.Wait // there
	file   string      // that the call is about

	compared bool    // there was a look before
	was      byte    // its state then
	share    float64 // cores
	rate     float64 // bytes a second
	woken    bool    // it went to sleep once more
	polls    bool    // its main thread does
	delayed  float64 // share of the time in which that waited for a CPU, 0 where it polls
	starved  float64 // other threads that did, without those that poll
	groups   []procfs.CPUGroup
	limit    CPULimit // that held it back since the look before
}

// turns are what a thread has had of the CPUs, and how often it has gone to sleep by itself, if
// that was read.
type turns struct {
	procfs.Turns
	sleeps uint64
	read   bool
}

// polls reports whether a thread has run for next to nothing since before, each time it woke.
func (t turns) polls(before turns) bool {
	return before.read && t.read && t.sleeps > before.sleeps && t.Ran-before.Ran < time.Duration(t.sleeps-before.sleeps)*bout //nolint:gosec // far below
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
	t.polled.begin()
	for pid, u := range t.uses {
		if t.round-u.round > forgotten {
			delete(t.uses, pid)
			delete(t.next, pid)
			delete(t.threads, pid)
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
	if k.worked > 0 { // a process that rests has no thread that waits
		now.others = r.turnsOf(out, out.PID)
		now.groups, _ = r.fs.CPUGroups(out.PID) // none: nothing limits it, or nobody can tell
	}
	own := r.compare(out.PID, now, 1)
	if own.compared { // else what was known of it stays
		k.polls = own.polls
	}
	out.Polls = k.polls
	in := &Inside{Compared: own.compared, IO: own.rate, Children: own.share, Starved: own.starved, Limit: own.limit}
	if own.delayed+own.starved >= starves {
		in.Pressure, _ = r.fs.CPUPressure() // 0 where it is switched off
	}
	wait := r.whereItSleeps(out, in, own)
	r.trees.family.refresh(r.fs)
	below := r.trees.family.below(out.PID, isRoot, kin)
	room := r.trees.children.take(out.PID, out.Domain, len(below))
	gap := len(below)/max(room, 1) + 1
	if r.readChildren(out, below, room, gap) {
		below = r.trees.family.below(out.PID, isRoot, kin)
	}
	in.Tree = below[:min(len(below), maxTree)]
	for _, pid := range below {
		if u := r.trees.uses[pid]; u != nil && u.compared && r.trees.round-u.round <= gap {
			addChild(in, pid, u)
		}
	}
	if in.Compared && in.Children < computes && out.State != socketstall.Running && !out.State.Halted() {
		holder, answered := r.holder(out, wait, below, gap)
		in.Holder, in.Answered = holder, in.Answered || answered
	}
	if !in.Answered && in.IO < transfers && in.Children < computes && !out.State.Halted() {
		r.askThreads(out, in)
	}
	out.Inside = in
}

// useOf reads what a process has used. cpu is what is counted as its own.
func (r *Reader) useOf(pid uint32, cpu time.Duration) use {
	u := use{round: r.trees.round, at: r.clock(), cpu: cpu}
	if k := r.known[pid]; k != nil {
		u.ticks = k.startTicks
	}
	u.io, _ = r.fs.IOBytes(pid)     // 0 where it may not be read: no I/O is seen then
	sleeps, err := r.fs.Sleeps(pid) // not read: nobody is woken
	u.main.sleeps, u.main.read = sleeps, err == nil
	u.main.Turns, _ = r.fs.Turns(pid) // 0 where the kernel does not count it
	return u
}

// turnsOf reads those of the threads of a process of the rank beside its main thread. Those that
// have waited for a CPU since the look before, or all where there was none, are asked how often they slept.
func (r *Reader) turnsOf(of *Process, pid uint32) map[uint32]turns {
	all, _ := r.fs.ThreadTurns(pid, maxThreads) // none where the kernel does not count them
	threads := make(map[uint32]turns, len(all))
	var delayed []uint32
	for tid, now := range all {
		if tid == pid {
			continue
		}
		threads[tid] = turns{Turns: now}
		if u := r.trees.uses[pid]; u == nil || now.Delayed > u.others[tid].Delayed {
			delayed = append(delayed, tid)
		}
	}
	slices.Sort(delayed)
	for _, tid := range delayed[:r.trees.polled.take(of.PID, of.Domain, len(delayed))] {
		status, err := r.fs.ThreadStatus(pid, tid) // none of one that has just ended
		threads[tid] = turns{all[tid], status.Sleeps, err == nil}
	}
	return threads
}

// compare takes a new look at a process and works out its rates since the one before, of
// which more than gap rounds would tell of another time.
func (r *Reader) compare(pid uint32, next use, gap int) *use {
	before := r.trees.uses[pid]
	if before != nil && before.ticks == next.ticks && next.round-before.round <= gap {
		if seconds := next.at.Sub(before.at).Seconds(); seconds > 0 {
			next.compared, next.woken, next.was = true, next.main.sleeps > before.main.sleeps, before.state
			next.asleep, next.wait, next.file = before.asleep, before.wait, before.file
			next.share = max(0, next.cpu-before.cpu).Seconds() / seconds
			next.delays(before, seconds)
			next.rate = float64(next.io-min(next.io, before.io)) / seconds
			next.limit = tightest(before.groups, next.groups)
		}
	}
	r.trees.uses[pid] = &next
	return &next
}

// delays works out which threads of the process could run and had no CPU. Of one that was not
// asked in both looks nobody knows whether it only polls: it does not count.
func (u *use) delays(before *use, seconds float64) {
	if u.polls = u.main.polls(before.main); !u.polls {
		u.delayed = max(0, u.main.Delayed-before.main.Delayed).Seconds() / seconds
	}
	for tid, now := range u.others {
		if then, known := before.others[tid]; known && then.read && now.read && !now.polls(then) {
			u.starved += max(0, now.Delayed-then.Delayed).Seconds() / seconds
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
// a page of one, and is woken between two looks, is answered.
func (r *Reader) whereItSleeps(out *Process, in *Inside, own *use) procfs.Wait {
	r.place(out.PID, own)
	in.Syscall, in.Channel, in.File = own.wait.Syscall, own.wait.Channel, own.file
	in.OnFile = own.onFile() || out.State == socketstall.DiskSleep
	in.Answered = own.woken && in.OnFile
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
func (r *Reader) readChildren(of *Process, below []uint32, room, gap int) (strangers bool) {
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
		// One that computes in another thread than its first, on a host that is short of
		// CPUs, uses little and waits for long.
		if before := t.uses[pid]; before != nil && u.cpu > before.cpu && t.delayed.take(of.PID, of.Domain, 1) > 0 {
			u.others = r.turnsOf(of, pid)
		}
		r.compare(pid, u, gap)
	}
	return strangers
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
