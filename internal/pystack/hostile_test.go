package pystack

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/procmem"
)

// hostile is a process whose memory says what a fuzzer wants: the bytes that it gives are
// repeated all over the address space, and change with each read where it wants so.
type hostile struct {
	content []byte
	changes bool
	reads   int
}

// mostReads ends a look at memory that has no end: the bounds on frames and threads let
// none be longer.
const mostReads = 200_000

func (h *hostile) Read(address uint64, b []byte) error {
	h.reads++
	if address < 4096 || h.reads > mostReads || len(b) > maxLines+4096 {
		return procmem.ErrAbsent
	}
	at := address
	if h.changes {
		at += uint64(h.reads)
	}
	for i := range b {
		b[i] = h.content[(at+uint64(i))%uint64(len(h.content))]
	}
	return nil
}

func (h *hostile) ReadAll(parts []procmem.Part) error {
	for _, one := range parts {
		if err := h.Read(one.Address, one.Into); err != nil {
			return err
		}
	}
	return nil
}

// FuzzHostileMemory looks at all threads of a process that plays tricks. It must end, and
// hold no more than the bounds.
func FuzzHostileMemory(f *testing.F) {
	rings := make([]byte, 512) // each pointer leads to the same place
	for i := 0; i < len(rings); i += 8 {
		binary.LittleEndian.PutUint64(rings[i:], 0x10000)
	}
	endless := make([]byte, 4096)
	for i := 0; i < len(endless); i += 8 {
		binary.LittleEndian.PutUint64(endless[i:], uint64(0x10000+i*4104))
	}
	long := bytes.Repeat([]byte{0, 0, 0, 0, 0, 0, 0, 0x40}, 64) // lengths of 2^62
	for _, seed := range [][]byte{rings, endless, long, []byte("x")} {
		for minor := range 7 {
			f.Add(seed, uint8(minor), minor%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte, version uint8, changes bool) {
		if len(content) == 0 {
			return
		}
		h := &hostile{content: content, changes: changes}
		in := newInterpreter(h, anyLayout(t, version), 1<<20, 0)
		if in.Read(1<<21, in.code) == nil { // so that code objects are believed
			in.codeType = in.code.u64(objectType)
		}
		l, err := in.list(64, "amd64", func(uint32) bool { return true })
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(l.threads), 64)
		for _, one := range l.threads[:min(len(l.threads), 3)] {
			s, err := in.look(one.thread, 32, true)
			if err == nil {
				require.LessOrEqual(t, len(s.frames), 32)
				for _, frame := range s.frames {
					require.LessOrEqual(t, len(frame.File), 4*maxFile)
					require.LessOrEqual(t, len(frame.Function), 4*maxFunction)
				}
			}
		}
	})
}

// TestNamesOfOneLookAreBounded reads a name that never ends, again and again, and a line table.
func TestNamesOfOneLookAreBounded(t *testing.T) {
	l := layouts[11]
	content := make([]byte, 4096)
	binary.LittleEndian.PutUint64(content[l.textLength:], maxText)
	binary.LittleEndian.PutUint32(content[l.textState:], 4<<stateKind|1<<stateCompact)
	h := &hostile{content: content}
	in := newInterpreter(h, l, 1<<20, 0)
	read := 0
	for {
		text, err := in.string(1<<20, maxFile)
		if err != nil {
			require.ErrorIs(t, err, errTexts)
			require.False(t, movable(err), "it is not tried again")
			break
		}
		require.Len(t, []rune(text), maxFile)
		read += 4 * maxFile
		require.LessOrEqual(t, read, maxTexts)
	}
	require.Greater(t, read, maxTexts-4*maxFile-1)
	in.texts = 100
	clear(content)
	binary.LittleEndian.PutUint64(content[l.bytesSize:], 101)
	_, err := in.table(1 << 20)
	require.ErrorIs(t, err, errTexts)
	in.texts = 101
	_, err = in.table(1 << 20)
	require.NoError(t, err)
}

// anyLayout is the layout of a version; those that say their own offsets have some of them here.
func anyLayout(tb testing.TB, version uint8) layout {
	tb.Helper()
	minor := 8 + int(version)%7
	if l, known := layouts[minor]; known {
		return l
	}
	l, err := ownLayout(tableOf(minor))
	require.NoError(tb, err)
	return l
}

// tableOf is what an interpreter says of its offsets: structures of 1,024 bytes, with each field
// at a place of its own.
func tableOf(minor int) []byte {
	b := make([]byte, tableSize)
	copy(b, cookie)
	put := func(word int, value uint64) { binary.LittleEndian.PutUint64(b[8*word:], value) }
	put(1, 3<<24|uint64(minor)<<16|0xf0)
	for word := 3; word < tableSize/8; word++ {
		put(word, 8*uint64(word%8)) // the fields
	}
	t := tables[minor]
	for _, group := range []int{t.runtime, t.interpreter, t.thread, t.frame, t.code, t.bytes, t.unicode} {
		put(group, 1024)
		for i := 1; i < 10 && group+i < tableSize/8; i++ {
			put(group+i, 8*uint64(i))
		}
	}
	put(t.runtime, 1024)
	put(t.interpreter, 1024)
	put(t.thread, 1024)
	put(t.frame, 1024)
	put(t.code, 1024)
	put(t.bytes, 1024)
	put(t.unicode, 1024)
	put(t.unicode+3, 40)
	put(t.interpreter+t.ownLock, 8)
	put(t.interpreter+t.lockState, 24)
	put(t.interpreter+t.lockHolder, 16)
	return b
}

// FuzzOwnLayout: offsets that are taken lie in their structures.
func FuzzOwnLayout(f *testing.F) {
	f.Add(tableOf(13))
	f.Add(tableOf(14))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < tableSize {
			return
		}
		l, err := ownLayout(b)
		if err != nil {
			return
		}
		in := newInterpreter(&hostile{content: []byte("x")}, l, 1<<20, 1)
		for _, room := range []view{in.thread, in.frame, in.code, in.text} {
			require.LessOrEqual(t, len(room), 2*maxObject)
		}
		_ = in.callAt(1<<20, in.frame)
		_, _ = in.threadAt(1 << 20)
		_, _ = in.function(1 << 20)
		_, _ = in.string(1<<20, 10)
	})
}

// FuzzLines: a line table ends, whatever it says.
func FuzzLines(f *testing.F) {
	f.Add([]byte{0x80, 0, 0xd8, 4, 5, 0xf0, 0x7f, 0x7f, 0x7f, 1, 2, 3}, int64(10))
	f.Add(bytes.Repeat([]byte{255, 0x80}, 100), int64(1<<40))
	f.Fuzz(func(t *testing.T, b []byte, at int64) {
		for minor := 8; minor <= 14; minor++ {
			_ = lineTable{minor: minor, first: 1, bytes: b}.line(at)
		}
	})
}

// FuzzReadImage: a file that lies costs no more than the bounds.
func FuzzReadImage(f *testing.F) {
	own, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		f.Add(own[:min(len(own), 64<<10)])
	}
	f.Add(elfOf(nil))
	f.Add(elfOf([]byte("xdebugpy")))
	f.Fuzz(func(_ *testing.T, b []byte) {
		m, err := readImage(bytes.NewReader(b))
		if err == nil {
			_, _ = m.bias(1<<40, 0)
		}
	})
}
