//go:build linux

package standin

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// headerSize is that of the message with which Gloo announces a transfer
// (gloo/transport/tcp/pair.h, struct Op: six words).
const headerSize = 48

// mesh connects each rank with each and moves chunks around the ring as Gloo
// does: whatever comes is read by a thread that waits for it (epoll, in the
// runtime), whether or not the rank is in a collective.
type mesh struct {
	rank     *rank
	listener net.Listener
	pairs    []net.Conn
	inbox    chan error // one for each chunk of the rank before
}

func newMesh(r *rank, listener net.Listener) *mesh {
	return &mesh{rank: r, listener: listener, pairs: make([]net.Conn, r.Size), inbox: make(chan error, 1024)}
}

// connect dials the ranks above and is dialled by those below. The first word of
// a connection says who dials.
func (m *mesh) connect() error {
	for above := m.rank.Rank + 1; above < m.rank.Size; above++ {
		c, err := net.Dial("tcp4", m.rank.peers[above])
		if err != nil {
			return err
		}
		if _, err := c.Write(binary.LittleEndian.AppendUint64(nil, uint64(m.rank.Rank))); err != nil {
			return err
		}
		m.pairs[above] = c
	}
	for range m.rank.Rank {
		if err := m.accept(); err != nil {
			return err
		}
	}
	for peer, c := range m.pairs {
		if c != nil {
			go m.read(c, peer == (m.rank.Rank+m.rank.Size-1)%m.rank.Size)
		}
	}
	return nil
}

func (m *mesh) accept() error {
	c, err := m.listener.Accept()
	if err != nil {
		return err
	}
	var word [8]byte
	if _, err := io.ReadFull(c, word[:]); err != nil {
		return err
	}
	below := binary.LittleEndian.Uint64(word[:])
	if below >= uint64(m.rank.Rank) || m.pairs[below] != nil {
		return errors.New("a stranger connects")
	}
	m.pairs[below] = c
	return nil
}

// read is the I/O thread of one pair.
func (m *mesh) read(c net.Conn, counts bool) {
	header := make([]byte, headerSize)
	payload := make([]byte, m.rank.ChunkBytes)
	for {
		for m.rank.deaf.Load() {
			time.Sleep(time.Hour)
		}
		_, err := io.ReadFull(c, header)
		if err == nil {
			_, err = io.ReadFull(c, payload)
		}
		if counts {
			m.inbox <- err
		}
		if err != nil {
			return
		}
	}
}

func (m *mesh) leave() error {
	var errs []error
	for _, c := range m.pairs {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

func (m *mesh) allReduce() error {
	next := m.pairs[(m.rank.Rank+1)%m.rank.Size]
	message := make([]byte, headerSize+m.rank.ChunkBytes)
	binary.LittleEndian.PutUint64(message, uint64(len(message)))
	for range 2 * (m.rank.Size - 1) {
		if err := m.send(next, message); err != nil {
			return err
		}
		if err := <-m.inbox; err != nil {
			return err
		}
	}
	return nil
}

func (m *mesh) send(next net.Conn, message []byte) error {
	for len(message) > 0 {
		part := message
		if rate := m.rank.rate.Load(); rate > 0 {
			part = part[:min(len(part), max(1, int(rate/20)))]
		}
		n, err := next.Write(part)
		if err != nil {
			return err
		}
		m.rank.pace(n)
		message = message[n:]
	}
	return nil
}
