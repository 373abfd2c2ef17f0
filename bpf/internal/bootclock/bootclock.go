//go:build linux

// Package bootclock turns the kernel's boot clock, which stamps every event,
// into wall-clock time.
package bootclock

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Offset returns what to add to nanoseconds of bpf_ktime_get_boot_ns to get
// nanoseconds of Unix time.
//
// The boot clock never steps and counts suspend; the wall clock is stepped and
// slewed by NTP. So the offset is not a constant: take it when an event is
// read, shortly after it happened, and the time of the event is as good as the
// wall clock is now, to within the two readings (less than a microsecond).
func Offset() (int64, error) {
	var before, boot, after unix.Timespec
	for _, read := range []struct {
		clock int32
		into  *unix.Timespec
	}{
		{unix.CLOCK_REALTIME, &before}, {unix.CLOCK_BOOTTIME, &boot}, {unix.CLOCK_REALTIME, &after},
	} {
		if err := unix.ClockGettime(read.clock, read.into); err != nil {
			return 0, fmt.Errorf("read clock %d: %w", read.clock, err)
		}
	}
	middle := before.Nano() + (after.Nano()-before.Nano())/2
	return middle - boot.Nano(), nil
}

// Time is the wall-clock time of a boot-clock reading, for a given Offset.
func Time(bootNS uint64, offset int64) time.Time {
	return time.Unix(0, int64(bootNS)+offset)
}
