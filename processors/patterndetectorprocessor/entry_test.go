package patterndetectorprocessor

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var someEntry = entry{
	advanced: time.Unix(1_763_700_000, 123).UTC(),
	signal:   signalLogs,
	payload:  []byte("payload"),
	made:     []revision{{"gpu_lost-1", 1}, {"rank_exit-2", 300}},
}

func TestEntryRoundTrip(t *testing.T) {
	for _, e := range []entry{someEntry, {advanced: time.Unix(0, 0).UTC(), payload: []byte{}}} {
		got, err := decodeEntry(e.encode())
		require.NoError(t, err)
		require.Equal(t, e, got)
	}
}

func TestDamagedEntriesAreRefused(t *testing.T) {
	whole := someEntry.encode()
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 0x10
		_, err := decodeEntry(flipped)
		require.ErrorIs(t, err, errForeign, "byte %d", i)
		_, err = decodeEntry(whole[:i])
		require.ErrorIs(t, err, errForeign, "cut at %d", i)
	}
	_, err := decodeEntry(seal(stateMagic, []byte("a snapshot is no entry")))
	require.ErrorIs(t, err, errForeign)
	_, err = decodeEntry(seal(entryMagic, []byte{2, 9, 0}))
	require.ErrorIs(t, err, errForeign, "a signal that does not exist")
	_, err = decodeEntry(seal(entryMagic, []byte{2, 1, 0xff, 0xff, 0xff, 0xff, 0x7f}))
	require.ErrorIs(t, err, errForeign, "a count without what it counts")
}

// FuzzDecodeEntry: bytes with a right checksum and any content do no harm, and
// what is accepted is written the same again.
func FuzzDecodeEntry(f *testing.F) {
	f.Add(someEntry.encode()[len(entryMagic):])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, inner []byte) {
		e, err := decodeEntry(seal(entryMagic, inner))
		if err != nil {
			return
		}
		again, err := decodeEntry(e.encode())
		require.NoError(t, err)
		require.Equal(t, e, again)
	})
}

func TestOutboxKeepsOrderAndLimits(t *testing.T) {
	o := outbox{mostItems: 3, mostBytes: 100}
	for _, item := range []string{"a", "b", "c"} {
		require.Zero(t, o.add([]byte(item)))
	}
	require.Equal(t, 1, o.add([]byte("d")))
	items, last := o.first(2)
	require.Equal(t, [][]byte{[]byte("b"), []byte("c")}, items)
	require.EqualValues(t, 2, last)

	require.Equal(t, 2, o.add(make([]byte, 99)), "bytes count too: b and c go, 1 + 99 fit")
	require.EqualValues(t, 3, o.head)
	o.dropThrough(2)
	require.Len(t, o.items, 2, "what went already is not taken twice")
	o.dropThrough(9)
	require.Empty(t, o.items)
	require.Zero(t, o.bytes)
	require.EqualValues(t, 5, o.head)
}
