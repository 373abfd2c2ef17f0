//go:build linux && (amd64 || arm64)

package identity

import (
	"cmp"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// A process may say who it is after its start: torch.multiprocessing.spawn and Ray start
// Python, and the rank then sets its own variables. /proc shows the environment that a
// process began with. The present one is in its memory.
const (
	maxCurrents  = 1024                   // processes that are looked at
	firstAgain   = time.Second            // between two looks, then half as much more each time
	longestAgain = time.Minute            //
	longestRound = 100 * time.Millisecond // of questions, once a second
	atOnceAgain  = 100 * time.Millisecond // between two looks that wait for no round

	// A rank may die as soon as it has said who it is: what it said at the last look before counts then. Until it has
	// imported what it needs, and says it, looks are frequent.
	importing   = 20 * time.Second       // the age by which most ranks have said it
	whileYoung  = 250 * time.Millisecond // between two looks until then
	longestLook = 25 * time.Millisecond  // of looks, each of these times
)

// current is a living process that is no rank and may become one.
type current struct {
	pid     uint32
	startNS uint64
	due     uint64
	pause   time.Duration
	place   environPlace
	cgroup  string
	said    launch // at the last look
	saidNS  uint64 // since when it says so
	calls   launch // which rank its calls show
	gone    bool   // it could not be looked at: it has ended, and what tells so may be on its way
}

// next is how long it is until it is looked at again.
func (c *current) next(now uint64) time.Duration {
	if now < c.startNS+uint64(importing) {
		return whileYoung
	}
	pause := c.pause
	c.pause = min(c.pause+c.pause/2, longestAgain)
	return pause
}

// rank is what it says by now, by its calls where its environment says nothing; no rank for neither.
func (c *current) rank() launch {
	if c.said.rank == Unknown && c.calls.rank != Unknown {
		return c.calls.meets(c.said)
	}
	return c.said
}

// currents are they. Beyond their number the user and the container that has most loses
// the oldest. It has no lock and no clock.
type currents struct {
	of    map[uint32]*fairlru.Element[*current]
	order fairlru.List[*current]
}

// note takes a process that was just learned.
func (c *currents) note(r *record, now uint64) {
	if known := c.of[r.PID]; known != nil {
		if known.Value.startNS == r.startNS && !r.IsRank() {
			return
		}
		c.forget(r.PID)
	}
	if r.IsRank() || !r.alive() || !Interpreter(r.Comm) {
		return
	}
	one := &current{pid: r.PID, startNS: r.startNS, pause: firstAgain, cgroup: r.CgroupPath, said: noLaunch(), calls: noLaunch()}
	one.due = now + uint64(one.next(now))
	c.of[r.PID] = c.order.Add(one, fairlru.Some, r.Domain, r.ContainerID)
	if c.order.Len() > maxCurrents {
		victim, _ := c.order.Victim()
		c.forget(victim.Value.pid)
	}
}

func (c *currents) forget(pid uint32) {
	if known := c.of[pid]; known != nil {
		c.order.Remove(known)
		delete(c.of, pid)
	}
}

// next returns those that are due, who waits for longest first: rounds that end early leave nobody
// out for ever.
func (c *currents) next(now uint64) (due []*current) {
	c.order.Each(func(one *current) {
		if one.due <= now {
			due = append(due, one)
		}
	})
	slices.SortStableFunc(due, func(a, b *current) int { return cmp.Compare(a.due, b.due) })
	return due
}

// Unranked implements Candidates: those whose environment is looked at again, at most
// maxCurrents.
func (t *Tracker) Unranked() []Process {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var all []Process
	t.currents.order.Each(func(one *current) {
		if r := t.table.exact(one.pid, one.startNS); r != nil && r.alive() && !r.IsRank() {
			all = append(all, r.Process)
		}
	})
	return all
}

// Ranked implements Candidates: at the next look.
func (t *Tracker) Ranked(p Process, is Place) {
	if is.Rank < 0 || is.Rank >= is.WorldSize || is.WorldSize > maxWorldSize {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.currents.of[p.PID]
	if known == nil {
		return
	}
	if r := t.table.exact(p.PID, known.Value.startNS); r == nil || r.StartNS != p.StartNS {
		return // another process has its number by now
	}
	calls := noLaunch()
	calls.rank, calls.worldSize, calls.rendezvous, calls.byCalls = is.Rank, is.WorldSize, is.Rendezvous, true
	known.Value.calls, known.Value.due = calls, min(known.Value.due, bootNow())
}

// lookAgain looks at the present environment of processes that may become ranks.
func (t *Tracker) lookAgain() {
	began, now := time.Now(), bootNow()
	t.mu.Lock()
	due := t.currents.next(now)
	t.mu.Unlock()
	for _, one := range due {
		if time.Since(began) > longestLook {
			return // the others are due the next time
		}
		t.lookAt(one, now)
	}
}

// lookAtFirst looks at the first process of Lightning when it has started another rank: it is one by now, and
// may not live until the next round.
func (t *Tracker) lookAtFirst(pid uint32) {
	now := bootNow()
	t.mu.Lock()
	known := t.currents.of[pid]
	if known != nil {
		known.Value.due = min(known.Value.due, now)
	}
	t.mu.Unlock()
	if known != nil && now >= t.atOnce {
		t.atOnce = now + uint64(atOnceAgain)
		t.lookAt(known.Value, now)
	}
}

func (t *Tracker) lookAt(one *current, now uint64) {
	t.mu.Lock()
	one.due = now + uint64(one.next(now))
	calls := one.calls
	t.mu.Unlock()
	block, err := t.proc.current(one.pid, &one.place)
	said := parseEnviron(block).in(one.cgroup)
	switch {
	case (err == nil && said.rank == Unknown || err != nil && !passing(err)) && calls.rank != Unknown:
		t.becomes(one, calls.meets(said))
	case err != nil && !passing(err):
		t.mu.Lock()
		if one.gone || one.said.rank == Unknown {
			t.currents.forget(one.pid)
		}
		one.gone = true
		t.mu.Unlock()
	case err != nil: // what it said before counts, until somebody can look again
	case said.rank == Unknown:
		t.mu.Lock()
		one.said = noLaunch()
		t.mu.Unlock()
	case said != one.said:
		t.mu.Lock()
		one.said, one.saidNS, one.pause = said, now, firstAgain
		one.due = now + uint64(one.next(now))
		t.mu.Unlock()
		if t.started(one, said) {
			t.becomes(one, said)
		}
	case now-one.saidNS >= uint64(firstAgain) || t.started(one, said): // before, it may be about to start others, with one rank after another
		t.becomes(one, said)
	}
}

// started reports whether a process that says it is the first of Lightning has started others.
func (t *Tracker) started(one *current, said launch) bool {
	if said.launcher != lightning {
		return false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	known := t.table.exact(one.pid, one.startNS)
	return known != nil && slices.ContainsFunc(t.below(known), func(r *record) bool { return r.launcher == lightning && r.IsRank() && r.Rank != said.rank })
}

// becomes makes a process the outermost of the rank that it says it is. One whose children
// are other ranks is their launcher, and no rank, but for that of Lightning, which is a rank itself.
func (t *Tracker) becomes(one *current, said launch) {
	t.mu.RLock()
	known := t.table.exact(one.pid, one.startNS)
	t.mu.RUnlock()
	if known == nil {
		return
	}
	parent := t.parent(known.ParentPID, bootNow(), maxAncestors)

	t.mu.Lock()
	defer t.mu.Unlock()
	t.turns(one, said, parent)
}

// endsAs makes a process that has ended the rank that it said it was at the last look, or by its calls. The caller
// holds the lock.
func (t *Tracker) endsAs(r, parent *record) {
	element := t.currents.of[r.PID]
	if element == nil || element.Value.startNS != r.startNS {
		return
	}
	one := element.Value
	said := one.rank()
	if said.rank == Unknown || t.ledOthers(r, said) {
		t.currents.forget(r.PID)
		return
	}
	t.turns(one, said, parent)
}

// ledOthers reports whether a process has started other ranks, as a launcher that says one rank after the other does.
// It has ended, and they may have.
func (t *Tracker) ledOthers(r *record, said launch) (led bool) {
	t.table.queues[exitedRank].Each(func(o *record) {
		led = led || o.ParentPID == r.PID && o.startNS >= r.startNS && (o.Rank != said.rank || o.WorldSize != said.worldSize)
	})
	return led
}

// turns is becomes for a caller that holds the lock.
func (t *Tracker) turns(one *current, said launch, parent *record) {
	t.currents.forget(one.pid)
	known := t.table.exact(one.pid, one.startNS)
	if known == nil || !known.alive() || known.IsRank() {
		return
	}
	below := t.below(known)
	other := func(r *record) bool { return r.IsRank() && (r.Rank != said.rank || r.WorldSize != said.worldSize) }
	leads := func(r *record) bool { return said.launcher == lightning && r.WorldSize == said.worldSize }
	if slices.ContainsFunc(below, func(r *record) bool { return other(r) && !leads(r) }) {
		return
	}
	below = slices.DeleteFunc(below, other)
	f := facts{pid: known.PID, parentPID: known.ParentPID, startNS: known.startNS, comm: known.Comm, launch: said, home: home{domain: unknownDomain}}
	f.keep(known)
	rank := t.put(f, parent)
	for _, r := range below {
		if r.launched != nil {
			r.launched.forget(r)
			r.launched = nil
		}
		if r.IsRank() {
			r.complete(&rank.Process)
		} else {
			r.inherit(&rank.Process)
		}
		t.table.reclassify(r)
		t.currents.forget(r.PID)
	}
}

// below are the living processes that descend from r.
func (t *Tracker) below(r *record) []*record {
	children := map[uint32][]*record{}
	t.table.living(func(o *record) { children[o.ParentPID] = append(children[o.ParentPID], o) })
	found := slices.Clone(children[r.PID])
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].PID]...)
		if len(found) > t.opts.MaxProcesses { // a circle: pids are used again
			return found
		}
	}
	return found
}
