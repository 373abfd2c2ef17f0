package activity

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Bounds of the search for the child that keeps a rank from going on.
const (
	maxAsked   = 64   // children in one round that are asked for whom they wait
	maxFiles   = 4096 // open files of a process among which pipes are looked for
	maxAwaited = 64   // files that one call waits for
)

// Holder is a child that does not go on while its rank rests.
type Holder struct {
	PID     uint32
	Comm    string
	StartNS uint64
	State   socketstall.State // Stopped, Frozen, DiskSleep or Sleeping
	// Awaited is true where the main thread of the rank waits for it: for its end or for what
	// it writes or reads, or for a child that waits so for it.
	Awaited bool

	Syscall, Channel, File string // in which it sleeps
}

// Stopper is the signal that stopped the process, or the child that holds it up, or the
// debugger that holds either; none where neither is stopped, or nobody knows.
func (r *Reader) Stopper(p *Process, resolver identity.Resolver) (signal identity.Signal) {
	in := p.Inside
	switch {
	case p.State == socketstall.Stopped:
		signal = r.tracer(p.PID)
	case in != nil && in.Holder != nil && in.Holder.State == socketstall.Stopped:
		signal = r.tracer(in.Holder.PID)
	}
	stops, ok := resolver.(identity.Stops)
	switch {
	case !ok || signal.Number != 0:
	case p.State == socketstall.Stopped:
		signal, _ = stops.Stopped(p.Process)
	case in != nil && in.Holder != nil && in.Holder.State == socketstall.Stopped:
		// A child that was forked is not known until somebody asks.
		child, known := resolver.Lookup(in.Holder.PID, p.PID, time.Time{})
		if known && child.StartNS/uint64(procfs.Tick) == in.Holder.StartNS/uint64(procfs.Tick) {
			signal, _ = stops.Stopped(child)
		}
	}
	return signal
}

// waits is what the main thread of a process waits for.
type waits struct {
	pid   uint32 // the end of this child, by its number in the namespace of who waits
	named uint32 // the same by its number here
	all   bool   // the end of any child
	pipes map[string]procfs.Ends
}

// asked is a process of the tree, and for whom it waits.
type asked struct {
	pid     uint32
	use     *use
	wait    procfs.Wait
	waits   waits
	pipes   map[string]procfs.Ends
	awaited bool
	idle    bool // it waits for the rank, or for another that rests
	frozen  bool
}

// search looks for the child that keeps a rank from going on.
type search struct {
	*Reader
	rank *asked
	rest []*asked // children that rest, those first that cannot go on by themselves
}

// holder is the child that keeps a rank from going on which rests, nil for none that is seen.
// answered says that a file answers a child for which it may wait.
func (r *Reader) holder(of *Process, wait procfs.Wait, below []uint32, gap int) (h *Holder, answered bool) {
	s := &search{Reader: r, rank: &asked{pid: of.PID, wait: wait}}
	for _, child := range below {
		u := r.trees.uses[child]
		if u != nil && u.compared && r.trees.round-u.round <= gap && !u.ready && u.share+u.starved < computes && u.rate < transfers {
			s.rest = append(s.rest, &asked{pid: child, use: u})
		}
	}
	if len(s.rest) == 0 {
		return nil, false
	}
	slices.SortStableFunc(s.rest, func(a, b *asked) int { return cmp.Compare(a.use.urgency(), b.use.urgency()) })
	s.follow(r.trees.inquiries.take(of.PID, of.Domain, len(s.rest)))
	best, answered := s.best(), s.answered()
	if best == nil || answered && !best.awaited {
		return nil, answered
	}
	began := procfs.Stat{StartTicks: best.use.ticks}
	h = &Holder{PID: best.pid, Comm: best.use.comm, StartNS: began.StartNS(), State: best.state(), Awaited: best.awaited}
	if !h.State.Halted() {
		h.Syscall, h.Channel, h.File = best.wait.Syscall, best.wait.Channel, best.use.file
	}
	return h, false
}

// urgency orders children: what cannot go on by itself says more than what sleeps.
func (u *use) urgency() int {
	switch stateOf(u.state) {
	case socketstall.Stopped:
		if u.state == traced && (u.was != traced || u.woken) {
			return 2 // by a profiler, for a moment
		}
		return 0
	case socketstall.DiskSleep:
		return 1
	}
	return 2
}

// follow asks the children that rest, as many as there is room for in the round, and goes from
// the rank along who waits for whom.
func (s *search) follow(room int) {
	s.ask(s.rank)
	for _, a := range s.rest[:room] {
		s.place(a.pid, a.use)
		a.wait = a.use.wait
		s.ask(a)
		a.idle = a.waits.on(s.rank.pipes)
		a.frozen, _ = s.fs.Frozen(a.pid)
	}
	for open := []*asked{s.rank}; len(open) > 0; open = open[1:] {
		for _, a := range s.rest[:room] {
			if a == open[0] || !s.waitsFor(open[0], a) {
				continue
			}
			open[0].idle = true
			if !a.awaited {
				a.awaited = true
				open = append(open, a)
			}
		}
	}
}

// ask reads for what a process waits, and which pipes it has open.
func (s *search) ask(a *asked) {
	a.pipes, _ = s.fs.Pipes(a.pid, maxFiles) // none: nobody is known to wait for it
	a.waits = waits{pipes: map[string]procfs.Ends{}}
	add := func(fd int, end procfs.Ends) {
		name, err := s.fs.OpenFile(a.pid, fd)
		if err != nil || !strings.HasPrefix(name, "pipe:[") {
			return
		}
		known := a.waits.pipes[name]
		a.waits.pipes[name] = procfs.Ends{Reads: known.Reads || end.Reads, Writes: known.Writes || end.Writes}
	}
	w := &a.wait
	switch w.Syscall {
	case "wait4": // an id below 0 is of a group, or of all
		if id := int32(w.Arguments[0]); id > 0 { //nolint:gosec // pid_t
			a.waits.pid = uint32(id)
		} else {
			a.waits.all = true
		}
	case "waitid": // include/uapi/linux/wait.h
		switch w.Arguments[0] {
		case 0: // P_ALL
			a.waits.all = true
		case 1: // P_PID
			a.waits.pid = uint32(w.Arguments[1]) //nolint:gosec // pid_t
		case 3: // P_PIDFD
			a.waits.named, _ = s.fs.ProcessOf(a.pid, int(w.Arguments[1]&(1<<31-1))) // 0: it has ended
		}
	case "poll", "ppoll":
		for _, one := range s.polled(a.pid, w.Arguments[0], int(min(w.Arguments[1], maxAwaited))) {
			add(one.fd, one.Ends)
		}
	case "epoll_wait", "epoll_pwait":
		watched, _ := s.fs.Watched(a.pid, int(w.Arguments[0]&(1<<31-1)), maxAwaited) // none: for nothing that is known
		for _, fd := range watched {
			add(fd, procfs.Ends{Reads: true})
		}
	default:
		if writes := strings.Contains(w.Syscall, "write"); w.FD != procfs.Negative {
			add(w.FD, procfs.Ends{Reads: !writes, Writes: writes})
		}
	}
}

// polledFile is a file for which poll(2) waits.
type polledFile struct {
	fd int
	procfs.Ends
}

// on reports whether one waits for the other end of a pipe which somebody has open.
func (w *waits) on(pipes map[string]procfs.Ends) bool {
	for name, mine := range w.pipes {
		theirs := pipes[name]
		if mine.Reads && theirs.Writes || mine.Writes && theirs.Reads {
			return true
		}
	}
	return false
}

// waitsFor reports whether the main thread of a waits for b.
func (s *search) waitsFor(a, b *asked) bool {
	child := s.trees.family.parent[b.pid].parent == a.pid
	switch {
	case child && a.waits.all, a.waits.named == b.pid:
		return true
	case child && a.waits.pid != 0:
		status, err := s.fs.ThreadStatus(b.pid, b.pid)
		return err == nil && status.Inner == a.waits.pid
	}
	return a.waits.on(b.pipes)
}

// state is what keeps a child from going on.
func (a *asked) state() socketstall.State {
	switch {
	case a.frozen:
		return socketstall.Frozen
	case a.use.urgency() == 0:
		return socketstall.Stopped
	case a.use.urgency() == 1 && stateOf(a.use.was) == socketstall.DiskSleep && !a.use.woken:
		return socketstall.DiskSleep
	}
	return socketstall.Sleeping
}

// best is the child that holds the rank up: one that cannot go on by itself, else the only one
// of those for which the rank waits that waits for nobody. Of these a lock says least: it is
// another's.
func (s *search) best() *asked {
	for _, awaited := range []bool{true, false} {
		for _, a := range s.rest {
			if state := a.state(); a.awaited == awaited && (state.Halted() || state == socketstall.DiskSleep) {
				return a
			}
		}
	}
	for _, lock := range []bool{false, true} {
		var found []*asked
		for _, a := range s.rest {
			if a.awaited && !a.idle && !a.answered() && strings.HasPrefix(a.wait.Syscall, "futex") == lock {
				found = append(found, a)
			}
		}
		if len(found) > 0 {
			if len(found) == 1 {
				return found[0]
			}
			return nil
		}
	}
	return nil
}

// answered reports whether a child waits for a file, or for a page of one, and is woken.
func (a *asked) answered() bool {
	return a.use.woken && (stateOf(a.use.state) == socketstall.DiskSleep || a.use.onFile())
}

// answered reports whether a file answers a child for which the rank waits. That need not be seen:
// its main thread may wait for another one that does, as behind the pinned memory of a DataLoader.
// Then the child was seen at a file.
func (s *search) answered() bool {
	return slices.ContainsFunc(s.rest, func(a *asked) bool {
		return a.answered() && (a.awaited || stateOf(a.use.state) == socketstall.DiskSleep || a.use.asleep && stored(a.use.file))
	})
}
