package fusefaultreceiver

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// maxMounts bounds the mounts that are followed; a node has tens.
const maxMounts = 256

// mount is one FUSE file system, followed from scan to scan.
type mount struct {
	device   fusefault.Device
	newest   fusefault.Mount // of the newest snapshot; zero while it has none
	answered uint64          // requests answered in all
	samples  []sample        // that count at earlier scans, as far back as needed
	oldest   time.Time       // of what counts and is older than the threshold
	// connection is that of the mount which has the device number now.
	connection uint64
	daemon     daemon
	awaited    int               // scans that its first record has waited
	waiter     *identity.Process // the rank that waits longest for what is stuck, nil where none does
	waits      time.Duration     // for how long it does

	place   procfs.Mount // for metrics, as process 1 sees it
	placed  time.Time    // when that was looked up
	starved time.Time    // when the daemon was last found without a CPU
	unknown bool         // whether it has one
	counted time.Time    // since when the probe counts
}

// sample is the count of answered requests at one scan.
type sample struct {
	at       time.Time
	answered uint64
}

// daemon is the process that answers a mount, told from a later one with the
// same pid by when it started.
type daemon struct {
	pid     uint32
	name    string
	started uint64 // ticks, 0 while unknown
}

// take keeps what a snapshot says of the mount. Samples older than keep are
// dropped, but for the newest of them. A mount that the scan before did not have
// had answered nothing by then.
func (m *mount) take(s *fusefault.Mount, before, now time.Time, keep time.Duration) {
	if s.Answered < m.answered || m.counted.IsZero() { // new, or forgotten by the probe meanwhile
		m.samples, m.counted = nil, now
		if !before.IsZero() {
			m.samples, m.counted = []sample{{at: before}}, before
		}
	}
	for len(m.samples) > 1 && now.Sub(m.samples[1].at) > keep {
		m.samples = m.samples[1:]
	}
	m.waiter = nil
	m.samples = append(m.samples, sample{now, s.Answered})
	m.newest, m.answered = *s, s.Answered
}

// answeredSince counts the requests answered between the first scan after begin
// and now. It is sure when a scan lies between, or when none was answered even
// since the scan before.
func (m *mount) answeredSince(begin, now time.Time) (answered uint64, sure bool) {
	if len(m.samples) == 0 { // nothing on it was ever answered
		return 0, true
	}
	var before *sample
	for i := range m.samples {
		s := &m.samples[i]
		if !s.at.Before(now) {
			break
		}
		if !s.at.Before(begin) {
			return m.answered - s.answered, true
		}
		before = s
	}
	if before == nil {
		return 0, false
	}
	return m.answered - before.answered, m.answered == before.answered
}

// justAnswered reports whether anything was answered since the scan before.
func (m *mount) justAnswered() bool {
	n := len(m.samples)
	return n > 1 && m.samples[n-1].answered > m.samples[n-2].answered
}

func total(h *fusefault.Histogram) uint64 {
	var n uint64
	for _, count := range h.Buckets {
		n += count
	}
	return n
}

// meet takes note of a daemon that was not seen before, while it lives. That of an earlier
// mount, which had the same device number, is forgotten.
func (m *mount) meet(machine machine) {
	if c := m.newest.Connection; c != 0 && c != m.connection {
		m.connection, m.daemon = c, daemon{}
	}
	pid := m.newest.DaemonPID
	if pid == 0 || pid == m.daemon.pid {
		return
	}
	p := machine.Process(pid)
	m.daemon = daemon{pid: pid, name: p.Name, started: p.StartTicks}
	if m.daemon.name == "" {
		m.daemon.name = m.newest.DaemonComm
	}
}

// hungry looks whether the daemon has the CPUs that it wants, while something waits for it.
func (m *mount) hungry(machine machine, now time.Time) {
	if m.unknown = false; m.newest.InFlight == 0 || m.daemon.state(machine) != procfs.Alive {
		return
	}
	starves, known := machine.Starves(m.daemon.pid)
	if m.unknown = !known; starves {
		m.starved = now
	}
}

// starves is for how long a daemon counts as starved that was found so: it may have a turn now and then.
const starves = 5 * time.Second

// state looks at the daemon now.
func (m *mount) state(machine machine, now time.Time) procfs.State {
	state := m.daemon.state(machine)
	if state == procfs.Alive && !m.starved.IsZero() && now.Sub(m.starved) < starves {
		return Starved
	}
	return state
}

// Starved is the state of a daemon that could run and has no CPU.
const Starved procfs.State = "starved"

// state looks at the daemon now.
func (d *daemon) state(machine machine) procfs.State {
	if d.pid == 0 {
		return procfs.Unknown
	}
	p := machine.Process(d.pid)
	if d.started != 0 && p.StartTicks != 0 && p.StartTicks != d.started {
		return procfs.Gone // somebody else has its number
	}
	return p.State
}
