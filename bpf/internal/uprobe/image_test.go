//go:build linux && (amd64 || arm64)

package uprobe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
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
	require.Equal(t, len(names()), image.Len())
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
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(elfFile()[:4096])
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, file []byte) {
		_, _ = Read(bytes.NewReader(file), names())
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
