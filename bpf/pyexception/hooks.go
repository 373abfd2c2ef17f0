//go:build linux && (amd64 || arm64)

package pyexception

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/tracecoreai/tracecore/bpf/internal/counter"
	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/internal/pystack"
)

// RungUprobe is the only rung: a breakpoint where the interpreter displays an exception.
const RungUprobe = "uprobe/PyErr_Display"

// function is what every CPython from 3.8 to 3.14 calls once for an exception that nobody
// caught, and exports.
const function = "PyErr_Display"

// hooks are the maps, and what programs for one interpreter are made of. Each has a program
// of its own, with its layout in it: that needs no map, and no cookie, which kernels before
// 5.15 have not.
type hooks struct {
	spec   *ebpf.CollectionSpec
	shared map[string]*ebpf.Map // by all of them: the ring, what is counted of it, and which threads terminate
	reader *ringbuf.Reader
	// selfTest says what became of the hooks that were fired for these; nil in those.
	selfTest <-chan error
}

func openHooks(ringBytes uint32, messages bool) (_ *hooks, err error) {
	if err := uprobe.Problem(os.DirFS("/")); err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the locked-memory limit: %w", err)
	}
	h := &hooks{}
	if h.spec, err = loadBpf(); err != nil {
		return nil, fmt.Errorf("load %s: %w", Name, err)
	}
	if ringBytes != 0 {
		h.spec.Maps[bpfMapEvents].MaxEntries = ringBytes
	}
	if !messages {
		if err := h.spec.Variables[bpfVarMessages].Set(uint32(0)); err != nil {
			return nil, fmt.Errorf("load %s: %w", Name, err)
		}
	}
	if err := room.ShareRing(h.spec, room.NewSalt()); err != nil {
		return nil, fmt.Errorf("load %s: %w", Name, err)
	}
	h.shared = map[string]*ebpf.Map{}
	for _, name := range []string{bpfMapEvents, bpfMapDropped, bpfMapInRing, bpfMapCrowded, bpfMapTerminating} {
		if h.shared[name], err = ebpf.NewMap(h.spec.Maps[name]); err != nil {
			delete(h.shared, name)
			return nil, errors.Join(fmt.Errorf("load %s: %w", Name, err), h.closeMaps())
		}
	}
	if h.reader, err = ringbuf.NewReader(h.shared[bpfMapEvents]); err != nil {
		return nil, errors.Join(fmt.Errorf("open the ring of %s: %w", Name, err), h.closeMaps())
	}
	return h, nil
}

func (h *hooks) closeMaps() error {
	var errs []error
	for _, m := range h.shared {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// attachTo puts the probe on the interpreter in a file.
func (h *hooks) attachTo(file *os.File, path string) (io.Closer, error) {
	objects, err := pystack.ReadObjects(file)
	if errors.Is(err, pystack.ErrNoPython) {
		return nil, uprobe.ErrNothing
	}
	if err != nil {
		return nil, err
	}
	image, err := uprobe.Read(file, []string{function})
	if err != nil {
		return nil, err
	}
	place, there := image.Function(function)
	if !there {
		return nil, fmt.Errorf("its %s does not export %s", objects.Version(), function)
	}
	return h.attach(path, place.Offset, layoutOf(objects))
}

func layoutOf(o *pystack.Objects) *bpfLayout {
	l := &bpfLayout{
		Minor:      uint32(o.Minor),
		TextLength: uint32(o.TextLength), TextState: uint32(o.TextState), TextAscii: uint32(o.TextASCII), TextCompact: uint32(o.TextCompact),
		BytesSize: uint32(o.BytesSize), BytesContent: uint32(o.BytesContent),
		CodeFile: uint32(o.CodeFile), CodeName: uint32(o.CodeName), CodeFirstLine: uint32(o.CodeFirstLine), CodeLines: uint32(o.CodeLines),
		FrameInner: uint32(o.FrameInner), FrameCode: uint32(o.FrameCode),
		ExceptionTraceback: uint32(o.Traceback), ExceptionContext: uint32(o.Context), ExceptionCause: uint32(o.Cause),
		ExceptionSuppress: uint32(o.SuppressContext), ExceptionMembers: uint32(o.Members),
		ErrorFile: uint32(o.ErrorFile), TupleItems: uint32(o.TupleItems),
	}
	if o.NumberTagged {
		l.NumberTagged = 1
	}
	return l
}

// attached is the program for one file.
type attached struct {
	collection *ebpf.Collection
	links      uprobe.Links
}

func (h *hooks) attach(path string, offset uint64, layout *bpfLayout) (*attached, error) {
	spec := h.spec.Copy()
	if err := spec.Variables[bpfVarLayout].Set(layout); err != nil {
		return nil, fmt.Errorf("load %s: %w", Name, err)
	}
	return h.load(spec, path, []place{{bpfProgDisplay, function, offset}})
}

// place is where a program is put in a file.
type place struct {
	program, function string
	offset            uint64
}

// load loads the programs of these places, and puts them there.
func (h *hooks) load(spec *ebpf.CollectionSpec, path string, places []place) (*attached, error) {
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool {
		return !slices.ContainsFunc(places, func(p place) bool { return p.program == name })
	})
	collection, err := kerninfo.Load(spec, ebpf.CollectionOptions{MapReplacements: h.shared})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", Name, err)
	}
	var hooks []uprobe.Hook
	for _, p := range places {
		hooks = append(hooks, uprobe.Hook{Name: p.function, Offset: p.offset, Program: collection.Programs[p.program]})
	}
	links, err := uprobe.Attach(path, hooks)
	if err != nil {
		collection.Close()
		return nil, err
	}
	return &attached{collection, links}, nil
}

// Close detaches from the file.
func (a *attached) Close() error {
	err := a.links.Close()
	a.collection.Close()
	return err
}

func (h *hooks) close() error {
	err := errors.Join(h.reader.Close(), h.closeMaps())
	if h.selfTest != nil {
		err = errors.Join(err, <-h.selfTest)
	}
	return err
}

// lost is how many exceptions found the ring full.
func (h *hooks) lost() (uint64, error) { return counter.Sum(h.shared[bpfMapDropped], 0) }

// crowded is how many of them were of who floods it.
func (h *hooks) crowded() (room.Crowded, error) { return room.ReadCrowded(h.shared[bpfMapCrowded]) }
