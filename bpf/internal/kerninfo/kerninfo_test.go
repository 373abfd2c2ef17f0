//go:build linux

package kerninfo

import (
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnswersAreSharedUntilTheyAreForgotten(t *testing.T) {
	types := Types()
	require.Same(t, types, Types())
	first := read(t)
	text := shared.symbols
	require.Equal(t, first, read(t))
	require.Same(t, &text[0], &shared.symbols[0], "read once")

	shared.drop()
	require.Nil(t, shared.symbols)
	require.NotSame(t, types, Types())
	require.NotEmpty(t, read(t))
}

func TestAnswersAreOfTheModulesThatAreLoaded(t *testing.T) {
	types, names := Types(), loadedModules()
	shared.mu.Lock()
	shared.modules = "another\n"
	shared.mu.Unlock()
	require.NotSame(t, types, Types())
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
