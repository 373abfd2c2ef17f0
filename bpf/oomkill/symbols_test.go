//go:build linux && (amd64 || arm64)

package oomkill

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
)

func TestKernelFunctionsAreFoundWithTheirSplitParts(t *testing.T) {
	symbols, err := kerninfo.ReadTable(strings.NewReader(`ffffffff81000100 t __oom_kill_process.cold
ffffffff81000180 t oom_kill_process.cold
ffffffff81000200 t __pfx___oom_kill_process
ffffffff81000210 t __oom_kill_process
ffffffff81000300 t mem_cgroup_out_of_memory.isra.0
ffffffff81000400 T out_of_memory
`), strings.NewReader(""))
	require.NoError(t, err)
	var code kernelCode
	kerninfo.FindCode(symbols, code.find)
	require.Equal(t, kernelCode{
		kill:      kerninfo.Code{{Start: 0xffffffff81000100, End: 0xffffffff81000180}, {Start: 0xffffffff81000210, End: 0xffffffff81000300}},
		cgroupOOM: kerninfo.Code{{Start: 0xffffffff81000300, End: 0xffffffff81000400}},
	}, code)
}

func TestWithoutKernelAddressesOneKindOfStackSaysNothing(t *testing.T) {
	require.ErrorContains(t, kernel{}.stackProblem(), "kallsyms")
}
