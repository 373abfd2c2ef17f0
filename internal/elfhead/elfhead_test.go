package elfhead

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// debug/elf says the same of a file that does not lie.
func TestHeadersAreAsDebugELFReadsThem(t *testing.T) {
	path, err := os.Executable()
	require.NoError(t, err)
	theirs, err := elf.Open(path)
	require.NoError(t, err)
	defer theirs.Close()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	ours, err := Read(file)
	require.NoError(t, err)
	require.Equal(t, theirs.Machine, ours.Machine)
	require.Equal(t, theirs.Entry, ours.Entry)
	require.Len(t, ours.Segments, len(theirs.Progs))
	for i, p := range theirs.Progs {
		s := &ours.Segments[i]
		require.Equal(t, p.ProgHeader, elf.ProgHeader{
			Type: elf.ProgType(s.Type), Flags: elf.ProgFlag(s.Flags), Off: s.Off, Vaddr: s.Vaddr, Paddr: s.Paddr, Filesz: s.Filesz, Memsz: s.Memsz, Align: s.Align,
		})
		require.EqualValues(t, p.Filesz, ours.Content(s).Size())
		if p.Type == elf.PT_LOAD {
			require.Equal(t, s, ours.Loaded(p.Vaddr+p.Filesz-1))
			require.Equal(t, p.Flags&elf.PF_X != 0, Executed(s))
		}
	}
	require.Nil(t, ours.Loaded(math.MaxUint64))
	sections, err := ours.Sections()
	require.NoError(t, err)
	require.Len(t, sections, len(theirs.Sections))
	for i, s := range theirs.Sections {
		require.Equal(t, s.Offset, sections[i].Off)
	}
}

// made is a file with so many program headers, as it may be changed.
func made(segments uint16, change func(*elf.Header64, []elf.Prog64)) []byte {
	h := elf.Header64{Machine: uint16(elf.EM_X86_64), Phoff: fileBytes, Phentsize: segmentBytes, Phnum: segments, Shentsize: sectionBytes}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	programs := make([]elf.Prog64, segments)
	if change != nil {
		change(&h, programs)
	}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, &h); err != nil {
		panic(err)
	}
	if err := binary.Write(&b, binary.LittleEndian, programs); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func TestFilesThatAreNoneOrLieAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		file []byte
		want error
	}{
		"a script":           {[]byte("#!/bin/sh\n" + string(make([]byte, 100))), ErrNotELF},
		"32 bits":            {made(1, func(h *elf.Header64, _ []elf.Prog64) { h.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS32) }), ErrMachine},
		"big endian":         {made(1, func(h *elf.Header64, _ []elf.Prog64) { h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB) }), ErrMachine},
		"too many segments":  {made(MaxSegments+1, nil), ErrHeaders},
		"of another size":    {made(1, func(h *elf.Header64, _ []elf.Prog64) { h.Phentsize = 32 }), ErrHeaders},
		"beyond any file":    {made(1, func(_ *elf.Header64, p []elf.Prog64) { p[0].Off, p[0].Filesz = math.MaxInt64, 1 }), ErrHeaders},
		"beyond any process": {made(1, func(_ *elf.Header64, p []elf.Prog64) { p[0].Vaddr, p[0].Filesz = math.MaxUint64, 1 }), ErrHeaders},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(bytes.NewReader(tc.file))
			require.ErrorIs(t, err, tc.want)
		})
	}
	for n := range fileBytes + segmentBytes {
		_, err := Read(bytes.NewReader(made(1, nil)[:n]))
		require.Error(t, err, "cut short at %d", n)
	}
	_, err := Read(bytes.NewReader(made(1, func(h *elf.Header64, _ []elf.Prog64) { h.Phoff = math.MaxUint64 })))
	require.Error(t, err)
	_, err = Read(bytes.NewReader(made(MaxSegments, nil)))
	require.NoError(t, err)
	f, err := Read(bytes.NewReader(made(1, func(h *elf.Header64, _ []elf.Prog64) { h.Shnum, h.Shentsize = 1, 40 })))
	require.NoError(t, err, "nobody has asked for its sections")
	_, err = f.Sections()
	require.ErrorIs(t, err, ErrHeaders)
}

// hole is a file of which nothing but the beginning is stored.
type hole []byte

func (h hole) ReadAt(b []byte, at int64) (int, error) {
	clear(b)
	if at < int64(len(h)) {
		copy(b, h[at:])
	}
	return len(b), nil
}

// A file with a hole in it claims as much as headers can say.
func TestWhatIsReadOfALyingFileIsBounded(t *testing.T) {
	file := hole(made(MaxSegments, func(h *elf.Header64, _ []elf.Prog64) { h.Shoff, h.Shnum = 1<<62, math.MaxUint16 }))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := Read(file)
	require.NoError(t, err)
	all, err := f.Sections()
	require.NoError(t, err)
	require.Len(t, all, math.MaxUint16)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
}

func FuzzRead(f *testing.F) {
	f.Add(made(3, nil))
	f.Add(made(1, func(h *elf.Header64, p []elf.Prog64) {
		h.Shoff, h.Shnum, p[0].Type, p[0].Filesz = 0, 2, uint32(elf.PT_LOAD), 64
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(file.Segments), MaxSegments)
		for i := range file.Segments {
			s := &file.Segments[i]
			_, _ = file.Content(s).ReadAt(make([]byte, 8), 0)
			if s.Filesz > 0 {
				_ = file.Loaded(s.Vaddr)
			}
		}
		_, _ = file.Sections()
	})
}
