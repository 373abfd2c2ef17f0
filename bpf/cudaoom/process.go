package cudaoom

import "time"

// Process is one whose libcuda is to be watched.
type Process struct {
	PID   uint32    // in the pid namespace of the proc root
	Start time.Time // tells it from another that has the pid later
}

// Watched says what came out of one Watch.
type Watched struct {
	Libraries  int // files that are attached
	Over       int // files beyond Options.MaxLibraries
	Failed     int // files that could not be attached, tried again now and then
	Unreadable int // processes whose memory map could not be read, tried again next time
	// Err is why, for what failed in this call; nil when nothing did.
	Err error
}
