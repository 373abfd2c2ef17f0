package procfs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Bounds on a memory map: a large process has some thousand mappings of a hundred
// bytes each.
const (
	maxMaps     = 16 << 20
	maxMappings = 8
)

// Mapping is code of a file that a process has mapped.
type Mapping struct {
	Start, End uint64
	Offset     uint64 // in the file
	Device     string // major:minor, as maps shows it
	Inode      uint64
	Path       string // in the process's own root
}

// Addresses is the name of its entry in map_files.
func (m *Mapping) Addresses() string {
	return strconv.FormatUint(m.Start, 16) + "-" + strconv.FormatUint(m.End, 16)
}

// Libraries finds the code of shared libraries, such as "libcuda.so", in the memory
// map of a process: each file once, eight at most. A name stands for its versions
// too: libcuda.so.550.54.14. One that ends in * stands for all that begin so:
// libnccl* is libnccl-net.so and libnccl.so.2.
func (f *FS) Libraries(pid uint32, names ...string) ([]Mapping, error) {
	return f.mappings(f.path(pid, "maps"), func(maps io.Reader) ([]Mapping, error) { return findLibraries(maps, names) })
}

// Code finds the mapped code of the files that are wanted: each file once, eight at most.
func (f *FS) Code(pid uint32, wanted func(Mapping) bool) ([]Mapping, error) {
	return f.mappings(f.path(pid, "maps"), func(maps io.Reader) ([]Mapping, error) {
		return find(maps, nil, func(m *Mapping) bool { return wanted(*m) })
	})
}

// Program is the path of the program that a process runs, in the process's own root.
func (f *FS) Program(pid uint32) (string, error) {
	file := f.path(pid, "exe")
	if f.Foreign() {
		return "", fmt.Errorf("read %s: %w", file, ErrForeign)
	}
	link, err := Patiently(f, file, func() (string, error) { return os.Readlink(file) })
	return strings.TrimSuffix(link, " (deleted)"), err
}

// maxCode is the most mappings of code that are read of one process.
const maxCode = 4096

// AllCode finds all code that a process has mapped, by address: files, and what is no file, such
// as "[vdso]" or "" of a compiler at run time (Inode is 0). It is cut at 4,096 mappings.
func (f *FS) AllCode(pid uint32) ([]Mapping, error) {
	return f.mappings(f.path(pid, "maps"), func(maps io.Reader) ([]Mapping, error) {
		var found []Mapping
		err := eachLine(maps, func(line []byte) {
			if len(found) == maxCode {
				return
			}
			if m, ok := parseCode(string(line)); ok {
				found = append(found, m)
			}
		})
		return found, err
	})
}

// CodeAt finds the mapping that has an address of this program's code.
func (f *FS) CodeAt(address uint64) (Mapping, error) {
	found, err := f.mappings(path.Join(f.root, "self/maps"), func(maps io.Reader) ([]Mapping, error) {
		return find(maps, nil, func(m *Mapping) bool { return address >= m.Start && address < m.End })
	})
	if err == nil && len(found) == 0 {
		err = errors.New("its code is not mapped from its file")
	}
	if err != nil {
		return Mapping{}, err
	}
	return found[0], nil
}

func (f *FS) mappings(file string, find func(io.Reader) ([]Mapping, error)) ([]Mapping, error) {
	if f.Foreign() {
		return nil, fmt.Errorf("read %s: %w", file, ErrForeign)
	}
	return Patiently(f, file, func() ([]Mapping, error) {
		maps, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer maps.Close()
		return find(io.LimitReader(maps, maxMaps))
	})
}

func findLibraries(maps io.Reader, names []string) ([]Mapping, error) {
	hints := make([][]byte, len(names))
	for i, name := range names {
		hints[i] = []byte("/" + strings.TrimSuffix(name, "*"))
	}
	return find(maps, hints, func(m *Mapping) bool {
		base := path.Base(m.Path)
		return slices.ContainsFunc(names, func(name string) bool { return stands(name, base) })
	})
}

// stands reports whether a name of Libraries is that of a file.
func stands(name, base string) bool {
	if begin, all := strings.CutSuffix(name, "*"); all {
		return strings.HasPrefix(base, begin)
	}
	return base == name || strings.HasPrefix(base, name+".")
}

// find reads maps (proc_pid_maps(5)) line by line. Lines without any of the hints are
// passed over unparsed, so that they cost no allocation.
func find(maps io.Reader, hints [][]byte, wanted func(*Mapping) bool) ([]Mapping, error) {
	var found []Mapping
	err := eachLine(maps, func(line []byte) {
		hinted := hints == nil || slices.ContainsFunc(hints, func(hint []byte) bool { return bytes.Contains(line, hint) })
		if hinted && len(found) < maxMappings {
			if m, ok := parseMapping(string(line)); ok && wanted(&m) && !hasFile(found, &m) {
				found = append(found, m)
			}
		}
	})
	return found, err
}

// Maps reports whether a process has mapped a part of a file that is on one of these devices, "major:minor" as
// Devices tells them. What it may do with the part does not matter: data is no code.
func (f *FS) Maps(pid uint32, devices []string) (maps bool, err error) {
	_, err = f.mappings(f.path(pid, "maps"), func(all io.Reader) ([]Mapping, error) {
		return nil, eachLine(all, func(line []byte) {
			if fields := bytes.SplitN(line, []byte{' '}, 5); !maps && len(fields) == 5 {
				maps = slices.Contains(devices, string(fields[3]))
			}
		})
	})
	return maps, err
}

// eachLine shows the lines of maps, a very long one in pieces.
func eachLine(maps io.Reader, show func(line []byte)) error {
	lines := bufio.NewReaderSize(maps, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		show(line)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

func hasFile(found []Mapping, m *Mapping) bool {
	return slices.ContainsFunc(found, func(one Mapping) bool { return one.Device == m.Device && one.Inode == m.Inode })
}

// parseMapping reads a line such as
// "7f00c0000000-7f00c4000000 r-xp 00010000 fd:01 1311 /usr/lib/libcuda.so.550.54.14".
// It refuses what is no code of a file.
func parseMapping(line string) (Mapping, bool) {
	m, ok := parseCode(line)
	return m, ok && m.Inode != 0 && path.IsAbs(m.Path)
}

// parseCode takes code of no file, too, whose line may have no name.
func parseCode(line string) (Mapping, bool) {
	fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 6)
	if len(fields) < 5 || len(fields[1]) != 4 || fields[1][2] != 'x' {
		return Mapping{}, false
	}
	low, high, _ := strings.Cut(fields[0], "-")
	start, startErr := strconv.ParseUint(low, 16, 64)
	end, endErr := strconv.ParseUint(high, 16, 64)
	offset, offsetErr := strconv.ParseUint(fields[2], 16, 64)
	inode, inodeErr := strconv.ParseUint(fields[4], 10, 64)
	if errors.Join(startErr, endErr, offsetErr, inodeErr) != nil || start >= end {
		return Mapping{}, false
	}
	m := Mapping{Start: start, End: end, Offset: offset, Device: fields[3], Inode: inode}
	if len(fields) == 6 {
		m.Path = strings.TrimSuffix(strings.TrimLeft(fields[5], " "), " (deleted)")
	}
	return m, true
}

// OpenMapped opens the very file that a process has mapped, whatever has its name by
// now: by map_files, which needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, else by its
// path in the process's root, where it must have the inode that is mapped. Nothing is
// opened before it is known to be that file. Devices are not compared, as stat tells
// another than maps does on btrfs and overlayfs (btrfs_getattr, ovl_map_dev_ino): a process
// can pass off a file in its own root for one with the same inode that it has mapped.
func (f *FS) OpenMapped(pid uint32, m Mapping) (*os.File, error) {
	entry := f.path(pid, "map_files", m.Addresses())
	if f.Foreign() {
		return nil, fmt.Errorf("open %s: %w", entry, ErrForeign)
	}
	return Patiently(f, entry, func() (*os.File, error) { return f.openMapped(pid, &m) })
}
