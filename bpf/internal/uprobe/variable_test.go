package uprobe

import (
	"debug/elf"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A breakpoint at 0 would have the file read as a whole, with all that it says of itself.
func TestNoFunctionIsWhereTheFileBegins(t *testing.T) {
	f := &object{code: []elf.Prog64{
		{Vaddr: 0x1000, Off: 0, Filesz: 0x1000}, {Vaddr: 0x3000, Off: math.MaxUint64 - 0xf, Filesz: 0x1000},
	}}
	for address, want := range map[uint64]uint64{0x1000: 0, 0x1001: 1, 0x3010: 0, 0x3011: 1, 0x5000: 0} {
		at, there := f.codeOffset(address)
		require.Equal(t, want, at)
		require.Equal(t, want != 0, there, "%#x", address)
	}
}
