package procmem

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// made is memory of a test: bytes from base on. It counts its reads.
type made struct {
	base  uint64
	bytes []byte
	reads int
}

func (m *made) Read(address uint64, into []byte) error {
	m.reads++
	at := address - m.base
	if at >= uint64(len(m.bytes)) || uint64(len(m.bytes))-at < uint64(len(into)) {
		return ErrAbsent
	}
	copy(into, m.bytes[at:])
	return nil
}

func TestASnapshotReadsEachPieceOnce(t *testing.T) {
	m := &made{base: 0x10000, bytes: bytes.Repeat([]byte{7}, 4*chunk)}
	s := NewSnapshot(m, 2*chunk)
	into := make([]byte, 16)
	require.NoError(t, s.Read(0x10000+chunk-8, into)) // of two pieces
	require.Equal(t, m.bytes[:16], into)
	m.bytes[0] = 8
	require.NoError(t, s.Read(0x10000, into))
	require.EqualValues(t, 7, into[0], "as it was at the first look")
	require.Equal(t, 2, m.reads)
	require.NoError(t, s.Read(0x10000+2*chunk, into), "no room is no loss")
	require.NoError(t, s.Read(0x10000+2*chunk, into))
	require.Equal(t, 4, m.reads)
	require.Len(t, s.pieces, 2)
	require.ErrorIs(t, s.Read(0x10000+4*chunk-8, into), ErrAbsent)
}

func (m *made) all(parts []Part) error {
	for _, one := range parts {
		if err := m.Read(one.Address, one.Into); err != nil {
			return err
		}
	}
	return nil
}

func TestARenewedSnapshotReadsWhatWasUsed(t *testing.T) {
	m := &made{base: 0x10000, bytes: bytes.Repeat([]byte{7}, 4*chunk)}
	s := NewSnapshot(m, 3*chunk)
	into := make([]byte, 1)
	read := func(piece uint64) byte {
		require.NoError(t, s.Read(0x10000+piece*chunk, into))
		return into[0]
	}
	s.Renew(m.all) // nothing was used
	read(2)
	read(0)
	require.Equal(t, 2, m.reads)

	m.bytes[0], m.bytes[2*chunk] = 8, 9
	var order []uint64
	s.Renew(func(parts []Part) error {
		for _, one := range parts {
			order = append(order, one.Address)
		}
		return m.all(parts)
	})
	require.Equal(t, []uint64{0x10000 + 2*chunk, 0x10000}, order, "as they were asked for")
	require.EqualValues(t, 8, read(0))
	require.Equal(t, 4, m.reads)

	s.Renew(m.all)
	require.Len(t, s.pieces, 1, "the other was not used")
	require.EqualValues(t, 9, read(2))

	m.bytes = m.bytes[:chunk]
	s.Renew(m.all)
	require.Empty(t, s.pieces, "one of them is gone")
	require.EqualValues(t, 8, read(0), "the other is not")
}

func TestWordsAreLittleEndian(t *testing.T) {
	m := &made{base: 8, bytes: binary.LittleEndian.AppendUint64(nil, 0x1122334455667788)}
	n, err := Word(m, 8)
	require.NoError(t, err)
	require.EqualValues(t, 0x1122334455667788, n)
	_, err = Word(m, 9)
	require.ErrorIs(t, err, ErrAbsent)
}

func FuzzSnapshot(f *testing.F) {
	f.Add(uint64(0x10ff8), 16, 1)
	f.Add(uint64(math.MaxUint64-3), 8, 9)
	f.Add(uint64(0), MaxRead+1, 9)
	whole := make([]byte, 5*chunk)
	for i := range whole {
		whole[i] = byte(i * 7)
	}
	f.Fuzz(func(t *testing.T, address uint64, length, room int) {
		m := &made{base: 0x10000, bytes: whole}
		s := NewSnapshot(m, room%8*chunk)
		into := make([]byte, uint(length)%(2*MaxRead))
		direct := make([]byte, len(into))
		if s.Read(address, into) == nil && len(into) > 0 {
			require.NoError(t, m.Read(address, direct))
			require.Equal(t, direct, into)
		}
		require.LessOrEqual(t, len(s.pieces), max(room%8, 0))
	})
}
