//go:build linux && (amd64 || arm64)

package stacksreceiver

import (
	"errors"
	"sync"

	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/stacks"
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
	return &machine{reader: reader}, nil
}

// machine is a reader that may be closed while it reads.
type machine struct {
	mu     sync.Mutex // guards what follows
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

func (m *machine) Status(pid uint32) (procfs.ThreadStatus, error) {
	return whileOpen(m, func(r *stacks.Reader) (procfs.ThreadStatus, error) { return r.Status(pid) })
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

func (m *machine) Usage(pid uint32) (usage, error) {
	return whileOpen(m, func(r *stacks.Reader) (usage, error) {
		faults, bytes, err := r.Usage(pid)
		return usage{faults, bytes}, err
	})
}

func (m *machine) Release(pid uint32) {
	_, _ = whileOpen(m, func(r *stacks.Reader) (struct{}, error) {
		r.Release(pid)
		return struct{}{}, nil
	})
}
