//go:build linux && (amd64 || arm64)

package pyexception

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/internal/pystack"
)

// versioned is a copy of the host's interpreter that says another version of itself.
func versioned(t *testing.T, hex uint64) *os.File {
	t.Helper()
	content, err := os.ReadFile(pythons(t)[0].path)
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "python3")
	require.NoError(t, os.WriteFile(name, content, 0o755))
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	image, err := elf.NewFile(file)
	require.NoError(t, err)
	symbols, err := image.DynamicSymbols()
	require.NoError(t, err)
	for _, s := range symbols {
		if s.Name != "Py_Version" && s.Name != "_PyRuntime" {
			continue
		}
		for _, p := range image.Progs {
			if p.Type != elf.PT_LOAD || s.Value < p.Vaddr || s.Value-p.Vaddr >= p.Filesz {
				continue
			}
			at := int64(s.Value - p.Vaddr + p.Off)
			if s.Name == "_PyRuntime" { // from 3.13 on it says the version too, behind the cookie
				var head [8]byte
				_, err := file.ReadAt(head[:], at)
				require.NoError(t, err)
				if string(head[:]) != "xdebugpy" {
					continue
				}
				at += 8
			}
			_, err := file.WriteAt(binary.LittleEndian.AppendUint64(nil, hex), at)
			require.NoError(t, err)
		}
	}
	return file
}

func TestAnUnknownVersionIsRefusedByName(t *testing.T) {
	var h hooks
	for hex, want := range map[uint64]string{0x030f00f0: "CPython 3.15 is not known", 0x030e00b2: "a pre-release of CPython 3.14 is not known"} {
		_, err := h.attachTo(versioned(t, hex), "")
		var unknown *pystack.UnknownVersionError
		require.ErrorAs(t, err, &unknown)
		require.ErrorContains(t, err, want)
	}
}

func TestAFileWithoutPythonHasNothing(t *testing.T) {
	self, err := os.Open("/proc/self/exe")
	require.NoError(t, err)
	defer self.Close()
	var h hooks
	_, err = h.attachTo(self, "")
	require.ErrorIs(t, err, uprobe.ErrNothing)
}
