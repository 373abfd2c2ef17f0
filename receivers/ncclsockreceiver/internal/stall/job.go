package stall

import (
	"cmp"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// maxResting bounds the jobs without a rank on this node that are remembered.
const maxResting = 1024

// jobs are those of the ranks of this node; a job is gone an hour after its last rank. Those
// without ranks share their room between domains: their processes are as many as somebody starts.
type jobs struct {
	of      map[jobKey]*job
	resting fairlru.List[*job]
	gone    []owner // since forget
}

// take sorts the ranks of this snapshot into jobs.
func (js *jobs) take(all []*rank, c *clock) {
	for _, r := range all {
		key := keyOf(&r.now.Process)
		j := js.of[key]
		if j == nil {
			j = newJob(key)
			js.of[key] = j
		}
		if j.round != c.round {
			j.round, j.seen, j.ranks, j.halted, j.accused = c.round, c.now, j.ranks[:0], false, false
			js.wakes(j)
		}
		r.job = j
		j.ranks = append(j.ranks, r)
	}
	for _, j := range js.of {
		if j.round == c.round {
			j.begin(c)
		} else if j.resting == nil {
			js.rests(j)
		}
	}
}

// wakes notes that a job has ranks.
func (js *jobs) wakes(j *job) {
	if j.resting != nil {
		js.resting.Remove(j.resting)
		j.resting = nil
	}
}

// rests notes that a job is without ranks. Where there are too many of these one gives way.
func (js *jobs) rests(j *job) {
	j.resting = js.resting.Add(j, fairlru.Some, j.key.domain)
	if js.resting.Len() > maxResting {
		victim, _ := js.resting.Victim()
		js.drop(victim.Value)
	}
}

// drop forgets a job without ranks.
func (js *jobs) drop(j *job) {
	js.resting.Remove(j.resting)
	delete(js.of, j.key)
	js.gone = append(js.gone, j.key.owner)
}

// begin is for a job that is started again under its id: its ranks start up, as at first. What
// is known of its pauses stays, and counts once data moves as it did. What a launch script runs
// beside a rank that lives (sleep, nvidia-smi) starts nothing again.
func (j *job) begin(c *clock) {
	fresh := func(r *rank) bool {
		return r.isNew(c) && !r.now.Inherited && (r.now.RankPID == r.now.PID || !j.beside(r, c))
	}
	if j.phases.traffic == 0 || !slices.ContainsFunc(j.ranks, fresh) {
		return
	}
	j.phases.traffic, j.watched, j.since = 0, never, time.Time{}
	if !slices.ContainsFunc(j.ranks, func(r *rank) bool { return !r.isNew(c) }) { // nobody is left of the last start
		j.moved, j.waiting, j.faulty, j.first = never, false, false, nil
	}
}

// beside reports whether an older process of the same rank lives that has moved data of the job, and is not
// one that it has started. What a launch script runs before the rank and beside it (a monitor) has not.
func (j *job) beside(r *rank, c *clock) bool {
	return slices.ContainsFunc(j.ranks, func(o *rank) bool {
		return o.now.Rank == r.now.Rank && !o.isNew(c) && !o.now.Inherited && o.hasMoved()
	})
}

// learn takes the silences that ended in this snapshot: of queues that had stood,
// and of ranks.
func (js *jobs) learn(seen []*socket, c *clock, o *Options) {
	for _, s := range seen {
		if s.kind.Service() || s.kind == socketstall.Other {
			continue
		}
		if s.change.read.is {
			s.rank.job.ended(s.rank.pauses(), s.change.read.since, c.last, o)
		}
		if s.change.acked.is && s.peer == nil { // of a peer here its own queue tells
			s.rank.job.ended(elsewhere, s.change.acked.since, c.last, o)
		}
	}
	for _, j := range js.of {
		if j.round == c.round {
			j.learn(c, o)
		}
	}
}

// forget drops jobs that are gone, and returns the owners that have none left.
func (js *jobs) forget(c *clock, o *Options) []owner {
	for _, j := range js.of {
		if j.resting != nil && c.now-j.seen > o.PhaseMemory {
			js.drop(j)
		}
	}
	gone := js.gone
	js.gone = nil
	return slices.DeleteFunc(gone, js.has)
}

// has reports whether a job is of that owner. There can be several.
func (js *jobs) has(one owner) bool {
	for key := range js.of {
		if key.owner == one {
			return true
		}
	}
	return false
}

// Watched says that data of a job moves over sockets, by one of its ranks.
type Watched struct {
	Process identity.Process
	Since   time.Time // when its first rank here was met; zero until all here have moved data since they were met
}

// watched are those jobs whose data moved in this snapshot and of which that was not said for long, or not
// that all of their ranks move.
func (js *jobs) watched(c *clock) (all []Watched) {
	for _, j := range js.of {
		at := slices.IndexFunc(j.ranks, func(r *rank) bool { return r.movedNow })
		if j.round != c.round || at < 0 {
			continue
		}
		since := j.allMove()
		known := since.IsZero() || since.Equal(j.since)
		if known && j.watched != never && c.now-j.watched < socketstall.WatchedAgain {
			continue
		}
		j.watched, j.since = c.now, since
		all = append(all, Watched{j.ranks[at].now.Process, since})
	}
	slices.SortFunc(all, func(a, b Watched) int { return cmp.Compare(a.Process.PID, b.Process.PID) })
	return all
}

// allMove is since when the job has been watched, where each of its ranks has moved data since it was met; else zero.
// Of a rank any process of it counts: a script or a worker beside it may hold its sockets, too.
func (j *job) allMove() (since time.Time) {
	moves := map[int]bool{}
	for _, r := range j.ranks {
		if r.collectiveNow {
			moves[r.now.Rank] = moves[r.now.Rank] || r.moves
		}
	}
	for _, r := range j.ranks {
		if all, collective := moves[r.now.Rank]; collective && !all {
			return time.Time{}
		}
		if r.moves && (since.IsZero() || r.met.Before(since)) {
			since = r.met
		}
	}
	return since
}

// owner is a job as metrics name it: its id, inside its domain.
type owner struct{ domain, id string }

// jobKey tells jobs apart: by their id, and by where their ranks meet, for steps of one Slurm job
// run side by side under its id; those without either by their launcher.
type jobKey struct {
	owner
	rendezvous  string
	port, world int
}

func keyOf(p *identity.Process) jobKey {
	of := owner{p.Domain, p.JobID}
	if p.JobID != "" { // the address is left out: one rank may call its own host localhost
		return jobKey{owner: of, port: p.MasterPort, world: p.WorldSize}
	}
	return jobKey{owner: of, rendezvous: p.Rendezvous, port: p.MasterPort, world: p.WorldSize}
}

// job is the ranks of one job on this node.
type job struct {
	key     jobKey
	resting *fairlru.Element[*job] // nil while it has ranks
	phases  phases
	ranks   []*rank // of this snapshot
	round   uint64
	seen    time.Duration
	moved   time.Duration // data last moved on a collective socket of any rank
	halted  bool          // a rank is stopped, in this snapshot and for long
	accused bool          // a stall with another cause than waiting is open
	waiting bool          // its ranks are told to wait, until data moves
	faulty  bool          // of its silence a fault was told
	tainted time.Duration // when last a process was halted or killed, or the network failed
	watched time.Duration // when it was last said that its data moves over sockets
	since   time.Time     // what was said then of all its ranks
	first   []*rank       // that fell silent first, as of the snapshot before
}

func newJob(key jobKey) *job { return &job{key: key, moved: never, tainted: never, watched: never} }

// suspect is the rank that the others wait for: of those that make progress, else of all,
// the one that fell silent first of those that owe data. In a collective of few
// bytes a rank may have to receive before it sends anything, and so be silent for longer
// than the rank which all wait for. Where NCCL is loaded progress tells nothing: a main
// thread that waits for its GPU may spin.
func (j *job) suspect(o *Options) *rank {
	var first, working *rank
	for _, r := range j.ranks {
		if r.lastWord() < 0 {
			continue
		}
		if first == nil || r.sooner(first) {
			first = r
		}
		if !r.now.NCCL && r.works(o) && (working == nil || r.sooner(working)) {
			working = r
		}
	}
	if working != nil {
		return working
	}
	return first
}

// owes reports whether it received data later than it sent any. A stage of a pipeline that waits has asked for
// its data, and may be silent for longer than the stage that all wait for. Pattern nccl_socket_stall has the same rule.
func (r *rank) owes() bool {
	return r.lastSent >= 0 && r.lastReceived >= 0 && r.lastSent-r.lastReceived > r.tick
}

// sooner reports whether the others wait for r rather than for o.
func (r *rank) sooner(o *rank) bool {
	if owes := r.owes(); owes != o.owes() {
		return owes
	}
	return r.lastWord() > o.lastWord()
}

// lastWord is the age of what it last sent, or received if it never sends; negative when
// never.
func (r *rank) lastWord() time.Duration {
	if r.lastSent < 0 {
		return r.lastReceived
	}
	return r.lastSent
}

// atOnce is within which ranks fall silent together: they leave a collective one after the other.
const atOnce = 10 * time.Millisecond

// together are the ranks that fell silent with r, as all do at the end of a collective, or before it. Of those
// before one that owes data, only who owes some, too.
func (j *job) together(r *rank) []*rank {
	if r == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(j.ranks), func(o *rank) bool {
		later := r.lastWord() - o.lastWord()
		return o.lastWord() < 0 || later > atOnce || later < -atOnce && r.owes() && !o.owes()
	})
}

// makers are those of them that made the pause: who did something, or all if nobody did.
// One that rests beside a rank that works waits for it.
func makers(together []*rank) []*rank {
	works := func(r *rank) bool { return len(r.work.spent) > 0 }
	if !slices.ContainsFunc(together, works) {
		return together
	}
	return slices.DeleteFunc(together, func(r *rank) bool { return !works(r) })
}

// beyond reports whether the job has ranks on other nodes.
func (j *job) beyond() bool {
	here := map[int]bool{}
	world := 0
	for _, r := range j.ranks {
		here[r.now.Rank] = true
		world = max(world, r.now.WorldSize)
	}
	return world > len(here)
}

// learn takes the silence that ended in this snapshot and starts to measure the next.
func (j *job) learn(c *clock, o *Options) {
	before, moved := j.moved, false
	for _, r := range j.ranks {
		j.moved = max(j.moved, r.moved)
		moved = moved || r.movedNow
	}
	if moved {
		for _, r := range makers(j.first) {
			j.ended(r.pauses(), before, c.last, o)
		}
		j.phases.moved()
		j.waiting, j.faulty, j.first = false, false, nil
	}
	j.gather()
	for _, r := range j.ranks {
		if r.movedNow {
			r.baseAt, r.cpu, r.mainCPU = c.now, r.now.CPU, r.now.MainCPU
		}
		r.toil(c)
	}
	if !moved {
		j.first = j.together(j.suspect(o))
		j.doubt(c.now)
	}
}

// gather counts what the processes that a rank has started move beside their job as its own:
// of the process with the rank's sockets, which a launch script may have started.
func (j *job) gather() {
	for _, r := range j.ranks {
		if !r.now.Inherited || r.collectiveNow {
			continue
		}
		for _, root := range j.ranks {
			if root.now.Rank == r.now.Rank && (root.collectiveNow || !root.now.Inherited) {
				root.elsewhere += r.elsewhere
			}
		}
	}
}

// doubt notes that the rank which the others wait for sleeps in the kernel without an
// answer: that is no pause to learn.
func (j *job) doubt(now time.Duration) {
	for _, r := range j.first {
		if r.now.State == socketstall.DiskSleep && r.work.last < now && r.work.silent > 1 {
			j.tainted = now
		}
	}
}

// made is what a rank made of a pause: kinds and lengths.
type made struct {
	rank   int
	how    socketstall.Activity
	rested time.Duration
}

// elsewhere is a rank on another node, of which nothing is known.
var elsewhere = made{Unknown, socketstall.Idle, forever}

// pauses is what the rank makes of the pause that ends.
func (r *rank) pauses() made {
	how, _ := r.work.mostly()
	return made{r.now.Rank, how, r.work.rested}
}

// ended notes that something which stood since from moved again after the snapshot
// before, which was at last. What was told as a fault, halted, killed or cut off is no
// pause to learn. A rank that made progress for a part of it rested for the other.
func (j *job) ended(m made, from, last time.Duration, o *Options) {
	if from <= never || last-from < o.Interval || j.faulty || j.tainted != never && j.tainted >= from {
		return
	}
	if m.how != "" {
		j.phases.learn(m.rank, m.how, pause{from, last})
	}
	if rested := min(m.rested, last-from); rested >= o.Interval {
		j.phases.learn(m.rank, socketstall.Idle, pause{last - rested, last})
	}
}
