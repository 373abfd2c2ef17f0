//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/tracecoreai/tracecore/bpf/cudaoom/internal/standin"
	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// fireTimeout is how long the event of the self-test may take: it is in the ring
// before the call returns, so this is for a very slow machine.
const fireTimeout = 5 * time.Second

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY, cuda.h.
const outOfMemory = 2

// fire has this program call a function of its own that looks like cuMemAlloc_v2
// and refuses, and waits for the event. Then it lets a child do the same under a
// seccomp filter, as jobs in containers are, and takes the rung only when the
// child lives on: where the probe ends processes, no probe is better.
func (h *hooks) fire() (err error) {
	const name = "cuMemAlloc_v2"
	offset, err := fileOffset(standin.Entry())
	if err != nil {
		return fmt.Errorf("find the self-test in this program: %w", err)
	}
	links, err := h.attach("/proc/self/exe", map[string]uint64{name: offset})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, detach(links)) }()

	size := rand.Uint64()
	standin.Alloc(standin.Entry(), size, nil, outOfMemory)
	if err := h.await(size); err != nil {
		return err
	}
	survived, err := standin.Confined(size + 1)
	switch {
	case err != nil:
		return nil //nolint:nilerr // no child, or no seccomp filters: nothing is known against the rung
	case !survived:
		return &ladder.Problem{
			Outcome: probe.Unsupported,
			Reason:  "on this kernel a return probe ends every process under a seccomp filter, as those in containers are",
			Hint:    "update to Linux 6.14, or to a 6.11 to 6.13 that has commit cf6cb56ef244 (seccomp: passthrough uretprobe systemcall without filtering)",
		}
	}
	return h.await(size + 1)
}

// await reads until the event of that size. Others' cannot come: nothing else is
// attached yet.
func (h *hooks) await(size uint64) error {
	h.reader.SetDeadline(time.Now().Add(fireTimeout))
	defer h.reader.SetDeadline(time.Time{})
	for {
		record, err := h.reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return ladder.ErrSilent
		}
		if err != nil {
			return fmt.Errorf("read cudaoom: %w", err)
		}
		offset, err := bootclock.Offset()
		if err != nil {
			return fmt.Errorf("read cudaoom: %w", err)
		}
		var e Event
		if err := decode(record.RawSample, offset, &e); err != nil {
			return err
		}
		if e.SizeBytes == size && e.Function == MemAlloc && !e.Succeeded {
			return nil
		}
	}
}
