//go:build linux && (amd64 || arm64)

package ncclcall

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/tracecoreai/tracecore/bpf/internal/counter"
	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// The rungs.
const (
	// RungCookie tells each library apart: Linux 5.15.
	RungCookie = "uprobe/libnccl"
	// RungOneLayout is for older kernels. Rank and size of communicators are known
	// where all libraries of the node have the same layout.
	RungOneLayout = "uprobe/libnccl-one-layout"
)

// ownSlot is where the self-test's library is; no other has it.
const ownSlot = 64

// hooks are the programs, loaded, and the libraries that they are attached to.
type hooks struct {
	collection *ebpf.Collection
	reader     *ringbuf.Reader
	cookies    bool
	selfTest   <-chan error // what became of detaching the self-test; nil where it was not attached

	mu        sync.Mutex // guards what follows
	libraries map[*attachment]bool
	epoch     uint32
	gaps      map[uint32]bool // slots of libraries of NCCL that were detached, or attached again, since they were taken
}

// attachment is one library with its probes.
type attachment struct {
	hooks   *hooks
	slot    uint32
	library bpfLibrary
	nccl    bool
	layout  error    // why rank and size are not known
	stepped bool     // a breakpoint on one of its calls costs more
	file    *os.File // to attach again
	places  []place
	limit   Limit
	links   map[class]uprobe.Links
	users   []Process
}

// place is where a function is.
type place struct {
	function
	offset uint64
}

func openHooks(ringBytes uint32, cookies bool) (_ *hooks, err error) {
	if err := uprobe.Problem(os.DirFS("/")); err != nil {
		return nil, err
	}
	if cookies {
		if err := cookieProblem(); err != nil {
			return nil, err
		}
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the locked-memory limit: %w", err)
	}
	spec, err := loadBpf()
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", Name, err)
	}
	if ringBytes != 0 {
		spec.Maps[bpfMapEvents].MaxEntries = ringBytes
	}
	if !cookies {
		if err := spec.Variables[bpfVarCookies].Set(uint32(0)); err != nil {
			return nil, fmt.Errorf("load %s: %w", Name, err)
		}
	}
	if err := room.Share(spec, room.NewSalt(), bpfMapCommunicators, bpfMapGraphs); err != nil {
		return nil, fmt.Errorf("load %s: %w", Name, err)
	}
	h := &hooks{cookies: cookies, libraries: map[*attachment]bool{}, gaps: map[uint32]bool{}}
	if h.collection, err = kerninfo.Load(spec, ebpf.CollectionOptions{}); err != nil {
		return nil, fmt.Errorf("load %s: %w", Name, err)
	}
	if h.reader, err = ringbuf.NewReader(h.collection.Maps[bpfMapEvents]); err != nil {
		h.collection.Close()
		return nil, fmt.Errorf("open the ring of %s: %w", Name, err)
	}
	return h, nil
}

// cookieProblem asks for bpf_get_attach_cookie (5.15, 7adfc6c9b315).
func cookieProblem() error {
	err := features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie)
	if !errors.Is(err, ebpf.ErrNotSupported) {
		return nil // what else is wrong shows when it is loaded
	}
	return &ladder.Problem{
		Outcome: probe.Unsupported, Err: err,
		Reason: "on this kernel a probe does not know which library it sits on",
		Hint:   "update to Linux 5.15, if the libraries of the node differ",
	}
}

// attachTo puts the probe on the functions that a file defines. One that is linked against
// NCCL has none inside: libtorch_cuda of PyTorch's wheels, which has very many symbols.
func (h *hooks) attachTo(file *os.File, path string) (io.Closer, error) {
	if outside, err := uprobe.Needs(file, "libnccl.so", "librccl.so"); outside || err != nil {
		return nil, cmp.Or(err, uprobe.ErrNothing)
	}
	image, err := uprobe.Read(file, names())
	if err != nil {
		return nil, err
	}
	_, nccl := image.Function(allReduce)
	list := traced(image)
	if !nccl {
		list = slices.DeleteFunc(list, func(f function) bool { return f.class != graphs })
	}
	if len(list) == 0 {
		return nil, uprobe.ErrNothing
	}
	a := &attachment{hooks: h, nccl: nccl, links: map[class]uprobe.Links{}}
	if nccl {
		a.library.RankOffset, a.layout = rankOffset(image)
		if _, there := image.Function(commSplit); there {
			a.library.HasHash = 1
		}
	}
	for _, f := range list {
		at, _ := image.Function(f.name)
		a.stepped = a.stepped || at.Stepped && f.class != lifetimes
		a.places = append(a.places, place{f, at.Offset})
	}
	if a.file, err = os.Open(path); err != nil {
		return nil, err
	}
	return a, h.attach(a)
}

func (h *hooks) attach(a *attachment) (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.register(a); err != nil {
		return errors.Join(err, a.file.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.release(a))
		}
	}()
	if err := a.trace(func(class) bool { return true }); err != nil {
		return err
	}
	a.library.Enabled = 1
	return h.begin(a)
}

// trace attaches to the functions of some classes.
func (a *attachment) trace(wanted func(class) bool) error {
	for _, at := range a.places {
		if !wanted(at.class) {
			continue
		}
		links, err := uprobe.Attach(uprobe.Path(a.file), []uprobe.Hook{{
			Name: at.name, Offset: at.offset, Program: a.hooks.collection.Programs[at.program], Cookie: uint64(a.slot),
		}})
		if err != nil {
			return err
		}
		a.links[at.class] = append(a.links[at.class], links...)
	}
	return nil
}

// register gives a library its slot; mu is held.
func (h *hooks) register(a *attachment) error {
	if h.cookies {
		for a.slot = 1; h.taken(a.slot); a.slot++ {
		}
		if a.slot >= ownSlot {
			return errors.New("no room for another library")
		}
	}
	h.libraries[a] = true
	return h.publish(a.slot)
}

func (h *hooks) taken(slot uint32) bool {
	for a := range h.libraries {
		if a.slot == slot {
			return true
		}
	}
	return false
}

// begin lets the groups of a library begin anew, once all is attached that tells of them: the end of one
// from before may have gone unseen. mu is held.
func (h *hooks) begin(a *attachment) error {
	h.epoch++
	a.library.Epoch = h.epoch
	return h.publish(a.slot)
}

// publish tells BPF what is in a slot; mu is held. Where several libraries share it,
// their layout counts only if it is the same.
func (h *hooks) publish(slot uint32) error {
	var value bpfLibrary
	first := true
	for a := range h.libraries {
		if a.slot != slot {
			continue
		}
		value.Enabled |= a.library.Enabled
		value.Epoch = max(value.Epoch, a.library.Epoch)
		switch {
		case !a.nccl:
		case first:
			value.RankOffset, value.HasHash, first = a.library.RankOffset, a.library.HasHash, false
		case value.RankOffset != a.library.RankOffset || value.HasHash != a.library.HasHash:
			value.RankOffset = 0
		}
	}
	if err := h.collection.Maps[bpfMapLibraries].Put(slot, value); err != nil {
		return fmt.Errorf("tell BPF of a library: %w", err)
	}
	return nil
}

// release forgets a library and detaches from it; mu is held.
func (h *hooks) release(a *attachment) error {
	delete(h.libraries, a)
	if a.nccl {
		h.gaps[a.slot] = true
	}
	errs := []error{h.publish(a.slot), a.file.Close()}
	var all uprobe.Links
	for _, links := range a.links {
		all = append(all, links...)
	}
	a.links = nil
	return errors.Join(append(errs, all.Close())...)
}

// Close detaches from a library.
func (a *attachment) Close() error {
	a.hooks.mu.Lock()
	defer a.hooks.mu.Unlock()
	return a.hooks.release(a)
}

// layouts counts the libraries of NCCL without a layout, and says why of one.
func (h *hooks) layouts() (nccl, unknown int, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for a := range h.libraries {
		if !a.nccl {
			continue
		}
		nccl++
		if a.layout != nil {
			unknown++
			why = a.layout
		}
	}
	return nccl, unknown, why
}

// usedBy takes which processes have mapped a library.
func (a *attachment) usedBy(processes []Process) {
	a.hooks.mu.Lock()
	defer a.hooks.mu.Unlock()
	a.users = processes
}

// slots are what is known of the libraries of NCCL. Where several share one, whose calls are stepped
// over is known by the file that a process uses.
func (h *hooks) slots() map[uint32]slot {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[uint32]slot{}
	for a := range h.libraries {
		if !a.nccl {
			continue
		}
		s, shared := all[a.slot]
		if !shared {
			s = slot{stepped: true, steps: map[uint32]bool{}}
		}
		s.stepped = s.stepped && a.stepped
		if a.stepped {
			for _, u := range a.users {
				s.steps[u.PID] = true
			}
		}
		s.users = append(s.users, a.users...)
		all[a.slot] = s
	}
	return all
}

// openGroups is how many groups a thread of a process has open, as far as their begins and ends were all seen.
func (h *hooks) openGroups(pid, thread, slot uint32) (uint32, error) {
	if thread == 0 {
		return 0, nil
	}
	var group bpfGroup
	var library bpfLibrary
	groups, libraries := h.collection.Maps[bpfMapGroups], h.collection.Maps[bpfMapLibraries]
	err := groups.Lookup(uint64(pid)<<32|uint64(thread), &group)
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return 0, nil
	case err == nil:
		err = libraries.Lookup(slot, &library)
	}
	if err != nil || group.Epoch != library.Epoch {
		return 0, err
	}
	return group.Depth, nil
}

// takeGaps are the slots of which not all calls were counted, since they were asked for.
func (h *hooks) takeGaps() []uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Collect(maps.Keys(h.gaps))
	clear(h.gaps)
	return list
}

// restrict detaches what a limit leaves out, and attaches what it does not any more.
func (h *hooks) restrict(slot uint32, limit Limit) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for a := range h.libraries {
		if a.slot == slot && a.nccl && a.limit != limit {
			errs = append(errs, a.restrict(limit))
		}
	}
	return errors.Join(errs...)
}

// restrict is for one library; the mutex of its hooks is held.
func (a *attachment) restrict(limit Limit) error {
	before := a.limit
	a.limit = limit
	if before == NoCalls || limit == NoCalls {
		a.hooks.gaps[a.slot] = true
	}
	var over uprobe.Links
	for class, links := range a.links {
		if !limit.traces(class) {
			over = append(over, links...)
			delete(a.links, class)
		}
	}
	return errors.Join(over.Close(), a.trace(func(c class) bool { return limit.traces(c) && !before.traces(c) }), a.hooks.begin(a))
}

func (h *hooks) close() error {
	err := h.reader.Close()
	if h.selfTest != nil {
		err = errors.Join(err, <-h.selfTest)
	}
	h.collection.Close()
	return err
}

// dropped are events that found the ring full and calls whose communicator found no room.
func (h *hooks) dropped() (uint64, error) {
	lost, err := counter.Sum(h.collection.Maps[bpfMapDropped], 0)
	refused, err2 := counter.Sum(h.collection.Maps[bpfMapRefused], 0)
	return lost + refused, errors.Join(err, err2)
}

// crowded are the dropped events of who floods the ring.
func (h *hooks) crowded() (room.Crowded, error) {
	return room.ReadCrowded(h.collection.Maps[bpfMapCrowded])
}
