package stall

import (
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
	for _, j := range t.jobs {
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
		due := t.now-since >= t.patience(s.rank.job, s.rank, kind)
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
		found = append(found, finding{s, cause, socketstall.Send, since, t.now-since >= t.patience(s.rank.job, reader, kind)})
	}
	return found
}

// patience is how long unread bytes may stand. reader is who ought to read them,
// nil when it is on another node.
func (t *Tracker) patience(j *job, reader *rank, kind socketstall.Kind) time.Duration {
	switch {
	case reader != nil && reader.now.State.Halted():
		return t.o.Halted
	case kind.Service():
		return t.o.Service
	case reader != nil && reader.computing(t.now, &t.o):
		return max(t.o.Computing, t.phase(j))
	default:
		return max(t.o.Asleep, t.phase(j))
	}
}

// phase is how long a silence of the job may last and still be a phase.
func (t *Tracker) phase(j *job) time.Duration {
	return time.Duration(t.o.PhaseFactor * float64(j.phases.usual(&t.o)))
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
			j.accused = true
		}
		if f.cause == socketstall.Network && f.due {
			j.tainted = t.now
		}
	}
	for _, r := range t.ranks {
		if r.now.State.Halted() && r.collectiveNow {
			r.job.halted, r.job.tainted = true, t.now
		}
	}
}

// waits reports whether the ranks of a job wait for more than their next phase.
// Once they do, they do until data moves.
func (t *Tracker) waits(j *job) bool {
	suspect := j.suspect()
	if suspect == nil || j.moved == never {
		return false
	}
	if !j.waiting {
		j.waiting = t.now-j.moved >= t.waitPatience(j, suspect)
	}
	return j.waiting
}

func (t *Tracker) waitPatience(j *job, suspect *rank) time.Duration {
	switch {
	case j.halted || j.accused:
		return t.o.Halted
	case suspect.computing(t.now, &t.o):
		return max(t.o.Computing, t.phase(j))
	default:
		return max(t.o.Asleep, t.phase(j))
	}
}

// edges adds the pairs of a job that waits, in each direction they are used.
func (t *Tracker) edges(found []finding, j *job, seen []*socket) []finding {
	window := t.now - j.moved + max(edgeWindow, t.phase(j))
	for _, s := range seen {
		if s.rank.job != j || t.now-s.moved > window || !s.kind.Collective() {
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
