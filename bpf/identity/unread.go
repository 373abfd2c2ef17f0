package identity

// A machine that has no time to answer within procfs's patience is no proof of anything: what
// could not be read of a process is read again, by the maintenance of the Tracker.
const (
	maxUnread = 1024 // processes at a time
	maxTries  = 30   // of one process, one for each maintenance
)

// unread are the processes of which something could not be read for now, with the tries so
// far. It has no lock.
type unread map[uint32]int

// note takes what was just read of a process.
func (u unread) note(f facts) {
	switch tries, known := u[f.pid]; {
	case !f.unread:
		delete(u, f.pid)
	case known || len(u) < maxUnread:
		u[f.pid] = tries + 1
	}
}

// due returns the processes to read again. One that is gone is never noted again.
func (u unread) due() []uint32 {
	pids := make([]uint32, 0, len(u))
	for pid, tries := range u {
		if tries > maxTries {
			delete(u, pid)
			continue
		}
		u[pid]++
		pids = append(pids, pid)
	}
	return pids
}
