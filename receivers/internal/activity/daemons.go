package activity

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Bounds of the search for the daemons of FUSE mounts.
const (
	maxDaemons  = 16               // of one user, which are asked in one round
	maxHolders  = 1024             // processes of this host that have the device open
	searchEvery = 30 * time.Second // a search reads the names of the open files of this host
)

// daemons are the processes that serve FUSE mounts. They are looked for beside the looks, once a
// rank waits for a file that does not answer.
type daemons struct {
	demand   *Demand
	found    atomic.Pointer[map[uint32][]uint32] // by user
	searched time.Time                           // when a search began last
	busy     atomic.Bool                         // one goes on
}

// unserved reports whether the rank, a thread of it or the child that holds it up waits for a FUSE
// mount while a daemon of one has no CPU. Whose mount it is nobody says before Linux 6.15: each
// daemon of its own user, and of root, counts. Another user's may starve to hide what the rank waits for.
func (r *Reader) unserved(of *Process, own *use, in *Inside) (lacks bool) {
	if !r.waitsForFUSE(of, own, in) {
		return false
	}
	d := &r.daemons
	if now := r.clock(); now.Sub(d.searched) >= searchEvery && d.busy.CompareAndSwap(false, true) {
		d.searched = now
		r.looks.Go(func() {
			defer d.busy.Store(false)
			if found, err := r.serving(); err == nil {
				d.found.Store(&found)
			}
		})
	}
	found := d.found.Load()
	user, err := r.fs.User(of.PID)
	if found == nil || err != nil {
		return false
	}
	for _, one := range slices.Compact([]uint32{root, user}) {
		for _, pid := range (*found)[one] {
			starves, _ := d.demand.Starves(pid)
			lacks = lacks || starves
		}
	}
	return lacks
}

// root is the user of whom each daemon counts.
const root = 0

// serving are the processes that have the device open by which FUSE mounts are served, by their users.
func (r *Reader) serving() (map[uint32][]uint32, error) {
	all, err := r.fs.Holding("/dev/fuse", maxHolders)
	found := map[uint32][]uint32{}
	for _, pid := range all {
		if user, err := r.fs.User(pid); err == nil && len(found[user]) < maxDaemons {
			found[user] = append(found[user], pid)
		}
	}
	return found, err
}

// waitsForFUSE reports whether a file of a FUSE mount keeps something of the rank waiting. In a page fault
// nothing in /proc says of which file system the page is: that may be NFS, or a disk.
func (r *Reader) waitsForFUSE(of *Process, own *use, in *Inside) bool {
	return own.asleep && in.OnFile && r.ofFUSE(of.PID, own.wait) ||
		in.Blocked.TID != 0 && socketstall.OfFUSE(in.Blocked.Channel) || in.Holder != nil && socketstall.OfFUSE(in.Holder.Channel)
}

// ofFUSE reports whether a process waits in a call for a file of a FUSE mount.
func (r *Reader) ofFUSE(pid uint32, w procfs.Wait) bool {
	if socketstall.OfFUSE(w.Channel) || w.FD == procfs.Negative {
		return socketstall.OfFUSE(w.Channel)
	}
	mount, err := r.fs.MountOf(pid, w.FD)
	return err == nil && strings.HasPrefix(mount.Type, "fuse")
}
