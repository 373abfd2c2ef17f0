//go:build linux && (amd64 || arm64)

package oomkill

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKernelFunctionsAreFoundWithTheirSplitParts(t *testing.T) {
	code, err := parseKernelCode(strings.NewReader(`ffffffff81000100 t __oom_kill_process.cold
ffffffff81000180 t oom_kill_process.cold
ffffffff81000200 t __pfx___oom_kill_process
ffffffff81000210 t __oom_kill_process
ffffffff81000210 t alias_of_it
ffffffff81000300 t mem_cgroup_out_of_memory.isra.0
ffffffff81000400 T out_of_memory
ffffffffc0000000 t fuse_init	[fuse]
`))
	require.NoError(t, err)
	require.Equal(t, kernelCode{
		kill:      codeRanges{{0xffffffff81000100, 0xffffffff81000180}, {0xffffffff81000210, 0xffffffff81000300}},
		cgroupOOM: codeRanges{{0xffffffff81000300, 0xffffffff81000400}},
	}, code)
	require.True(t, code.kill.on([]uint64{1, 0xffffffff81000215}))
	require.False(t, code.kill.on([]uint64{0xffffffff81000180 + 1}))
}

func TestHiddenKernelAddressesAreNotFound(t *testing.T) {
	code, err := parseKernelCode(strings.NewReader("0000000000000000 t __oom_kill_process\n0000000000000000 t mem_cgroup_out_of_memory\n"))
	require.NoError(t, err)
	require.Equal(t, kernelCode{}, code)
	require.ErrorContains(t, kernel{code: code}.stackProblem(), "kallsyms")
}

func TestGarbageInsteadOfSymbolsIsAnError(t *testing.T) {
	_, err := parseKernelCode(strings.NewReader("not an address at all\n"))
	require.ErrorContains(t, err, "read kernel symbols")
	code, err := parseKernelCode(strings.NewReader("\n1\n1 t\n"))
	require.NoError(t, err)
	require.Equal(t, kernelCode{}, code)
}
