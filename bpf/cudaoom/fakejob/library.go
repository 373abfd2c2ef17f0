//go:build linux && (amd64 || arm64)

package fakejob

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tracecoreai/tracecore/bpf/internal/standin"
)

// LibraryName is the file's name, as a driver installs it.
const LibraryName = "libcuda.so.550.54.14"

// Functions are the names of the library's functions.
func Functions() []string {
	return []string{
		"cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemAllocAsync_ptsz",
		"cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz", "cuMemCreate",
	}
}

// Install writes a library with these functions to a folder: an ELF shared object whose symbols are in its dynamic table alone, as
// of a library that was stripped.
func Install(folder string, functions ...string) (file string, err error) {
	file = filepath.Join(folder, LibraryName)
	return file, os.WriteFile(file, Library(functions), 0o755)
}

// Library is the content of such a file.
func Library(functions []string) []byte {
	list := make([]standin.Function, len(functions))
	for i, name := range functions {
		list[i] = standin.Function{Name: name, Place: slices.Index(Functions(), name), Code: standin.DriverCode()}
	}
	return standin.Library(list)
}

// entry is the address of the function of a call.
func (c Call) entry(base uintptr) (uintptr, error) {
	number := slices.Index(Functions(), c.Function)
	if number < 0 {
		return 0, fmt.Errorf("the library has no %s", c.Function)
	}
	return base + uintptr(number*standin.Stride), nil
}
