//go:build linux && (amd64 || arm64)

package identity

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/tracecoreai/tracecore/bpf/internal/again"
	"github.com/tracecoreai/tracecore/bpf/internal/counter"
	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/pin"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

func rungs(proc *reader) []ladder.Rung[source] {
	return []ladder.Rung[source]{
		{ID: RungSignals, Try: func() (source, bool, error) {
			return openRing(proc, sizes{}, bpfProgExecEnviron, bpfProgExitStatus, bpfProgSignalSent)
		}},
		{ID: RungTracing, Try: func() (source, bool, error) {
			return openRing(proc, sizes{}, bpfProgExecEnviron, bpfProgExitStatus)
		}},
		{ID: RungNotice, Try: func() (source, bool, error) {
			return openRing(proc, sizes{}, bpfProgExecNotice)
		}},
		{ID: RungScan, Try: func() (source, bool, error) { return openScan(proc) }},
	}
}

// ring is the source on BPF rungs.
type ring struct {
	maps        bpfMaps
	links       []link.Link
	running     map[string]*ebpf.Program // what the links run
	reader      *ringbuf.Reader
	record      ringbuf.Record
	withExits   bool
	withSenders bool
	forget      *ebpf.Program // takes out signals; nil without them
	layout      string        // of its records
	kept        *pin.Kept     // nil where nothing is pinned

	mu          sync.Mutex // guards what follows
	lastDropped uint64
	lastUnnoted uint64
	tidied      uint64 // boot clock
	closed      bool
}

// sizes of maps; 0 means what the C file says.
type sizes struct{ ringBytes, signals uint32 }

// openRing loads and attaches programs and lets them fire.
func openRing(proc *reader, size sizes, programs ...string) (_ source, fired bool, err error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, false, fmt.Errorf("raise the locked-memory limit: %w", err)
	}
	collection, copies, layout, err := load(size, programs)
	if err != nil {
		return nil, false, fmt.Errorf("load identity: %w", err)
	}
	defer collection.Close() // closes what r does not take over
	r := &ring{
		running: map[string]*ebpf.Program{}, layout: layout,
		withExits: slices.Contains(programs, bpfProgExitStatus), withSenders: slices.Contains(programs, bpfProgSignalSent),
	}
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
	if r.withSenders {
		r.forget = collection.Programs[bpfProgForgetSignals]
		delete(collection.Programs, bpfProgForgetSignals) // r closes it
	}
	for _, name := range append(copies, programs...) {
		l, err := attach(collection.Programs[name])
		if err != nil {
			return nil, false, fmt.Errorf("attach %s: %w", name, err)
		}
		r.links, r.running[name] = append(r.links, l), collection.Programs[name]
		delete(collection.Programs, name) // r closes it
	}
	fired, err = r.fire(proc)
	return r, fired, err
}

// recordVersion is raised where a field of the record changes its meaning.
const recordVersion = 1

func load(size sizes, programs []string) (_ *ebpf.Collection, copies []string, layout string, err error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, nil, "", err
	}
	if layout, err = pin.Layout(spec, recordVersion, "event", "signals"); err != nil {
		return nil, nil, "", err
	}
	loaded := slices.Clone(programs)
	if slices.Contains(programs, bpfProgSignalSent) {
		loaded = append(loaded, bpfProgForgetSignals)
	}
	if copies, err = again.Programs(spec, loaded, bpfProgExecEnviron, bpfProgExitStatus); err != nil {
		return nil, nil, "", err
	}
	for name, entries := range map[string]uint32{bpfMapEvents: size.ringBytes, bpfMapSignals: size.signals} {
		if entries != 0 {
			spec.Maps[name].MaxEntries = entries
		}
	}
	if err := room.Share(spec, room.NewSalt(), bpfMapSignals); err != nil {
		return nil, nil, "", err
	}
	collection, err := kerninfo.Load(spec, ebpf.CollectionOptions{})
	return collection, copies, layout, err
}

func attach(program *ebpf.Program) (link.Link, error) {
	if program.Type() == ebpf.Tracing {
		return link.AttachTracing(link.TracingOptions{Program: program})
	}
	return link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exec", Program: program})
}

func (r *ring) signalsTo(pid uint32, startNS uint64) *signals {
	var raw bpfSignals
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !r.withSenders || r.maps.Signals.Lookup(pid, &raw) != nil || raw.TargetStartNs/uint64(tickNS) != startNS/uint64(tickNS) {
		return nil
	}
	return signalsOf(&raw)
}

func (r *ring) tellsExits() bool { return r.withExits }

// tidying is how far apart the map of signals is gone through, at least.
const tidying = uint64(10 * time.Second)

// tidy takes out what explains no end any more: of processes that have ended unseen, and of
// those who hold more than an eighth of the map old signals that were handled.
func (r *ring) tidy(now uint64, ended func(pid uint32, startNS uint64) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !r.withSenders || now < r.tidied+tidying {
		return
	}
	r.tidied = now
	if held, err := room.InAll(r.maps.Held, 0); err != nil || 2*int(held) < int(r.maps.Signals.MaxEntries()) {
		return
	}
	type entry struct {
		pid     uint32
		startNS uint64
		tenant  uint16
		useless bool
	}
	// The map may change meanwhile: what the walk misses waits for the next one.
	var pid uint32
	var raw bpfSignals
	var old []entry
	byTenant := map[uint16]int{}
	for all := r.maps.Signals.Iterate(); all.Next(&pid, &raw); {
		byTenant[raw.Owner.TenantSlot]++
		if s := signalsOf(&raw); s.last()+uint64(stopping) < now {
			old = append(old, entry{pid, raw.TargetStartNs, raw.Owner.TenantSlot, s.explainNothing()})
		}
	}
	for _, e := range old {
		crowds := byTenant[e.tenant] > int(r.maps.Signals.MaxEntries())/8
		if crowds && e.useless || ended(e.pid, e.startNS) {
			_, _ = room.Forget(r.forget, uint64(e.pid), e.startNS) // else the next walk does
		}
	}
}

func (r *ring) unnoted() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed && r.withSenders {
		if n, err := counter.Sum(r.maps.Unnoted, 0); err == nil {
			r.lastUnnoted = n
		}
	}
	return r.lastUnnoted
}

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

// dropped is how many records found the ring full, and how many the kernel ran no program
// for; the last known count when the kernel does not give one.
func (r *ring) dropped() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		if n, err := counter.Sum(r.maps.Dropped, 0); err == nil {
			r.lastDropped = n + again.Missed(r.running)
			_ = r.kept.Seen(n) // an older note makes a gap look longer, no more
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
	for _, p := range r.running {
		errs = append(errs, p.Close())
	}
	errs = append(errs, r.forget.Close())
	if r.reader != nil {
		errs = append(errs, r.reader.Close())
	}
	errs = append(errs, r.kept.Close())
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

func (quiet) signalsTo(uint32, uint64) *signals      { return nil }
func (quiet) tidy(uint64, func(uint32, uint64) bool) {}
func (quiet) unnoted() uint64                        { return 0 }

func (quiet) flush() bool    { return false }
func (q quiet) close() error { close(q.closed); return nil }
