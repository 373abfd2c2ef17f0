//go:build linux && (amd64 || arm64)

package identity

import (
	"cmp"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// maxAncestors bounds the walk to a known ancestor.
const maxAncestors = 16

// young is the age below which a known process may have executed a program since
// it was read, so that a scan reads it again.
const young = time.Minute

// onExec learns a process that has just begun a program.
func (t *Tracker) onExec(e *event) {
	f := facts{pid: e.pid, parentPID: e.parentPID, startNS: e.startNS, comm: e.comm}
	var homeErr, environErr error
	f.home, homeErr = t.proc.home(e.pid)
	environ := e.environ
	if !e.whole {
		var all []byte
		if all, environErr = t.proc.environ(e.pid); environErr == nil {
			environ = all
		}
	}
	// What /proc gave is only worth something if it was of this process.
	st, statErr := t.proc.Stat(e.pid)
	if statErr != nil || st.StartNS()/uint64(tick) != e.startNS/uint64(tick) {
		f.home, environ = home{domain: unknownDomain}, e.environ
	}
	f.unread = passing(homeErr) || passing(environErr) || passing(statErr)
	f.launch = parseEnviron(environ).in(f.membership.Path)
	f.drill = t.drills(f)
	parent := t.parent(e.parentPID, e.timeNS, maxAncestors)
	f.arguments = t.argumentsUnder(parent, &f)
	t.mu.Lock()
	t.put(f, parent)
	t.mu.Unlock()
	if f.launch.launcher == lightning {
		t.lookAtFirst(e.parentPID)
	}
}

// drills reports whether a process has proven that a drill started it.
func (t *Tracker) drills(f facts) bool {
	return f.launch.drill != "" && t.opts.Drill != nil && t.opts.Drill(f.launch.drill, wall(f.startNS))
}

// onExit ends a process, and tells of it once if it was a rank's. One that was
// not known has forked without executing anything: it is what its parent is.
func (t *Tracker) onExit(e *event) {
	t.mu.Lock()
	r := t.table.exact(e.pid, e.startNS)
	t.mu.Unlock()
	var parent *record
	if r == nil {
		parent = t.parent(e.parentPID, e.timeNS, maxAncestors)
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if r = t.table.exact(e.pid, e.startNS); r == nil {
		r = t.put(facts{
			pid: e.pid, parentPID: e.parentPID, startNS: e.startNS, comm: e.comm, launch: noLaunch(),
		}, parent)
	}
	if r.told {
		return
	}
	if !r.IsRank() && r.alive() {
		t.endsAs(r, t.table.at(e.parentPID, e.timeNS))
		r = t.table.exact(e.pid, e.startNS)
	}
	r.told = true
	t.table.end(r, e.timeNS)
	t.wrapperEnded(r, e)
	exit := Exit{
		Process: r.Process, Time: wall(e.timeNS),
		Code: e.code(), Signal: e.signal(), CoreDump: e.coreDump(), OOMVictim: e.oomVictim,
		Signalled: t.ended(r, e), Late: t.late,
	}
	if r.wraps != nil && exit.Inherited {
		exit = helper(exit)
		exit.Inherited = false
	}
	r.failed = exit.failedByItself()
	if e.signals != nil && e.signals.asked.signal != 0 {
		asked := e.signals.asked // a copy holds less than all signals
		r.asked = &asked
	}
	before, among := t.table.at(e.parentPID, e.timeNS), r.launched
	t.endedUnder(before, r, &exit)
	if to := t.outlives(r, before); to != nil {
		t.handOn(r, to, &exit)
		if !exit.Inherited {
			exit = helper(exit)
		}
		t.launches.tell(exit)
	} else if ended := t.passOn(r, exit, before); r.IsRank() || r.launched != nil {
		if r.outlived != nil {
			ended.Wrapper = r.outlived
		}
		t.launches.ended(r, ended)
	}
	r.among = among
	t.tried(r, &exit)
	t.join(r, among)
	t.launches.parentEnded(r, before, exit)
}

// passOn notes the end of r for its parent, and returns what is told of it.
func (t *Tracker) passOn(r *record, e Exit, parent *record) Exit {
	passed := r.passed(&e, Interpreter(r.program))
	if passed == nil && r.IsRank() {
		e.Child = t.crashed(r, &e)
	}
	r.children = nil
	of := &e
	if passed != nil {
		of = &passed.Exit
	}
	if r.IsRank() && parent != nil && parent.alive() && parent.IsRank() && parent.Rank == r.Rank && parent.WorldSize == r.WorldSize && parent.JobID == r.JobID {
		if parent.children == nil {
			parent.children = &children{}
		}
		parent.children.ended(r, &e, of)
	}
	if passed == nil || r.Inherited || !r.IsRank() {
		return e
	}
	return passed.by(&e)
}

// put enters a process into the table. The caller holds the lock.
func (t *Tracker) put(f facts, parent *record) *record {
	t.badValues.Add(uint64(f.launch.badValues))
	t.unread.note(f)
	f.host = t.host
	r, parentIsLauncher := derive(f, parent)
	if parent != nil {
		parent.starts = true
	}
	if Interpreter(r.program) && len(f.arguments) > 0 {
		r.arguments, r.script = joined(f.arguments), scriptOf(f.arguments)
	}
	t.adopt(r)
	t.disown(r, parent)
	r.StartTime = wall(r.startNS)
	t.runUnder(parent, r, f.arguments)
	if r.RankPID == r.PID {
		r.RankStart = r.StartTime
	}
	t.table.put(r, bootNow())
	t.memory.keep(r)
	if r.IsRank() || f.launch.rank == Unknown { // else its environment was heard, and it is no rank
		t.currents.note(r, bootNow())
	}
	if parentIsLauncher {
		t.demote(parent, r)
	}
	t.launches.started(r, parent)
	return r
}

// adopt makes r a process of the rank that has started it, where nothing in its parent shows
// that any more: a rank's program that was sent into the background executes another one, or
// has process 1 for its parent. It says the rank that another process has been for longer.
func (t *Tracker) adopt(r *record) {
	if !r.IsRank() || r.Inherited || r.byCalls {
		return
	}
	if before := t.table.exact(r.PID, r.startNS); before != nil && (before.Inherited || before.RankPID != r.PID) && before.Rank == r.Rank && before.WorldSize == r.WorldSize && !r.startedBy(before) {
		r.complete(&before.Process)
		r.Inherited, r.Wrapped = before.Inherited, before.Wrapped // not of one that has outlived its wrapper
		return
	}
	if r.ParentPID > 1 {
		return
	}
	var rank *record
	t.table.queues[livingRank].Each(func(o *record) {
		if o.startNS < r.startNS && (!o.Inherited || o.wraps != nil) && !o.byCalls && keyOfRank(o) == keyOfRank(r) && o.Domain == r.Domain && (rank == nil || o.startNS < rank.startNS) {
			rank = o
		}
	})
	if rank != nil {
		r.complete(&rank.Process)
	}
}

// disown takes the rank from what is started from outside in the container of a rank that lives
// (kubectl exec, a probe), and from what that starts. Its environment is the container's: that
// of the rank, or of the launcher that has started the ranks.
func (t *Tracker) disown(r, parent *record) {
	if !r.IsRank() || r.Inherited || r.byCalls || r.ContainerID == "" || parent == nil || parent.ContainerID == r.ContainerID && !parent.outside {
		return
	}
	t.table.queues[livingRank].Each(func(o *record) {
		if o.startNS >= r.startNS || o.Inherited && o.wraps == nil || o.byCalls || o.Domain != r.Domain || o.ContainerID != r.ContainerID {
			return
		}
		r.outside = r.outside || keyOfRank(o) == keyOfRank(r) || r.launcher == "" && o.launcher != "" && o.WorldSize == r.WorldSize
	})
	if r.outside {
		r.demote()
	}
}

// demote takes the rank from the launcher of a rank, and from what started it for that rank. A
// rank of a larger world that runs the launcher stays: it looks at a model beside its training.
func (t *Tracker) demote(launcher, rank *record) {
	for range maxAncestors {
		if launcher == nil || !launcher.IsRank() || !rank.startedBy(launcher) || launcher.Inherited && launcher.WorldSize > rank.WorldSize {
			return
		}
		launcher.demote()
		t.table.reclassify(launcher)
		launcher = t.table.at(launcher.ParentPID, launcher.startNS)
	}
}

// parent returns the process that was the parent at that time, from the table or
// from /proc.
func (t *Tracker) parent(pid uint32, ns uint64, depth int) *record {
	if pid == 0 || depth == 0 {
		return nil
	}
	t.mu.RLock()
	r := t.table.at(pid, ns)
	gone := r != nil && !r.alive() && r.endNS+uint64(startSlack) < ns
	t.mu.RUnlock()
	if r != nil && !gone {
		return r
	}
	return t.learn(pid, depth, false)
}

// learn reads a living process from /proc, its unknown ancestors first. With
// again set it does so even when the process is known.
func (t *Tracker) learn(pid uint32, depth int, again bool) *record {
	began := bootNow()
	st, err := t.proc.Stat(pid)
	if err != nil || st.Kernel || st.Ended() {
		return nil
	}
	t.mu.RLock()
	known := t.table.exact(pid, st.StartNS())
	t.mu.RUnlock()
	if known != nil && !again {
		return known
	}
	f := facts{pid: pid, parentPID: st.ParentPID, startNS: st.StartNS(), comm: st.Name, launch: noLaunch()}
	var homeErr error
	f.home, homeErr = t.proc.home(pid)
	environ, environErr := t.proc.environ(pid)
	if environErr == nil {
		f.launch = parseEnviron(environ).in(f.membership.Path)
		f.drill = t.drills(f)
	}
	f.unread = passing(homeErr) || passing(environErr)
	if now, err := t.proc.Stat(pid); err != nil || now.StartTicks != st.StartTicks {
		return nil // it ended, and what was read may be another's
	}
	parent := t.parent(st.ParentPID, began, depth-1)

	t.mu.Lock()
	defer t.mu.Unlock()
	if known = t.table.exact(pid, st.StartNS()); known != nil {
		if known.seenNS >= began || !known.alive() {
			return known // an event came first, and knows better
		}
		f.keep(known)
	}
	return t.put(f, parent)
}

// keep holds on to what was known of the launch when /proc shows none any more:
// setproctitle(3) overwrites the environment there; and of the place when it cannot be read.
func (f *facts) keep(known *record) {
	f.drill, f.program = f.drill || known.Drill, known.program
	if f.domain == unknownDomain && known.Domain != "" {
		f.home = home{membership{ContainerID: known.ContainerID, PodUID: known.PodUID, Path: known.CgroupPath}, known.Domain, known.podName}
	}
	if f.launch.rank != Unknown || !known.IsRank() || known.Inherited {
		return
	}
	f.launch = launch{
		rank: known.Rank, localRank: known.LocalRank, worldSize: known.WorldSize,
		jobID: known.JobID, masterAddr: known.MasterAddr, masterPort: known.MasterPort,
		attempt: known.Attempt, trace: known.Trace, rendezvous: known.Rendezvous, byCalls: known.byCalls, launcher: known.launcher,
	}
}

// scan reads all of /proc: processes not known are learned, known ones that are
// not there any more have ended, how, nobody can tell.
func (t *Tracker) scan() {
	t.lastScan = time.Now()
	t.scans.Add(1)
	began := bootNow()
	pids, err := t.proc.PIDs()
	if err != nil || t.proc.Foreign() {
		return
	}
	stats, unsure := make([]procfs.Stat, 0, len(pids)), map[uint32]bool{}
	for _, pid := range pids {
		st, err := t.proc.Stat(pid)
		switch {
		case err == nil && !st.Kernel && !st.Ended():
			stats = append(stats, st)
		case passing(err):
			unsure[pid] = true
		}
	}
	// Parents begin before their children.
	slices.SortFunc(stats, func(a, b procfs.Stat) int {
		return cmp.Or(cmp.Compare(a.StartTicks, b.StartTicks), cmp.Compare(a.PID, b.PID))
	})
	for _, st := range stats {
		select {
		case <-t.closing:
			return
		default:
			t.learn(st.PID, maxAncestors, t.stale(st, began))
		}
	}
	t.endMissing(stats, unsure, began)
}

// stale reports whether a process may have executed a program that we missed.
func (t *Tracker) stale(st procfs.Stat, now uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r := t.table.exact(st.PID, st.StartNS())
	return r == nil || r.Comm != st.Name || st.StartNS()+uint64(young) > now
}

// endMissing ends the processes a scan did not find, but for those that came
// while it went on, and those that could not be read.
func (t *Tracker) endMissing(found []procfs.Stat, unsure map[uint32]bool, began uint64) {
	there := make(map[uint32]uint64, len(found))
	for _, st := range found {
		there[st.PID] = st.StartTicks
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.table.living(func(r *record) {
		ticks, ok := there[r.PID]
		if (!ok || ticks != r.startNS/uint64(tick)) && r.seenNS < began && !unsure[r.PID] {
			t.table.end(r, began)
		}
	})
}
