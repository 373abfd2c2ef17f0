//go:build linux && (amd64 || arm64)

package identity

import "github.com/tracecoreai/tracecore/internal/procfs"

// A wrapper that ends first, killed or by itself, ends no rank: the process that takes part in the
// collectives of the job, or has the libraries for it, lives on, and is the rank.

// Joined implements Members. Where only wrappers are above it, its end is the rank's from now on. Where the
// outermost process of its rank has ended before, and that was told
// as the end of the rank, the process is the rank, started again as far as anybody can tell.
func (t *Tracker) Joined(p Process) {
	t.askRunning(p.Born(), false)
	for _, above := range t.wrappersOf(p) {
		t.askRunning(above, true)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.table.exact(p.PID, p.StartNS)
	if r == nil || !r.alive() || !r.IsRank() {
		return
	}
	r.work = member
	if !r.Inherited || r.byCalls {
		return
	}
	t.unwrap(r, nil)
	if outermost := t.table.at(r.RankPID, r.startNS); !r.Inherited || outermost == nil || outermost.alive() || outermost.work >= training || t.hasProcess(r) {
		return
	}
	r.Inherited, r.RankPID, r.RankStart = false, r.PID, r.StartTime
	t.memory.keep(r)
	for _, below := range t.below(r) {
		if below.Inherited && below.Rank == r.Rank {
			below.RankPID, below.RankStart = r.RankPID, r.RankStart
		}
	}
}

// Trains implements Members. It may take part in the job soon: until it has, the end of its launcher is that of the rank,
// unless it outlives that.
func (t *Tracker) Trains(p Process) {
	for _, above := range t.wrappersOf(p) {
		t.askRunning(above, true)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.table.exact(p.PID, p.StartNS); r != nil && r.alive() && r.IsRank() {
		r.work = max(r.work, training)
	}
}

// askRunning asks what a process runs, and whether it may be a training, where that is not known.
func (t *Tracker) askRunning(p Born, mayTrain bool) {
	var found []procfs.Mapping
	if mayTrain {
		found, _ = t.proc.Libraries(p.PID, trains...) // what cannot be read shows none
	}
	arguments, _ := t.proc.Arguments(p.PID)
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.table.exact(p.PID, p.StartNS)
	if r == nil {
		return
	}
	r.script = scriptOf(arguments)
	if len(found) > 0 {
		r.work = max(r.work, training)
	}
}

// wrappersOf are the living processes of its rank from which a process descends: each may only wrap it, or be the rank
// that has started it.
func (t *Tracker) wrappersOf(p Process) (all []Born) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r := t.table.exact(p.PID, p.StartNS)
	for r != nil && r.Inherited && len(all) < maxAncestors {
		above := t.table.at(r.ParentPID, r.startNS)
		if above == nil || !above.alive() || above.RankPID != r.RankPID {
			break
		}
		all, r = append(all, above.Born()), above
	}
	return all
}

// hasProcess reports whether another process lives whose end is that of r's rank.
func (t *Tracker) hasProcess(r *record) (has bool) {
	t.table.queues[livingRank].Each(func(o *record) {
		has = has || !o.Inherited && o.RankPID == r.RankPID && o.Rank == r.Rank
	})
	return has
}

// outlives is the process that takes part in the job for the rank of r, or trains, where r has only wrapped it and it
// lives on; nil for none. Each process between them lives, or has been a wrapper: what lives on of a rank that
// has died, as a worker does for seconds, is none. What has libraries of a training wraps nothing. The first process
// of a container takes all others with it.
func (t *Tracker) outlives(r, parent *record) *record {
	if !r.IsRank() || !r.starts || r.work >= training || r.ContainerID != "" && (parent == nil || parent.ContainerID != r.ContainerID) {
		return nil
	}
	for _, below := range t.below(r) {
		if below.work >= training && below.Inherited == (r.wraps == nil) && below.RankPID == r.RankPID {
			return below
		}
	}
	return nil
}

// handOn makes a process that outlives r what r was: a child of r's parent, and where r was the outermost of its
// rank, the one whose end is the rank's. It is the same start of the rank.
func (t *Tracker) handOn(r, to *record, e *Exit) {
	to.ParentPID = r.ParentPID
	if r.Inherited && r.wraps == nil {
		return
	}
	to.Inherited, to.Wrapped = false, to.PID != to.RankPID
	if to.outlived = r.outlived; to.outlived == nil {
		to.outlived = &Wrapper{PID: r.PID, Comm: r.Comm, Code: e.Code, Signal: e.Signal, Outlived: true}
	}
	t.memory.keep(to)
	if g := r.launched; g != nil {
		g.forget(r)
		r.launched, to.launched = nil, g
		g.living = append(g.living, to)
	}
}
