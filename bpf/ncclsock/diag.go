//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// diag is the source on the rung without BPF: it asks each network namespace of an
// owner for all its TCP sockets, and /proc whose they are.
type diag struct {
	maxSockets uint32
	tick       time.Duration // 0 not known
	proc       *procfs.FS

	once   sync.Once
	closed chan struct{}

	mu       sync.Mutex // guards deadline
	deadline time.Time
}

// patience is how long a look at the open files of one process may take. One of 19,000 took
// 0.08 s (2 virtual CPUs, Linux 6.18, 2026-11-25).
const patience = 3 * time.Second

// openDiag first enters the namespace that it is in, which takes the right to
// enter any (setns(2)): without it no snapshot would have a socket.
func openDiag(opts Options) (*diag, error) {
	proc := procfs.Open("").WithPatience(patience)
	proc.SetForeign(proc.OtherNamespace())
	own, err := proc.OpenNamespace(uint32(os.Getpid()), "net")
	if err != nil {
		return nil, fmt.Errorf("open the own network namespace: %w", err)
	}
	defer own.Close()
	conn, err := dialDiag(own)
	if errors.Is(err, os.ErrPermission) {
		return nil, &ladder.Problem{
			Outcome: probe.Denied,
			Reason:  fmt.Sprintf("enter the network namespaces of processes: %v", err),
			Hint:    "give the process CAP_SYS_ADMIN: in Kubernetes, a privileged container",
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open sock_diag: %w", err)
	}
	tick, _ := jiffy()
	return &diag{maxSockets: opts.MaxSockets, tick: tick, proc: proc, closed: make(chan struct{})}, conn.Close()
}

func dialDiag(namespace *os.File) (*netlink.Conn, error) {
	return netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{NetNS: int(namespace.Fd())})
}

func (d *diag) snapshot(owners []uint32, s *Snapshot) error {
	s.Tick = d.tick
	holders := findHolders(d.proc, owners, int(d.maxSockets))
	defer holders.close()
	s.Unreadable += holders.unreadable
	s.Over += holders.over
	for inode, namespace := range holders.namespaces {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			if err := d.dump(inode, namespace, family, holders.sockets, s); err != nil {
				s.Unreadable++
				break
			}
		}
	}
	return nil
}

// dump appends the sockets of one namespace that have a holder.
func (d *diag) dump(netns uint64, namespace *os.File, family uint8, holders map[uint64]uint32, s *Snapshot) error {
	conn, err := dialDiag(namespace)
	if err != nil {
		return fmt.Errorf("open sock_diag: %w", err)
	}
	defer conn.Close()
	replies, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: sockDiagByFamily, Flags: netlink.Request | netlink.Dump},
		Data:   diagRequest(family),
	})
	if err != nil {
		return fmt.Errorf("ask sock_diag: %w", err)
	}
	for _, reply := range replies {
		var record bpfSocketRecord
		if err := parseDiag(reply.Data, &record); err != nil {
			return err
		}
		holder, ok := holders[record.Inode]
		if !ok {
			continue
		}
		delete(holders, record.Inode) // a dump can show a socket twice while others come and go
		record.Netns, record.Pid = netns, holder
		var socket Socket
		if err := decodeSocket(&record, time.Millisecond, &socket); err != nil {
			return err
		}
		s.Sockets = append(s.Sockets, socket)
	}
	return nil
}

// readChange waits for the end: sock_diag tells no changes.
func (d *diag) readChange(*Change) error {
	d.mu.Lock()
	deadline := d.deadline
	d.mu.Unlock()
	if deadline.IsZero() {
		<-d.closed
		return probe.ErrClosed
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-d.closed:
		return probe.ErrClosed
	case <-timer.C:
		return os.ErrDeadlineExceeded
	}
}

func (d *diag) setDeadline(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deadline = t
}

func (d *diag) forget() error { return nil }

func (d *diag) lost() (uint64, room.Crowded, error) { return 0, room.Crowded{}, nil }

func (d *diag) close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}
