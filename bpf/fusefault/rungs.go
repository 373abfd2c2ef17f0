//go:build linux && (amd64 || arm64)

package fusefault

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/again"
	"github.com/tracecoreai/tracecore/bpf/internal/counter"
	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// The rungs, best first. They differ in what they hook, not in what they tell.
const (
	RungTracepoint = "tp_btf/fuse_request_send"        // since Linux 6.12
	RungFentry     = "fentry/queue_request_and_unlock" // 5.11 to 6.11
	RungKprobe     = "kprobe/queue_request_and_unlock" // until 6.11
)

// Rungs returns the rungs, best first.
func Rungs() []string { return []string{RungTracepoint, RungFentry, RungKprobe} }

// hook is a program and where it goes.
type hook struct{ program, symbol string }

var hooksOf = map[string][]hook{
	RungTracepoint: {
		{bpfProgRequestEndTracepoint, ""}, {bpfProgRequestSendTracepoint, ""}, {bpfProgFaultTracepoint, ""},
	},
	RungFentry: {
		{bpfProgRequestEndFentry, ""}, {bpfProgRequestQueueFentry, ""}, {bpfProgFaultFentry, ""},
	},
	RungKprobe: {
		{bpfProgRequestEndKprobe, "fuse_request_end"}, {bpfProgRequestQueueKprobe, "queue_request_and_unlock"},
		{bpfProgFaultKprobe, "filemap_fault"},
	},
}

func rungs(opts Options, code kernelCode) []ladder.Rung[*hooks] {
	var all []ladder.Rung[*hooks]
	for _, id := range Rungs() {
		all = append(all, ladder.Rung[*hooks]{ID: id, Try: func() (*hooks, bool, error) {
			if id == RungKprobe {
				if err := kprobeProblem(os.DirFS("/")); err != nil {
					return nil, false, err
				}
			}
			h, err := openHooks(hooksOf[id], opts, code)
			return h, false, err
		}})
	}
	return all
}

// kprobeProblem asks for the kprobe event source (since 4.17, e12f03d7031a), which
// is there when the kernel is built with kprobes, whatever is mounted.
func kprobeProblem(root fs.FS) error {
	if _, err := fs.Stat(root, "sys/bus/event_source/devices/kprobe/type"); errors.Is(err, fs.ErrNotExist) {
		return &ladder.Problem{
			Outcome: probe.Unsupported,
			Reason:  "this kernel has no kprobes",
			Hint:    "use a kernel built with CONFIG_KPROBE_EVENTS, and mount sysfs; or Linux 6.12 and newer, which needs none",
		}
	}
	return nil
}

// hooks are one rung, loaded and attached.
type hooks struct {
	maps    bpfMaps
	links   []link.Link
	running map[string]*ebpf.Program // what the links run
	lasts   *ebpf.Program            // asked whether a request is in flight
	clock   *ebpf.Program            // compares jiffies with the boot clock
	forgets struct{ request, fault, mount *ebpf.Program }
	threads *link.Iter
	// overlooked notes requests for which threads wait and whose beginning no hook told.
	overlooked *link.Iter
	marked     []uint32      // the threads that it tells of
	entries    [3]*link.Iter // over requests, faults, mounts; nil where the kernel lets no program walk over maps
	holders    *link.Iter    // nil where it could not be had: a daemon that never answered stays unknown
	perf       []int         // one event for each CPU
	lacks      error         // what could not be had beside the rung itself
}

// openHooks loads the programs of one rung and attaches them: the iterators first, then the ends of
// what is watched, then the beginnings.
func openHooks(wanted []hook, opts Options, code kernelCode) (_ *hooks, err error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the locked-memory limit: %w", err)
	}
	l, err := findLayout()
	if err != nil {
		return nil, err
	}
	for i, piece := range code.fault[:min(len(code.fault), codePieces)] {
		l.faultCode[i] = [2]uint64{piece.Start, piece.End}
	}
	h, salt := &hooks{running: map[string]*ebpf.Program{}}, room.NewSalt()
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	names := []string{bpfProgThreads, bpfProgOverlooked, bpfProgRequestLasts, bpfProgSetClock, bpfProgForgetRequest, bpfProgForgetFault, bpfProgForgetMount}
	for _, w := range wanted {
		names = append(names, w.program)
	}
	main, copies, err := load(l, opts, salt, names, nil)
	if err != nil {
		return nil, fmt.Errorf("load fusefault: %w", err)
	}
	defer main.Close() // closes what h does not take over
	if err := h.attachIterators(main); err != nil {
		return nil, err
	}
	h.takePrograms(main)
	if err := h.setClock(); err != nil {
		return nil, err
	}
	shared := map[string]*ebpf.Map{}
	for _, name := range []string{bpfMapFaults, bpfMapMounts, bpfMapDropped, bpfMapRequests, bpfMapAsked, bpfMapHeld} {
		shared[name] = main.Maps[name]
	}
	if err := h.addEntries(l, opts, salt, shared, wanted[0].symbol != ""); err != nil {
		return nil, err
	}
	h.lacks = errors.Join(h.addHolders(l, opts, salt, shared), h.addFaultEnds(l, opts, salt, shared))
	for _, name := range copies {
		wanted = append(wanted[:len(wanted):len(wanted)], hook{program: name})
	}
	if err := h.attachAll(wanted, main); err != nil {
		return nil, err
	}
	return h, main.Assign(&h.maps)
}

// attachIterators attaches what is read from user space.
func (h *hooks) attachIterators(main *ebpf.Collection) (err error) {
	if h.threads, err = link.AttachIter(link.IterOptions{Program: main.Programs[bpfProgThreads]}); err != nil {
		return fmt.Errorf("attach the iterator over threads: %w", err)
	}
	if h.overlooked, err = link.AttachIter(link.IterOptions{Program: main.Programs[bpfProgOverlooked]}); err != nil {
		return fmt.Errorf("attach the search for waiting threads: %w", err)
	}
	return nil
}

// addEntries attaches the iterators over the maps. Hardened kernels refuse them, and not those over tasks (EPERM; Linux
// 6.18.44, 2026-11-29): there the maps are read by bpf(2), which holds up no program of a tracepoint.
func (h *hooks) addEntries(l layout, opts Options, salt room.Salt, shared map[string]*ebpf.Map, kprobes bool) error {
	part, _, err := load(l, opts, salt, []string{bpfProgAllRequests, bpfProgAllFaults, bpfProgAllMounts}, shared)
	if errors.Is(err, unix.EPERM) && !kprobes {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load the iterators over maps: %w", err)
	}
	defer part.Close()
	for table, i := range [...][2]string{
		tableRequests: {bpfProgAllRequests, bpfMapRequests}, tableFaults: {bpfProgAllFaults, bpfMapFaults}, tableMounts: {bpfProgAllMounts, bpfMapMounts},
	} {
		if h.entries[table], err = link.AttachIter(link.IterOptions{Program: part.Programs[i[0]], Map: shared[i[1]]}); err != nil {
			return fmt.Errorf("attach the iterator over %s: %w", i[1], err)
		}
	}
	return nil
}

// takePrograms takes over the programs that user space runs itself.
func (h *hooks) takePrograms(main *ebpf.Collection) {
	for name, into := range map[string]**ebpf.Program{
		bpfProgRequestLasts: &h.lasts, bpfProgSetClock: &h.clock,
		bpfProgForgetRequest: &h.forgets.request, bpfProgForgetFault: &h.forgets.fault, bpfProgForgetMount: &h.forgets.mount,
	} {
		*into = main.Programs[name]
		delete(main.Programs, name) // h closes it
	}
}

// attachAll attaches hooks in their order, ends before beginnings, and takes over their programs.
func (h *hooks) attachAll(wanted []hook, main *ebpf.Collection) error {
	for _, w := range wanted {
		attached, err := attach(w, main.Programs[w.program])
		if err != nil {
			return fmt.Errorf("attach %s: %w", w.program, err)
		}
		h.links, h.running[w.program] = append(h.links, attached), main.Programs[w.program]
		delete(main.Programs, w.program) // h closes it
	}
	return nil
}

func load(l layout, opts Options, salt room.Salt, programs []string, shared map[string]*ebpf.Map) (_ *ebpf.Collection, copies []string, err error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, nil, err
	}
	if copies, err = again.Programs(spec, programs,
		bpfProgRequestEndTracepoint, bpfProgRequestSendTracepoint, bpfProgFaultTracepoint,
		bpfProgRequestEndFentry, bpfProgRequestQueueFentry, bpfProgFaultFentry); err != nil {
		return nil, nil, err
	}
	if opts.MaxInFlight != 0 {
		spec.Maps[bpfMapRequests].MaxEntries = opts.MaxInFlight
		spec.Maps[bpfMapFaults].MaxEntries = opts.MaxInFlight
	}
	if opts.maxMounts != 0 {
		spec.Maps[bpfMapMounts].MaxEntries = opts.maxMounts
	}
	if err := room.Share(spec, salt, bpfMapRequests, bpfMapFaults, bpfMapMounts); err != nil {
		return nil, nil, err
	}
	for name, value := range map[string]uint32{
		bpfVarRequestFlagsAt: l.requestFlags, bpfVarRequestHeaderAt: l.requestHeader,
		bpfVarRequestErrorAt: l.requestError, bpfVarRequestQueueAt: l.requestQueue, bpfVarRequestMountAt: l.requestMount,
		bpfVarRequestMountOrAt: l.requestMountOr, bpfVarMountConnectionAt: l.mountConnection,
		bpfVarMountSuperAt: l.mountSuper, bpfVarDeviceConnectionAt: l.deviceConnection,
		bpfVarRequestChannelAt: l.requestChannel, bpfVarChannelConnectionAt: l.channelConnection,
		bpfVarConnectionDeviceAt: l.connectionDevice, bpfVarConnectionChannelAt: l.connectionChannel, bpfVarDeviceRdev: fuseDevice,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, nil, err
		}
	}
	if err := spec.Variables[bpfVarFaultCode].Set(l.faultCode); err != nil {
		return nil, nil, err
	}
	var tick unix.Timespec // CLOCK_MONOTONIC_COARSE goes on with each jiffy: KTIME_LOW_RES
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return nil, nil, fmt.Errorf("ask for the length of a jiffy: %w", err)
	}
	if err := spec.Variables[bpfVarTickNs].Set(uint64(tick.Nano())); err != nil {
		return nil, nil, err
	}
	collection, err := kerninfo.Load(spec, ebpf.CollectionOptions{MapReplacements: shared})
	return collection, copies, err
}

// fuseDevice is /dev/fuse as the kernel numbers it: MISC_MAJOR (include/uapi/linux/
// major.h), FUSE_MINOR (include/linux/miscdevice.h), kdev_t.h.
const fuseDevice = 10<<20 | 229

func (h *hooks) setClock() error {
	if _, err := h.clock.Run(&ebpf.RunOptions{}); err != nil {
		return fmt.Errorf("compare jiffies with the boot clock: %w", err)
	}
	return nil
}

func attach(w hook, program *ebpf.Program) (link.Link, error) {
	if w.symbol != "" {
		return link.Kprobe(w.symbol, program, nil)
	}
	return link.AttachTracing(link.TracingOptions{Program: program})
}

func (h *hooks) addHolders(l layout, opts Options, salt room.Salt, shared map[string]*ebpf.Map) error {
	part, _, err := load(l, opts, salt, []string{bpfProgHolders}, shared)
	if err != nil {
		return fmt.Errorf("no search for daemons: %w", err)
	}
	defer part.Close()
	if h.holders, err = link.AttachIter(link.IterOptions{Program: part.Programs[bpfProgHolders]}); err != nil {
		return fmt.Errorf("no search for daemons: %w", err)
	}
	return nil
}

// addFaultEnds asks for the kernel's software event of completed major faults, on
// each CPU. A CPU that comes online later is not covered: its faults end all the
// same, but uncounted.
func (h *hooks) addFaultEnds(l layout, opts Options, salt room.Salt, shared map[string]*ebpf.Map) error {
	part, _, err := load(l, opts, salt, []string{bpfProgFaultEnds}, shared)
	if err != nil {
		return fmt.Errorf("no durations of page faults: %w", err)
	}
	defer part.Close()
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("no durations of page faults: %w", err)
	}
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_PAGE_FAULTS_MAJ,
		Size: unix.PERF_ATTR_SIZE_VER1, Sample: 1,
	}
	for cpu := range cpus {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENODEV) { // offline
			continue
		}
		if err != nil {
			return fmt.Errorf("no durations of page faults: perf_event_open: %w", err)
		}
		h.perf = append(h.perf, fd)
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, part.Programs[bpfProgFaultEnds].FD()); err != nil {
			return fmt.Errorf("no durations of page faults: PERF_EVENT_IOC_SET_BPF: %w", err)
		}
	}
	return nil
}

// missed is how many requests and faults found no room, and how often the kernel did
// not run a program because it was already running on that CPU (counted since 5.12).
func (h *hooks) missed() (uint64, error) {
	sum, err := counter.Sum(h.maps.Dropped, 0)
	if err != nil {
		return 0, err
	}
	return sum + again.Missed(h.running), nil
}

// Close detaches.
func (h *hooks) Close() error {
	var errs []error
	for _, l := range h.links {
		errs = append(errs, l.Close())
	}
	for _, p := range append(slices.Collect(maps.Values(h.running)), h.lasts, h.clock, h.forgets.request, h.forgets.fault, h.forgets.mount) {
		errs = append(errs, p.Close())
	}
	for _, fd := range h.perf {
		errs = append(errs, unix.Close(fd))
	}
	for _, i := range append(h.entries[:], h.threads, h.overlooked, h.holders) {
		if i != nil {
			errs = append(errs, i.Close())
		}
	}
	return errors.Join(append(errs, h.maps.Close())...)
}
