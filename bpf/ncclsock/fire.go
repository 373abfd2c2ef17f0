//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
)

// fireTimeout is how long the self-test's own bytes and its refused connection may
// take to show; both are there in microseconds on a machine that is not starved.
const fireTimeout = 10 * time.Second

// Fire makes a harmless cause and waits until the probe shows it: a connection over
// the loopback interface with unread bytes and, where the rung has changes, a
// connection that is refused. Report then says whether it did. Changes of other
// sockets that come in between are lost, so call it before the reading begins,
// not beside it.
func (p *Probe) Fire(ctx context.Context) error {
	changes := p.Report().Rung == RungProcess || p.Report().Rung == RungHost
	fired, err := selfTestContext(ctx, p.source, changes)
	if canceled := ctx.Err(); errors.Is(canceled, context.Canceled) {
		return fmt.Errorf("fire %s: %w", Name, canceled)
	}
	if err == nil && !fired {
		return errors.New("fire ncclsock: no connection over the loopback interface can be made: set it up (ip link set lo up)")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := &p.report.Attempts[len(p.report.Attempts)-1]
	if err != nil {
		*last = ladder.Classify(last.Rung, err)
		return fmt.Errorf("fire %s: %w", Name, err)
	}
	last.Fired = true
	return nil
}

func selfTest(src source, changes bool) (fired bool, err error) {
	return selfTestContext(context.Background(), src, changes)
}

// selfTestContext reports fired as false, without an error, where no loopback
// connection can be made.
func selfTestContext(ctx context.Context, src source, changes bool) (fired bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, fireTimeout)
	defer cancel()
	pair, err := dialLoopback(ctx)
	if err != nil {
		return false, nil
	}
	defer pair.close()
	defer func() { err = errors.Join(err, src.forget()) }()
	if err := showsUnread(ctx, src, pair); err != nil {
		return false, err
	}
	if !changes {
		return true, nil
	}
	return true, showsRefusal(ctx, src, pair)
}

// loopback is a connection of this process with itself.
type loopback struct {
	listener         net.Listener
	client, accepted net.Conn
}

func dialLoopback(ctx context.Context) (_ *loopback, err error) {
	l := &loopback{}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // Go's default, and no TCP socket
	if l.listener, err = plain.Listen(ctx, "tcp4", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if l.client, err = (&net.Dialer{}).DialContext(ctx, "tcp4", l.listener.Addr().String()); err != nil {
		return nil, err
	}
	l.accepted, err = l.listener.Accept()
	return l, err
}

func (l *loopback) close() {
	for _, c := range []net.Conn{l.client, l.accepted} {
		if c != nil {
			c.Close()
		}
	}
	if l.listener != nil {
		l.listener.Close()
	}
}

const selfTestBytes = "tracecore"

// showsUnread writes some bytes that nobody reads and takes snapshots until one
// shows them.
func showsUnread(ctx context.Context, src source, pair *loopback) error {
	if _, err := pair.client.Write([]byte(selfTestBytes)); err != nil {
		return fmt.Errorf("write to the self-test's connection: %w", err)
	}
	local, remote := addrPortOf(pair.accepted.LocalAddr()), addrPortOf(pair.accepted.RemoteAddr())
	retry := time.NewTicker(time.Millisecond)
	defer retry.Stop()
	for {
		var s Snapshot
		if err := src.snapshot([]uint32{uint32(os.Getpid())}, &s); err != nil {
			return err
		}
		for _, socket := range s.Sockets {
			if socket.Local == local && socket.Remote == remote && socket.ReceiveQueueBytes == uint32(len(selfTestBytes)) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d unread bytes on the loopback interface are in no snapshot of %d sockets: %w", len(selfTestBytes), len(s.Sockets), ladder.ErrSilent)
		case <-retry.C:
		}
	}
}

// showsRefusal connects to where nobody listens any more and waits for the change.
func showsRefusal(ctx context.Context, src source, pair *loopback) error {
	target := pair.listener.Addr()
	if err := pair.listener.Close(); err != nil {
		return fmt.Errorf("close the self-test's listener: %w", err)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", target.String())
	if err == nil {
		return errors.Join(fmt.Errorf("someone listens on %s at once: try again", target), conn.Close())
	}
	deadline, _ := ctx.Deadline()
	src.setDeadline(deadline)
	defer src.setDeadline(time.Time{})
	for {
		var c Change
		err := src.readChange(&c)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("no change tells of a refused connection to %s: %w", target, ladder.ErrSilent)
		case errors.Is(err, errInvalid):
		case err != nil:
			return err
		case c.Remote == addrPortOf(target) && c.Error == int32(unix.ECONNREFUSED):
			return nil
		}
	}
}

func addrPortOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
