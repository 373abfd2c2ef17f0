//go:build linux

package kerninfo

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnswersAreSharedUntilTheyAreForgotten(t *testing.T) {
	types := sharedTypes()
	require.Same(t, types, sharedTypes())
	symbols, err := Symbols()
	require.NoError(t, err)
	again, err := Symbols()
	require.NoError(t, err)
	require.Same(t, symbols, again, "read once")

	shared.drop()
	require.Nil(t, shared.symbols)
	require.NotSame(t, types, sharedTypes())
	again, err = Symbols()
	require.NoError(t, err)
	require.NotSame(t, symbols, again)
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
	symbols, err := Symbols()
	require.NoError(t, err)
	known := map[Range]bool{} // addresses and lengths of names
	for s := range symbols.All() {
		known[Range{s.Address, uint64(len(s.Name))}] = true
	}
	for s, err := range Read(bytes.NewReader(text[:strings.LastIndexByte(string(text[:1000]), '\n')])) {
		require.NoError(t, err)
		require.Contains(t, known, Range{s.Address, uint64(len(s.Name))}, "%s", s.Name)
	}
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
