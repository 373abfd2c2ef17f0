package pystack

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// elfOf is a program without section headers and without symbols, whose writable data is
// this and lies at 0x4000.
func elfOf(data []byte) []byte {
	var b bytes.Buffer
	header := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 2,
	}
	_ = binary.Write(&b, binary.LittleEndian, header)
	_ = binary.Write(&b, binary.LittleEndian, elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: 0x1000, Vaddr: 0x2000, Filesz: 0x1000, Memsz: 0x1000, Align: 0x1000})
	_ = binary.Write(&b, binary.LittleEndian, elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Off: 0x2000, Vaddr: 0x4000, Filesz: uint64(len(data)), Memsz: uint64(len(data)), Align: 0x1000})
	b.Write(make([]byte, 0x2000-b.Len()))
	b.Write(data)
	return b.Bytes()
}

func TestRuntimeIsFoundByItsCookie(t *testing.T) {
	for name, tc := range map[string]struct {
		data []byte
		want uint64
	}{
		"at the beginning":         {[]byte("xdebugpy"), 0x4000},
		"farther on":               {append(make([]byte, 3*scanBlock+16), "xdebugpy"...), 0x4000 + 3*scanBlock + 16},
		"not where a word begins":  {[]byte("....xdebugpy...."), 0},
		"a text and then the word": {append([]byte(".xdebugpy......."), "xdebugpy"...), 0x4010},
		"cut short":                {[]byte("xdebugp"), 0},
		"none":                     {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := readImage(bytes.NewReader(elfOf(tc.data)))
			require.NoError(t, err)
			require.Equal(t, tc.want, m.runtime)
			bias, err := m.bias(0x7f0000001000, 0x1000)
			require.NoError(t, err)
			require.EqualValues(t, 0x7f0000001000-0x2000, bias)
			_, err = m.bias(0x7f0000001000, 0x1000000)
			require.Error(t, err)
		})
	}
}

func TestUnknownVersionsAreRefusedByName(t *testing.T) {
	hex := func(minor int, level uint64) uint64 { return 3<<24 | uint64(minor)<<16 | 2<<8 | level<<4 }
	for name, tc := range map[string]struct {
		image image
		head  []byte
		want  string
	}{
		"too new":         {head: withVersion(tableOf(14), hex(15, 0xf)), want: "CPython 3.15"},
		"an alpha":        {head: withVersion(tableOf(14), hex(14, 0xa)), want: "a pre-release of CPython 3.14"},
		"free-threaded":   {head: freeThreaded(tableOf(14)), want: "free-threaded CPython 3.14"},
		"no cookie":       {image: image{codeType: 1, version: hex(13, 0xf)}, want: "CPython 3.13"},
		"before 3.8":      {image: image{codeType: 1}, want: "CPython 3.7 or older"},
		"an early 3.11":   {image: image{codeType: 1, version: hex(11, 0xb)}, want: "a pre-release of CPython 3.11"},
		"3.12":            {image: image{codeType: 1, version: hex(12, 0xf)}},
		"3.12, candidate": {image: image{codeType: 1, version: hex(12, 0xc)}},
		"3.9":             {image: image{codeType: 1, minor: 9}},
		"3.13":            {head: tableOf(13)},
	} {
		t.Run(name, func(t *testing.T) {
			head := tc.head
			if head == nil {
				head = make([]byte, tableSize)
			}
			_, err := tc.image.layout(head)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			var unknown *UnknownVersionError
			require.ErrorAs(t, err, &unknown)
			require.Equal(t, tc.want, unknown.Version)
			require.EqualError(t, err, tc.want+" is not known; native and kernel frames remain")
		})
	}
}

func withVersion(table []byte, hex uint64) []byte {
	binary.LittleEndian.PutUint64(table[8:], hex)
	return table
}

func freeThreaded(table []byte) []byte {
	table[16] = 1
	return table
}

func TestOffsetsOutOfTheirStructuresAreRefused(t *testing.T) {
	for _, minor := range []int{13, 14} {
		_, err := ownLayout(tableOf(minor))
		require.NoError(t, err)
		at := tables[minor]
		for _, word := range []int{at.runtime + 2, at.interpreter + 2, at.thread + 4, at.frame + 3, at.code + 9, at.bytes + 1, at.unicode + 2, at.unicode + 3, at.interpreter + at.lockHolder} {
			for _, bad := range []uint64{1020, 1 << 20, 1 << 62, 1<<64 - 8} {
				b := tableOf(minor)
				binary.LittleEndian.PutUint64(b[8*word:], bad)
				if _, err := ownLayout(b); word == at.code+9 && bad == 1020 || word == at.unicode+3 && bad == 1020 {
					require.NoError(t, err) // one byte is there
				} else {
					require.Error(t, err, "word %d of 3.%d is %d", word, minor, bad)
				}
			}
		}
	}
}

func TestImagesAreBounded(t *testing.T) {
	var c images
	for i := range 3 * maxImages {
		c.put(fileID{"fd:01", uint64(i)}, &image{})
		require.NotNil(t, c.get(fileID{"fd:01", 0}), "it is used all the time")
	}
	require.Len(t, c.files, maxImages)
	require.Equal(t, maxImages, c.list.Len())
	require.Nil(t, c.get(fileID{"fd:01", 1}))
	c.forget(fileID{"fd:01", 0})
	require.Nil(t, c.get(fileID{"fd:01", 0}))
	again := &image{minor: 9}
	c.put(fileID{"fd:01", 5000}, &image{})
	c.put(fileID{"fd:01", 5000}, again)
	require.Same(t, again, c.get(fileID{"fd:01", 5000}))
}

// TestAFileThatLiesTakesNoMemory: a file of a few kilobytes on its disk says that the names of its sections have gigabytes, or that
// it has as many sections.
func TestAFileThatLiesTakesNoMemory(t *testing.T) {
	const size = 128 << 20
	for name, section := range map[string]elf.Section64{
		"names":    {Type: uint32(elf.SHT_STRTAB), Off: 0x3000, Size: size},
		"sections": {Size: size / 64},
	} {
		b := elfOf([]byte("xdebugpy"))
		binary.LittleEndian.PutUint64(b[0x28:], uint64(len(b))) // e_shoff
		binary.LittleEndian.PutUint16(b[0x3a:], 64)             // e_shentsize
		if name == "names" {
			binary.LittleEndian.PutUint16(b[0x3c:], 1) // e_shnum
		}
		var headers bytes.Buffer
		require.NoError(t, binary.Write(&headers, binary.LittleEndian, section))
		file, err := os.Create(filepath.Join(t.TempDir(), "libpython3.13.so.1.0"))
		require.NoError(t, err)
		_, err = file.Write(append(b, headers.Bytes()...))
		require.NoError(t, err)
		require.NoError(t, file.Truncate(0x3000+size))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := readImage(file)
		runtime.ReadMemStats(&after)
		require.NoError(t, err, "sections are not asked")
		require.EqualValues(t, 0x4000, m.runtime)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20), name)
		require.NoError(t, file.Close())
	}
}
