package cudaoom

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"path"
	"strconv"
	"strings"
)

// library is one file that processes have mapped as libcuda. Containers have their
// own: the NVIDIA container toolkit mounts the host's into them (the same inode),
// an image may bring another.
type library struct {
	device string // major:minor, as maps shows it
	inode  uint64
}

// mapping is where a process has a library.
type mapping struct {
	library
	addresses string // start-end, the name of its entry in map_files
	path      string // in the process's own root
}

// Bounds on what is read of one process: a large one has some thousand mappings
// of a hundred bytes each.
const (
	maxMapsBytes = 16 << 20
	maxMappings  = 8
)

// findLibraries reads /proc/<pid>/maps (proc_pid_maps(5)) for the code of libcuda,
// each file once.
func findLibraries(maps io.Reader) ([]mapping, error) {
	lines := bufio.NewReaderSize(io.LimitReader(maps, maxMapsBytes), 64<<10)
	var found []mapping
	for {
		line, err := lines.ReadSlice('\n')
		// Almost no line passes this, so that the others cost no allocation.
		if bytes.Contains(line, []byte("/libcuda.so")) {
			if m, ok := parseMapping(string(line)); ok && len(found) < maxMappings && !contains(found, m.library) {
				found = append(found, m)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return found, err
		}
	}
}

func contains(found []mapping, l library) bool {
	for _, m := range found {
		if m.library == l {
			return true
		}
	}
	return false
}

// parseMapping reads a line such as
// "7f00c0000000-7f00c4000000 r-xp 00010000 fd:01 1311 /usr/lib/libcuda.so.550.54.14".
// It refuses what is no code of a file with that name.
func parseMapping(line string) (mapping, bool) {
	fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 6)
	if len(fields) < 6 || len(fields[1]) != 4 || fields[1][2] != 'x' {
		return mapping{}, false
	}
	inode, err := strconv.ParseUint(fields[4], 10, 64)
	if err != nil || inode == 0 || !isRange(fields[0]) {
		return mapping{}, false
	}
	name := strings.TrimSuffix(strings.TrimLeft(fields[5], " "), " (deleted)")
	if !path.IsAbs(name) || !isLibcuda(path.Base(name)) {
		return mapping{}, false
	}
	return mapping{library: library{device: fields[3], inode: inode}, addresses: fields[0], path: name}, true
}

// isLibcuda: the file behind the name libcuda.so.1 carries the driver's version,
// libcuda.so.550.54.14.
func isLibcuda(base string) bool {
	return base == "libcuda.so" || strings.HasPrefix(base, "libcuda.so.")
}

// isRange keeps anything that is no pair of addresses out of a path.
func isRange(text string) bool {
	start, end, ok := strings.Cut(text, "-")
	if !ok {
		return false
	}
	_, startErr := strconv.ParseUint(start, 16, 64)
	_, endErr := strconv.ParseUint(end, 16, 64)
	return startErr == nil && endErr == nil
}
