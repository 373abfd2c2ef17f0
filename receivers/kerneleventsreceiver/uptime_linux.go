package kerneleventsreceiver

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// uptime is how long the machine has been up, sleep included.
func uptime() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, fmt.Errorf("read the boot clock: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
