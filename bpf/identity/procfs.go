//go:build linux && (amd64 || arm64)

package identity

import (
	"errors"
	"sync/atomic"

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
	unreadable atomic.Uint64 // environments or cgroups that could not be read
	truncated  atomic.Uint64 // environments that were longer than is read
}

func newReader(root string) *reader { return &reader{FS: procfs.Open(root)} }

// place is where a process runs, and whose job it can belong to.
func (r *reader) place(pid uint32) (membership, string) {
	m, ok := r.cgroup(pid)
	uid, err := r.User(pid)
	if err != nil {
		r.unreadable.Add(1)
	}
	if !ok || err != nil {
		return m, unknownDomain
	}
	return m, domainOf(m, uid)
}

func (r *reader) cgroup(pid uint32) (membership, bool) {
	raw, err := r.Cgroup(pid)
	if err != nil {
		r.unreadable.Add(1)
		return membership{}, false
	}
	return parseCgroup(string(raw)), true
}

func (r *reader) environ(pid uint32) ([]byte, bool) {
	file, err := r.Environ(pid)
	if err != nil {
		r.unreadable.Add(1)
		return nil, false
	}
	if file.Cut {
		r.truncated.Add(1)
	}
	return file.Content, true
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
