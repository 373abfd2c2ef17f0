package stall

import (
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// finding is a socket that does not move in one direction.
type finding struct {
	s         *socket
	cause     socketstall.Cause
	direction socketstall.Direction
	since     time.Duration
	at        time.Duration // when it has not for long enough to say so
}

// due reports whether that is so now.
func (t *Tracker) due(f *finding) bool { return f.at <= t.now }

// used is how many bytes a direction must have carried to count as used:
// handshakes alone (NCCL 13 bytes, Gloo 8) do not make one.
const used = 64

// edgeWindow is how long before the silence a pair must have moved data to be
// an edge of the wait-for graph, at least: a full mesh has many that never do.
const edgeWindow = 10 * time.Second

// judge says what is wrong with each socket. Accusations come first: whether a
// job waits depends on them.
func (t *Tracker) judge(seen []*socket) []finding {
	t.next = forever
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
		found = append(found, finding{s, socketstall.NotReading, socketstall.Receive, since, t.unreadDue(s.rank.job, s.rank, kind, since)})
	}
	switch cause, since, is := s.stuck(); {
	case is && cause == socketstall.Network:
		found = append(found, finding{s, cause, socketstall.Send, since, since + t.o.Network})
	case is:
		var reader *rank
		if s.peer != nil {
			reader = s.peer.rank
		}
		found = append(found, finding{s, cause, socketstall.Send, since, t.unreadDue(s.rank.job, reader, kind, since)})
	}
	return found
}

// unreadDue is when bytes that stand unread since then are a fault of reader, who ought to
// read them: nil when it is on another node.
func (t *Tracker) unreadDue(j *job, reader *rank, kind socketstall.Kind, since time.Duration) time.Duration {
	if kind.Service() && (reader == nil || !reader.now.State.Halted()) {
		return since + t.o.Service
	}
	return t.overdue(j, reader, since)
}

// overdue is when what stands since then is a fault of the rank that is to move it: it has
// rested for too long, or goes on for longer than anybody may.
func (t *Tracker) overdue(j *job, r *rank, since time.Duration) time.Duration {
	switch {
	case r == nil:
		return since + max(t.o.Asleep, t.phase(j, Unknown, socketstall.Idle))
	case r.now.State.Halted():
		return max(since+t.o.Halted, r.haltedLong(&t.o))
	}
	working := since + max(t.o.Computing, t.phase(j, r.now.Rank, r.work.how))
	if r.movedNow {
		return working
	}
	quiet := since
	if len(r.work.spent) > 0 {
		quiet = max(since, r.work.last)
	}
	rested := max(max(since, r.work.last)+t.o.Asleep, quiet+t.phase(j, r.now.Rank, socketstall.Idle))
	if !r.judged() { // what it does, a later snapshot tells
		rested = max(rested, t.now+t.o.Interval/2)
	}
	return min(working, rested)
}

// phase is how long a silence of the job may last and still be a pause of that kind.
func (t *Tracker) phase(j *job, rank int, how socketstall.Activity) time.Duration {
	return time.Duration(t.o.PhaseFactor * float64(j.phases.usual(rank, how, t.now, &t.o)))
}

// silence measures that of a rank whose job is silent.
func (t *Tracker) silence(r *rank) socketstall.Silence {
	since := max(r.job.moved, r.moved)
	switch {
	case t.overdue(r.job, r, since) <= t.now:
		return socketstall.Overdue
	case t.noticed(r, since) <= t.now:
		return socketstall.Long
	}
	return socketstall.Usual
}

// noticed is when the others have waited for long for a rank that makes progress.
func (t *Tracker) noticed(r *rank, since time.Duration) time.Duration {
	if !r.judged() || len(r.work.spent) == 0 {
		return forever
	}
	return since + max(t.o.Notice, t.phase(r.job, r.now.Rank, r.work.how))
}

// weigh notes what the findings mean for each job: whether somebody is accused,
// and what its silences must not be learned from.
func (t *Tracker) weigh(found []finding) {
	for i := range found {
		f := &found[i]
		if f.since < t.last { // what is new in this snapshot moves in the next, mostly
			t.awaits(f.at)
		}
		if f.cause == socketstall.Connecting {
			continue
		}
		j := f.s.rank.job
		if t.due(f) || t.sustains(t.keyOf(f), f) {
			j.accused, j.faulty = true, true
		}
		if f.cause == socketstall.Network && t.due(f) {
			j.tainted = t.now
		}
	}
	for _, r := range t.ranks {
		if r.now.State.Halted() && r.collectiveNow {
			r.job.halted, r.job.tainted = r.job.halted || r.haltedLong(&t.o) <= t.now, t.now
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
	overdue := t.overdue(j, suspect, j.moved)
	long := min(overdue, t.noticed(suspect, j.moved))
	if j.halted || j.accused {
		long = min(long, j.moved+t.o.Halted)
	}
	if j.beyond() {
		// Nobody is accused. Who waits is told all the same: of a job on several nodes
		// only the reader of all of them knows who makes the others wait.
		long = min(long, j.moved+max(t.o.Asleep, t.phase(j, Unknown, socketstall.Idle)))
	}
	j.faulty = j.faulty || overdue <= t.now
	j.waiting = j.waiting || long <= t.now
	if !j.waiting {
		t.awaits(long)
	}
	return j.waiting
}

// awaits notes when something will have stood for long enough to say so.
func (t *Tracker) awaits(at time.Duration) {
	if at > t.now {
		t.next = min(t.next, at)
	}
}

// edges adds the pairs of a job that waits, in each direction they are used.
func (t *Tracker) edges(found []finding, j *job, seen []*socket) []finding {
	window := t.now - j.moved + max(edgeWindow, t.phase(j, Unknown, socketstall.Idle))
	for _, s := range seen {
		if s.rank.job != j || t.now-s.moved > window || !s.kind.Collective() {
			continue
		}
		if _, unread := s.unread(); !unread && s.now.BytesReceived > used {
			found = append(found, finding{s, socketstall.Waiting, socketstall.Receive, s.moved, t.now})
		}
		if outgoing(&s.now) == 0 && s.now.BytesSent > used {
			found = append(found, finding{s, socketstall.Waiting, socketstall.Send, s.moved, t.now})
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
	return finding{s: s, cause: socketstall.Connecting, direction: socketstall.Send, since: since, at: since + t.o.Connect}, true
}

// age of a finding.
func (f *finding) age(now time.Duration) time.Duration { return now - f.since }
