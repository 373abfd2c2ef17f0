package procfs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// Bounds on looking for libraries. The kernel takes the process's memory map
// lock for its maps, and a process that is stuck in a page fault may hold it for
// as long as it is stuck: such a read is left behind, and when too many are, no
// more are begun.
const (
	maxMaps       = 16 << 20
	maxStuckReads = 4
	maxTries      = 6
	firstPause    = 10 // rounds until the second look, twice that until the third, ...
)

// lookForNCCL reads the memory map of a process beside the snapshots, now and
// then until it has NCCL in it: a process may load it after its first sockets.
func (r *Reader) lookForNCCL(pid uint32, k *known) {
	if k.nccl.Load() || k.tries >= maxTries || k.rounds < k.nextAt {
		return
	}
	select {
	case r.slots <- struct{}{}:
	default:
		return
	}
	k.nextAt = k.rounds + firstPause<<k.tries
	k.tries++
	go func(found interface{ Store(bool) }) {
		defer func() { <-r.slots }()
		file, err := os.Open(filepath.Join(r.root, strconv.Itoa(int(pid)), "maps"))
		if err != nil {
			return
		}
		defer file.Close()
		if hasNCCL(io.LimitReader(file, maxMaps)) {
			found.Store(true)
		}
	}(k.nccl)
}

// hasNCCL looks for NCCL or its AMD twin among the mapped files.
func hasNCCL(maps io.Reader) bool {
	lines := bufio.NewReaderSize(maps, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if bytes.Contains(line, []byte("/libnccl.so")) || bytes.Contains(line, []byte("/librccl.so")) {
			return true
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return false
		}
	}
}

// Wait waits until no memory map is being read, or done is closed.
func (r *Reader) Wait(done <-chan struct{}) {
	for range maxStuckReads {
		select {
		case r.slots <- struct{}{}:
		case <-done:
			return
		}
	}
}
