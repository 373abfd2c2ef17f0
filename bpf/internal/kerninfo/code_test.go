package kerninfo

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const symbols = `0000000000000000 A fixed_percpu_data
ffffffff81000000 T _text
ffffffff81000100 T wanted.cold
ffffffff81000180 t other
ffffffff81000200 t wanted
ffffffff81000200 t alias_of_it
ffffffff81000300 T last_of_the_kernel
ffffffffc0002000 t at_the_end	[fuse]
ffffffffc0001000 t of_a_module	[fuse]
`

func TestCodeIsFoundInPiecesAndInAnyOrder(t *testing.T) {
	found := map[string]*Code{"wanted": {}, "of_a_module": {}, "at_the_end": {}, "fixed_percpu_data": {}}
	table, err := ReadTable(strings.NewReader(symbols), strings.NewReader(""))
	require.NoError(t, err)
	FindCode(table, func(s Symbol) *Code { return found[string(s.Name)] })
	require.Equal(t, map[string]*Code{
		"wanted":            {{0xffffffff81000100, 0xffffffff81000180}, {0xffffffff81000200, 0xffffffff81000300}},
		"of_a_module":       {{0xffffffffc0001000, 0xffffffffc0002000}},
		"at_the_end":        {}, // nothing behind it tells its end
		"fixed_percpu_data": {}, // hidden
	}, found)
}

func TestAReturnAddressLiesBehindItsCall(t *testing.T) {
	code := Code{{0x100, 0x200}, {0x300, 0x400}}
	for address, has := range map[uint64]bool{0x100: false, 0x101: true, 0x200: true, 0x201: false, 0x400: true} {
		require.Equal(t, has, code.Has(address), "%#x", address)
	}
	require.True(t, code.On([]uint64{1, 0x150}))
	require.False(t, code.On([]uint64{1, 0x250}))
	require.False(t, code.On(nil))
}

func TestSymbolsSayWhatAndWhoseTheyAre(t *testing.T) {
	for s, err := range Read(strings.NewReader("ffffffffc0001800 t other.isra.0\t[fuse]\n")) {
		require.NoError(t, err)
		require.Equal(t, Symbol{0xffffffffc0001800, 't', []byte("other"), []byte("[fuse]")}, s)
	}
}

func TestGarbageInsteadOfSymbolsIsAnError(t *testing.T) {
	for _, text := range []string{"not an address at all\n", "\n", "1\n", "1 t\n", "1 tt x\n", "zz t x\n", strings.Repeat("1", 1<<17)} {
		_, err := ReadTable(strings.NewReader(text), strings.NewReader(""))
		require.ErrorContains(t, err, "read kernel symbols", "%.20q", text)
	}
}

func TestAnAddressIsOfTheFunctionBeforeIt(t *testing.T) {
	const modules = "fuse 8192 1 - Live 0xffffffffc0001000 (E)\n"
	const bpf = 0xffffffffc0009000 // behind the last module, where programs of BPF lie
	table, err := ReadTable(strings.NewReader(symbols+"ffffffff81000400 D data\n"), strings.NewReader(modules))
	require.NoError(t, err)
	found := table.Functions([]uint64{
		0xffffffff81000150, 0xffffffff81000200, 0xffffffff81000201, 0xffffffffc0001010, 0xffffffff81000500, bpf, 1,
	})
	require.NoError(t, err)
	got := map[uint64]string{}
	for address, s := range found {
		got[address] = string(s.Name) + string(s.Module)
	}
	require.Equal(t, map[uint64]string{
		0xffffffff81000150: "wanted",
		0xffffffff81000200: "other", // a call that ends a function returns to the next
		0xffffffff81000201: "alias_of_it",
		0xffffffffc0001010: "of_a_module[fuse]",
	}, got)
}

func TestGarbageInsteadOfModulesIsAnError(t *testing.T) {
	for _, text := range []string{"fuse\n", "fuse x 1 - Live 0x1\n", "fuse 1 1 - Live x\n", strings.Repeat("1", 1<<17)} {
		_, err := ReadTable(strings.NewReader(""), strings.NewReader(text))
		require.ErrorContains(t, err, "read modules", "%.20q", text)
	}
}
