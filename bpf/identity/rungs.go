//go:build linux && (amd64 || arm64)

package identity

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/tracecoreai/tracecore/bpf/internal/counter"
	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

func rungs(proc *reader) []ladder.Rung[source] {
	return []ladder.Rung[source]{
		{ID: RungTracing, Try: func() (source, bool, error) {
			return openRing(proc, 0, bpfProgExecEnviron, bpfProgExitStatus)
		}},
		{ID: RungNotice, Try: func() (source, bool, error) {
			return openRing(proc, 0, bpfProgExecNotice)
		}},
		{ID: RungScan, Try: func() (source, bool, error) { return openScan(proc) }},
	}
}

// ring is the source on BPF rungs.
type ring struct {
	maps      bpfMaps
	links     []link.Link
	reader    *ringbuf.Reader
	record    ringbuf.Record
	withExits bool

	mu          sync.Mutex // guards lastDropped and closed
	lastDropped uint64
	closed      bool
}

// openRing loads and attaches programs and lets them fire. ringBytes 0 means what
// the C file says.
func openRing(proc *reader, ringBytes uint32, programs ...string) (_ source, fired bool, err error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, false, fmt.Errorf("raise the locked-memory limit: %w", err)
	}
	collection, err := load(ringBytes, programs)
	if err != nil {
		return nil, false, fmt.Errorf("load identity: %w", err)
	}
	defer collection.Close() // closes what r does not take over
	r := &ring{withExits: len(programs) == 2}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if err := collection.Assign(&r.maps); err != nil {
		return nil, false, fmt.Errorf("load identity: %w", err)
	}
	if r.reader, err = ringbuf.NewReader(r.maps.Events); err != nil {
		return nil, false, fmt.Errorf("open the ring of identity: %w", err)
	}
	for _, name := range programs {
		l, err := attach(collection.Programs[name])
		if err != nil {
			return nil, false, fmt.Errorf("attach %s: %w", name, err)
		}
		r.links = append(r.links, l)
	}
	fired, err = r.fire(proc)
	return r, fired, err
}

func load(ringBytes uint32, programs []string) (*ebpf.Collection, error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]*ebpf.ProgramSpec, len(programs))
	for _, name := range programs {
		wanted[name] = spec.Programs[name]
	}
	spec.Programs = wanted
	if ringBytes != 0 {
		spec.Maps[bpfMapEvents].MaxEntries = ringBytes
	}
	return kerninfo.Load(spec, ebpf.CollectionOptions{})
}

func attach(program *ebpf.Program) (link.Link, error) {
	if program.Type() == ebpf.Tracing {
		return link.AttachTracing(link.TracingOptions{Program: program})
	}
	return link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exec", Program: program})
}

func (r *ring) tellsExits() bool { return r.withExits }

func (r *ring) next(e *event, deadline time.Time) error {
	r.reader.SetDeadline(deadline)
	switch err := r.reader.ReadInto(&r.record); {
	case errors.Is(err, ringbuf.ErrFlushed):
		return errFlushed
	case err != nil:
		return err
	}
	if err := decode(r.record.RawSample, e); err != nil {
		return fmt.Errorf("%w: %w", errInvalid, err)
	}
	return nil
}

func (r *ring) flush() bool { return r.reader.Flush() == nil }

// dropped returns the last known count when the kernel does not give one.
func (r *ring) dropped() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		if n, err := counter.Sum(r.maps.Dropped, 0); err == nil {
			r.lastDropped = n
		}
	}
	return r.lastDropped
}

// close detaches, then unblocks next.
func (r *ring) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var errs []error
	for _, l := range r.links {
		errs = append(errs, l.Close())
	}
	if r.reader != nil {
		errs = append(errs, r.reader.Close())
	}
	return errors.Join(append(errs, r.maps.Close())...)
}

// quiet is the source without BPF: no event ever comes.
type quiet struct{ closed chan struct{} }

func openScan(proc *reader) (source, bool, error) {
	pids, err := proc.PIDs()
	if err == nil && len(pids) == 0 {
		err = fmt.Errorf("no process in %s", proc.Root())
	}
	if err != nil {
		return nil, false, &ladder.Problem{
			Outcome: probe.Broken, Reason: "no processes to be read", Err: err,
			Hint: "mount the host's /proc and set proc_root, or HOST_PROC in the environment",
		}
	}
	return quiet{closed: make(chan struct{})}, true, nil
}

func (q quiet) next(_ *event, deadline time.Time) error {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-timer.C:
		return os.ErrDeadlineExceeded
	case <-q.closed:
		return os.ErrClosed
	}
}

func (quiet) dropped() uint64  { return 0 }
func (quiet) tellsExits() bool { return false }
func (quiet) flush() bool      { return false }
func (q quiet) close() error   { close(q.closed); return nil }
