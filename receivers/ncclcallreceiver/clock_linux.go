package ncclcallreceiver

import (
	"time"

	"golang.org/x/sys/unix"
)

// clockError is by how much this host's clock may be wrong, as the daemon that disciplines it has
// told the kernel (adjtimex, maxerror); ok is false where none does.
func clockError() (most time.Duration, ok bool) {
	const unsynchronized = 0x40 // STA_UNSYNC, include/uapi/linux/timex.h
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil || t.Status&unsynchronized != 0 || t.Maxerror < 0 {
		return 0, false
	}
	return time.Duration(t.Maxerror) * time.Microsecond, true
}
