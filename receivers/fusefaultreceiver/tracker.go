package fusefaultreceiver

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// machine answers what only the machine itself can tell: node, or a test's fake.
type machine interface {
	Mount(major, minor uint32, processes ...string) (procfs.Mount, bool)
	Gone(major, minor uint32, process string) bool
	Process(pid uint32) procfs.Process
	Starves(pid uint32) (starves, known bool)
	Ended(pid, tid uint32) bool
	Waiting(major, minor uint32) (int64, bool)
	StuckReads() uint64
}

// tracker follows mounts from scan to scan and says which of them to tell.
// Time is that of the snapshots.
type tracker struct {
	threshold, repeat, keep time.Duration
	look                    look

	mounts  map[fusefault.Device]*mount
	stalls  map[fusefault.Device]*stall
	before  time.Time // of the last scan
	dropped int       // mounts that it left out
}

// report is one thing to tell; its stall changes with the next scan.
type report struct {
	*stall
	at    time.Time
	end   string // why it ended, "" while it lasts
	first bool   // it has just begun
}

func newTracker(config *Config, look look) *tracker {
	return &tracker{
		threshold: config.Threshold, repeat: config.RepeatInterval, keep: config.Threshold + 2*config.ScanInterval, look: look,
		mounts: map[fusefault.Device]*mount{}, stalls: map[fusefault.Device]*stall{},
	}
}

// observe takes in a snapshot and returns what is to be told: stalls in the order
// of their age, then ends in the order of their devices.
func (t *tracker) observe(s *fusefault.Snapshot) []report {
	found := t.stuck(s)
	t.take(s, found)
	t.before = s.Time
	var reports []report
	lasting := map[fusefault.Device]bool{}
	for _, one := range found {
		m := t.mounts[one.device]
		if m == nil {
			continue
		}
		lasting[one.device] = true
		m.oldest = one.entries[0].Start
		if r, due := t.lasts(m, one, s.Time); due {
			reports = append(reports, r)
		}
	}
	return append(reports, t.ended(s.Time, lasting)...)
}

// stuck groups what counts and is older than the threshold by mount, the mount
// with the oldest first.
func (t *tracker) stuck(s *fusefault.Snapshot) []*stuck {
	byDevice := map[fusefault.Device]*stuck{}
	var found []*stuck
	for i := range s.InFlight {
		f := &s.InFlight[i]
		if !counts(f) || s.Time.Sub(f.Start) < t.threshold {
			continue
		}
		one := byDevice[f.Device]
		if one == nil {
			one = &stuck{device: f.Device}
			byDevice[f.Device] = one
			found = append(found, one)
		}
		one.entries = append(one.entries, *f)
	}
	return found
}

// take keeps what the snapshot says of each mount, those that stall first, and
// forgets mounts of which it says nothing.
func (t *tracker) take(s *fusefault.Snapshot, found []*stuck) {
	t.dropped = 0
	there := map[fusefault.Device]bool{}
	for i := range s.Mounts {
		there[s.Mounts[i].Device] = true
	}
	for _, one := range found {
		there[one.device] = true
	}
	maps.DeleteFunc(t.mounts, func(d fusefault.Device, _ *mount) bool { return !there[d] && t.stalls[d] == nil })
	for _, m := range t.mounts {
		m.oldest = time.Time{}
	}
	for _, one := range t.room(found, s.Time) {
		t.follow(one.device)
	}
	for i := range s.Mounts {
		if m := t.follow(s.Mounts[i].Device); m != nil {
			m.take(&s.Mounts[i], t.before, s.Time, t.keep)
			m.meet(t.look.machine)
			m.hungry(t.look.machine, s.Time)
		}
	}
}

// room makes room for mounts on which something is stuck, and returns those that are
// followed: as many of each domain, by who waits longest. Mounts on which nothing is stuck
// give way first. So a user who mounts as many as he likes hides the mount of no other.
func (t *tracker) room(found []*stuck, now time.Time) []*stuck {
	known := func(one *stuck) bool { return t.mounts[one.device] != nil }
	fresh, followed := []*stuck{}, []*stuck{}
	for _, one := range found {
		if known(one) {
			followed = append(followed, one)
		} else {
			fresh = append(fresh, one)
		}
	}
	// Trim keeps the last: those that are followed, and of the others who waits longest.
	slices.Reverse(fresh)
	stay := fairlru.Trim(slices.Concat(fresh, followed), maxMounts, func(one *stuck) []string { return []string{t.look.domain(one, now)} })
	staying, more := map[fusefault.Device]bool{}, 0
	for _, one := range stay {
		staying[one.device] = true
		if !known(one) {
			more++
		}
	}
	for _, one := range found {
		if !staying[one.device] {
			t.dropped++
			delete(t.mounts, one.device)
			delete(t.stalls, one.device)
		}
	}
	for d := range t.mounts {
		if len(t.mounts)+more > maxMounts && !staying[d] && t.stalls[d] == nil {
			delete(t.mounts, d) // it is counted where it is not followed again
		}
	}
	return stay
}

// domain is that of who waits longest.
func (l *look) domain(one *stuck, now time.Time) string {
	if l.resolver == nil {
		return ""
	}
	p, _ := l.resolver.Lookup(one.entries[0].PID, 0, now)
	return p.Domain
}

// follow returns the mount of a device, nil when there is no room for another.
func (t *tracker) follow(d fusefault.Device) *mount {
	m := t.mounts[d]
	switch {
	case m != nil:
		return m
	case len(t.mounts) >= maxMounts:
		t.dropped++
		return nil
	}
	m = &mount{device: d}
	t.mounts[d] = m
	return m
}

// untilKnown is for how many scans the first record of a stall waits until it is known whether the daemon has
// a CPU: the first look compares with nothing, and at the second it may just have begun to wait for one.
const untilKnown = 2

// lasts looks at one mount on which something is stuck.
func (t *tracker) lasts(m *mount, found *stuck, now time.Time) (report, bool) {
	s := t.stalls[m.device]
	if s == nil {
		answered, sure := m.answeredSince(found.entries[0].Start, now)
		if !sure && m.awaited < 1 || m.unknown && m.awaited < untilKnown {
			m.awaited++ // whether the daemon still answers, and has a CPU, shows with the next scan
			return report{}, false
		}
		s = newStall(m, found, m.answered-answered)
		t.stalls[m.device] = s
	}
	s.update(now, found, &t.look)
	if !s.due(now, t.repeat) {
		return report{}, false
	}
	r := report{stall: s, at: now, first: s.told.at.IsZero()}
	s.tell(now)
	return r, true
}

// ended ends the stalls of mounts on which nothing is stuck any more.
func (t *tracker) ended(now time.Time, lasting map[fusefault.Device]bool) []report {
	var reports []report
	for d, m := range t.mounts {
		if !lasting[d] {
			m.awaited = 0
		}
	}
	for d, s := range t.stalls {
		if !lasting[d] {
			delete(t.stalls, d)
			reports = append(reports, report{stall: s, at: now, end: s.end(now, &t.look)})
		}
	}
	slices.SortFunc(reports, func(a, b report) int {
		return cmp.Or(cmp.Compare(a.mount.device.Major, b.mount.device.Major), cmp.Compare(a.mount.device.Minor, b.mount.device.Minor))
	})
	return reports
}
