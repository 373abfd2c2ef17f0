//go:build linux && (amd64 || arm64)

package identity

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// hollow is a file of nothing but a header, two of sections, and a hole: the names of its sections, and its symbols, are so long.
func hollow(t testing.TB, size int64, kind elf.SectionType) *os.File {
	t.Helper()
	var b bytes.Buffer
	header := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Phentsize: 56, Shoff: 64, Shentsize: 64, Shnum: 3, Shstrndx: 1,
	}
	require.NoError(t, binary.Write(&b, binary.LittleEndian, header))
	for _, s := range []elf.Section64{
		{}, {Type: uint32(elf.SHT_STRTAB), Off: 4096, Size: uint64(size)}, {Type: uint32(kind), Link: 1, Off: 4096, Size: uint64(size), Entsize: 24},
	} {
		require.NoError(t, binary.Write(&b, binary.LittleEndian, s))
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "libc.so.6"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	_, err = file.Write(b.Bytes())
	require.NoError(t, err)
	require.NoError(t, file.Truncate(4096+size))
	return file
}

// taken is how much memory f takes, also for a moment.
func taken(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A process names its C library, and what is in it: a file of a few kilobytes on its disk says that it has gigabytes of names.
func TestAFileThatLiesTakesNoMemory(t *testing.T) {
	for _, kind := range []elf.SectionType{elf.SHT_PROGBITS, elf.SHT_DYNSYM} {
		file := hollow(t, 128<<20, kind)
		require.Less(t, taken(func() {
			s, err := readEnviron(file, 0)
			require.NoError(t, err)
			require.Zero(t, s.value)
		}), uint64(16<<20))
	}
}

func FuzzReadEnviron(f *testing.F) {
	own, err := os.ReadFile("/proc/self/exe")
	require.NoError(f, err)
	f.Add(own[:min(len(own), 64<<10)])
	small, err := io.ReadAll(io.NewSectionReader(hollow(f, 48, elf.SHT_DYNSYM), 0, 8192))
	require.NoError(f, err)
	f.Add(small)
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = readEnviron(bytes.NewReader(b), 0) })
}
