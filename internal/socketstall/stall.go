package socketstall

import (
	"net/netip"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// Stall is one stall of a process towards one peer in one direction, by all its
// records. What they come to does not depend on the order in which they arrive.
type Stall struct {
	Cause     Cause          `json:"c,omitempty"`  // as the newest record says
	Before    Cause          `json:"b,omitempty"`  // what it said before Turned, "" the same
	Turned    int64          `json:"q,omitempty"`  // time of the first record with that cause
	Direction Direction      `json:"r,omitempty"`  //
	Kind      Kind           `json:"k,omitempty"`  //
	Local     netip.AddrPort `json:"l,omitzero"`   // not valid when not known
	Peer      netip.AddrPort `json:"e,omitzero"`   //
	PeerRank  int            `json:"n"`            // Unknown unless the peer is on the same host
	Error     string         `json:"x,omitempty"`  //
	Unread    int64          `json:"u,omitempty"`  // bytes
	Out       int64          `json:"bo"`           // bytes sent, each once; Unknown
	Unacked   int64          `json:"bu"`           // of these, not acknowledged
	In        int64          `json:"bi"`           // bytes received
	PeerIn    int64          `json:"bp"`           // bytes that the other end has received, Unknown unless it is on the same host
	Sent      int64          `json:"s,omitempty"`  // when data was last sent to the peer, 0 never
	Received  int64          `json:"v,omitempty"`  // and received
	Onset     int64          `json:"o"`            // of its last progress
	First     int64          `json:"f"`            // time of the oldest record
	Last      int64          `json:"t"`            // and of the newest
	Ended     int64          `json:"d,omitempty"`  // 0: it lasts
	Heard     int64          `json:"hd,omitempty"` // when its newest record arrived

	Process string `json:"-"` // key of its process
}

// merge takes what o, another record of the stall, knows better.
func (s *Stall) merge(o *Stall) {
	if o.Last > s.Last && o.Ended == 0 {
		s.Kind, s.Error, s.Unread = o.Kind, o.Error, o.Unread
		s.Out, s.Unacked, s.In, s.PeerIn = o.Out, o.Unacked, o.In, o.PeerIn
	}
	if o.First < s.First && o.Ended == 0 || s.Ended != 0 && s.First == s.Ended {
		s.First, s.Sent, s.Received = o.First, o.Sent, o.Received
	}
	if o.Ended == 0 {
		s.turn(o)
	}
	s.Onset, s.Heard = min(s.Onset, o.Onset), max(s.Heard, o.Heard)
	s.Last, s.Ended = max(s.Last, o.Last), max(s.Ended, o.Ended)
}

// turn takes the cause that o says. An end only repeats the last cause.
func (s *Stall) turn(o *Stall) {
	at := o.Last
	switch {
	case s.Turned == s.Ended:
		s.Cause, s.Turned = o.Cause, at
	case o.Cause == s.Cause:
		s.Turned = min(s.Turned, at)
	case at < s.Turned:
		s.Before = o.Cause
	case at > s.Turned:
		s.Before, s.Cause, s.Turned = s.Cause, o.Cause, at
	case o.Cause.gentler(s.Cause): // of two at once
		s.Cause = o.Cause
	}
}

// OpenAt reports whether the stall lasted at that time.
func (s *Stall) OpenAt(t int64) bool {
	return s.Onset <= t && (s.Ended == 0 || s.Ended > t) && t-s.Last <= int64(Fading)
}

// CauseAt is what the stall said at that time.
func (s *Stall) CauseAt(t int64) Cause {
	if t < s.Turned && s.Before != "" {
		return s.Before
	}
	return s.Cause
}

// Process is one process of a rank that has stalls.
type Process struct {
	Identity
	Rank int    `json:"r"`
	Run  string `json:"ru,omitempty"` // start of the job that it is of, "" when not known

	First    int64             `json:"f"`            // time of the record that the next three are of
	Sent     int64             `json:"s,omitempty"`  // when it last sent anything, 0 never
	Received int64             `json:"v,omitempty"`  // and received
	Tick     int64             `json:"k,omitempty"`  // of its kernel's clock, 0 not known
	Doing    Doing             `json:"do,omitzero"`  // as of the newest record of a stall that lasts
	Last     int64             `json:"l"`            // time of the newest record
	State    State             `json:"t,omitempty"`  // of its main thread, as of the newest record
	Halted   int64             `json:"ha,omitempty"` // since when its main thread is known to be stopped, 0: it is not
	Awake    int64             `json:"aw,omitempty"` // when it was last known not to be
	Exited   int64             `json:"ex,omitempty"` // when its end was seen, 0: it lives
	Stalls   map[string]*Stall `json:"stalls"`       // by id

	job     *Job
	element *fairlru.Element[*Process]
	counted int // stalls, as its job and the book have them
}

// Tick is how exact ages of data are where a tick of the kernel's clock is that long, 0 not known: HZ may be 100. The ages
// of a snapshot are not read at one moment, so it is a tick at HZ=250 at least.
func Tick(kernel time.Duration) time.Duration { return max(kernel, 4*time.Millisecond) }

// tickOf is a tick of the kernel's clock, 0 not known. The slowest there is has 10 ms.
func tickOf(a pcommon.Map) int64 {
	return atMost(a, "nccl.rank.tick_ns", int64(10*time.Millisecond))
}

// again is by how much two reports of one moment may differ: ages are measured
// in ticks of the kernel's clock.
const again = int64(50 * time.Millisecond)

// take enters what a record says of the process itself: the newest of its state,
// and of what it does, the oldest of its silence. Silence is as the first snapshot saw it, in which all
// ranks of the host compare exactly, unless data has been sent since.
func (p *Process) take(r *Record) {
	if !r.Ended() && r.Time >= p.Doing.At {
		before := p.Doing
		p.Doing = r.Doing
		if p.stoppedYet(r, &before) {
			p.Doing.Stopper = before.Stopper
		}
	}
	newest, known := r.Time >= p.Last, p.Identity
	if r.Sent > p.Sent+again || r.Sent >= p.Sent-again && r.Time < p.First || p.Last == 0 {
		p.First, p.Sent, p.Received, p.Tick = r.Time, r.Sent, r.Received, r.Tick
	}
	defer p.halt(r)
	if !newest {
		p.Fill(r.Identity)
		return
	}
	if r.State != "" {
		p.State = r.State
	}
	p.Last, p.Rank, p.Identity = r.Time, r.Rank, r.Identity
	p.Fill(known) // the names of its pod may be missing in some records
}

// stoppedYet reports whether what was stopped before r is so still, since the same signal: nothing was sent or
// received since. An agent that begins anew has not seen that signal. A debugger it sees.
func (p *Process) stoppedYet(r *Record, before *Doing) bool {
	own := p.State == Stopped && r.State == Stopped
	child := before.ChildPID == r.Doing.ChildPID && before.Held.State == Stopped && r.Doing.Held.State == Stopped
	return r.Doing.Stopper == "" && !before.Traced && (own || child) && p.Awake <= before.At &&
		r.Sent <= p.Sent+again && r.Received <= p.Received+again
}

// halt takes whether the process is stopped, and its end.
func (p *Process) halt(r *Record) {
	switch {
	case r.End == Exited && (p.Exited == 0 || r.Time < p.Exited):
		p.Exited = r.Time
	case r.Ended():
	case r.State.Halted():
		if r.Time > p.Awake && (p.Halted == 0 || r.Time < p.Halted) {
			p.Halted = r.Time
		}
	case r.Time > p.Awake:
		p.Awake = r.Time
		if p.Halted <= p.Awake {
			p.Halted = 0
		}
		if p.Halted == 0 && p.Last > p.Awake && p.State.Halted() { // it stopped again
			p.Halted = p.Last
		}
	}
}

// HaltedAt reports whether the process was known to be stopped at that time.
func (p *Process) HaltedAt(t int64) bool { return p.Halted != 0 && p.Halted <= t }

// ExitedAt reports whether its end was seen by that time.
func (p *Process) ExitedAt(t int64) bool { return p.Exited != 0 && p.Exited <= t }

// OpenAt reports whether a stall of the process lasted at that time.
func (p *Process) OpenAt(t int64) bool {
	for _, s := range p.Stalls {
		if s.OpenAt(t) {
			return true
		}
	}
	return false
}

// Moment is what a stall and its process say at one time.
type Moment struct {
	Open, Halted, Exited bool
	Cause                Cause
}

func (p *Process) momentOf(s *Stall, t int64) Moment {
	if s == nil || !s.OpenAt(t) {
		return Moment{Exited: p.ExitedAt(t)}
	}
	return Moment{Open: true, Cause: s.CauseAt(t), Halted: p.HaltedAt(t)}
}
