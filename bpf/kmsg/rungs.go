//go:build linux && (amd64 || arm64)

package kmsg

import (
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/tracecoreai/tracecore/bpf/internal/counter"
	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// The rungs, best first.
const (
	// RungBTF reads the tracepoint through BTF: the kernel checks its types.
	RungBTF = "tp_btf/console"
	// RungRaw is the same tracepoint for kernels without BTF.
	RungRaw = "raw_tp/console"
	// RungCommit probes the commit of a record in the printk ring: kernels before
	// 5.19, where the tracepoint sees only what a console prints.
	RungCommit = "kprobe/prb_commit"
)

// Rungs returns the rungs, best first.
func Rungs() []string { return []string{RungBTF, RungRaw, RungCommit} }

// attached is one rung, loaded and attached.
type attached struct {
	collection *ebpf.Collection
	program    *ebpf.Program
	links      []link.Link
	reader     *ringbuf.Reader
	names      names
}

// rungs lists how to try each rung.
func (t *trial) rungs() []ladder.Rung[*attached] {
	try := func(id, program string, attach func(*ebpf.Program) ([]link.Link, error)) ladder.Rung[*attached] {
		return ladder.Rung[*attached]{ID: id, Try: func() (*attached, bool, error) {
			a, err := t.load(program)
			if err != nil {
				return nil, false, fmt.Errorf("load: %w", err)
			}
			if a.links, err = attach(a.program); err != nil {
				return nil, false, fmt.Errorf("attach: %w", errors.Join(err, a.close()))
			}
			fired, err := t.fire(id, a)
			if err != nil {
				return nil, false, errors.Join(err, a.close())
			}
			return a, fired, nil
		}}
	}
	return []ladder.Rung[*attached]{
		try(RungBTF, bpfProgConsoleBtf, attachBTF),
		try(RungRaw, bpfProgConsoleRaw, attachRaw),
		try(RungCommit, bpfProgRecordCommit, attachCommit),
	}
}

func attachBTF(p *ebpf.Program) ([]link.Link, error) {
	return one(link.AttachTracing(link.TracingOptions{Program: p}))
}

func attachRaw(p *ebpf.Program) ([]link.Link, error) {
	return one(link.AttachRawTracepoint(link.RawTracepointOptions{Name: "console", Program: p}))
}

func one(l link.Link, err error) ([]link.Link, error) {
	if err != nil {
		return nil, err
	}
	return []link.Link{l}, nil
}

// kprobeDevice is where the kernel offers kprobes to perf_event_open (4.17).
const kprobeDevice = "/sys/bus/event_source/devices/kprobe"

// attachCommit probes both ways to end a record. prb_final_commit came with
// reopened records (4cfc7258f876, 5.10); a kernel without it needs only the one.
func attachCommit(p *ebpf.Program) ([]link.Link, error) {
	if _, err := os.Stat(kprobeDevice); errors.Is(err, os.ErrNotExist) {
		return nil, &ladder.Problem{
			Outcome: probe.Unsupported,
			Reason:  "no " + kprobeDevice + ": this kernel has no kprobes",
			Hint:    "use a kernel with CONFIG_KPROBES and CONFIG_KPROBE_EVENTS, or Linux 5.19 and newer, where the tracepoint does",
		}
	}
	commit, err := link.Kprobe("prb_commit", p, nil)
	if err != nil {
		return nil, fmt.Errorf("kprobe prb_commit: %w", err)
	}
	final, err := link.Kprobe("prb_final_commit", p, nil)
	if errors.Is(err, os.ErrNotExist) {
		return []link.Link{commit}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kprobe prb_final_commit: %w", errors.Join(err, commit.Close()))
	}
	return []link.Link{commit, final}, nil
}

// load puts one program and its maps into the kernel and opens the ring. The
// other programs of the object may not load here at all and are left out.
func (t *trial) load(program string) (*attached, error) {
	if err := t.requirements(); err != nil {
		return nil, err
	}
	spec, err := loadBpf()
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return name != program })
	spec.Maps[bpfMapEvents].MaxEntries = uint32(t.ringBytes)
	if err := errors.Join(spec.Variables[bpfVarKernelNames].Set(t.kernelNames), room.ShareRing(spec, room.NewSalt())); err != nil {
		return nil, err
	}
	collection, err := kerninfo.Load(spec, ebpf.CollectionOptions{})
	if err != nil {
		return nil, err
	}
	a := &attached{collection: collection, program: collection.Programs[program], names: names{read: t.symbols()}}
	if err := collection.Maps[bpfMapWords].Put(uint32(0), t.automaton); err != nil {
		return nil, errors.Join(fmt.Errorf("write the words: %w", err), a.close())
	}
	if a.reader, err = ringbuf.NewReader(collection.Maps[bpfMapEvents]); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// requirements are what every rung needs, asked of the kernel.
func (t *trial) requirements() error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("raise the locked-memory limit: %w", err)
	}
	err := features.HaveMapType(ebpf.RingBuf)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return &ladder.Problem{
			Outcome: probe.Unsupported,
			Reason:  fmt.Sprintf("ring buffers need Linux 5.8, this is %s", kerninfo.Release()),
			Hint:    "use Linux 5.8 or newer",
		}
	}
	return err
}

// dropped is how many records the kernel side could not deliver: those that
// found the ring full, and those whose program run was refused because it was
// already running on that CPU. Returns known when the counters cannot be read.
func (a *attached) dropped(known uint64) uint64 {
	sum, err := counter.Sum(a.collection.Maps[bpfMapDropped], 0)
	if err != nil {
		return known
	}
	return sum + counter.Misses(a.program)
}

func (a *attached) close() error {
	var errs []error
	for _, l := range a.links {
		errs = append(errs, l.Close())
	}
	if a.reader != nil {
		errs = append(errs, a.reader.Close())
	}
	a.collection.Close()
	return errors.Join(errs...)
}
