//go:build linux

package uprobe

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Hook is one program at one place of a file.
type Hook struct {
	Name    string // of the function, for messages
	Offset  uint64
	Program *ebpf.Program
	Return  bool   // at the function's return
	Cookie  uint64 // what bpf_get_attach_cookie tells the program (5.15); 0: none
}

// Links are the programs on one file.
type Links []link.Link

// Attach puts hooks on a file, in their order, or none of them.
func Attach(path string, hooks []Hook) (links Links, err error) {
	file, err := link.OpenExecutable(path)
	if err != nil {
		return nil, err
	}
	for _, h := range hooks {
		l, err := h.attach(file)
		if err != nil {
			return nil, errors.Join(err, links.Close())
		}
		links = append(links, l)
	}
	return links, nil
}

func (h *Hook) attach(file *link.Executable) (link.Link, error) {
	options := &link.UprobeOptions{Address: h.Offset, Cookie: h.Cookie}
	at, attach := h.Name, file.Uprobe
	if h.Return {
		at, attach = "the return of "+h.Name, file.Uretprobe
	}
	l, err := attach("", h.Program, options)
	if err != nil {
		return nil, Privilege(fmt.Errorf("attach to %s: %w", at, err))
	}
	return l, nil
}

// Close detaches links side by side: the kernel waits for a grace period in each, and
// one serves them all.
func (l Links) Close() error {
	errs := make([]error, len(l))
	var closing sync.WaitGroup
	for i, one := range l {
		closing.Go(func() { errs[i] = one.Close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// Problem asks for the uprobe event source (since 4.17, 33ea4b24277b), which is there
// when the kernel is built with uprobes, whatever is mounted.
func Problem(root fs.FS) error {
	if _, err := fs.Stat(root, "sys/bus/event_source/devices/uprobe/type"); errors.Is(err, fs.ErrNotExist) {
		return &ladder.Problem{
			Outcome: probe.Unsupported,
			Reason:  "this kernel has no uprobes",
			Hint:    "use a kernel built with CONFIG_UPROBE_EVENTS, and mount sysfs",
		}
	}
	return nil
}

// Privilege says what a refused breakpoint lacks. CAP_PERFMON was enough from 5.8
// (c9e0924e5c2b) until 6.16 and the stable kernels of July 2025 (ba677dbe77af): a
// breakpoint in the middle of an instruction changes what a program does.
func Privilege(err error) error {
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	return &ladder.Problem{
		Outcome: probe.Denied, Reason: "uprobes need CAP_SYS_ADMIN", Err: err,
		Hint: "give it CAP_SYS_ADMIN, or run it privileged (before Linux 6.16, and kernels with its commit ba677dbe77af, CAP_PERFMON is enough); if it has that, look for a security module",
	}
}

// Own is this program's file.
const Own = "/proc/self/exe"

// ownPatience is how long this process waits to read of itself. Nobody else holds its locks: what
// takes long is a machine without a free CPU, which took more than the half second for others.
const ownPatience = 10 * time.Second

// OwnFunction finds a function of this program in the program's file, by its address: a
// program without symbols (strip, -ldflags -s) has no other way. Its size is not known.
func OwnFunction(address uintptr) (Function, error) {
	code, err := procfs.Open("/proc").WithPatience(ownPatience).CodeAt(uint64(address))
	if err != nil {
		return Function{}, err
	}
	file, err := os.Open(Own)
	if err != nil {
		return Function{}, err
	}
	defer file.Close()
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	return function(file, machine, uint64(address)-code.Start+code.Offset, 0), nil
}

// Path leads the kernel to an open file, whatever has its name by now.
func Path(file *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", file.Fd()) }
