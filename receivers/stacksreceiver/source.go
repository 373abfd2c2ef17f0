//go:build linux && (amd64 || arm64)

package stacksreceiver

import (
	"errors"
	"sync"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/stacks"
	"github.com/tracecoreai/tracecore/internal/waitclass"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// openSource opens what reads stacks on this machine.
func openSource() (source, error) {
	fs := procfs.Open("")
	if fs.OtherNamespace() {
		return nil, errors.New("the processes of the node are not to be seen here: set hostPID")
	}
	reader, err := stacks.Open(fs)
	if err != nil {
		return nil, err
	}
	return &machine{fs: fs, reader: reader, proc: activity.New(fs)}, nil
}

// machine is a reader that may be closed while it reads.
type machine struct {
	fs     *procfs.FS
	proc   *activity.Reader // of one goroutine
	mu     sync.Mutex       // guards what follows
	reader *stacks.Reader
	closed bool
}

func (m *machine) Stats() probe.Stats   { return m.reader.Stats() }
func (m *machine) Report() probe.Report { return m.reader.Report() }

// Close waits for a read that is under way, which ends: none waits for a process for long.
func (m *machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	m.proc.Wait()
	return m.reader.Close()
}

func whileOpen[T any](m *machine, read func(*stacks.Reader) (T, error)) (T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		var none T
		return none, probe.ErrClosed
	}
	return read(m.reader)
}

func (m *machine) Prepare(pid uint32) (bool, error) {
	return whileOpen(m, func(r *stacks.Reader) (bool, error) { return r.Prepare(pid) })
}

// Trains asks the process itself, each time.
func (m *machine) Trains(pid uint32) (bool, error) {
	found, err := m.fs.Libraries(pid, identity.TrainingLibraries()...)
	return len(found) > 0, err
}

func (m *machine) Status(pid uint32) (procfs.ThreadStatus, error) {
	return whileOpen(m, func(r *stacks.Reader) (procfs.ThreadStatus, error) { return r.Status(pid) })
}

func (m *machine) LookAt(pids []uint32) ([]procfs.ThreadLook, error) {
	return whileOpen(m, func(r *stacks.Reader) ([]procfs.ThreadLook, error) { return r.LookAt(pids), nil })
}

func (m *machine) Place(pid uint32) (pystack.Place, error) {
	return whileOpen(m, func(r *stacks.Reader) (pystack.Place, error) { return r.Place(pid) })
}

// Stack is nothing where the process is another by now.
func (m *machine) Stack(pid uint32, startNS uint64) (*stacks.Process, error) {
	return whileOpen(m, func(r *stacks.Reader) (*stacks.Process, error) {
		seen, err := r.ReadMain(pid)
		if err != nil {
			return nil, err
		}
		if is, err := r.StartNS(pid); err != nil || startNS != 0 && is != startNS {
			return nil, errors.Join(procfs.ErrGone, err)
		}
		return seen, nil
	})
}

func (m *machine) Slept(pid uint32, since procfs.ThreadStatus) bool {
	status, err := m.Status(pid)
	return err == nil && status.Switches == since.Switches
}

func (m *machine) OnCPU(pid uint32) (time.Duration, error) {
	return whileOpen(m, func(r *stacks.Reader) (time.Duration, error) { return r.OnCPU(pid) })
}

func (m *machine) Usage(pid uint32) (usage, error) {
	return whileOpen(m, func(r *stacks.Reader) (usage, error) {
		faults, bytes, cpu, err := r.Usage(pid)
		return usage{faults: faults, bytes: bytes, cpu: cpu}, err
	})
}

func (m *machine) Class(pid uint32) (waitclass.Class, error) {
	return whileOpen(m, func(r *stacks.Reader) (waitclass.Class, error) { return r.Class(pid) })
}

func (m *machine) Does(rest []identity.Process, roots map[uint32]bool) map[uint32]*activity.Process {
	all := make(map[uint32]*activity.Process, len(rest))
	m.proc.Begin()
	for i := range rest {
		does := m.proc.Read(rest[i], false)
		does.NCCL = true // a rank may have it linked into another file: its threads poll
		m.proc.Inspect(&does, func(pid uint32) bool { return roots[pid] && pid != rest[i].PID })
		all[rest[i].PID] = &does
	}
	m.proc.Keep(func(pid uint32) bool { return all[pid] != nil })
	return all
}

func (m *machine) Stopper(p *activity.Process, resolver identity.Resolver) identity.Signal {
	return m.proc.Stopper(p, resolver)
}

func (m *machine) Mount(pid uint32) (procfs.Mount, bool) {
	wait, err := m.fs.Wait(pid)
	if err != nil || wait.FD == procfs.Negative {
		return procfs.Mount{}, false
	}
	found, err := m.fs.MountOf(pid, wait.FD)
	return found, err == nil
}

func (m *machine) Meets(pid uint32) activity.Meeting { return m.proc.Meets(pid) }

func (m *machine) Release(pid uint32) {
	_, _ = whileOpen(m, func(r *stacks.Reader) (struct{}, error) {
		r.Release(pid)
		return struct{}{}, nil
	})
}
