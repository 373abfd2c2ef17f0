package activity

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Bounds of the search for the daemons of FUSE mounts. A search reads the names of the open files
// of this host.
const (
	maxDaemons  = 16               // of one tenant, which are asked in one round
	mostNames   = 8 * 64 * 512     // that one search reads: eight ranks, so many helpers, so many files; and of one more process of each tenant
	searchEvery = 30 * time.Second // it rests for so long at least,
	// searchShare is for how many times as long as it took it rests: each reader takes half a percent of
	// a core at most, as much as ncclcall may take of a job's.
	searchShare = 200
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
	demand *Demand
	isFUSE func(file string) bool
	found  atomic.Pointer[map[string][]daemon] // by tenant
	busy   atomic.Bool                         // a search goes on, which has what follows
	room   int                                 // names that it reads
	next   time.Time                           // when the next one begins
	passes map[string]*pass                    // by tenant
}

// daemon is a process that has the device open.
type daemon struct {
	pid   uint32
	ticks uint64  // its start
	all   bool    // it may serve everybody
	first *demand // the look at it when it was found
}

// pass is a search through the processes of a tenant, which takes several rounds where these have
// more files open than there is room for.
type pass struct {
	last  uint32 // process that it has come to
	found []daemon
	known []daemon // that the pass before has found
}

// unserved reports whether the rank, a thread of it or the child that holds it up waits for a FUSE
// mount while a daemon of one has no CPU. Whose mount it is nobody says before Linux 6.15: each daemon
// of its own tenant counts, and each that has all rights over the host: the host's own, and those of
// privileged pods that mount for others. Another tenant's may starve to hide what the rank waits for.
// It is not known before the daemons are found, and have been looked at twice.
func (r *Reader) unserved(of *Process, own *use, in *Inside) (lacks, known bool) {
	if !r.waitsForFUSE(of, own, in) {
		return false, true
	}
	d := &r.daemons
	if d.busy.CompareAndSwap(false, true) {
		if now := r.clock(); now.Before(d.next) {
			d.busy.Store(false)
		} else {
			r.looks.Go(func() { d.search(r.fs, now) })
		}
	}
	found := d.found.Load()
	tenant, err := r.fs.Tenant(of.PID)
	if found == nil || err != nil {
		return false, err != nil
	}
	known = true
	for whose, all := range *found {
		for _, one := range all {
			if !one.all && whose != tenant {
				continue
			}
			if stat, err := r.fs.Stat(one.pid); err == nil && stat.StartTicks == one.ticks {
				d.demand.remember(one.pid, one.first)
				starves, is := d.demand.Starves(one.pid)
				lacks, known = lacks || starves, known && is
			}
		}
	}
	return lacks, lacks || known
}

// search looks for the daemons. Tenants share the room: those with few processes come first, and what
// they leave is for the others. A tenant whose files are more than its share hides its own daemons for
// some rounds, nobody else's.
func (d *daemons) search(fs *procfs.FS, now time.Time) {
	began := time.Now()
	defer func() {
		took := time.Since(began)
		d.next = now.Add(took + max(searchEvery, searchShare*took))
		d.busy.Store(false)
	}()
	pids, err := fs.PIDs()
	if err != nil {
		return
	}
	of := map[string][]uint32{}
	for _, pid := range pids {
		if tenant, err := fs.Tenant(pid); err == nil { // else it has ended
			of[tenant] = append(of[tenant], pid)
		}
	}
	tenants := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(of[a]), len(of[b])), cmp.Compare(a, b))
	})
	clock := func() time.Time { return now.Add(time.Since(began)) }
	passes, found, room := map[string]*pass{}, map[string][]daemon{}, d.room
	for i, tenant := range tenants {
		p := cmp.Or(d.passes[tenant], &pass{})
		room -= d.searchOf(fs, clock, p, of[tenant], room/(len(tenants)-i))
		passes[tenant] = p
		if all := slices.Concat(p.found, p.known); len(all) > 0 {
			found[tenant] = all
		}
	}
	d.passes = passes
	d.found.Store(&found)
}

// searchOf goes on with the pass of a tenant while there is room, and tells how much it took. One
// process has its turn even so.
func (d *daemons) searchOf(fs *procfs.FS, clock func() time.Time, p *pass, pids []uint32, room int) (took int) {
	next, _ := slices.BinarySearch(pids, p.last+1)
	for ; next < len(pids) && len(p.found) < maxDaemons; next++ {
		if took > 0 && took >= room {
			return took
		}
		one, names := d.look(fs, clock(), pids[next])
		took += 1 + names
		p.last = pids[next]
		if one != nil {
			p.found = append(p.found, *one)
		}
	}
	*p = pass{known: p.found}
	return took
}

// look looks whether a process has the device open, and takes a first look at one that has. It counts the
// files that the process has.
func (d *daemons) look(fs *procfs.FS, now time.Time, pid uint32) (found *daemon, names int) {
	holds, names, err := fs.Holds(pid, fuseDevice, d.isFUSE)
	if err != nil || !holds {
		return nil, names
	}
	stat, err := fs.Stat(pid)
	if err != nil {
		return nil, names
	}
	first, err := lookAt(fs, pid, now, nil)
	if err != nil {
		return nil, names
	}
	all, err := fs.Administers(pid)
	return &daemon{pid, stat.StartTicks, all && err == nil, first}, names
}

// waitsForFUSE reports whether a file of a FUSE mount keeps something of the rank waiting.
func (r *Reader) waitsForFUSE(of *Process, own *use, in *Inside) bool {
	if in.fuse || own.asleep && (in.OnFile || socketstall.OfFUSE(own.wait.Channel)) && r.ofFUSE(of.PID, own.wait) {
		return true
	}
	if in.Holder == nil {
		return false
	}
	child := r.trees.uses[in.Holder.PID]
	return child != nil && child.asleep && r.ofFUSE(in.Holder.PID, child.wait)
}

// mayBeOfFUSE reports whether it is worth asking which file system a thread waits for.
func mayBeOfFUSE(w procfs.Wait, file string) bool {
	return w.Syscall == "" || stored(file) || socketstall.OfFUSE(w.Channel)
}

// ofFUSE reports whether a process waits in a call for a file of a FUSE mount, or may wait for a page of one. In a
// page fault nothing in /proc says of which file the page is: it may be of any that the process has mapped.
func (r *Reader) ofFUSE(pid uint32, w procfs.Wait) bool {
	switch {
	case socketstall.OfFUSE(w.Channel):
		return true
	case w.Awake:
		return false
	case w.Syscall == "":
		devices, err := r.fs.Devices(pid, "fuse")
		if err != nil || len(devices) == 0 {
			return false
		}
		maps, err := r.fs.Maps(pid, devices)
		return err == nil && maps
	case w.FD == procfs.Negative:
		return false
	}
	mount, err := r.fs.MountOf(pid, w.FD)
	return err == nil && strings.HasPrefix(mount.Type, "fuse")
}
