package ncclcallreceiver

import (
	"context"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclcall"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
)

// unseen are the processes of which not all collectives make a call that is seen, as they were told.
// It is of the goroutine that tells.
type unseen struct {
	told map[blind]time.Time // when last
	// devices have asked NCCL that their kernels may communicate.
	devices map[identity.Born]bool
}

// blind is a process, and why.
type blind struct {
	identity.Born
	why ncclcall.Why
}

// sight is what the probe says of a process.
type sight struct {
	of identity.Process
	ncclcall.Unseen
}

func newUnseen() *unseen {
	return &unseen{told: map[blind]time.Time{}, devices: map[identity.Born]bool{}}
}

// tellAgain is after how long it is told once more, while it holds: others forget it after twice
// that time (patterns/nccl_hang, keepCalls).
const tellAgain = time.Hour

// look takes what the probe says of the ranks, and which ranks and candidates live, and returns what
// is to be told.
func (u *unseen) look(found []sight, now time.Time, living map[identity.Born]identity.Process) (due []sight) {
	for born := range u.devices {
		p, lives := living[born]
		if !lives {
			delete(u.devices, born)
		} else if p.IsRank() {
			found = append(found, gpuInitiated(&p))
		}
	}
	found = slices.DeleteFunc(found, func(one sight) bool { // the answer may have taken seconds
		_, lives := living[one.of.Born()]
		return !lives
	})
	still := make(map[blind]time.Time, len(found))
	for _, one := range found {
		key := blind{one.of.Born(), one.Why}
		if _, twice := still[key]; twice {
			continue
		}
		still[key] = u.told[key]
		if now.Sub(still[key]) >= tellAgain {
			still[key] = now
			due = append(due, one)
		}
	}
	u.told = still
	return due
}

func gpuInitiated(p *identity.Process) sight {
	return sight{*p, ncclcall.Unseen{PID: p.PID, Why: ncclcall.GPUInitiated}}
}

// device takes that kernels of a process may communicate from now on, and reports whether that is
// told now: it is a rank, and that is new.
func (u *unseen) device(p *identity.Process, now time.Time) bool {
	u.devices[p.Born()] = true
	key := blind{p.Born(), ncclcall.GPUInitiated}
	if _, told := u.told[key]; told || !p.IsRank() {
		return false
	}
	u.told[key] = now
	return true
}

// takeDevice takes that from ranks, and from processes that may be ranks.
func (r *ncclCall) takeDevice(e *ncclcall.Event, by *identity.Process) {
	if e.Kind != ncclcall.Device || !by.IsRank() && !r.candidate(by) {
		return
	}
	if r.unseen.device(by, time.Now()) {
		r.putUnseen(gpuInitiated(by), e.Time)
	}
}

// askUnseen asks the probe of the ranks.
func (r *ncclCall) askUnseen(ctx context.Context, s source) {
	ranks, _ := probereceiver.Oldest(r.resolver, r.config.MaxProcesses)
	of := make(map[uint32]identity.Process, len(ranks))
	for _, p := range ranks {
		of[p.PID] = p
	}
	var found []sight
	for _, one := range s.Unseen(probereceiver.Watched(ranks)) {
		found = append(found, sight{of[one.PID], one})
	}
	select {
	case r.blinds <- found:
	case <-ctx.Done():
	}
}

// tellUnseen tells of ranks of which not all calls are seen.
func (r *ncclCall) tellUnseen(found []sight) {
	now := time.Now()
	due := r.unseen.look(found, now, r.living())
	r.unseenProcesses.Store(int64(len(r.unseen.told)))
	for _, one := range due {
		r.putUnseen(one, now)
	}
}

func (r *ncclCall) putUnseen(one sight, at time.Time) {
	if r.config.Events.NcclCallLimited.Enabled {
		r.out.Put(r.convert.unseen(one.Unseen, &one.of, at, time.Now()))
	}
}
