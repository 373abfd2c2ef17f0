//go:build linux

package bootclock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestBootClockReadsAsWallClock(t *testing.T) {
	offset, err := Offset()
	require.NoError(t, err)

	before := time.Now()
	var boot unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot))
	after := time.Now()

	// A second of slack: the host may step its clock or stop this process
	// between the two readings.
	got := Time(uint64(boot.Nano()), offset)
	require.WithinRange(t, got, before.Add(-time.Second), after.Add(time.Second))
}
