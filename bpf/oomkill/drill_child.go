//go:build linux && (amd64 || arm64)

package oomkill

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// drillLimitVariable marks the drill's child and tells it its limit in bytes.
const drillLimitVariable = "TRACECORE_OOMKILL_DRILL_LIMIT"

// drillComm is the name the child gives itself: 15 bytes, all that the kernel holds.
const drillComm = "tracecore-drill"

// drillReady is what the child writes on its standard output when it may be killed.
const drillReady = "ready\n"

// IsDrillChild reports whether this process was started by Drill. A main (and a
// TestMain) whose program calls Drill must ask this first and then do nothing
// else:
//
//	if oomkill.IsDrillChild() {
//		os.Exit(oomkill.DrillChild())
//	}
func IsDrillChild() bool { return os.Getenv(drillLimitVariable) != "" }

// DrillChild is the whole life of the drill's child: it waits for its parent's
// word and then takes memory until the kernel kills it. It returns an exit
// code only when that did not happen.
func DrillChild() int {
	if err := takeMemory(os.Getenv(drillLimitVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 1
}

func takeMemory(limitText string) error {
	limit, err := strconv.ParseInt(limitText, 10, 64)
	if err != nil || limit <= 0 || limit > 1<<40 {
		return fmt.Errorf("%s=%q: not a size in bytes", drillLimitVariable, limitText)
	}
	// 1000 is OOM_SCORE_ADJ_MAX (include/uapi/linux/oom.h): first to go, whatever happens.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return fmt.Errorf("offer the drill's child as first victim: %w", err)
	}
	if err := os.WriteFile("/proc/self/comm", []byte(drillComm), 0); err != nil {
		return fmt.Errorf("name the drill's child: %w", err)
	}
	if _, err := os.Stdout.WriteString(drillReady); err != nil {
		return fmt.Errorf("tell that the drill is ready: %w", err)
	}
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("wait for the drill to begin: %w", err)
	}
	memory, err := unix.Mmap(-1, 0, int(2*limit), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map memory in the drill's child: %w", err)
	}
	for offset := 0; offset < len(memory); offset += os.Getpagesize() {
		memory[offset] = 1
	}
	return fmt.Errorf("took %d bytes over a limit of %d and was not killed", len(memory), limit)
}
