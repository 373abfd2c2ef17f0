//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
)

// RungUprobe is the only rung: breakpoints at the entry and the return of the
// driver's functions.
const RungUprobe = "uprobe/libcuda"

// entries are the functions of libcuda that take memory of a GPU, with the program
// at their entry. The names are those that the library exports: cuda.h defines
// cuMemAlloc as cuMemAlloc_v2 since CUDA 3.2, and cuMemAllocAsync as
// cuMemAllocAsync_ptsz for code built with a default stream per thread. Not among
// them are cuMemHostAlloc and its kin, which take memory of the host.
func entries() map[string]string {
	return map[string]string{
		"cuMemAlloc_v2":                bpfProgMemAlloc,
		"cuMemAllocPitch_v2":           bpfProgMemAllocPitch,
		"cuMemAllocManaged":            bpfProgMemAllocManaged,
		"cuMemAllocAsync":              bpfProgMemAllocAsync,
		"cuMemAllocAsync_ptsz":         bpfProgMemAllocAsync,
		"cuMemAllocFromPoolAsync":      bpfProgMemAllocFromPoolAsync,
		"cuMemAllocFromPoolAsync_ptsz": bpfProgMemAllocFromPoolAsync,
		"cuMemCreate":                  bpfProgMemCreate,
	}
}

// functions are the names in entries, in order.
func functions() []string {
	var names []string
	for name := range entries() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// hooks are the programs, loaded; the libraries that they are attached to come and go.
type hooks struct {
	collection *ebpf.Collection
	reader     *ringbuf.Reader
	// selfTest says what became of the hooks that were fired for these; nil in those.
	selfTest <-chan error
}

// sizes of maps; 0 means what the C file says.
type sizes struct{ ringBytes, threads uint32 }

func openHooks(size sizes) (_ *hooks, err error) {
	if err := uprobe.Problem(os.DirFS("/")); err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the locked-memory limit: %w", err)
	}
	spec, err := loadBpf()
	if err != nil {
		return nil, fmt.Errorf("load cudaoom: %w", err)
	}
	for name, entries := range map[string]uint32{bpfMapEvents: size.ringBytes, bpfMapThreads: size.threads} {
		if entries != 0 {
			spec.Maps[name].MaxEntries = entries
		}
	}
	if err := room.Share(spec, room.NewSalt(), bpfMapThreads); err != nil {
		return nil, fmt.Errorf("load cudaoom: %w", err)
	}
	h := &hooks{}
	if h.collection, err = kerninfo.Load(spec, ebpf.CollectionOptions{}); err != nil {
		return nil, fmt.Errorf("load cudaoom: %w", err)
	}
	if h.reader, err = ringbuf.NewReader(h.collection.Maps[bpfMapEvents]); err != nil {
		h.collection.Close()
		return nil, fmt.Errorf("open the ring of cudaoom: %w", err)
	}
	return h, nil
}

// attachTo puts the probe on the functions that a file has. The return comes first, so
// that no call is kept whose return nobody looks at.
func (h *hooks) attachTo(file *os.File, path string) (io.Closer, error) {
	image, err := uprobe.Read(file, functions())
	if err != nil {
		return nil, err
	}
	at := map[string]uint64{}
	for _, name := range functions() {
		if f, there := image.Function(name); there {
			at[name] = f.Offset
		}
	}
	if len(at) == 0 {
		return nil, errors.New("it exports none of the driver's allocation functions")
	}
	return h.attach(path, at)
}

func (h *hooks) attach(path string, at map[string]uint64) (uprobe.Links, error) {
	var hooks []uprobe.Hook
	for _, name := range functions() {
		if offset, there := at[name]; there {
			hooks = append(hooks,
				uprobe.Hook{Name: name, Offset: offset, Program: h.collection.Programs[bpfProgAllocationReturn], Return: true},
				uprobe.Hook{Name: name, Offset: offset, Program: h.collection.Programs[entries()[name]]})
		}
	}
	return uprobe.Attach(path, hooks)
}

func (h *hooks) close() error {
	err := h.reader.Close()
	h.collection.Close()
	if h.selfTest != nil {
		err = errors.Join(err, <-h.selfTest)
	}
	return err
}
