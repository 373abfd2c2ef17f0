//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
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

// hooks are the programs, loaded; they are attached to one library at a time.
type hooks struct {
	collection *ebpf.Collection
	reader     *ringbuf.Reader
	// selfTest says what became of the hooks that were fired for these; nil in those.
	selfTest <-chan error
}

func openHooks(ringBytes uint32) (_ *hooks, err error) {
	if err := uprobeProblem(os.DirFS("/")); err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the locked-memory limit: %w", err)
	}
	spec, err := loadBpf()
	if err != nil {
		return nil, fmt.Errorf("load cudaoom: %w", err)
	}
	if ringBytes != 0 {
		spec.Maps[bpfMapEvents].MaxEntries = ringBytes
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

// uprobeProblem asks for the uprobe event source (since 4.17, 33ea4b24277b), which
// is there when the kernel is built with uprobes, whatever is mounted.
func uprobeProblem(root fs.FS) error {
	if _, err := fs.Stat(root, "sys/bus/event_source/devices/uprobe/type"); errors.Is(err, fs.ErrNotExist) {
		return &ladder.Problem{
			Outcome: probe.Unsupported,
			Reason:  "this kernel has no uprobes",
			Hint:    "use a kernel built with CONFIG_UPROBE_EVENTS, and mount sysfs",
		}
	}
	return nil
}

// attach puts the probe on those functions that a file has at these offsets. The
// return comes first, so that no call is kept whose return nobody looks at.
func (h *hooks) attach(path string, at map[string]uint64) (links []link.Link, err error) {
	file, err := link.OpenExecutable(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, detach(links))
			links = nil
		}
	}()
	for _, name := range functions() {
		offset, there := at[name]
		if !there {
			continue
		}
		options := &link.UprobeOptions{Address: offset}
		back, err := file.Uretprobe("", h.collection.Programs[bpfProgAllocationReturn], options)
		if err != nil {
			return links, privilege(fmt.Errorf("attach to the return of %s: %w", name, err))
		}
		links = append(links, back)
		entry, err := file.Uprobe("", h.collection.Programs[entries()[name]], options)
		if err != nil {
			return links, privilege(fmt.Errorf("attach to %s: %w", name, err))
		}
		links = append(links, entry)
	}
	return links, nil
}

// privilege says what a refused breakpoint lacks. CAP_PERFMON was enough from 5.8
// (c9e0924e5c2b) until 6.16 and the stable kernels of July 2025 (ba677dbe77af): a
// breakpoint in the middle of an instruction changes what a program does.
func privilege(err error) error {
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	return &ladder.Problem{
		Outcome: probe.Denied, Reason: "uprobes need CAP_SYS_ADMIN", Err: err,
		Hint: "give it CAP_SYS_ADMIN, or run it privileged (before Linux 6.16, and kernels with its commit ba677dbe77af, CAP_PERFMON is enough); if it has that, look for a security module",
	}
}

// detach closes links side by side: the kernel waits for a grace period in each,
// and one serves them all.
func detach(links []link.Link) error {
	errs := make([]error, len(links))
	var closing sync.WaitGroup
	for i, l := range links {
		closing.Go(func() { errs[i] = l.Close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}

func (h *hooks) close() error {
	err := h.reader.Close()
	h.collection.Close()
	if h.selfTest != nil {
		err = errors.Join(err, <-h.selfTest)
	}
	return err
}
