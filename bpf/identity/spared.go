//go:build linux && (amd64 || arm64)

package identity

import (
	"strconv"
	"time"
)

// An owner who ends a job asks all of its ranks; a stranger may ask one. Nothing in the end of
// that rank tells which: it shows in the others, which were asked, too, or were not.

// asking is how long after the end of a rank that was asked to end the others are looked
// at. pkill and kill(1) ask all within milliseconds; a launcher that waits for each goes on
// at once.
const asking = time.Second

// maxAsked is how many ends wait. One that gives way is told without the others.
const maxAsked = 1024

// askedEnds are the ends that wait for what becomes of the others of their job. What ends of
// the same job meanwhile waits behind them: it may have died of that.
type askedEnds struct {
	waiting[askedEnd]
	of map[jobKey]int // how many wait
}

type askedEnd struct {
	Exit
	asked bool
}

// wait lets an end wait, or another of an owner of more than its share.
func (a *askedEnds) wait(e askedEnd, due uint64) (early []askedEnd) {
	job := e.job()
	a.of[job]++
	return a.gone(a.add(e, due, job.domain, job.name()))
}

// gone counts those that wait no longer.
func (a *askedEnds) gone(ends []askedEnd) []askedEnd {
	for i := range ends {
		job := ends[i].job()
		if a.of[job]--; a.of[job] == 0 {
			delete(a.of, job)
		}
	}
	return ends
}

// tell tells of an end, or lets it wait. The caller holds the lock.
func (t *Tracker) tell(e Exit) {
	t.dies(&e)
	asked := !e.Late && !e.Helper && !e.Inherited && e.IsRank() && e.ofKnownJob() && (e.Signalled.asksOne() || e.Signalled.Number == sigKILL && t.askedByWrapper(&e) != nil)
	if !asked && t.asked.of[e.job()] == 0 {
		t.exits.send(e)
		return
	}
	due := uint64(0)
	if asked {
		due = bootNow() + uint64(asking)
	}
	t.tellAlone(t.asked.wait(askedEnd{e, asked}, due))
}

// tellAlone tells of ends without what became of the others of their job.
func (t *Tracker) tellAlone(ends []askedEnd) {
	for i := range ends {
		t.exits.send(ends[i].Exit)
	}
}

// ofKnownJob reports whether it is known which job a process is of.
func (p *Process) ofKnownJob() bool { return p.JobID != "" || p.Rendezvous != "" }

// asksOne reports whether it is a signal by which somebody may end one rank, or all of them:
// who ends a container or a step ends all that is in it. By the kernel it comes from a terminal, which
// asks all that run on it in the foreground (isig() and tty_vhangup_session(), drivers/tty).
func (s *Signal) asksOne() bool {
	switch s.Number {
	case sigHUP, sigINT, sigQUIT:
		if s.Sender.Relation == RelationKernel {
			return true
		}
	case sigUSR1, sigUSR2, sigTERM:
	default:
		return false
	}
	switch s.Sender.Relation {
	case RelationOther, RelationHost, RelationRank, RelationLauncher, RelationAncestor:
		return true
	}
	return false
}

// tellAsked tells of the ends that are due, in order. It reads the ranks once for all of them.
func (t *Tracker) tellAsked(now uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ends := t.asked.gone(t.asked.due(now))
	if len(ends) == 0 {
		return
	}
	byJob := map[jobKey][]*record{}
	for i := range ends {
		byJob[ends[i].job()] = nil
	}
	t.gather(byJob)
	for i := range ends {
		e := &ends[i]
		if e.asked {
			e.Others = t.others(&e.Exit, byJob[e.job()])
		}
		t.exits.send(e.Exit)
	}
}

// gather enters the ranks of these jobs that live, or have ended lately. The caller holds the lock.
func (t *Tracker) gather(byJob map[jobKey][]*record) {
	for _, c := range [...]class{livingRank, exitedRank} {
		t.table.queues[c].Each(func(r *record) {
			if of, there := byJob[r.job()]; there {
				byJob[r.job()] = append(of, r)
			}
		})
	}
}

// flushAsked tells of all that wait: nobody watches any more.
func (t *Tracker) flushAsked() { t.tellAlone(t.asked.gone(t.asked.all())) }

// others looks at what became of the ranks of a job besides one of them. The sender is not
// counted: it asks all but itself. One that was asked just before may have ended first. Who acts on a container from outside means what is in it.
// Who asks most ranks ends the job: those that he has not come to yet, because what started them
// was quicker, count as asked. One who asks a few of many has broken it.
func (t *Tracker) others(e *Exit, ranks []*record) Others {
	at := bootOf(e.Signalled.Time)
	sender := Unknown
	if s := t.table.exact(e.Signalled.Sender.PID, e.Signalled.Sender.StartNS); s != nil && s.sameJob(&e.Process) {
		sender = s.Rank
	}
	wrapper := t.askedByWrapper(e)
	lived, asked, hurried, his, alike := map[int]bool{}, map[int]bool{}, map[int]bool{}, map[int]bool{e.Rank: true}, map[int]bool{}
	for _, r := range ranks {
		ended := !r.alive() && r.endNS < at && !(r.asked != nil && r.endNS+uint64(asking) >= at)
		elsewhere := e.Signalled.Sender.Relation == RelationHost && r.ContainerID != e.ContainerID
		if r.Rank == e.Rank || r.Rank == sender || ended || elsewhere || r.startNS > at {
			continue
		}
		lived[r.Rank] = lived[r.Rank] || !r.Inherited
		alike[r.Rank] = alike[r.Rank] || wrapper != nil && r.Comm == wrapper.Comm && (r.wraps != nil || r.RankPID == r.PID)
		switch by := t.asksToEnd(r, at); {
		case by == nil:
		case t.reacts(r, &by.first, e) && t.reacts(r, &by.sent, e):
			hurried[r.Rank] = true
		default:
			asked[r.Rank] = true
			if by.first.of(&e.Signalled.Sender) || by.sent.of(&e.Signalled.Sender) {
				his[r.Rank] = true
			}
		}
	}
	o := Others{Wrapped: wrapper != nil}
	for rank, lives := range lived {
		switch {
		case !lives:
			continue
		case asked[rank] || hurried[rank] && len(his) > len(hurried):
			o.Asked++
		case alike[rank]:
			o.Alike++
		}
		o.Lived++
	}
	return o
}

// askedByWrapper is what asked a process to end and runs it for its rank alone, nil where that is none.
func (t *Tracker) askedByWrapper(e *Exit) *record {
	by := &e.Signalled.Sender
	w := t.table.exact(by.PID, by.StartNS)
	if w == nil || by.Relation != RelationLauncher || w.PID == e.PID || !w.IsRank() || w.Rank != e.Rank || w.RankPID != e.RankPID {
		return nil
	}
	return w
}

// asksToEnd are the signals by which others asked a process to end, about then or since, nil for
// none.
func (t *Tracker) asksToEnd(r *record, at uint64) *asked {
	if !r.alive() {
		return r.asked
	}
	s := t.source.signalsTo(r.PID, r.startNS)
	if s == nil || s.asked.signal == 0 || s.asked.timeNS+uint64(stopping) < at {
		return nil
	}
	return &s.asked
}

// isAsked reports whether others have asked a process that lives to end, not long before a time.
func (t *Tracker) isAsked(r *record, at uint64) bool {
	s := t.source.signalsTo(r.PID, r.startNS)
	return s != nil && s.asked.signal != 0 && s.asked.timeNS+uint64(stopping) >= at || r.before.asked(at)
}

// reacts reports whether what started a rank asks it to end because another, e, has ended, which
// somebody else had asked: mpirun and torchrun end all ranks when one fails. A wrapper has that rank alone.
func (t *Tracker) reacts(r *record, by *sent, e *Exit) bool {
	r, by = t.first(r, by)
	if w := t.table.exact(by.pid, by.startNS); w != nil && w.wraps != nil && w.Rank == r.Rank {
		return false
	}
	return by.timeNS > bootOf(e.Time) && by.pid != e.Signalled.Sender.PID && t.startedBy(r, by) > 0
}

// of reports whether a signal is of that sender, or of another process of who runs it: a script
// runs kill(1) for each.
func (s *sent) of(o *Sender) bool {
	return s.pid == o.PID || s.parentPID > 1 && s.parentPID == o.ParentPID && s.userID == o.UserID
}

// jobKey is what tells jobs apart, as sameJob does.
type jobKey struct {
	id, rendezvous, domain string
	world                  int
}

func (p *Process) job() jobKey { return jobKey{p.JobID, p.Rendezvous, p.Domain, p.WorldSize} }

func (k jobKey) name() string { return k.id + "\x00" + k.rendezvous + "\x00" + strconv.Itoa(k.world) }
