//go:build linux && (amd64 || arm64)

package taskstack

import (
	"context"
	"errors"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// The rungs, best first.
const (
	RungThread = "iter/task:tid" // an iterator that is bound to the thread (Linux 6.1)
	RungHost   = "iter/task"     // one that walks the threads of the host (5.9)
	RungProc   = "proc/stack"    // /proc: the kernel stack, and of the registers sp and pc
	RungWchan  = "proc/wchan"    // the same, of the kernel stack the innermost function alone
)

// Rungs returns the rungs, best first.
func Rungs() []string { return []string{RungThread, RungHost, RungProc, RungWchan} }

func rungs(fs *procfs.FS) []ladder.Rung[source] {
	rung := func(id string, open func() (source, error)) ladder.Rung[source] {
		return ladder.Rung[source]{ID: id, Try: func() (source, bool, error) {
			src, err := open()
			if err != nil {
				return nil, false, err
			}
			if err := selfTest(context.Background(), src, id != RungWchan, fs); err != nil {
				return nil, false, errors.Join(err, src.close())
			}
			return src, true, nil
		}}
	}
	return []ladder.Rung[source]{
		rung(RungThread, func() (source, error) { return openIterator(true) }),
		rung(RungHost, func() (source, error) { return openIterator(false) }),
		rung(RungProc, func() (source, error) { return &proc{fs, true}, nil }),
		rung(RungWchan, func() (source, error) { return &proc{fs, false}, nil }),
	}
}
