package stall

import (
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// finding is a socket that does not move in one direction. Due means that it
// has not for long enough to say so.
type finding struct {
	s         *socket
	cause     socketstall.Cause
	direction socketstall.Direction
	since     time.Duration
	due       bool
}

// used is how many bytes a direction must have carried to count as used:
// handshakes alone (NCCL 13 bytes, Gloo 8) do not make one.
const used = 64

// edgeWindow is how long before the silence a pair must have moved data to be
// an edge of the wait-for graph, at least: a full mesh has many that never do.
const edgeWindow = 10 * time.Second

// judge says what is wrong with each socket. Accusations come first: whether a
// job waits depends on them.
func (t *Tracker) judge(seen []*socket) []finding {
	found := t.refusing()
	for _, s := range seen {
		found = t.accuse(found, s)
	}
	t.weigh(found)
	for _, j := range t.jobs.of {
		if j.round == t.round && t.waits(j) {
			found = t.edges(found, j, seen)
		}
	}
	return found
}

// accuse adds what accuses somebody.
func (t *Tracker) accuse(found []finding, s *socket) []finding {
	kind := s.kind
	if kind == socketstall.Other {
		return found
	}
	if f, is := t.stillConnecting(s); is {
		return append(found, f)
	}
	if since, is := s.unread(); is {
		due := t.unreadIsDue(s.rank.job, s.rank, kind, since)
		found = append(found, finding{s, socketstall.NotReading, socketstall.Receive, since, due})
	}
	switch cause, since, is := s.stuck(); {
	case is && cause == socketstall.Network:
		found = append(found, finding{s, cause, socketstall.Send, since, t.now-since >= t.o.Network})
	case is:
		var reader *rank
		if s.peer != nil {
			reader = s.peer.rank
		}
		found = append(found, finding{s, cause, socketstall.Send, since, t.unreadIsDue(s.rank.job, reader, kind, since)})
	}
	return found
}

// unreadIsDue reports whether bytes that stand unread since then are a fault of reader,
// who ought to read them: nil when it is on another node.
func (t *Tracker) unreadIsDue(j *job, reader *rank, kind socketstall.Kind, since time.Duration) bool {
	if kind.Service() && (reader == nil || !reader.now.State.Halted()) {
		return t.now-since >= t.o.Service && !t.startsUp(j, reader, kind, since)
	}
	return t.overdue(j, reader, since)
}

// startsUp reports whether what came for a store stands unread since then because its job starts up. A
// store of PyTorch looks up the name of each client before it reads (TCPStoreMasterDaemon, getnameinfo), one after
// the other, for as long as name servers let it wait. As long as it reads from any of them it goes on.
func (t *Tracker) startsUp(j *job, reader *rank, kind socketstall.Kind, since time.Duration) bool {
	if kind != socketstall.Store || j.moved != never {
		return false
	}
	if reader != nil {
		since = max(since, reader.served)
	}
	return t.now-since < t.o.PhaseUnlearned
}

// overdue reports whether what stands since then is a fault of the rank that is to move
// it: it has rested for too long, or goes on for longer than anybody may.
func (t *Tracker) overdue(j *job, r *rank, since time.Duration) bool {
	age := t.now - since
	switch {
	case r == nil:
		return age >= max(t.o.Asleep, t.phase(j, Unknown, socketstall.Idle))
	case r.now.State.Halted():
		return age >= t.o.Halted && r.halted(t.now, &t.o)
	case age >= max(t.o.Computing, t.phase(j, r.now.Rank, r.work.how)):
		return true
	case r.movedNow || !r.judged():
		return false
	}
	quiet := since
	if len(r.work.spent) > 0 || r.known { // what one that is known did before, nobody knows
		quiet = max(since, r.work.last)
	}
	rest := min(r.atRest(t.now), age)
	if t.foundSilent(j, r, since) && rest >= t.o.Found && t.now-quiet >= t.o.PhaseUnlearned {
		return true
	}
	return age >= t.o.Asleep && rest >= t.o.asleep() && t.now-quiet >= t.phase(j, r.now.Rank, socketstall.Idle)
}

// foundSilent reports whether the rank was silent when it was first seen, of a job whose pauses are not known. That such a
// pause has just begun is not to be feared, as it is of one that was seen to begin: it need not be given twice the time.
func (t *Tracker) foundSilent(j *job, r *rank, since time.Duration) bool {
	return !j.phases.known(&t.o) && !r.known && since < r.metAt
}

// phase is how long a silence of the job may last and still be a pause of that kind.
func (t *Tracker) phase(j *job, rank int, how socketstall.Activity) time.Duration {
	return time.Duration(t.o.PhaseFactor * float64(j.phases.usual(rank, how, t.now, &t.o)))
}

// silence measures that of a rank whose job is silent.
func (t *Tracker) silence(r *rank) socketstall.Silence {
	since := max(r.job.moved, r.moved)
	switch {
	case t.overdue(r.job, r, since):
		return socketstall.Overdue
	case t.noticed(r, since):
		return socketstall.Long
	}
	return socketstall.Usual
}

// noticed reports whether the others wait for a rank that makes progress, and for long.
func (t *Tracker) noticed(r *rank, since time.Duration) bool {
	return r.judged() && len(r.work.spent) > 0 && t.now-since >= max(t.o.Notice, t.phase(r.job, r.now.Rank, r.work.how))
}

// weigh notes what the findings mean for each job: whether somebody is accused,
// and what its silences must not be learned from.
func (t *Tracker) weigh(found []finding) {
	for i := range found {
		f := &found[i]
		if f.cause == socketstall.Connecting {
			continue
		}
		j := f.s.rank.job
		if f.due || t.sustains(t.keyOf(f), f) {
			j.accused, j.faulty = true, true
		}
		if f.cause == socketstall.Network && f.due {
			j.tainted = t.now
		}
	}
	for _, r := range t.ranks {
		if r.now.State.Halted() && r.collectiveNow {
			r.job.halted, r.job.tainted = r.job.halted || r.halted(t.now, &t.o), t.now
		}
	}
}

// waits reports whether the ranks of a job wait for more than their next phase. Once they
// do, they do until data moves.
func (t *Tracker) waits(j *job) bool {
	suspect := j.suspect(&t.o)
	if suspect == nil || j.moved == never {
		return false
	}
	age := t.now - j.moved
	switch {
	case age >= t.o.Asleep && slices.ContainsFunc(j.ranks, (*rank).waitsOutside):
		// How long that takes is no pause of the job to learn, and no fault of a rank. Who waits is told: stacks do not show whom for.
		j.waiting, j.tainted = true, t.now
	case t.overdue(j, suspect, j.moved):
		j.faulty, j.waiting = true, true
	case (j.halted || j.accused) && age >= t.o.Halted:
		j.waiting = true
	case t.noticed(suspect, j.moved), j.beyond() && age >= max(t.o.Asleep, t.phase(j, Unknown, socketstall.Idle)):
		// Nobody is accused. Who waits is told all the same: of a job on several nodes
		// only the reader of all of them knows who makes the others wait.
		j.waiting = true
	}
	return j.waiting
}

// edges adds the pairs of a job that waits, in each direction they are used. Nobody waits at a connection that an end has
// closed: who reads there is told so at once.
func (t *Tracker) edges(found []finding, j *job, seen []*socket) []finding {
	window := t.now - j.moved + max(edgeWindow, t.phase(j, Unknown, socketstall.Idle))
	for _, s := range seen {
		if s.rank.job != j || t.now-s.moved > window || !s.kind.Collective() || s.now.State != established {
			continue
		}
		if _, unread := s.unread(); !unread && s.now.BytesReceived > used {
			found = append(found, finding{s, socketstall.Waiting, socketstall.Receive, s.moved, true})
		}
		if outgoing(&s.now) == 0 && s.now.BytesSent > used {
			found = append(found, finding{s, socketstall.Waiting, socketstall.Send, s.moved, true})
		}
	}
	return found
}

// stillConnecting returns the sockets whose SYN nobody answers.
func (t *Tracker) stillConnecting(s *socket) (finding, bool) {
	if s.now.State != synSent {
		return finding{}, false
	}
	since := s.began
	if s.now.Age >= 0 {
		since = min(since, t.now-s.now.Age)
	}
	return finding{s: s, cause: socketstall.Connecting, direction: socketstall.Send, since: since, due: t.now-since >= t.o.Connect}, true
}

// age of a finding.
func (f *finding) age(now time.Duration) time.Duration { return now - f.since }
