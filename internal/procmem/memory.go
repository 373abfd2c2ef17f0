// Package procmem reads the memory of other processes. It never stops them, never faults one of
// their pages in, and never waits for them longer than its caller can bear.
package procmem

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Memory is the memory of a process as its readers see it. Tests are one too.
type Memory interface {
	// Read fills into from an address: all of it, or it returns an error. What the process
	// writes meanwhile may be read in part.
	Read(address uint64, into []byte) error
}

// Part is memory that is read together with other parts.
type Part struct {
	Address uint64
	Into    []byte
}

// MaxParts is the most that are read at once: IOV_MAX (include/uapi/linux/uio.h).
const MaxParts = 1024

// ErrAbsent is wrapped by the error of a read where no page is in memory: nothing is mapped
// there, or the page is in its file or in swap.
var ErrAbsent = errors.New("no page is present")

// MaxRead is the most that one read takes.
const MaxRead = 1 << 20

// Word is the 64-bit number at an address.
func Word(m Memory, address uint64) (uint64, error) {
	var b [8]byte
	if err := m.Read(address, b[:]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// check refuses what no memory has. The two halves of an address space are the kernel's to
// tell apart.
func check(address uint64, length int) error {
	if length > MaxRead || address+uint64(length) < address {
		return fmt.Errorf("%d bytes at %#x: %w", length, address, ErrAbsent)
	}
	return nil
}

// chunk is what Snapshot reads at once: the smallest page of any machine.
const chunk = 4 << 10

// Snapshot reads each piece of memory once and remembers it, at most so many bytes: what is
// read twice is the same. It is for one look at a thread; Renew begins the next.
type Snapshot struct {
	memory Memory
	room   int
	pieces map[uint64]*piece
	order  []*piece // as they were first asked for
}

// piece is a part of the memory that was read.
type piece struct {
	Part
	used bool // since the last Renew
}

// NewSnapshot begins with nothing.
func NewSnapshot(memory Memory, most int) *Snapshot {
	return &Snapshot{memory: memory, room: most / chunk, pieces: map[uint64]*piece{}}
}

// Renew reads anew what was used since the last time, all of it with one call of readAll, and
// forgets the rest: the next look needs mostly what this one did. Where one of the pieces is not
// there any more it begins with nothing.
func (s *Snapshot) Renew(readAll func([]Part) error) {
	var used []*piece
	var parts []Part
	for _, one := range s.order {
		if !one.used {
			delete(s.pieces, one.Address)
			continue
		}
		one.used = false
		used, parts = append(used, one), append(parts, one.Part)
	}
	s.order = used
	if readAll(parts) != nil {
		clear(s.pieces)
		s.order = nil
	}
}

// Read is Memory's. What has no room is read anew each time.
func (s *Snapshot) Read(address uint64, into []byte) error {
	if err := check(address, len(into)); err != nil {
		return err
	}
	for len(into) > 0 {
		start := address &^ (chunk - 1)
		part := into[:min(len(into), int(start+chunk-address))]
		if err := s.read(start, address, part); err != nil {
			return err
		}
		into = into[len(part):]
		address += uint64(len(part))
	}
	return nil
}

// read fills into, which lies in the piece that begins at start.
func (s *Snapshot) read(start, address uint64, into []byte) error {
	one, known := s.pieces[start]
	switch {
	case known:
	case len(s.pieces) >= s.room:
		return s.memory.Read(address, into)
	default:
		one = &piece{Part: Part{start, make([]byte, chunk)}}
		if err := s.memory.Read(start, one.Into); err != nil {
			return err
		}
		s.pieces[start] = one
		s.order = append(s.order, one)
	}
	one.used = true
	copy(into, one.Into[address-start:])
	return nil
}

// Piece is a copy of some memory.
type Piece struct {
	Start uint64
	Bytes []byte
}

// Read is Memory's: what is not in the copy is absent.
func (p Piece) Read(address uint64, into []byte) error {
	at := address - p.Start
	if at > uint64(len(p.Bytes)) || uint64(len(p.Bytes))-at < uint64(len(into)) {
		return fmt.Errorf("%d bytes at %#x: %w", len(into), address, ErrAbsent)
	}
	copy(into, p.Bytes[at:])
	return nil
}
