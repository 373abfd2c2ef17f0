//go:build linux && (amd64 || arm64)

// Package fusefault tells what hangs on FUSE file systems while it hangs: requests
// that their daemon has not answered and page faults that have not returned.
package fusefault

//go:generate go tool bpf2go -go-package fusefault -tags linux -target amd64,arm64 -type request -type fault -type mount -type thread -type holder -type owner bpf fusefault.bpf.c

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Name of the probe in reports.
const Name = "fusefault"

// DefaultMinAge is how old something must be to be told of.
const DefaultMinAge = time.Second

// Options of the probe; the zero value is right for production.
type Options struct {
	Rung   string        // use this rung and no other
	MinAge time.Duration // younger requests and faults are counted, not listed; 0: DefaultMinAge
	// MaxInFlight is how many requests, and how many threads with faults, are noted at
	// once; what exceeds it is counted as missed. 0: 16,384, about 4 MB of kernel memory.
	MaxInFlight uint32
	// ProcRoot is where the host's /proc is; "": HOST_PROC from the environment, else /proc.
	ProcRoot string

	maxMounts uint32 // 0: as the C file says
}

// Probe notes requests and faults from the moment it is open. All methods may be
// called at the same time.
type Probe struct {
	opts Options
	proc *procfs.FS

	mu        sync.Mutex // guards what follows
	hooks     *hooks     // nil while the kernel has no FUSE
	failed    error      // FUSE came and no hook worked
	code      kernelCode
	report    probe.Report
	closed    bool
	missed    uint64
	invalid   uint64
	snapshots uint64
	buffers   buffers
	sightings sightings
	answered  map[Device]uint64 // by requests whose entries were forgotten
	search    search
	searched  uint64 // when threads that wait were last looked for
}

// Open attaches the best rung that this kernel allows. Where FUSE is a module that
// is not loaded, nothing can hang on it and there is nothing to attach to: the probe
// waits for it, and Snapshot attaches as soon as it is there. It never loads it.
func Open(opts Options) (*Probe, error) {
	p, _, err := Try(opts)
	return p, err
}

// Try is Open that returns the report also when no rung works.
func Try(opts Options) (*Probe, probe.Report, error) {
	if opts.MinAge == 0 {
		opts.MinAge = DefaultMinAge
	}
	p := &Probe{opts: opts, proc: procfs.Open(opts.ProcRoot), sightings: sightings{}}
	p.proc.SetForeign(p.proc.OtherNamespace())
	if !fuseLoaded() && known(opts.Rung) {
		p.report = asleep()
		return p, p.report, nil
	}
	report, err := p.attach()
	if err != nil {
		return nil, report, err
	}
	return p, report, nil
}

func known(rung string) bool {
	for _, id := range append(Rungs(), "") {
		if rung == id {
			return true
		}
	}
	return false
}

// asleep is the report of a probe that waits for FUSE.
func asleep() probe.Report {
	return probe.Report{Probe: Name, Attempts: []probe.Attempt{{
		Rung: RungTracepoint, Outcome: probe.Unsupported,
		Reason: "FUSE is not loaded: nothing can hang on it, and the probe attaches when it is",
		Hint:   "nothing to do; to try it at once: modprobe fuse",
	}}}
}

// attach climbs the ladder.
func (p *Probe) attach() (probe.Report, error) {
	code, hidden := loadKernelCode()
	if hidden == nil && len(code.fault) == 0 {
		hidden = errors.New("/proc/kallsyms hides addresses (kernel.kptr_restrict, CAP_SYSLOG): waits for pages that other threads read are not seen")
	}
	h, report, err := ladder.Climb(Name, p.opts.Rung, rungs(p.opts, code))
	p.report = report
	if err != nil {
		return report, err
	}
	last := &p.report.Attempts[len(p.report.Attempts)-1]
	if lacks := errors.Join(h.lacks, hidden); lacks != nil {
		last.Hint = lacks.Error()
	}
	p.hooks, p.code, p.answered = h, code, map[Device]uint64{}
	return p.report.Clone(), nil
}

// Stats returns the counters since Open: snapshots taken, requests and faults that
// found no room, records refused. They stay readable after Close.
func (p *Probe) Stats() probe.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count()
	return probe.Stats{Events: p.snapshots, Dropped: p.missed, Invalid: p.invalid}
}

// count takes the kernel side's counter while there is one.
func (p *Probe) count() {
	if p.closed || p.hooks == nil {
		return
	}
	if n, err := p.hooks.missed(); err == nil {
		p.missed = n
	}
}

// Report says which rung is in use and why not a better one.
func (p *Probe) Report() probe.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.report.Clone()
}

// Close detaches the probe; a Snapshot that is running ends first. Closing twice
// is fine.
func (p *Probe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.count()
	p.closed = true
	if p.hooks == nil {
		return nil
	}
	if err := p.hooks.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("close %s: %w", Name, err)
	}
	return nil
}

// buffers are reused from snapshot to snapshot.
type buffers struct {
	raw         bytes.Buffer
	requestKeys []uint64
	requests    []bpfRequest
	faultKeys   []uint32
	faults      []bpfFault
	mountKeys   []uint32
	mounts      []bpfMount
}

// The tables of room.h.
const (
	tableRequests = iota
	tableFaults
	tableMounts
)

// readAll copies a table into the slices, which are returned cut to its size. Of an empty
// one it reads nothing: to walk over 16,384 empty buckets takes 0.2 ms.
func readAll[K, V any](h *hooks, table uint32, b *buffers, keys []K, values []V) ([]K, []V, error) {
	if n, err := room.InAll(h.maps.Held, table); err != nil || n == 0 {
		return keys[:0], values[:0], err
	}
	if h.entries[table] == nil {
		return lookUpAll(h.table(table), keys[:0], values[:0])
	}
	iteration, err := h.entries[table].Open()
	if err != nil {
		return keys[:0], values[:0], err
	}
	defer iteration.Close()
	b.raw.Reset()
	if _, err := b.raw.ReadFrom(iteration); err != nil {
		return keys[:0], values[:0], err
	}
	return decodeEntries(b.raw.Bytes(), keys[:0], values[:0])
}

func (h *hooks) table(table uint32) *ebpf.Map {
	return [...]*ebpf.Map{tableRequests: h.maps.Requests, tableFaults: h.maps.Faults, tableMounts: h.maps.Mounts}[table]
}

// lookUpAll adds all entries of a map to the slices, by bpf(2), one after the other: while the kernel copies many at once it
// runs no program of a uprobe on that CPU either, and calls that others count (bpf/ncclcall) would be missed. Where so many
// entries come and go meanwhile that the walk begins anew again and again, the next snapshot has the rest.
func lookUpAll[K, V any](m *ebpf.Map, keys []K, values []V) ([]K, []V, error) {
	var key K
	var value V
	entries := m.Iterate()
	for entries.Next(&key, &value) {
		keys, values = append(keys, key), append(values, value)
	}
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return keys, values, err
	}
	return keys, values, nil
}
