package identity

import "time"

// A rank is often started by a process that has its environment, too, and only waits for it: a
// shell, timeout(1), tini. Such a wrapper is the outermost process of the rank, and its end is
// the rank's. How the rank died shows in the end of its child. The wrapper passes it on in one
// of few forms: 128 + signal (POSIX shells: XCU 2.8.2; tini, timeout), 256 - signal (a program
// in Python that ends with the return code of subprocess), the same signal, which it sends
// itself (timeout), or the same status. timeout(1) ends with 124 where it asked its child to end.

// maxChildEnds is how many ends of its children a process remembers: that of the rank, and of
// what is ended after it.
const maxChildEnds = 4

const (
	// cleaning is how long a wrapper may go on after its child before it passes a signal on: a
	// script copies logs meanwhile. The status names the signal, and hardly anything else.
	cleaning = time.Minute
	// atOnce is the same for what may come of something else: a status, the same signal.
	atOnce = time.Second
	// noticing is how long a rank may take to notice that a child of it crashed, and to end of that:
	// a DataLoader looks at its workers every five seconds, and Python takes seconds to end on a host
	// that is busy.
	noticing = 15 * time.Second
)

// timedOut is the status of timeout(1) whose time was over (coreutils, EXIT_TIMEDOUT).
const timedOut = 124

// Wrapper is the outermost process of a rank that passed on how its child ended, or that the rank has outlived.
type Wrapper struct {
	PID  uint32
	Comm string
	Code int // as in Exit, of the wrapper itself
	// Signal is what ended it, 0 when it returned.
	Signal int
	// Outlived is true where it ended before its rank did.
	Outlived bool
}

// Child is a child of a rank that crashed shortly before the rank ended with a status of its own.
type Child struct {
	PID    uint32
	Comm   string
	Signal int
	By     Sender // who sent it, as far as that is known
}

// SentByAnother reports whether another process sent the signal that ended it.
func (c *Child) SentByAnother() bool { return c.By.PID != 0 && c.By.Relation != RelationItself }

// childEnd is how a child of a rank's process failed.
type childEnd struct {
	Exit             // of the child, or of the process whose end it passed on
	code, signal int // of the child itself
	endNS        uint64
	long         bool // it lived longer than its siblings that had ended, or as long as a rank
}

// children are the ends of those whom a process of a rank has started.
type children struct {
	failed  []childEnd // the last ones
	longest uint64     // how long one of them has lived
}

// ended takes note of the end of a child. of is the process whose end it is: the child, or one
// whose end the child passed on.
func (c *children) ended(child *record, e, of *Exit) {
	lived := child.endNS - min(child.endNS, child.startNS)
	long := lived >= c.longest || lived >= uint64(longLived)
	c.longest = max(c.longest, lived)
	if !e.Failed() && (of.Signalled.Number == 0 || of.Signalled.Sender.PID != child.ParentPID) {
		return
	}
	if len(c.failed) == maxChildEnds {
		c.failed = append(c.failed[:0], c.failed[1:]...)
	}
	c.failed = append(c.failed, childEnd{Exit: *of, code: e.Code, signal: e.Signal, endNS: child.endNS, long: long})
}

// passed returns the end that r passed on with its own, nil for none: the last that accounts for
// it. What others have signalled ends of that.
func (r *record) passed(e *Exit, python bool) *childEnd {
	if r.children == nil || !e.Failed() || e.Signalled.Number != 0 && e.Signalled.Sender.Relation != RelationItself {
		return nil
	}
	for i := len(r.children.failed) - 1; i >= 0; i-- {
		if c := &r.children.failed[i]; c.accountsFor(e, time.Duration(r.endNS-min(r.endNS, c.endNS)), python) {
			return c
		}
	}
	return nil
}

// accountsFor reports whether a wrapper that ends like e, so long after its child, passes the end
// of that on. Python ends with 1 for an exception of its own.
func (c *childEnd) accountsFor(e *Exit, after time.Duration, python bool) bool {
	switch {
	case c.timedOut(e):
		return after <= atOnce
	case c.signal != 0 && e.Signal == 0:
		return after <= cleaning && e.Code == 128+c.signal || after <= atOnce && e.Code == 256-c.signal && python
	case c.signal != 0:
		return after <= atOnce && e.Signal == c.signal && e.Signalled.Sender.Relation == RelationItself
	default:
		return after <= atOnce && e.Signal == 0 && e.Code == c.code && c.long && !python
	}
}

// timedOut reports whether e is the end of timeout(1), which asked its child to end after its time.
func (c *childEnd) timedOut(e *Exit) bool {
	by := &c.Signalled
	return e.Code == timedOut && by.Number != 0 && by.Sender.PID == e.PID && by.Sender.StartNS == e.StartNS && !Interpreter(e.Comm)
}

// crashed returns the child whose crash a rank may have ended of, nil for none: the last one before a
// status of its own. What the rank killed, or another process of its job, did not crash. What an ancestor
// of the rank killed alone counts: who ends a job asks the rank, too.
func (t *Tracker) crashed(r *record, e *Exit) *Child {
	if r.children == nil || e.Signal != 0 || e.Code == 0 || e.Signalled.Number != 0 {
		return nil
	}
	for i := len(r.children.failed) - 1; i >= 0; i-- {
		c := &r.children.failed[i]
		if c.Signal == 0 || !c.crashed() || r.endNS-min(r.endNS, c.endNS) > uint64(noticing) {
			continue
		}
		by := Sender{Relation: c.Signalled.Sender.Relation}
		if c.Signalled.Number == c.Signal {
			by = c.Signalled.Sender
		}
		switch by.Relation {
		case RelationContainer, RelationFirst:
			continue
		case RelationRank:
			if t.above(r, by.PID, by.StartNS) == 0 {
				continue
			}
		}
		return &Child{PID: c.PID, Comm: c.Comm, Signal: c.Signal, By: by}
	}
	return nil
}

// by is the end of the rank: that of its process, which its wrapper passed on.
func (c *childEnd) by(wrapper *Exit) Exit {
	e := c.Exit
	e.Inherited = false
	if c.timedOut(wrapper) {
		e.Signalled.Sender.Relation = RelationLauncher
	}
	if e.Domain == unknownDomain {
		e.Domain = wrapper.Domain
	}
	e.Wrapper = &Wrapper{PID: wrapper.PID, Comm: wrapper.Comm, Code: wrapper.Code, Signal: wrapper.Signal}
	return e
}
