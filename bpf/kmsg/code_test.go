package kmsg

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
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

// learn finds the functions of roles in a text of /proc/kallsyms.
func learn(t *testing.T, text string) kernelCode {
	t.Helper()
	code := newKernelCode()
	require.NoError(t, kerninfo.FindCode(strings.NewReader(text), code.find))
	return code
}

func TestFunctionsOfRolesAreTheKernelsOwn(t *testing.T) {
	require.Equal(t, kernelCode{
		printsText:  {{Start: 0xffffffff81001000, End: 0xffffffff81001400}},
		fromDevKmsg: {{Start: 0xffffffff81002000, End: 0xffffffff81002100}, {Start: 0xffffffff81002100, End: 0xffffffff81002200}},
		interrupts:  {{Start: 0xffffffff81003000, End: 0xffffffff81003100}},
	}, learn(t, symbols))
}

func TestAKernelThatHidesItsAddressesTellsNoWriter(t *testing.T) {
	code := learn(t, "0000000000000000 T vprintk_emit\n0000000000000000 t devkmsg_write\n")
	w, interrupted := code.writer([]uint64{0xffffffff81001010, 0xffffffff81002010})
	require.Equal(t, WriterUnknown, w)
	require.False(t, interrupted)
}

func TestWriterIsTheCallerOfVprintkEmit(t *testing.T) {
	code := learn(t, symbols)
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
