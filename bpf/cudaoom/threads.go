//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// tidying is how far apart the map of threads is gone through, at least: reading /proc for a
// full one takes a tenth of a second.
const tidying = 10 * time.Second

// tidy takes out threads that have ended in a call or after a refusal, once half of the map
// is in use. The map may change meanwhile: what the walk misses waits for the next one.
func (h *hooks) tidy(ended func(pid, thread uint32) bool) error {
	threads := h.collection.Maps[bpfMapThreads]
	held, err := room.InAll(h.collection.Maps[bpfMapHeld], 0)
	if err != nil || 2*int(held) < int(threads.MaxEntries()) {
		return err
	}
	known := map[uint32]bpfThread{}
	var id uint32
	var t bpfThread
	all := threads.Iterate()
	for all.Next(&id, &t) {
		known[id] = t
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return fmt.Errorf("read the threads of cudaoom: %w", err)
	}
	for id, t := range known {
		if !ended(t.Pid, id) {
			continue
		}
		if _, err := room.Forget(h.collection.Programs[bpfProgForgetThread], uint64(id), t.BeganNs); err != nil {
			return fmt.Errorf("forget a thread of cudaoom: %w", err)
		}
	}
	return nil
}

// ended reports whether a thread is known to run no more.
func (p *Probe) ended(pid, thread uint32) bool {
	stat, err := p.proc.ThreadStat(pid, thread)
	if err != nil {
		return errors.Is(err, procfs.ErrGone)
	}
	return stat.Ended()
}
