package kmsg

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWriterIsTheFunctionThatBroughtTheText(t *testing.T) {
	var (
		program = Function{"bpf_prog_1_console_btf", "bpf"}
		emit    = Function{Name: "vprintk_emit"}
		printk  = Function{Name: "_printk"}
		devErr  = Function{Name: "_dev_err"}
		devkmsg = Function{Name: "devkmsg_emit"}
		write   = Function{Name: "vfs_write"}
		irq     = Function{Name: "handle_irq_event"}
		driver  = Function{"nv_printf", "nvidia"}
		core    = Function{Name: "edac_mc_handle_error"}
		evil    = Function{"devkmsg_write", "evil"}
		imposer = Function{"_printk", "evil"}
		unnamed = Function{}
	)
	for name, tc := range map[string]struct {
		stack []Function
		want  attribution
	}{
		"driver":                                {[]Function{program, emit, printk, driver, write}, attribution{WriterKernel, driver, false}},
		"driver that calls vprintk_emit itself": {[]Function{emit, driver}, attribution{WriterKernel, driver, false}},
		"driver by its device":                  {[]Function{emit, devErr, {Name: "__netdev_printk"}, {"mlx5e_update_carrier", "mlx5_core"}}, attribution{WriterKernel, Function{"mlx5e_update_carrier", "mlx5_core"}, false}},
		"driver by its device, before 5.15":     {[]Function{emit, {Name: "dev_vprintk_emit"}, {Name: "dev_printk_emit"}, {Name: "__dev_printk"}, {Name: "dev_printk"}, {Name: "aer_print_error"}}, attribution{WriterKernel, Function{Name: "aer_print_error"}, false}},
		"drm as a module":                       {[]Function{emit, printk, {"__drm_dev_dbg", "drm"}, {"amdgpu_job_timedout", "amdgpu"}}, attribution{WriterKernel, Function{"amdgpu_job_timedout", "amdgpu"}, false}},
		"function of the kernel":                {[]Function{emit, printk, core}, attribution{WriterKernel, core, false}},
		"devkmsg":                               {[]Function{program, emit, devkmsg, write}, attribution{WriterUserspace, devkmsg, false}},
		"driver in an interrupt of a writer":    {[]Function{emit, driver, irq, emit, devkmsg}, attribution{WriterKernel, driver, true}},
		"driver called below devkmsg_write":     {[]Function{emit, driver, devkmsg}, attribution{WriterKernel, driver, false}},
		"names of the kernel's own, elsewhere":  {[]Function{emit, evil, devkmsg}, attribution{WriterKernel, evil, false}},
		"a printk of a module's own":            {[]Function{emit, imposer, driver}, attribution{WriterKernel, imposer, false}},
		"no stack":                              {nil, attribution{}},
		"stack ends at vprintk_emit":            {[]Function{program, emit}, attribution{}},
		"stack ends at printk":                  {[]Function{program, emit, printk}, attribution{writer: WriterKernel}},
		"vprintk_emit is not on it":             {[]Function{program, devkmsg}, attribution{}},
		"caller without a name":                 {[]Function{emit, unnamed, driver}, attribution{}},
		"writer without a name":                 {[]Function{emit, printk, unnamed, driver}, attribution{writer: WriterKernel}},
	} {
		t.Run(name, func(t *testing.T) {
			var stack []frame
			for _, f := range tc.stack {
				stack = append(stack, newFrame(f))
			}
			require.Equal(t, tc.want, attribute(stack))
		})
	}
}

func TestNamesAreReadAsTheKernelPrintsThem(t *testing.T) {
	for text, want := range map[string]Function{
		"vprintk_emit":                {Name: "vprintk_emit"},
		"devkmsg_emit.constprop.0":    {Name: "devkmsg_emit"},
		"nv_printf [nvidia]":          {"nv_printf", "nvidia"},
		"f.cold [nvidia_uvm]":         {"f", "nvidia_uvm"},
		"0xffffffffc0001000":          {},
		"":                            {},
		"nv_printf [nvid":             {},
		"nv_printf []":                {},
		" [nvidia]":                   {},
		"nv_printf [nvidia] [nvidia]": {},
	} {
		require.Equal(t, want, parseName(text), text)
	}
}

func TestNamesThatNobodyAsksForAreForgotten(t *testing.T) {
	n := &names{}
	for i := range uint64(3*maxNames + 5) {
		n.learn(i, Function{Name: strconv.FormatUint(i, 10)})
		n.get(7)
	}
	require.LessOrEqual(t, len(n.young)+len(n.old), 2*maxNames)
	require.Equal(t, []Function{{Name: "7"}, {}}, functions(n.stack([]uint64{7, 8}, time.Time{})))
}

func TestTheListOfSymbolsIsReadOnceAndNotForever(t *testing.T) {
	reads := 0
	n := &names{read: func() lookup {
		reads++
		return func(addresses []uint64) map[uint64]Function {
			found := map[uint64]Function{}
			for _, address := range addresses {
				if address == 1 || address >= 1_000_000 {
					found[address] = Function{Name: "f" + strconv.FormatUint(address, 10)}
				}
			}
			return found
		}
	}}
	now := time.Unix(1, 0)
	for range 3 {
		require.Equal(t, []Function{{Name: "f1"}, {}}, functions(n.stack([]uint64{1, 2}, now)))
	}
	require.Equal(t, 1, reads, "an address without a name is remembered too")
	for i := range uint64(100) {
		require.Equal(t, "f"+strconv.FormatUint(1_000_000+i, 10), n.stack([]uint64{1_000_000 + i}, now)[0].Name)
	}
	require.Equal(t, 1, reads, "lines by a hundred ways cost nothing more")
	for i := range uint64(100) {
		n.stack([]uint64{1000 + i}, now)
	}
	require.Equal(t, readsAtMost, reads)
	require.Equal(t, "f2000000", n.stack([]uint64{2_000_000}, now)[0].Name, "what the list has is found all the same")
	n.stack([]uint64{1}, now.Add(listHolds+1))
	require.Equal(t, readsAtMost+1, reads, "another module can be there now")
}

func functions(stack []frame) []Function {
	var list []Function
	for _, f := range stack {
		list = append(list, f.Function)
	}
	return list
}
