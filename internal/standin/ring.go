//go:build linux

package standin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// NCCL's handshake (src/include/socket.h): magic, type of a NetSocket, index.
const (
	magic         = 0x564ab9f2fc4b9d6c
	typeNetSocket = 3
)

// poll is the pause between two rounds of polling. NCCL makes none; a test
// machine has fewer cores than the job has ranks.
const poll = time.Millisecond

// ring moves chunks around a ring as NCCL's proxy does: one thread polls the
// socket of the next rank and that of the one before, without blocking, while a
// collective is going on, and touches neither otherwise.
type ring struct {
	rank     *rank
	listener net.Listener
	next     int // file descriptors
	previous int
	begin    chan struct{}
	done     chan error
}

func newRing(r *rank, listener net.Listener) *ring {
	return &ring{rank: r, listener: listener, begin: make(chan struct{}), done: make(chan error)}
}

func (g *ring) connect() error {
	next, err := net.Dial("tcp4", g.rank.peers[(g.rank.Rank+1)%g.rank.Size])
	if err != nil {
		return err
	}
	hello := binary.LittleEndian.AppendUint64(nil, magic)
	hello = append(binary.LittleEndian.AppendUint32(hello, typeNetSocket), 0)
	if _, err := next.Write(hello); err != nil {
		return err
	}
	previous, err := g.listener.Accept()
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(previous, hello); err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint64(hello); got != magic {
		return fmt.Errorf("handshake: magic %x", got)
	}
	if size := g.rank.BufferBytes; size > 0 {
		if err := errors.Join(next.(*net.TCPConn).SetWriteBuffer(size), previous.(*net.TCPConn).SetReadBuffer(size)); err != nil {
			return err
		}
	}
	if g.next, err = raw(next); err != nil {
		return err
	}
	if g.previous, err = raw(previous); err != nil {
		return err
	}
	go g.proxy()
	return g.listener.Close()
}

// raw takes the socket out of the runtime's hands.
func raw(c net.Conn) (int, error) {
	file, err := c.(*net.TCPConn).File()
	if err != nil {
		return 0, err
	}
	fd, err := unix.Dup(int(file.Fd()))
	return fd, errors.Join(err, file.Close(), c.Close())
}

func (g *ring) allReduce() error {
	g.begin <- struct{}{}
	return <-g.done
}

// leave is called between two collectives: the proxy touches neither socket.
func (g *ring) leave() error { return errors.Join(unix.Close(g.next), unix.Close(g.previous)) }

// proxy is the I/O thread.
func (g *ring) proxy() {
	runtime.LockOSThread()
	for range g.begin {
		g.done <- g.progress()
	}
}

// progress is one collective: in each of the 2(n-1) turns of a ring all-reduce a
// rank passes on what it got in the turn before.
func (g *ring) progress() error {
	chunk := g.rank.ChunkBytes
	total := 2 * (g.rank.Size - 1) * chunk
	buffer := make([]byte, chunk)
	for sent, received := 0, 0; sent < total || received < total; {
		may := min(total, (received/chunk+1)*chunk) - sent
		n, err := g.send(buffer[:min(may, chunk)])
		if err != nil {
			return err
		}
		m, err := g.receive(buffer[:min(total-received, chunk)])
		if err != nil {
			return err
		}
		if sent, received = sent+n, received+m; n+m == 0 {
			time.Sleep(poll)
		}
	}
	return nil
}

func (g *ring) send(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	if rate := g.rank.rate.Load(); rate > 0 {
		data = data[:min(len(data), max(1, int(rate/20)))]
	}
	n, err := again(unix.SendmsgN(g.next, data, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL))
	g.rank.pace(n)
	return n, err
}

func (g *ring) receive(into []byte) (int, error) {
	if len(into) == 0 || g.rank.deaf.Load() {
		return 0, nil
	}
	n, _, err := unix.Recvfrom(g.previous, into, unix.MSG_DONTWAIT)
	if err == nil && n == 0 {
		return 0, io.EOF
	}
	return again(n, err)
}

// again makes "not now" no bytes.
func again(n int, err error) (int, error) {
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return 0, nil
	}
	return max(n, 0), err
}
