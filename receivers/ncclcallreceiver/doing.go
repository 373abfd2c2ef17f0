package ncclcallreceiver

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// process is one that calls NCCL. It rests while it makes no call.
type process struct {
	activity.Rest
	born  identity.Born // not known of one that nobody knows
	round int
	calls uint64 // on all of its communicators

	told     bool // that it stands, on one communicator at least
	toldAs   socketstall.Silence
	toldLike socketstall.State
	toldAt   time.Time
}

// called takes that the process has made calls, the first of them then.
func (p *process) called(calls uint64, first, last time.Time) {
	p.calls, p.told = calls, false
	p.Goes(first, last, true)
}
