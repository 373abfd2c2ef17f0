//go:build linux && (amd64 || arm64)

// Package ncclcall tells which rank called which collective of NCCL or RCCL, how often
// and when, from outside: nothing in the job changes.
package ncclcall

//go:generate go tool bpf2go -go-package ncclcall -tags linux -target amd64,arm64 -type event -type operation -type kind -type identity -type owner bpf ncclcall.bpf.c

import (
	"cmp"
	"errors"
	"io"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Name of the probe in reports.
const Name = "ncclcall"

// DefaultMaxLibraries bounds how many files are attached at a time. A container image has
// one NCCL, and a node one libcuda.
const DefaultMaxLibraries = 48

// Options of the probe; the zero value is right for production.
type Options struct {
	Rung            string  // use this rung and no other
	RingBytes       uint32  // size of the ring, a power of two and at least a page; 0: 256 KiB, 800 events
	ProcRoot        string  // where the host's /proc is mounted; "": HOST_PROC from the environment, else /proc
	MaxLibraries    int     // attached at a time, at most 63; 0: DefaultMaxLibraries
	MaxPointToPoint float64 // calls a second of a process; 0: DefaultMaxPointToPoint
	MaxCalls        float64 // calls a second of a process; 0: DefaultMaxCalls
	MaxStepped      float64 // and on average of such a library whose functions the kernel steps over; 0: DefaultMaxStepped
}

// Probe counts the calls of the libraries that Watch found. Read, Watch, Unseen and Scan are for
// one goroutine each; the remaining methods are safe beside them.
type Probe struct {
	uprobe.Events[Event]

	hooks   *hooks
	options Options
	proc    *procfs.FS
	watch   *uprobe.Watcher
	births  births
	statics statics
	limits  *limits          // of Scan
	spared  map[uint32]Limit // processes, as BPF was told; of Scan
	// launches of communicators that were not seen being made; of Scan
	launches map[bpfCommunicatorKey]*launches
}

// Open loads the probe and has it count a call of a function of this program. It is
// attached to nothing until Watch.
func Open(opts Options) (*Probe, error) {
	try := func(cookies bool) func() (*hooks, bool, error) {
		return func() (*hooks, bool, error) {
			h, err := openHooks(opts.RingBytes, cookies)
			if err != nil {
				return nil, false, err
			}
			if err := h.fire(); err != nil {
				return nil, false, errors.Join(err, h.close())
			}
			return h, true, nil
		}
	}
	hooks, report, err := ladder.Climb(Name, opts.Rung, []ladder.Rung[*hooks]{
		{ID: RungCookie, Try: try(true)}, {ID: RungOneLayout, Try: try(false)},
	})
	if err != nil {
		return nil, err
	}
	opts.MaxPointToPoint = cmp.Or(opts.MaxPointToPoint, DefaultMaxPointToPoint)
	opts.MaxCalls = cmp.Or(opts.MaxCalls, DefaultMaxCalls)
	opts.MaxStepped = cmp.Or(opts.MaxStepped, DefaultMaxStepped)
	p := &Probe{hooks: hooks, options: opts, proc: procfs.Open(opts.ProcRoot), births: newBirths(), limits: newLimits(opts.MaxPointToPoint, opts.MaxCalls, opts.MaxStepped), spared: map[uint32]Limit{}, launches: map[bpfCommunicatorKey]*launches{}}
	p.statics = newStatics(p.proc, searchPace)
	p.watch = uprobe.NewWatcher(p.proc, uprobe.Libraries{
		// NCCL is found by content: file names vary (libnccl-pr2127.so.2.30.3), and
		// PyTorch's own libraries may have it inside.
		Names:  []string{"libnccl*", "librccl*", "libtorch_cuda*", "libtorch_hip*", "libtorch_python*", "libcuda.so"},
		Max:    cmp.Or(opts.MaxLibraries, DefaultMaxLibraries),
		More:   true, // NCCL loads libcuda
		Attach: hooks.attachTo,
		Used:   func(library io.Closer, by []Process) { library.(*attachment).usedBy(by) }, //nolint:forcetypeassert // attachTo made it
	})
	p.Begin(uprobe.Source[Event]{
		Name: Name, Report: report, Reader: hooks.reader, Decode: p.decode, Dropped: hooks.dropped, Crowded: hooks.crowded,
		Close: func() error { return errors.Join(p.watch.Close(), hooks.close()) },
	})
	return p, nil
}

// Watch attaches the probe to the NCCL, RCCL and libcuda that these processes have
// mapped, each file once, and detaches it from files that none of them has any more. A
// uprobe belongs to a file: other processes that map it are counted too. Call it again
// now and then.
func (p *Probe) Watch(processes []Process) (Watched, error) {
	w, err := p.watch.Watch(processes)
	nccl, unknown, why := p.hooks.layouts()
	return Watched{Watched: w, NCCL: nccl, Unknown: unknown, Layout: why}, err
}

// decode takes note of the communicators that are made.
func (p *Probe) decode(raw []byte, clockOffset int64, e *Event) error {
	if err := decode(raw, clockOffset, e); err != nil {
		return err
	}
	p.births.add(e)
	return nil
}
