package fusefaultreceiver

import (
	"fmt"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Why a stall ended.
const (
	endCompleted   = "completed"    // the daemon answered
	endAborted     = "aborted"      // the connection was aborted, or the daemon died
	endUnmounted   = "unmounted"    // the mount is not there any more
	endWaitersGone = "waiters_gone" // the waiters were killed, nothing was answered
)

// stall is one mount while something on it is stuck.
type stall struct {
	id    string
	mount *mount
	began time.Time // of what was the oldest at first
	age   time.Duration

	oldest           fusefault.InFlight
	faults, requests int
	waiters          waiters
	place            procfs.Mount
	daemon           procfs.State
	answered         uint64 // requests since the last record

	aborted uint64 // count of the mount when the stall began
	told    told   // what the last record said
}

// told is what the last record of a stall said.
type told struct {
	at       time.Time // zero before the first
	answered uint64    // count of the mount then
	daemon   procfs.State
	ranks    []int
}

// stuck is the part of one mount that is in flight, counts and is older than the
// threshold, oldest first.
type stuck struct {
	device  fusefault.Device
	entries []fusefault.InFlight
}

func newStall(m *mount, s *stuck, answeredBefore uint64) *stall {
	began := s.entries[0].Start
	return &stall{
		id:    fmt.Sprintf("%s@%d", deviceName(m.device), began.UnixNano()),
		mount: m, began: began, aborted: m.newest.Aborted,
		told: told{answered: answeredBefore},
	}
}

func deviceName(d fusefault.Device) string { return fmt.Sprintf("%d:%d", d.Major, d.Minor) }

// update looks again at what is stuck, at who waits and at the daemon.
func (s *stall) update(now time.Time, found *stuck, look *look) {
	s.oldest, s.faults, s.requests = found.entries[0], 0, 0
	s.age = now.Sub(s.oldest.Start)
	for i := range found.entries {
		if found.entries[i].Kind == fusefault.KindFault {
			s.faults++
		} else {
			s.requests++
		}
	}
	s.waiters.update(now, found.entries, look)
	if named := s.waiters.named; s.waiters.known && named.IsRank() {
		own := slices.IndexFunc(found.entries, func(f fusefault.InFlight) bool { return f.PID == named.PID && waits(&f) })
		s.mount.waiter, s.mount.waits = &named, now.Sub(found.entries[own].Start)
	}
	s.daemon = s.mount.state(look.machine, now)
	s.answered = since(s.told.answered, s.mount.answered)
	if s.place.Point == "" {
		s.place, _ = look.machine.Mount(s.mount.device.Major, s.mount.device.Minor, s.tables()...)
	}
}

// maxTables bounds in how many processes' mount tables a mount is looked for.
const maxTables = 4

// tables are the mount tables to look in: those of who waits, who may be in a
// container, then the daemon's, that of process 1 and our own.
func (s *stall) tables() []string {
	var tables []string
	for _, pid := range s.waiters.pids[:min(len(s.waiters.pids), maxTables)] {
		tables = append(tables, procfs.OfProcess(pid))
	}
	if len(tables) == 0 && s.oldest.PID != 0 {
		tables = append(tables, procfs.OfProcess(s.oldest.PID))
	}
	if s.mount.daemon.pid != 0 {
		tables = append(tables, procfs.OfProcess(s.mount.daemon.pid))
	}
	return append(tables, procfs.OfInit, procfs.OfSelf)
}

// since is the difference of a count that may have begun anew.
func since(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// due reports whether there is something to tell: that it stalls, at every
// interval that it still does, and at once that the daemon's state has changed or
// that more ranks wait.
func (s *stall) due(now time.Time, interval time.Duration) bool {
	return s.told.at.IsZero() || now.Sub(s.told.at) >= interval || s.daemon != s.told.daemon ||
		slices.ContainsFunc(s.waiters.ranks, func(rank int) bool { return !slices.Contains(s.told.ranks, rank) })
}

// tell takes note of a record.
func (s *stall) tell(now time.Time) {
	s.told = told{at: now, answered: s.mount.answered, daemon: s.daemon, ranks: s.waiters.ranks}
}

// end says why nothing is stuck any more.
func (s *stall) end(now time.Time, look *look) (reason string) {
	s.age = now.Sub(s.began)
	s.answered = since(s.told.answered, s.mount.answered)
	s.daemon = s.mount.state(look.machine, now)
	switch {
	case s.place.SeenBy != "" && look.machine.Gone(s.mount.device.Major, s.mount.device.Minor, s.place.SeenBy):
		return endUnmounted
	case since(s.aborted, s.mount.newest.Aborted) > 0 || s.daemon == procfs.Gone:
		return endAborted
	case !s.mount.justAnswered() && s.waiters.ended(look.machine):
		return endWaitersGone
	default:
		return endCompleted
	}
}
