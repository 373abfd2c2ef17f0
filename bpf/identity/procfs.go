//go:build linux && (amd64 || arm64)

package identity

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// tick is the unit of start times in /proc.
const tick = procfs.Tick

// reader reads processes and counts what it could not read. Where its root shows
// another pid namespace than the kernel's events, it reads none: see
// procfs.FS.SetForeign.
type reader struct {
	*procfs.FS
	pods       *pods
	symbols    map[environFile]environSymbol // of the Tracker's goroutine
	unreadable atomic.Uint64                 // environments or cgroups that could not be read
	truncated  atomic.Uint64                 // environments that were longer than is read
}

func newReader(root string) *reader {
	proc := procfs.Open(root)
	return &reader{FS: proc, pods: &pods{proc: proc, now: time.Now}, symbols: map[environFile]environSymbol{}}
}

// home is where a process runs.
func (r *reader) home(pid uint32) (home, error) {
	m, err := r.cgroup(pid)
	uid, userErr := r.User(pid)
	if userErr != nil {
		r.unreadable.Add(1)
	}
	if err := errors.Join(err, userErr); err != nil {
		return home{m, unknownDomain, ""}, err
	}
	pod := r.pods.named(m.PodUID)
	return home{m, domainOf(m, pod.namespace, uid), pod.name}, nil
}

func (r *reader) cgroup(pid uint32) (membership, error) {
	raw, err := r.Cgroup(pid)
	if err != nil {
		r.unreadable.Add(1)
		return membership{}, err
	}
	return procfs.ParseCgroup(string(raw)), nil
}

func (r *reader) environ(pid uint32) ([]byte, error) {
	file, err := r.Environ(pid)
	if err != nil {
		r.unreadable.Add(1)
		return nil, err
	}
	if file.Cut {
		r.truncated.Add(1)
	}
	return file.Content, nil
}

// passing reports whether the same read may succeed later: the kernel did not answer in
// time, or had no room. A process that is gone, and a right that is missing, stay so.
func passing(err error) bool {
	for _, lasting := range []error{procfs.ErrGone, procfs.ErrDenied, procfs.ErrForeign} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	return err != nil
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
