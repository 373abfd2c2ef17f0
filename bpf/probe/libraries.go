package probe

import "time"

// Process is one whose libraries are to be watched.
type Process struct {
	PID   uint32    // in the pid namespace of the proc root
	Start time.Time // tells it from another that has the pid later
	// Owner is whose it is, as a name: processes of one owner share what they may have.
	Owner string
}

// Watched says what came out of one look at the libraries of processes.
type Watched struct {
	Libraries  int // files that are attached
	Over       int // files beyond the limit
	Failed     int // files that could not be attached, tried again now and then
	Unreadable int // processes whose memory map could not be read, tried again next time
	// Err is why, for what failed in this call; nil when nothing did.
	Err error
}
