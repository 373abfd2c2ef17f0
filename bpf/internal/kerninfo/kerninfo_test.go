//go:build linux

package kerninfo

import (
	"io"
	"os"
	"sync"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnswersAreSharedUntilTheyAreForgotten(t *testing.T) {
	types := sharedTypes()
	require.Same(t, types, sharedTypes())
	first := read(t)
	text := shared.symbols
	require.Equal(t, first, read(t))
	require.Same(t, &text[0], &shared.symbols[0], "read once")

	shared.drop()
	require.Nil(t, shared.symbols)
	require.NotSame(t, types, sharedTypes())
	require.NotEmpty(t, read(t))
}

func TestAnswersAreOfTheModulesThatAreLoaded(t *testing.T) {
	types, names := sharedTypes(), loadedModules()
	shared.mu.Lock()
	shared.modules = "another\n"
	shared.mu.Unlock()
	require.NotSame(t, types, sharedTypes())
	require.Equal(t, names, shared.modules)
}

func TestSymbolsAreTheKernels(t *testing.T) {
	text, err := os.ReadFile("/proc/kallsyms")
	require.NoError(t, err)
	require.Contains(t, read(t), string(text[:1000]))
}

func read(t *testing.T) string {
	t.Helper()
	symbols, err := Symbols()
	require.NoError(t, err)
	text, err := io.ReadAll(symbols)
	require.NoError(t, err)
	return string(text)
}

// The types of each module decode those of the kernel: without a lock, two modules at a
// time ended the process. The machines have a dozen; a host may have none.
func TestProbesMayReadTypesAtTheSameTime(t *testing.T) {
	modules, err := Types((*btf.Cache).Modules)
	require.NoError(t, err)
	t.Logf("modules with types: %d", len(modules))
	shared.drop() // so that all is yet to be decoded
	var all sync.WaitGroup
	for _, name := range append(modules, "vmlinux", "vmlinux") {
		all.Go(func() {
			decoded, err := Types(func(types *btf.Cache) (int, error) { return decodeAll(types, name) })
			assert.NoError(t, err, name)
			assert.Positive(t, decoded, name)
		})
	}
	all.Wait()
}

func decodeAll(types *btf.Cache, module string) (int, error) {
	spec, err := types.Kernel()
	if err == nil && module != "vmlinux" {
		spec, err = types.Module(module)
	}
	if err != nil {
		return 0, err
	}
	decoded := 0
	for _, err := range spec.All() {
		if err != nil {
			return decoded, err
		}
		decoded++
	}
	return decoded, nil
}
