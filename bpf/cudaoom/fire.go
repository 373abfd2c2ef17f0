//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/standin"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// fireTimeout is how long the event of the self-test may take: it is in the ring
// before the call returns, so this is for a very slow machine.
const fireTimeout = 5 * time.Second

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY, cuda.h.
const outOfMemory = 2

// selfTest loads the programs for themselves and fires them, so that nothing of it
// reaches a reader. It does not wait until they are detached, for which the kernel
// takes its time: what became of that comes from the channel.
func selfTest(confined func(size uint64) (survived bool, err error)) (closed <-chan error, err error) {
	h, err := openHooks(sizes{})
	if err != nil {
		return nil, err
	}
	closing := make(chan error, 1)
	links, err := h.attachToSelf()
	if err == nil {
		err = h.fire(confined)
	}
	go func() { closing <- errors.Join(links.Close(), h.close()) }()
	if err != nil {
		return nil, errors.Join(err, <-closing)
	}
	return closing, nil
}

// tested is the name of the function that the self-test stands in for.
const tested = "cuMemAlloc_v2"

// attachToSelf attaches to a function of this program that looks like the driver's.
func (h *hooks) attachToSelf() (uprobe.Links, error) {
	function, err := uprobe.OwnFunction(standin.Entry())
	if err != nil {
		return nil, fmt.Errorf("find the self-test in this program: %w", err)
	}
	return h.attach(uprobe.Own, map[string]uint64{tested: function.Offset})
}

// fire has this program call that function, which refuses, and waits for the event.
// Then a child does the same under a seccomp filter, as jobs in containers are
// (standin.Confined). It is well only when the child lives on: where the probe ends
// processes, or that could not be found out, no probe is better.
func (h *hooks) fire(confined func(size uint64) (survived bool, err error)) error {
	size := rand.Uint64()
	standin.Alloc(standin.Entry(), size, nil, outOfMemory)
	if err := h.await(size); err != nil {
		return err
	}
	survived, err := confined(size + 1)
	switch {
	case errors.Is(err, standin.ErrNoFilters):
		return nil
	case err != nil:
		return fmt.Errorf("find out whether processes under a seccomp filter live on: %w", err)
	case !survived:
		return &ladder.Problem{
			Outcome: probe.Unsupported,
			Reason:  "on this kernel a return probe ends every process under a seccomp filter, as those in containers are",
			Hint:    "update to Linux 6.14, or to a 6.11 to 6.13 that has commit cf6cb56ef244 (seccomp: passthrough uretprobe systemcall without filtering)",
		}
	}
	return h.await(size + 1)
}

// await reads until the event of that size.
func (h *hooks) await(size uint64) error {
	return uprobe.Await(h.reader, fireTimeout, decode, func(e *Event) (bool, error) {
		return e.SizeBytes == size && e.Function == MemAlloc && !e.Succeeded, nil
	})
}
