package journal

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var someEntry = Entry{
	Advanced: time.Unix(1_763_700_000, 123).UTC(),
	Signal:   SignalLogs,
	Payload:  []byte("payload"),
	Made:     []Revision{{"gpu_lost-1", 1}, {"rank_exit-2", 300}},
}

func TestEntryRoundTrip(t *testing.T) {
	for _, e := range []Entry{someEntry, {Advanced: time.Unix(0, 0).UTC(), Payload: []byte{}}} {
		got, err := DecodeEntry(e.Encode())
		require.NoError(t, err)
		require.Equal(t, e, got)
	}
}

func TestDamagedEntriesAreRefused(t *testing.T) {
	whole := someEntry.Encode()
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 0x10
		_, err := DecodeEntry(flipped)
		require.ErrorIs(t, err, ErrForeign, "byte %d", i)
		_, err = DecodeEntry(whole[:i])
		require.ErrorIs(t, err, ErrForeign, "cut at %d", i)
	}
	_, err := DecodeEntry(seal(stateMagic, []byte("a snapshot is no entry")))
	require.ErrorIs(t, err, ErrForeign)
	_, err = DecodeEntry(seal(entryMagic, []byte{2, 9, 0}))
	require.ErrorIs(t, err, ErrForeign, "a signal that does not exist")
	_, err = DecodeEntry(seal(entryMagic, []byte{2, 1, 0xff, 0xff, 0xff, 0xff, 0x7f}))
	require.ErrorIs(t, err, ErrForeign, "a count without what it counts")
}

// FuzzDecodeEntry: bytes with a right checksum and any content do no harm, and
// what is accepted is written the same again.
func FuzzDecodeEntry(f *testing.F) {
	f.Add(someEntry.Encode()[len(entryMagic):])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, inner []byte) {
		e, err := DecodeEntry(seal(entryMagic, inner))
		if err != nil {
			return
		}
		again, err := DecodeEntry(e.Encode())
		require.NoError(t, err)
		require.Equal(t, e, again)
	})
}

func TestOutboxKeepsOrderAndLimits(t *testing.T) {
	o := Outbox{MostItems: 3, MostBytes: 100}
	for _, item := range []string{"a", "b", "c"} {
		require.Zero(t, o.Add([]byte(item)))
	}
	require.Equal(t, 1, o.Add([]byte("d")))
	items, last := o.First(2)
	require.Equal(t, [][]byte{[]byte("b"), []byte("c")}, items)
	require.EqualValues(t, 2, last)

	require.Equal(t, 2, o.Add(make([]byte, 99)), "bytes count too: b and c go, 1 + 99 fit")
	require.EqualValues(t, 3, o.head())
	o.DropThrough(2)
	require.Equal(t, 2, o.Len(), "what went already is not taken twice")
	o.DropThrough(9)
	require.Zero(t, o.Len())
	require.Zero(t, o.bytes)
	require.EqualValues(t, 5, o.head())
}
