//go:build linux

// Package held tells which objects of BPF a process has, and whether the kernel still has
// them when it is gone. Tests use it.
package held

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Objects are programs, maps and links by their numbers, as the lines of /proc/PID/fdinfo
// say them (bpf_prog_show_fdinfo, bpf_map_show_fdinfo, bpf_link_show_fdinfo; kernel/bpf/syscall.c).
type Objects struct {
	Programs, Maps, Links []uint32
}

// By reads what a process has now.
func By(pid int) (o Objects, err error) {
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return o, err
	}
	for _, info := range infos {
		text, err := os.ReadFile(info)
		if err != nil { // closed meanwhile
			continue
		}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			into := map[string]*[]uint32{"prog_id": &o.Programs, "map_id": &o.Maps, "link_id": &o.Links}[name]
			if id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32); err == nil && into != nil {
				*into = append(*into, uint32(id))
			}
		}
	}
	return o, nil
}

// Still names the objects that the kernel has.
func (o Objects) Still() (names []string) {
	there := func(kind string, ids []uint32, open func(uint32) (io.Closer, error)) {
		for _, id := range ids {
			object, err := open(id)
			if err == nil {
				err = object.Close()
			}
			if !errors.Is(err, os.ErrNotExist) {
				names = append(names, fmt.Sprintf("%s %d: %v", kind, id, err))
			}
		}
	}
	there("program", o.Programs, func(id uint32) (io.Closer, error) { return ebpf.NewProgramFromID(ebpf.ProgramID(id)) })
	there("map", o.Maps, func(id uint32) (io.Closer, error) { return ebpf.NewMapFromID(ebpf.MapID(id)) })
	there("link", o.Links, func(id uint32) (io.Closer, error) { return link.NewFromID(link.ID(id)) })
	return names
}
