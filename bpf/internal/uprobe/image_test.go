//go:build linux && (amd64 || arm64)

package uprobe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/standin"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

func names() []string { return []string{"first", "second", "third"} }

// elfFile has the functions of names, each a place further.
func elfFile() []byte {
	var functions []standin.Function
	for i, name := range names() {
		functions = append(functions, standin.Function{Name: name, Place: i, Code: standin.Code()})
	}
	return standin.Library(functions)
}

func TestFunctionsAreWhereTheirCodeIs(t *testing.T) {
	file := elfFile()
	image, err := Read(bytes.NewReader(file), append(names(), "fourth"))
	require.NoError(t, err)
	require.Len(t, image.found, len(names()))
	code := standin.Code()
	for _, name := range names() {
		f, there := image.Function(name)
		require.True(t, there)
		require.Equal(t, code, file[f.Entry:f.Entry+f.Size], name)
		require.Equal(t, code, image.Code(name, 1<<20))
		require.Equal(t, code[:2], image.Code(name, 2))
	}
	_, there := image.Function("fourth")
	require.False(t, there, "the file does not define it")
	require.Empty(t, image.Code("fourth", 1<<20))
}

// The first instruction decides what a breakpoint costs.
func TestBreakpointsGoWhereTheyCostLeast(t *testing.T) {
	begins := func(code ...byte) Function {
		file := standin.Library([]standin.Function{{Name: "f", Code: code}})
		binary.LittleEndian.PutUint16(file[18:], uint16(elf.EM_X86_64)) // e_machine
		image, err := Read(bytes.NewReader(file), []string{"f"})
		require.NoError(t, err)
		f, there := image.Function("f")
		require.True(t, there)
		return f
	}
	compare := []byte{0x81, 0x3d, 0x26, 0xd8, 0x8d, 0x01, 0x00, 0xba, 0x1c, 0x32}
	for name, tc := range map[string]struct {
		code    []byte
		skip    uint64
		stepped bool
	}{
		"NCCL 2.29.7: endbr64, push %r15":    {[]byte{0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x57, 0xc3}, 4, false},
		"endbr64, push %rbp":                 {[]byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0xc3}, 4, false},
		"RCCL 5.4.3: endbr64, sub $328,%rsp": {[]byte{0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x81, 0xec, 0x48, 1, 0, 0}, 4, true},
		"libcuda 550: cmpl, je":              {append(bytes.Clone(compare), 0x74, 0x0c), 10, false},
		"cmpl, je with 32 bits":              {append(bytes.Clone(compare), 0x0f, 0x84, 1, 0, 0, 0), 10, false},
		"endbr64, cmpl, jne":                 {append(append([]byte{0xf3, 0x0f, 0x1e, 0xfa}, compare...), 0x75, 0x0c), 14, false},
		"cmpl without a jump":                {append(bytes.Clone(compare), 0x0f, 0x94, 0xc0), 0, true},
		"cmpl, cut":                          {compare, 0, true},
		"push":                               {[]byte{0x55, 0xc3}, 0, false},
		"nop":                                {[]byte{0x90, 0xc3}, 0, false},
		"jump":                               {[]byte{0xe9, 0, 0, 0, 0}, 0, false},
		"endbr64, call":                      {[]byte{0xf3, 0x0f, 0x1e, 0xfa, 0xe8, 0, 0, 0, 0}, 0, true},
		"endbr64, jump":                      {[]byte{0xf3, 0x0f, 0x1e, 0xfa, 0xe9, 0, 0, 0, 0}, 4, false},
		"call":                               {[]byte{0xe8, 0, 0, 0, 0}, 0, true},
		"endbr32":                            {[]byte{0xf3, 0x0f, 0x1e, 0xfb, 0xc3}, 0, true},
	} {
		f := begins(tc.code...)
		require.Equal(t, f.Entry+tc.skip, f.Offset, name)
		require.Equal(t, tc.stepped, f.Stepped, name)
	}
	skip, stepped := cheapest(nil)
	require.Zero(t, skip)
	require.True(t, stepped)
}

// What a function of arm64 begins with is stepped, unless the kernel simulates it.
func TestWhatTheKernelOfArm64Steps(t *testing.T) {
	for name, tc := range map[string]struct {
		instruction uint32
		stepped     bool
	}{
		"paciasp":              {0xd503233f, true},
		"bti c":                {0xd503245f, true},
		"nop":                  {0xd503201f, true}, // simulated since Linux 6.13
		"stp x29, x30, [sp]!":  {0xa9be7bfd, true},
		"sub sp, sp, #0x40":    {0xd10103ff, true},
		"mov x0, x1":           {0xaa0103e0, true},
		"adrp x16, .":          {0x90000010, false},
		"adr x0, .":            {0x10000000, false},
		"cbz x0, .":            {0xb4000000, false},
		"cbnz w1, .":           {0x35000001, false},
		"tbz w0, #0, .":        {0x36000000, false},
		"tbnz x0, #63, .":      {0xb7f80000, false},
		"b .":                  {0x14000000, false},
		"bl .":                 {0x94000000, false},
		"b.eq .":               {0x54000000, false},
		"br x16":               {0xd61f0200, false},
		"ret":                  {0xd65f03c0, false},
		"ldr x0, .":            {0x58000000, false},
		"ldrsw x0, .":          {0x98000000, false},
		"ldr x0, [x1], no .":   {0xf9400020, true},
		"a vector's ldr of it": {0x1c000000, true},
	} {
		code := binary.LittleEndian.AppendUint32(nil, tc.instruction)
		f := function(bytes.NewReader(code), elf.EM_AARCH64, 0, uint64(len(code)))
		require.Zero(t, f.Offset, name)
		require.Equal(t, tc.stepped, f.Stepped, name)
	}
	require.True(t, function(bytes.NewReader(nil), elf.EM_AARCH64, 0, 4).Stepped, "nothing is there")
}

// A linker lets a name be the tail of a longer one, and a table is read in pieces.
func TestNamesAreFoundWhereverTheyAre(t *testing.T) {
	names, symbols := []byte{0}, []elf.Sym64{{}}
	is := func(offset int, section elf.SectionIndex, kind elf.SymType, place uint64) {
		code := elfCode(t)
		symbols = append(symbols, elf.Sym64{
			Name: uint32(offset), Info: elf.ST_INFO(elf.STB_GLOBAL, kind), Shndx: uint16(section), Value: code + place, Size: 5,
		})
	}
	want := map[string]uint64{}
	for i := range uint64(40) { // over several pieces, at each place in one
		name := fmt.Sprintf("f%d", i)
		names = append(append(names, bytes.Repeat([]byte{'x'}, pieceBytes/7-int(i))...), name...)
		is(len(names)-len(name), 3, elf.STT_FUNC, i)
		names = append(names, 0)
		want[name] = i
		for range pieceBytes / symbolBytes / 9 {
			symbols = append(symbols, elf.Sym64{})
		}
	}
	for i, name := range []string{"data", "undefined"} {
		is(len(names), elf.SectionIndex(3-3*i), []elf.SymType{elf.STT_OBJECT, elf.STT_FUNC}[i], 0)
		names = append(append(names, name...), 0)
		want[name] = 1 << 20 // nowhere
	}
	asked := slices.Collect(maps.Keys(want))
	file := standin.WithTable(standin.Library(nil), elf.SHT_SYMTAB, symbols, names)
	image, err := Read(bytes.NewReader(file), append(asked, "xf1", "0", "f"))
	require.NoError(t, err)
	begin := uint64(standin.CodeAt)
	for name, place := range want {
		f, there := image.Function(name)
		require.Equal(t, place < 1<<20, there, name)
		if there {
			require.Equal(t, begin+place, f.Entry, name)
			require.EqualValues(t, 5, f.Size)
		}
	}
	require.Len(t, image.found, 40, "no symbol has another name")
}

// elfCode is the address of the code of a library.
func elfCode(t *testing.T) uint64 {
	f, err := elf.NewFile(bytes.NewReader(standin.Library(nil)))
	require.NoError(t, err)
	return f.Progs[0].Vaddr
}

// sparse is a library on disk whose two tables have so many bytes, of which it has none but
// the last symbol and its name.
func sparse(t testing.TB, symbols, names int64) *os.File {
	const first, second = "first\x00", symbolBytes
	file := elfFile()
	sections := binary.LittleEndian.Uint64(file[40:])
	table, text := file[sections+64:], file[sections+128:]
	last := bytes.Clone(file[binary.LittleEndian.Uint64(table[24:])+symbolBytes:][:symbolBytes])
	at := int64(len(file))
	binary.LittleEndian.PutUint64(table[24:], uint64(at))
	binary.LittleEndian.PutUint64(table[32:], uint64(symbols))
	binary.LittleEndian.PutUint64(text[24:], uint64(at+symbols))
	binary.LittleEndian.PutUint64(text[32:], uint64(names))
	binary.LittleEndian.PutUint32(last, uint32(names-int64(len(first))))
	opened, err := os.Create(filepath.Join(t.TempDir(), "library"))
	require.NoError(t, err)
	t.Cleanup(func() { opened.Close() })
	for place, content := range map[int64][]byte{0: file, at + symbols - second: last, at + symbols + names - int64(len(first)): []byte(first)} {
		_, err := opened.WriteAt(content, place)
		require.NoError(t, err)
	}
	return opened
}

func TestLargeTablesTakeLittleMemory(t *testing.T) {
	file := sparse(t, 40<<20/symbolBytes*symbolBytes, 160<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	image, err := Read(file, names())
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	require.Len(t, image.found, 1)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))
}

// The table of section names is one that nobody needs: debug/elf reads it all.
func TestTablesWithoutEndAreNotRead(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Read(sparse(t, 40<<20, 1<<36), names())
	require.ErrorContains(t, err, "symbol tables have more than")
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

func TestANameThatIsThereVeryOftenIsRefused(t *testing.T) {
	file := standin.WithTable(standin.Library(nil), elf.SHT_SYMTAB, make([]elf.Sym64, 2), bytes.Repeat([]byte("first\x00"), maxPlaces+1))
	_, err := Read(bytes.NewReader(file), names())
	require.ErrorContains(t, err, "too often")
}

func TestWhichLibrariesAFileNeeds(t *testing.T) {
	for name, tc := range map[string]struct {
		file  []byte
		needs bool
	}{
		"PyTorch's wheel":        {standin.Linked(elfFile(), "libc10.so", "libcudart.so.13", "libnccl.so.2"), true},
		"of an image by itself":  {standin.Linked(elfFile(), "libc.so.6", "libnccl-net.so", "notlibnccl.so.2"), false},
		"linked against nothing": {standin.Linked(elfFile()), false},
		"no dynamic section":     {elfFile(), false},
		"very many":              {standin.Linked(elfFile(), append(slices.Repeat([]string{"libc.so.6"}, maxNeeded), "libnccl.so.2")...), false},
	} {
		needs, err := Needs(bytes.NewReader(tc.file), "libnccl.so", "librccl.so")
		require.NoError(t, err, name)
		require.Equal(t, tc.needs, needs, name)
	}
	_, err := Needs(bytes.NewReader(nil), "libnccl.so")
	require.ErrorContains(t, err, "EOF")
}

// BenchmarkRead reads the largest tables that are read: /names are as of C++, /zeroes are made
// to take long.
func BenchmarkRead(b *testing.B) {
	const longName = 120 // bytes, as of C++
	full := sparse(b, 64<<20/symbolBytes*symbolBytes, maxSymbolBytes-64<<20)
	info, err := full.Stat()
	require.NoError(b, err)
	name := append(bytes.Repeat([]byte{'x'}, longName-1), 0)
	block := bytes.Repeat(name, 1<<13)
	for at := info.Size() - (maxSymbolBytes - 64<<20); at+int64(len(block)) < info.Size(); at += int64(len(block)) {
		_, err := full.WriteAt(block, at)
		require.NoError(b, err)
	}
	for name, file := range map[string]*os.File{"names": full, "zeroes": sparse(b, 1<<20/symbolBytes*symbolBytes, maxSymbolBytes-1<<20)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := Read(file, slices.Repeat(names(), 9))
				require.NoError(b, err)
			}
		})
	}
}

func TestFileThatIsNoLibraryIsRefused(t *testing.T) {
	huge := elfFile()
	const sections, sectionBytes, size = 64 + 56, 64, 32 // Elf64_Ehdr, Elf64_Phdr; sh_size in Elf64_Shdr
	binary.LittleEndian.PutUint64(huge[sections+sectionBytes+size:], 1<<40)
	for name, tc := range map[string]struct {
		file []byte
		want string
	}{
		"a script":            {[]byte("#!/bin/sh\nexec python train.py --nodes 64 --config large.yaml --resume\n"), "magic"},
		"empty":               {nil, "EOF"},
		"a terabyte of names": {huge, "symbol tables have more than"},
	} {
		_, err := Read(bytes.NewReader(tc.file), names())
		require.ErrorContains(t, err, tc.want, name)
	}
}

// Damaged in any byte, a library gives an error or offsets inside of the file.
func TestDamagedLibraryDoesNoHarm(t *testing.T) {
	whole := elfFile()
	const headers = 1024
	for at := range headers {
		for _, value := range []byte{0, 1, 0x7f, 0xff} {
			file := bytes.Clone(whole)
			file[at] = value
			_, _ = Read(bytes.NewReader(file), names())
			_, _ = Needs(bytes.NewReader(file), "libx")
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(elfFile()[:4096])
	f.Add(standin.Linked(elfFile()[:4096], "libnccl.so.2"))
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, file []byte) {
		_, _ = Read(bytes.NewReader(file), names())
		_, _ = Needs(bytes.NewReader(file), "libnccl.so")
	})
}

func TestOwnCodeIsFoundInItsFile(t *testing.T) {
	f, err := OwnFunction(standin.Entry())
	require.NoError(t, err)
	file, err := os.Open(Own)
	require.NoError(t, err)
	defer file.Close()
	got := make([]byte, len(standin.Code()))
	_, err = file.ReadAt(got, int64(f.Entry))
	require.NoError(t, err)
	require.Equal(t, standin.Code(), got)

	_, err = OwnFunction(1)
	require.ErrorContains(t, err, "not mapped")
}

func TestKernelWithoutUprobesIsNamed(t *testing.T) {
	err := Problem(os.DirFS(t.TempDir()))
	require.ErrorContains(t, err, "no uprobes")
}

func TestRefusedBreakpointsNameTheCapability(t *testing.T) {
	attempt := ladder.Classify("uprobe/libx", Privilege(fmt.Errorf("attach: %w", unix.EACCES)))
	require.Equal(t, probe.Denied, attempt.Outcome)
	require.Contains(t, attempt.Reason, "CAP_SYS_ADMIN")
	require.Contains(t, attempt.Hint, "ba677dbe77af")
	require.Equal(t, unix.EINVAL, Privilege(unix.EINVAL))
}
