//go:build linux && (amd64 || arm64)

package taskstack

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// proc is the source that needs no BPF.
type proc struct {
	fs *procfs.FS
	// whole reads /proc/TID/stack, which needs CAP_SYS_ADMIN (proc_pid_stack, fs/proc/base.c).
	// Without, wchan tells the innermost function.
	whole bool
}

func (*proc) close() error { return nil }

func (p *proc) read(tid uint32, s *Stack) error {
	before, err := p.status(tid)
	if err != nil {
		return err
	}
	registers, err := p.registers(tid)
	if err != nil {
		return err
	}
	kernel, err := p.kernel(tid)
	if err != nil {
		return err
	}
	after, err := p.status(tid)
	if err != nil {
		return err
	}
	after.Still = before.Switches == after.Switches && before.State == after.State && after.State != 'R'
	after.Registers, after.Kernel = registers, kernel
	*s = after
	return nil
}

// Bounds of what is read.
const (
	maxStatus = 16 << 10 // the masks of memory nodes make it long
	maxStack  = 16 << 10 // 64 frames, MAX_STACK_TRACE_DEPTH
	maxLine   = 512
)

func (p *proc) file(tid uint32, name string, limit int) ([]byte, error) {
	path := filepath.Join(p.fs.Root(), strconv.FormatUint(uint64(tid), 10), name)
	if p.fs.Foreign() {
		return nil, fmt.Errorf("read %s: %w", path, procfs.ErrForeign)
	}
	file, err := p.fs.ReadFile(path, limit)
	return file.Content, err
}

// status reads proc_pid_status(5). A kernel thread has no memory, so no VmSize.
func (p *proc) status(tid uint32) (Stack, error) {
	content, err := p.file(tid, "status", maxStatus)
	if err != nil {
		return Stack{}, err
	}
	s := Stack{TID: tid, KernelThread: true}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "State":
			if value != "" {
				s.State = value[0]
			}
		case "Tgid":
			if pid, err := strconv.ParseUint(value, 10, 32); err == nil {
				s.PID = uint32(pid)
			}
		case "VmSize":
			s.KernelThread = false
		case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
			if n, err := strconv.ParseUint(value, 10, 64); err == nil {
				s.Switches += n
			}
		}
	}
	if s.State == 0 || s.PID == 0 {
		return Stack{}, fmt.Errorf("read status of thread %d: it has no state", tid)
	}
	return s, nil
}

// registers reads proc_pid_syscall(5): "NUMBER ARGUMENT… SP PC", "-1 SP PC" or "running".
func (p *proc) registers(tid uint32) (r Registers, err error) {
	content, err := p.file(tid, "syscall", maxLine)
	if err != nil {
		return r, err
	}
	fields := strings.Fields(string(content))
	if len(fields) < 3 {
		return r, nil
	}
	stack, stackErr := strconv.ParseUint(fields[len(fields)-2], 0, 64)
	at, atErr := strconv.ParseUint(fields[len(fields)-1], 0, 64)
	if err := errors.Join(stackErr, atErr); err != nil {
		return r, fmt.Errorf("read syscall of thread %d: %w", tid, err)
	}
	if at != 0 { // of a kernel thread
		r.set(sp, stack)
		r.set(pc, at)
	}
	return r, nil
}

func (p *proc) kernel(tid uint32) ([]Function, error) {
	if !p.whole {
		name, err := p.file(tid, "wchan", maxLine)
		if err != nil || string(name) == "0" || len(name) == 0 {
			return nil, nil // it is not known, as with kptr_restrict
		}
		return functions([][]byte{name}), nil
	}
	content, err := p.file(tid, "stack", maxStack)
	if err != nil {
		return nil, err
	}
	return functions(bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n"))), nil
}
