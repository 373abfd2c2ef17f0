package ncclcallreceiver

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// meets makes a process that has not called yet, with what was known of it before this start.
func (r *ncclCall) meets(pid uint32, at time.Time) *process {
	p := &process{}
	by := r.known(pid, at)
	if by == nil || by.Ended { // another has its number
		return p
	}
	p.born = by.Born()
	if known, is := r.learned.Of(by); is {
		p.Recall(&known, at)
	}
	return p
}

// memory is what is known of a process; false of one that has not called.
func (s *standstill) memory(of *identity.Process) (activity.Memory, bool) {
	p := s.processes[of.PID]
	if p == nil || p.born != of.Born() {
		return activity.Memory{}, false
	}
	return p.Memory(), true
}
