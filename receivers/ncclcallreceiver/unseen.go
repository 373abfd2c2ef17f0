package ncclcallreceiver

import (
	"context"
	"time"

	"github.com/tracecoreai/tracecore/bpf/ncclcall"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
)

// unseen are the processes of which not all collectives make a call that is seen, as they were told.
// It is of the goroutine that tells.
type unseen struct {
	told map[blind]time.Time // when last
	// devices have asked NCCL that their kernels may communicate.
	devices map[uint32]bool
}

// blind is a process, and why.
type blind struct {
	pid uint32
	why ncclcall.Why
}

func newUnseen() *unseen { return &unseen{told: map[blind]time.Time{}, devices: map[uint32]bool{}} }

// tellAgain is after how long it is told once more, while it holds: others forget it after twice
// that time (patterns/nccl_hang, keepCalls).
const tellAgain = time.Hour

// look takes what the probe says of the ranks that live, and returns what is to be told.
func (u *unseen) look(found []ncclcall.Unseen, now time.Time, lives func(pid uint32) bool) (due []ncclcall.Unseen) {
	for pid := range u.devices {
		if !lives(pid) {
			delete(u.devices, pid)
			continue
		}
		found = append(found, ncclcall.Unseen{PID: pid, Why: ncclcall.GPUInitiated})
	}
	still := make(map[blind]time.Time, len(found))
	for _, one := range found {
		key := blind{one.PID, one.Why}
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

// device takes that kernels of a process may communicate from now on, and reports whether that is new.
func (u *unseen) device(pid uint32, now time.Time) bool {
	key := blind{pid, ncclcall.GPUInitiated}
	if _, told := u.told[key]; told {
		return false
	}
	u.devices[pid], u.told[key] = true, now
	return true
}

// askUnseen asks the probe of the ranks.
func (r *ncclCall) askUnseen(ctx context.Context, s source) {
	ranks, _ := probereceiver.Oldest(r.resolver, r.config.MaxProcesses)
	select {
	case r.blinds <- s.Unseen(watchedOf(ranks)):
	case <-ctx.Done():
	}
}

// tellUnseen tells of ranks of which not all calls are seen.
func (r *ncclCall) tellUnseen(found []ncclcall.Unseen) {
	living, now := r.living(), time.Now()
	due := r.unseen.look(found, now, func(pid uint32) bool { return living[pid] })
	r.unseenProcesses.Store(int64(len(r.unseen.told)))
	for _, one := range due {
		r.putUnseen(one, now)
	}
}

func (r *ncclCall) putUnseen(one ncclcall.Unseen, at time.Time) {
	if r.config.Events.NcclCallLimited.Enabled {
		r.out.Put(r.convert.unseen(one, r.known(one.PID, at), at, time.Now()))
	}
}
