//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/cudaoom/fakejob"
	"github.com/tracecoreai/tracecore/bpf/cudaoom/internal/standin"
)

func TestOffsetsAreThoseOfTheCode(t *testing.T) {
	file := fakejob.Library(fakejob.Functions())
	found, err := offsets(bytes.NewReader(file), functions())
	require.NoError(t, err)
	require.Len(t, found, len(entries()))
	for name, at := range found {
		require.Equal(t, standin.Code(), file[at:at+uint64(len(standin.Code()))], name)
	}
}

// The stand-in library has what the probe looks for, name by name.
func TestFakeLibraryHasTheFunctionsOfTheProbe(t *testing.T) {
	require.ElementsMatch(t, functions(), fakejob.Functions())
}

func TestFunctionsThatAnOldDriverLacksAreLeftOut(t *testing.T) {
	found, err := offsets(bytes.NewReader(fakejob.Library([]string{"cuMemAlloc_v2"})), functions())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, found, "cuMemAlloc_v2")
}

func TestFileThatIsNoLibraryIsRefused(t *testing.T) {
	huge := fakejob.Library([]string{"cuMemAlloc_v2"})
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
		_, err := offsets(bytes.NewReader(tc.file), functions())
		require.ErrorContains(t, err, tc.want, name)
	}
}

// Damaged in any byte, a library gives an error or offsets inside of the file.
func TestDamagedLibraryDoesNoHarm(t *testing.T) {
	whole := fakejob.Library(fakejob.Functions())
	const headers = 1024
	for at := range headers {
		for _, value := range []byte{0, 1, 0x7f, 0xff} {
			file := bytes.Clone(whole)
			file[at] = value
			_, _ = offsets(bytes.NewReader(file), functions())
		}
	}
}

func FuzzOffsets(f *testing.F) {
	f.Add(fakejob.Library(fakejob.Functions())[:4096])
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, file []byte) {
		_, _ = offsets(bytes.NewReader(file), functions())
	})
}

func TestOwnCodeIsFoundInItsFile(t *testing.T) {
	at, err := fileOffset(standin.Entry())
	require.NoError(t, err)
	file, err := os.Open("/proc/self/exe")
	require.NoError(t, err)
	defer file.Close()
	got := make([]byte, len(standin.Code()))
	_, err = file.ReadAt(got, int64(at))
	require.NoError(t, err)
	require.Equal(t, standin.Code(), got)

	_, err = fileOffset(1)
	require.ErrorContains(t, err, "not mapped")
}
