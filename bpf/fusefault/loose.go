//go:build linux && (amd64 || arm64)

package fusefault

import "github.com/tracecoreai/tracecore/internal/procfs"

// sighting is a wait with no record of its own: known since it was first seen.
type sighting struct {
	switches uint64 // the same: the thread has not run since
	since    uint64
	device   Device
	known    bool // the device
}

// sightings are the loose waits of the last snapshot, by thread.
type sightings map[uint32]sighting

// follow keeps those that still last, adds the new ones and puts what is old enough
// among the waits. known are the FUSE devices: a file of any other is not waited
// for here.
func (s sightings) follow(p *picture, v *verdicts, known map[Device]bool, deviceOf func(thread) (Device, bool)) {
	still := make(map[uint32]bool, len(v.loose))
	for _, t := range v.loose {
		still[t.tid] = true
		seen, ok := s[t.tid]
		if !ok || seen.switches != t.switches {
			seen = sighting{switches: t.switches, since: p.now}
			seen.device, seen.known = deviceOf(t)
			s[t.tid] = seen
		}
		if seen.known && known[seen.device] {
			p.addLoose(v, t, seen)
		}
	}
	for tid := range s {
		if !still[tid] {
			delete(s, tid)
		}
	}
}

// addLoose takes the thread's own readahead or writeback for its wait, where it
// began one, and else makes an entry that is as old as we have seen it wait.
func (p *picture) addLoose(v *verdicts, t thread, seen sighting) {
	if own, ok := p.ownBackground(t.tid, seen.device); ok {
		id := identity(own.key, own.StartNs)
		for i := range v.waits {
			if v.waits[i].ID == id {
				v.waits[i].Background = false
			}
		}
		return
	}
	if !p.old(seen.since) {
		return
	}
	v.waits = append(v.waits, wait{start: seen.since, InFlight: InFlight{
		ID: identity(uint64(t.tid)<<32|1, t.switches), Kind: KindRequest, Device: seen.device,
		Opcode: p.operation(t), PID: t.pid, TID: t.tid, Comm: t.comm,
	}})
}

// fileDevice is the device of the file that a thread's system call works on. It
// asks procfs and never the file: that would wait for the same daemon.
func (p *Probe) fileDevice(t thread) (Device, bool) {
	waits, err := p.proc.ThreadWait(t.pid, t.tid)
	fd := waits.FD
	if err != nil || fd == procfs.Negative {
		return Device{}, false
	}
	if waits.Syscall == "sendfile" { // the second is the file that is read
		fd = int(uint32(waits.Arguments[1]))
	}
	mount, err := p.proc.MountOf(t.pid, fd)
	return Device{mount.Major, mount.Minor}, err == nil
}
