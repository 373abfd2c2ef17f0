package pystack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheHolderIsWhereCodeHasIt: _PyThreadState_UncheckedGet returns gilstate.tstate_current, and
// so says where it is. Of python3.9 and python3.11 of Debian for arm64, which have glibc.
func TestTheHolderIsWhereCodeHasIt(t *testing.T) {
	for name, tc := range map[string]struct {
		minor             int
		runtime, function uint64 // addresses of _PyRuntime and of the function
		code              []uint32
	}{
		"3.9.2-1 (bullseye)":          {9, 0x918890, 0x5a2c30, []uint32{0xd0001ba0, 0x912b6001, 0xf9400020, 0xd65f03c0}},
		"3.11.2-6+deb12u8 (bookworm)": {11, 0xa36008, 0x5eeb74, []uint32{0x90002240, 0x91096000, 0xf9400000, 0xd65f03c0}},
	} {
		t.Run(name, func(t *testing.T) {
			l := layouts[tc.minor]
			require.Equal(t, tc.runtime+l.holderOn("arm64", glibc), returned(t, tc.function, tc.code))
		})
	}
}

// returned is the address whose word a function of arm64 returns that does nothing else: adrp, add,
// ldr, ret (Arm ARM, C6.2).
func returned(t *testing.T, at uint64, code []uint32) uint64 {
	t.Helper()
	var registers [32]uint64
	for i, word := range code {
		to, from, immediate := word&31, word>>5&31, uint64(word>>10&0xfff)
		switch {
		case word>>31 == 1 && word>>24&0x1f == 0x10: // adrp: 21 signed bits of pages
			pages := int64(uint64(word>>5&0x7ffff)<<2|uint64(word>>29&3)) << 43 >> 43
			registers[to] = (at+4*uint64(i))&^0xfff + uint64(pages<<12)
		case word>>22 == 0x910>>2: // add, 64 bits, not shifted
			registers[to] = registers[from] + immediate
		case word>>22 == 0xf94>>2: // ldr, 64 bits, unsigned offset
			require.Zero(t, to, "it returns what it loads")
			require.EqualValues(t, 0xd65f03c0, code[i+1], "ret")
			return registers[from] + 8*immediate
		default:
			require.Fail(t, "an instruction that is not known", "%#08x", word)
		}
	}
	require.Fail(t, "it returns nothing")
	return 0
}

// TestTheHolderIsKnownByMachineAndLibrary: as offsetof gives it with the headers of each, those of
// glibc 2.36 and musl 1.2.3.
func TestTheHolderIsKnownByMachineAndLibrary(t *testing.T) {
	for minor, want := range map[int]struct{ here, glibcARM64 uint64 }{
		8: {1368, 1384}, 9: {568, 584}, 10: {568, 584}, 11: {576, 592}, 12: {},
	} {
		l := layouts[minor]
		for _, c := range []libc{unknownLibc, glibc, musl} {
			require.Equal(t, want.here, l.holderOn("amd64", c), "3.%d", minor)
			require.Zero(t, l.holderOn("riscv64", c), "3.%d", minor)
		}
		require.Equal(t, want.glibcARM64, l.holderOn("arm64", glibc), "3.%d", minor)
		require.Equal(t, want.here, l.holderOn("arm64", musl), "3.%d", minor)
		require.Zero(t, l.holderOn("arm64", unknownLibc), "3.%d", minor)
	}
}
