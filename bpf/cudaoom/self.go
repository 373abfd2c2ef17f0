//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"
)

// fileOffset turns the address of code of this program into its place in the
// program's file. A program without symbols (strip, -ldflags -s) has no other way.
func fileOffset(address uintptr) (uint64, error) {
	file, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if at, ok := offsetIn(lines.Text(), uint64(address)); ok {
			return at, nil
		}
	}
	return 0, errors.Join(lines.Err(), errors.New("its code is not mapped from its file"))
}

// offsetIn looks for an address in a line of maps.
func offsetIn(line string, address uint64) (uint64, bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 {
		return 0, false
	}
	low, high, _ := strings.Cut(fields[0], "-")
	start, startErr := strconv.ParseUint(low, 16, 64)
	end, endErr := strconv.ParseUint(high, 16, 64)
	offset, offsetErr := strconv.ParseUint(fields[2], 16, 64)
	if errors.Join(startErr, endErr, offsetErr) != nil || address < start || address >= end {
		return 0, false
	}
	return address - start + offset, true
}
