package kmsg

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const symbols = `ffffffff81000000 T _stext
ffffffff81001000 T vprintk_emit
ffffffff81001400 T vprintk
ffffffff81002000 t devkmsg_emit.constprop.0
ffffffff81002100 t devkmsg_write
ffffffff81002200 t devkmsg_llseek
ffffffff81003000 T handle_irq_event
ffffffff81003100 T handle_nested_irq
ffffffff81004000 D vprintk_emit_data
ffffffffc0001000 t devkmsg_write	[evil]
ffffffff81001000 t alias_of_vprintk_emit
`

func TestParseSymbolsFindsFunctionsAndWhereTheyEnd(t *testing.T) {
	code, err := parseSymbols(strings.NewReader(symbols))
	require.NoError(t, err)
	require.Equal(t, kernelCode{
		{start: 0xffffffff81001000, end: 0xffffffff81001400, role: printsText},
		{start: 0xffffffff81002000, end: 0xffffffff81002100, role: fromDevKmsg},
		{start: 0xffffffff81002100, end: 0xffffffff81002200, role: fromDevKmsg},
		{start: 0xffffffff81003000, end: 0xffffffff81003100, role: interrupts},
	}, code)
}

func TestParseSymbolsOfAKernelThatHidesThemIsEmpty(t *testing.T) {
	code, err := parseSymbols(strings.NewReader("0000000000000000 T vprintk_emit\n0000000000000000 t devkmsg_write\n"))
	require.NoError(t, err)
	require.Empty(t, code)
	w, interrupted := code.writer([]uint64{0xffffffff81001010, 0xffffffff81002010})
	require.Equal(t, WriterUnknown, w)
	require.False(t, interrupted)
}

func TestParseSymbolsIgnoresLinesOfAnotherForm(t *testing.T) {
	code, err := parseSymbols(strings.NewReader("\nzz T vprintk_emit\nffff\nffffffff81001000 TT vprintk_emit\n1000 T \n"))
	require.NoError(t, err)
	require.Empty(t, code)
}

func TestWriterIsTheCallerOfVprintkEmit(t *testing.T) {
	code, err := parseSymbols(strings.NewReader(symbols))
	require.NoError(t, err)
	const (
		program = 0xffffffffc0100000
		emit    = 0xffffffff81001200
		devkmsg = 0xffffffff81002010
		// A call that is the last instruction returns to the next function.
		devkmsgEnd = 0xffffffff81002200
		driver     = 0xffffffffc0200000
		irq        = 0xffffffff81003050
	)
	for name, tc := range map[string]struct {
		frames      []uint64
		want        Writer
		interrupted bool
	}{
		"driver":                              {[]uint64{program, emit, driver}, WriterKernel, false},
		"devkmsg":                             {[]uint64{program, emit, devkmsg}, WriterUserspace, false},
		"call at the end of a function":       {[]uint64{program, emit, devkmsgEnd}, WriterUserspace, false},
		"driver in an interrupt of a writer":  {[]uint64{emit, driver, irq, emit, devkmsg}, WriterKernel, true},
		"driver called below devkmsg_write":   {[]uint64{emit, driver, devkmsg}, WriterKernel, false},
		"no stack":                            {nil, WriterUnknown, false},
		"stack ends at vprintk_emit":          {[]uint64{program, emit}, WriterUnknown, false},
		"vprintk_emit is not on it":           {[]uint64{program, devkmsg}, WriterUnknown, false},
		"beginning of a function is no frame": {[]uint64{0xffffffff81001000, devkmsg}, WriterUnknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, interrupted := code.writer(tc.frames)
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.interrupted, interrupted)
		})
	}
}
