//go:build linux && (amd64 || arm64)

package oomkill

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/pin"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// The rungs, best first. All of them report the kill itself from mark_victim;
// they differ in how they know whose limit was hit.
const (
	RungFentry = "fentry/oom_kill_process"        // from oom_control: exact
	RungKprobe = "kprobe/oom_kill_process"        // the same
	RungStack  = "stack/mem_cgroup_out_of_memory" // cgroup or node from the kernel stack, the cgroup by its usage
	RungVictim = "raw_tp/mark_victim"             // not at all
)

// kernel is what the ladder asked of the running kernel.
type kernel struct {
	code           kernelCode
	codeErr        error
	argumentIsTask bool
	argumentErr    error
	// victimFromSignal takes the victim from the SIGKILL before mark_victim: the
	// only way where that has but a pid, possible everywhere.
	victimFromSignal bool
}

func learnKernel() kernel {
	var k kernel
	k.code, k.codeErr = loadKernelCode()
	k.argumentIsTask, k.argumentErr = victimIsTask()
	k.victimFromSignal = !k.argumentIsTask
	return k
}

// victimIsTask reads the prototype of mark_victim from BTF: (victim, uid) since
// 6.9 (72ba14deb40a) and its backports, (pid) before. The version says nothing:
// Debian's 5.10.218 has the old one, its 5.10.262 the new.
func victimIsTask() (bool, error) {
	return kerninfo.Types(func(types *btf.Cache) (bool, error) {
		spec, err := types.Kernel()
		if err != nil {
			return false, fmt.Errorf("read kernel BTF: %w", err)
		}
		var typedef *btf.Typedef
		if err := spec.TypeByName("btf_trace_mark_victim", &typedef); err != nil {
			return false, fmt.Errorf("read prototype of mark_victim: %w", err)
		}
		return argumentIsTask(typedef)
	})
}

// argumentIsTask looks at the argument after the program's own context.
func argumentIsTask(typedef *btf.Typedef) (bool, error) {
	pointer, ok := typedef.Type.(*btf.Pointer)
	if !ok {
		return false, fmt.Errorf("%s is no pointer", typedef.Name)
	}
	prototype, ok := pointer.Target.(*btf.FuncProto)
	if !ok || len(prototype.Params) < 2 {
		return false, fmt.Errorf("%s is no prototype with an argument", typedef.Name)
	}
	switch argument := btf.UnderlyingType(prototype.Params[1].Type).(type) {
	case *btf.Int:
		return false, nil
	case *btf.Pointer:
		if task, ok := btf.UnderlyingType(argument.Target).(*btf.Struct); ok && task.Name == "task_struct" {
			return true, nil
		}
	}
	return false, &ladder.Problem{
		Outcome: probe.Unsupported,
		Reason:  "this kernel's mark_victim has neither the victim nor its pid",
		Hint:    "report it with the kernel version: bpftool btf dump file /sys/kernel/btf/vmlinux | grep -A4 btf_trace_mark_victim",
	}
}

func rungs(k kernel, opts Options) []ladder.Rung[*hooks] {
	rung := func(id, entry string, usable error) ladder.Rung[*hooks] {
		return ladder.Rung[*hooks]{ID: id, Try: func() (*hooks, bool, error) {
			if err := errors.Join(k.argumentErr, usable); err != nil {
				return nil, false, err
			}
			h, err := openHooks(k, entry, opts.RingBytes)
			return h, false, err
		}}
	}
	return []ladder.Rung[*hooks]{
		rung(RungFentry, bpfProgOomKillFentry, nil),
		rung(RungKprobe, bpfProgOomKillKprobe, kprobeProblem(os.DirFS("/"))),
		rung(RungStack, "", k.stackProblem()),
		rung(RungVictim, "", nil),
	}
}

// kprobeProblem asks for the kprobe event source (since 4.17, e12f03d7031a), which
// is there when the kernel is built with kprobes, whatever is mounted.
func kprobeProblem(root fs.FS) error {
	if _, err := fs.Stat(root, "sys/bus/event_source/devices/kprobe/type"); errors.Is(err, fs.ErrNotExist) {
		return &ladder.Problem{
			Outcome: probe.Unsupported,
			Reason:  "this kernel has no kprobes",
			Hint:    "use a kernel built with CONFIG_KPROBE_EVENTS, and mount sysfs",
		}
	}
	return nil
}

func (k kernel) stackProblem() error {
	switch {
	case k.codeErr != nil:
		return k.codeErr
	case k.code.cgroupOOM == nil:
		return &ladder.Problem{
			Outcome: probe.Unsupported,
			Reason:  "/proc/kallsyms has no address of mem_cgroup_out_of_memory",
			Hint:    "set kernel.kptr_restrict to 0 or 1 and give the process CAP_SYSLOG, else no kill can be told to be a cgroup's or the node's",
		}
	}
	return nil
}

// hooks are one rung, loaded and attached.
type hooks struct {
	objects bpfMaps
	links   []link.Link
	reader  *ringbuf.Reader
	layout  string // of its records
}

// openHooks loads mark_victim, with entry at oom_kill_process where entry names a
// program, and with the signal hook where mark_victim has only a pid.
func openHooks(k kernel, entry string, ringBytes uint32) (_ *hooks, err error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the locked-memory limit: %w", err)
	}
	programs := []string{bpfProgMarkVictim}
	if k.victimFromSignal {
		programs = append(programs, bpfProgKillSignal)
	}
	if entry != "" {
		programs = append(programs, entry)
	}
	collection, layout, err := load(k, programs, ringBytes)
	if err != nil {
		return nil, fmt.Errorf("load oomkill: %w", err)
	}
	defer collection.Close() // closes what h does not take over
	h := &hooks{layout: layout}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	if err := collection.Assign(&h.objects); err != nil {
		return nil, fmt.Errorf("load oomkill: %w", err)
	}
	if h.reader, err = ringbuf.NewReader(h.objects.Events); err != nil {
		return nil, fmt.Errorf("open the ring of oomkill: %w", err)
	}
	// mark_victim last: it reads what the others have seen.
	for i := len(programs) - 1; i >= 0; i-- {
		l, err := attach(programs[i], collection.Programs[programs[i]])
		if err != nil {
			return nil, fmt.Errorf("attach %s: %w", programs[i], err)
		}
		h.links = append(h.links, l)
	}
	return h, nil
}

// recordVersion is raised where a field of the record changes its meaning.
const recordVersion = 1

func load(k kernel, programs []string, ringBytes uint32) (_ *ebpf.Collection, layout string, err error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, "", err
	}
	if layout, err = pin.Layout(spec, recordVersion, "event"); err != nil {
		return nil, "", err
	}
	wanted := make(map[string]*ebpf.ProgramSpec, len(programs))
	for _, name := range programs {
		wanted[name] = spec.Programs[name]
	}
	spec.Programs = wanted
	if ringBytes != 0 {
		spec.Maps[bpfMapEvents].MaxEntries = ringBytes
	}
	if err := errors.Join(
		spec.Variables[bpfVarArgumentIsTask].Set(k.argumentIsTask),
		spec.Variables[bpfVarVictimFromSignal].Set(k.victimFromSignal),
		spec.Variables[bpfVarPageBytes].Set(uint32(os.Getpagesize())),
		room.ShareRing(spec, room.NewSalt()),
	); err != nil {
		return nil, "", err
	}
	collection, err := kerninfo.Load(spec, ebpf.CollectionOptions{})
	return collection, layout, err
}

func attach(name string, program *ebpf.Program) (link.Link, error) {
	switch name {
	case bpfProgOomKillFentry:
		return link.AttachTracing(link.TracingOptions{Program: program})
	case bpfProgOomKillKprobe:
		return link.Kprobe("oom_kill_process", program, nil)
	case bpfProgKillSignal:
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: "signal_generate", Program: program})
	default:
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: "mark_victim", Program: program})
	}
}

// Close detaches, then unblocks the reader.
func (h *hooks) Close() error {
	var errs []error
	for _, l := range h.links {
		errs = append(errs, l.Close())
	}
	if h.reader != nil {
		errs = append(errs, h.reader.Close())
	}
	return errors.Join(append(errs, h.objects.Close())...)
}
