package uprobe

import (
	"debug/elf"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/elfhead"
)

// A breakpoint at 0 would have the file read as a whole, with all that it says of itself.
func TestNoFunctionIsWhereTheFileBegins(t *testing.T) {
	code := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X), Vaddr: 0x1000, Filesz: 0x1000}
	data := elf.Prog64{Type: uint32(elf.PT_LOAD), Off: 0x1000, Vaddr: 0x3000, Filesz: 0x1000}
	f := &object{File: &elfhead.File{Segments: []elf.Prog64{code, data}}}
	for address, want := range map[uint64]uint64{0x1000: 0, 0x1001: 1, 0x1fff: 0xfff, 0x2000: 0, 0x3010: 0, 0x5000: 0} {
		at, there := f.codeOffset(address)
		require.Equal(t, want, at)
		require.Equal(t, want != 0, there, "%#x", address)
	}
}
