//go:build linux && (amd64 || arm64)

package fusefault

import (
	"fmt"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// searchEvery bounds how often all open files of the host are gone through for a
// daemon: some milliseconds for 100,000 files.
const searchEvery = uint64(5 * time.Second)

// search is what the last look for daemons found.
type search struct {
	at    uint64
	found map[uint64]holder // by connection
}

// quietAfter is how long nothing was completed on a file system that gives way.
const quietAfter = uint64(10 * time.Minute)

// mounts reads what each file system has completed, and forgets quiet ones once half of the
// room is in use. Mounts that only hang have no entry yet; they follow from the picture.
func (p *Probe) mounts(pic *picture) (map[Device]bpfMount, error) {
	b, table := &p.buffers, p.hooks.maps.Mounts
	mounts := make(map[Device]bpfMount)
	var err error
	if b.mountKeys, b.mounts, err = readAll(p.hooks, tableMounts, b, b.mountKeys, b.mounts); err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	crowded := 2*len(b.mountKeys) > int(table.MaxEntries())
	for i, key := range b.mountKeys {
		if m := b.mounts[i]; crowded && m.UsedNs+quietAfter < pic.now {
			if _, err := room.Forget(p.hooks.forgets.mount, uint64(key), m.UsedNs); err != nil {
				return nil, fmt.Errorf("forget a mount: %w", err)
			}
			delete(p.answered, device(key))
			continue
		}
		mounts[device(key)] = b.mounts[i]
	}
	for d, connection := range pic.connections() {
		// Of another connection is a device number that is used again: who answered before was
		// another's daemon.
		if m := mounts[d]; m.Connection != connection {
			m.Connection, m.Daemon, m.Comm = connection, 0, bpfMount{}.Comm
			mounts[d] = m
		}
	}
	return mounts, nil
}

// connections are those that the newest requests wait for.
func (p *picture) connections() map[Device]uint64 {
	newest := make(map[Device]request)
	for _, r := range p.requests {
		if known, ok := newest[device(r.Device)]; !ok || r.StartNs > known.StartNs {
			newest[device(r.Device)] = r
		}
	}
	connections := make(map[Device]uint64, len(newest))
	for d, r := range newest {
		connections[d] = r.Connection
	}
	return connections
}

// devices are the FUSE file systems known.
func devices(pic *picture, mounts map[Device]bpfMount) map[Device]bool {
	known := make(map[Device]bool, len(mounts))
	for d := range mounts {
		known[d] = true
	}
	for _, f := range pic.faults {
		known[device(f.Device)] = true
	}
	return known
}

func (p *Probe) fillMounts(pic *picture, mounts map[Device]bpfMount, waits []wait) []Mount {
	inFlight, old := make(map[Device]int), make(map[Device]bool)
	for _, w := range waits {
		inFlight[w.Device]++
		old[w.Device] = true
	}
	for _, r := range pic.requests {
		if !pic.old(r.StartNs) {
			inFlight[device(r.Device)]++
		}
	}
	out := make([]Mount, 0, len(mounts))
	for d := range devices(pic, mounts) {
		m := mounts[d]
		daemon, comm := m.Daemon, textOf(m.Comm)
		if old[d] && !p.lives(daemon) {
			if h, ok := p.findDaemon(pic.now, m.Connection); ok {
				daemon, comm = h.pid, h.comm
			}
		}
		out = append(out, Mount{
			Device: d, Connection: m.Connection, DaemonPID: daemon, DaemonComm: comm, InFlight: inFlight[d],
			Requests: Histogram{m.Requests, m.RequestsSumNs}, Faults: Histogram{m.Faults, m.FaultsSumNs},
			Answered: m.Answered + pic.answered[d], Aborted: m.Aborted,
		})
	}
	slices.SortFunc(out, func(a, b Mount) int { return int(a.Device.number()) - int(b.Device.number()) })
	return out
}

// lives reports whether a process is known to live, stopped or not.
func (p *Probe) lives(pid uint32) bool {
	if pid == 0 {
		return false
	}
	state := p.proc.Process(pid).State
	return state == procfs.Alive || state == procfs.Stopped
}

// findDaemon looks who has /dev/fuse open for a connection. Several may: a
// supervisor keeps it for its daemon's restart; the daemon is the youngest.
func (p *Probe) findDaemon(now, connection uint64) (holder, bool) {
	if p.hooks.holders == nil || connection == 0 {
		return holder{}, false
	}
	if p.search.found == nil || now-p.search.at >= searchEvery {
		p.search = search{at: now, found: make(map[uint64]holder)}
		raw, err := run(p.hooks.holders.Open())
		if err != nil {
			return holder{}, false
		}
		holders, err := decodeHolders(raw)
		if err != nil {
			p.invalid++
		}
		for _, h := range holders {
			if known, ok := p.search.found[h.connection]; !ok || h.start > known.start {
				p.search.found[h.connection] = h
			}
		}
	}
	h, ok := p.search.found[connection]
	return h, ok
}
