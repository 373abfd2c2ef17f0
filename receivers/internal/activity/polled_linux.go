package activity

import (
	"encoding/binary"

	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/procmem"
)

// Of struct pollfd and its events (include/uapi/asm-generic/poll.h).
const (
	pollSize = 8
	pollOut  = 0x0004
)

// polled are the files for which a thread waits in poll(2), nothing where the list of them
// cannot be read.
func (s *search) polled(pid uint32, address uint64, most int) []polledFile {
	memory, err := procmem.Open(s.fs, pid)
	if err != nil {
		return nil
	}
	defer memory.Close()
	list := make([]byte, pollSize*most)
	if len(list) == 0 || memory.Read(address, list) != nil {
		return nil
	}
	var files []polledFile
	for ; len(list) > 0; list = list[pollSize:] {
		fd, events := int32(binary.NativeEndian.Uint32(list)), binary.NativeEndian.Uint16(list[4:]) //nolint:gosec // int fd
		if fd >= 0 {                                                                                // others are left out by the kernel, too
			files = append(files, polledFile{int(fd), procfs.Ends{Reads: events&^pollOut != 0, Writes: events&pollOut != 0}})
		}
	}
	return files
}
