package activity

import "github.com/tracecoreai/tracecore/internal/procfs"

// Meeting is how the main thread of a process stands to whom it wants to meet over TCP.
type Meeting struct {
	procfs.Connection      // the first TCP socket that it waits for; zero for none
	Pauses            bool // it sleeps until a time comes, with none
}

// Meets says for which TCP socket the main thread of a process waits.
func (r *Reader) Meets(pid uint32) Meeting {
	w, err := r.fs.Wait(pid)
	if err != nil {
		return Meeting{}
	}
	if w.ForATime() {
		return Meeting{Pauses: true}
	}
	files := []int{w.FD}
	if w.Syscall == "poll" || w.Syscall == "ppoll" {
		files = nil
		for _, one := range (&search{Reader: r}).polled(pid, w.Arguments[0], int(min(w.Arguments[1], maxAwaited))) {
			files = append(files, one.fd)
		}
	}
	for _, fd := range files {
		if fd == procfs.Negative {
			continue
		}
		inode, is := r.fs.SocketOf(pid, fd)
		if !is {
			continue
		}
		if c, err := r.fs.Connection(pid, inode); err == nil {
			return Meeting{Connection: c}
		}
	}
	return Meeting{}
}
