package activity

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Bounds of the search for the daemons of FUSE mounts.
const (
	maxDaemons  = 16               // of one tenant, which are asked in one round
	searchEvery = 30 * time.Second // a search reads the names of the open files of this host
)

// The device by which FUSE mounts are served (Documentation/admin-guide/devices.txt).
const (
	fuseDevice = "/dev/fuse"
	fuseMajor  = 10
	fuseMinor  = 229
)

func isFUSE(file string) bool { return procfs.IsDevice(file, fuseMajor, fuseMinor) }

// daemons are the processes that serve FUSE mounts. They are looked for beside the looks, once a
// rank waits for a file that does not answer.
type daemons struct {
	demand   *Demand
	isFUSE   func(file string) bool
	found    atomic.Pointer[map[string][]daemon] // by tenant
	searched time.Time                           // when a search began last
	busy     atomic.Bool                         // one goes on
}

// daemon is a process that has the device open.
type daemon struct {
	pid uint32
	all bool // it may serve everybody
}

// unserved reports whether the rank, a thread of it or the child that holds it up waits for a FUSE
// mount while a daemon of one has no CPU. Whose mount it is nobody says before Linux 6.15: each daemon
// of its own tenant counts, and each that has all rights over the host: the host's own, and those of
// privileged pods that mount for others. Another tenant's may starve to hide what the rank waits for.
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
	tenant, err := r.fs.Tenant(of.PID)
	if found == nil || err != nil {
		return false
	}
	for whose, all := range *found {
		for _, one := range all {
			if one.all || whose == tenant {
				starves, _ := d.demand.Starves(one.pid)
				lacks = lacks || starves
			}
		}
	}
	return lacks
}

// serving looks for the daemons. Tenants do not take the room of others.
func (r *Reader) serving() (map[string][]daemon, error) {
	pids, err := r.fs.PIDs()
	found := map[string][]daemon{}
	for _, pid := range pids {
		tenant, err := r.fs.Tenant(pid)
		if err != nil || len(found[tenant]) >= maxDaemons {
			continue // it has ended, or there is no room
		}
		if holds, err := r.fs.Holds(pid, fuseDevice, r.daemons.isFUSE); err != nil || !holds {
			continue
		}
		all, err := r.fs.Administers(pid)
		found[tenant] = append(found[tenant], daemon{pid, all && err == nil})
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
