//go:build linux && (amd64 || arm64)

package fusefault

import (
	"slices"
	"time"
)

// forgetAfter is how old the record of an ended fault or request must be before it is
// taken out of its map: what was not used so long is not about to be, while we look.
const forgetAfter = uint64(10 * time.Second)

// FUSE opcodes of waits that have no request of their own, include/uapi/linux/fuse.h.
const (
	opRead  = 15
	opWrite = 16
	opFsync = 20
)

type request struct {
	key uint64 // the kernel's pointer, as a name only
	bpfRequest
}

type fault struct {
	tid uint32
	bpfFault
}

// wait is one thing in flight, on the boot clock.
type wait struct {
	InFlight
	start uint64
}

// picture is all that was read at one moment.
type picture struct {
	now      uint64
	minAge   uint64
	code     kernelCode
	requests []request
	unused   []request // ended, to be taken out of the map
	faults   []fault
	threads  map[uint32]thread
	answered map[Device]uint64 // what entries of requests count, and counted
}

// verdicts is what the picture shows.
type verdicts struct {
	waits         []wait
	endedRequests []request // freed without an end event
	endedFaults   []fault   // ended long enough ago
	loose         []thread  // sleep in a file operation that may be FUSE's, with no record of their own
}

func (p *picture) old(start uint64) bool { return p.now >= start && p.now-start >= p.minAge }

// candidates are the threads whose state decides whether something still hangs.
func (p *picture) candidates() []uint32 {
	var tids []uint32
	for _, r := range p.requests {
		if p.old(r.StartNs) && r.Tid != 0 {
			tids = append(tids, r.Tid)
		}
	}
	for _, f := range p.faults {
		if p.old(f.StartNs) {
			tids = append(tids, f.tid)
		}
	}
	slices.Sort(tids)
	return slices.Compact(tids)
}

// judge tells what is in flight from what only left a record.
func (p *picture) judge() verdicts {
	var v verdicts
	p.judgeFaults(&v)
	p.judgeRequests(&v)
	p.judgeThreads(&v)
	return v
}

func (p *picture) judgeFaults(v *verdicts) {
	for _, f := range p.faults {
		if !p.old(f.StartNs) {
			continue
		}
		t, alive := p.threadOf(f.tid, f.StartNs)
		switch {
		case alive && t.completed == f.Completed && p.inFault(t):
			v.waits = append(v.waits, wait{start: f.StartNs, InFlight: InFlight{
				ID: identity(uint64(f.tid), f.StartNs), Kind: KindFault, Device: device(f.Device),
				Inode: f.Inode, PID: f.Pid, TID: f.tid, Comm: t.comm,
			}})
		case !alive, p.now-f.StartNs > forgetAfter && t.completed != f.Completed:
			v.endedFaults = append(v.endedFaults, f)
		}
	}
}

// coarse is how much earlier than it was a request may seem to have begun: jiffies stand
// still while the CPU that counts them keeps interrupts off, or waits, in a virtual
// machine, for a real one.
const coarse = uint64(time.Second)

// threadOf returns the thread that began something then: not a later one of the
// same number, and not a dead one.
func (p *picture) threadOf(tid uint32, began uint64) (thread, bool) {
	t, ok := p.threads[tid]
	return t, ok && t.start <= began && !t.dead()
}

// inFault: asleep, with the kernel's fault handler on its stack. Where addresses or
// stacks are hidden, the kind of sleep is all there is: a fault on FUSE waits
// uninterruptibly, for the page, or for a request of its own. A signal wakes the
// latter for a moment (request_wait_answer, fs/fuse/dev.c).
func (p *picture) inFault(t thread) bool {
	switch {
	case t.state == 0:
		return p.waitsForAnswer(t)
	case len(p.code.fault) > 0 && len(t.stack) > 0:
		return p.code.fault.On(t.stack)
	}
	return t.sleepsHard() || p.waitsForAnswer(t)
}

func (p *picture) waitsForAnswer(t thread) bool {
	return slices.ContainsFunc(p.requests, func(r request) bool { return r.Tid == t.tid && r.Background == 0 })
}

func (p *picture) judgeRequests(v *verdicts) {
	newest, faults := p.newestForeground(), began(v.waits)
	for _, r := range p.requests {
		if !p.old(r.StartNs) {
			continue
		}
		t, alive := p.threadOf(r.Tid, r.StartNs+coarse)
		background := r.Background != 0
		// A thread waits for one request at a time: with a newer one, or dead, it
		// waits for this one no more. A fatal signal takes a request out of the
		// queue and no hook tells (request_wait_answer, fs/fuse/dev.c).
		if !background && (!alive || newest[r.Tid] != r.key || p.elsewhere(t)) {
			v.endedRequests = append(v.endedRequests, r)
			continue
		}
		w := wait{start: r.StartNs, InFlight: InFlight{
			ID: identity(r.key, r.StartNs), Kind: KindRequest, Device: device(r.Device),
			Opcode: r.Opcode, Inode: r.NodeId, PID: r.Pid, TID: r.Tid, Background: background,
		}}
		if alive {
			w.Comm = t.comm
		}
		fault, faults := faults[r.Tid]
		if faults && w.start <= fault && fault-w.start < coarse { // it is what the fault has asked for
			w.start = fault + 1
		}
		v.waits = append(v.waits, w)
		if !background && !faults && p.code.answer.On(t.stack) && p.code.fault.On(t.stack) {
			v.waits = append(v.waits, untold(r, w))
		}
	}
}

// untold is the fault for which a thread has sent a request, where no hook told of the
// fault: it began before the probe was open, or the kernel left the program out.
func untold(r request, w wait) wait {
	w.ID, w.Kind, w.Opcode, w.Inode = identity(uint64(r.Tid), r.StartNs), KindFault, 0, 0
	return w
}

// began is when each thread began to wait.
func began(waits []wait) map[uint32]uint64 {
	at := make(map[uint32]uint64, len(waits))
	for _, w := range waits {
		at[w.TID] = w.start
	}
	return at
}

// elsewhere: asleep, and not for an answer. Then the end of its request was missed: the
// kernel does not run a program within itself, say when it was preempted.
func (p *picture) elsewhere(t thread) bool {
	return t.state != 0 && len(p.code.answer) > 0 && len(t.stack) > 0 && !p.code.answer.On(t.stack)
}

// newestForeground is, by thread, the request that it can be waiting for.
func (p *picture) newestForeground() map[uint32]uint64 {
	best := make(map[uint32]request)
	for _, r := range p.requests {
		if known, ok := best[r.Tid]; r.Background == 0 && (!ok || r.StartNs > known.StartNs) {
			best[r.Tid] = r
		}
	}
	keys := make(map[uint32]uint64, len(best))
	for tid, r := range best {
		keys[tid] = r.key
	}
	return keys
}

// ownBackground is the oldest request that a thread itself began in the background
// on a file system.
func (p *picture) ownBackground(tid uint32, d Device) (request, bool) {
	var oldest request
	found := false
	for _, r := range p.requests {
		if r.Tid == tid && r.Background != 0 && r.Device == d.number() && (!found || r.StartNs < oldest.StartNs) {
			oldest, found = r, true
		}
	}
	return oldest, found
}

// operation is the opcode of the file operation, FUSE's if the file is, in which a
// thread sleeps uninterruptibly, for a page that a request fills or for room to
// send one; 0: none. A fault within it (the buffer lies in a mapping) waits for
// something else.
func (p *picture) operation(t thread) uint32 {
	switch {
	case !t.sleepsHard() || p.code.fault.On(t.stack) || p.code.beyond.On(t.stack):
		return 0
	case p.code.read.On(t.stack):
		return opRead
	case p.code.write.On(t.stack):
		return opWrite
	case p.code.sync.On(t.stack):
		return opFsync
	}
	return 0
}

// judgeThreads finds those who wait for what others have begun.
func (p *picture) judgeThreads(v *verdicts) {
	counted := began(slices.DeleteFunc(slices.Clone(v.waits), func(w wait) bool { return w.Background }))
	for tid, t := range p.threads {
		if _, is := counted[tid]; !is && !t.dead() && p.operation(t) != 0 {
			v.loose = append(v.loose, t)
		}
	}
}

// identity mixes a name that the kernel uses again with the moment of its use
// (the finaliser of SplitMix64).
func identity(name, moment uint64) uint64 {
	x := name*0x9e3779b97f4a7c15 + moment
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
