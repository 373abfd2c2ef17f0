package machine

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/pprof"
)

// clockParameters let an emulated PC keep time on a busy host. Its TSC is the one
// clock that is cheap to read; the HPET costs a device access behind QEMU's one
// lock per reading, and a Go program, which reads the clock all the time, does not
// get anywhere on it. What can make a kernel mistrust or mistake the TSC:
//   - its watchdog, which blames the TSC when the emulator is late, and the start of
//     Linux 6.1, which takes the TSCs of an AMD processor for unsynchronized.
//     QEMU derives all of them from one host clock (cpus_get_elapsed_ticks):
//     tsc=reliable;
//   - its measuring the TSC against timers that QEMU serves late: beside busy loops
//     19 of 20 kernels could not use the PIT and one took 992 MHz from it for 2596;
//     of 23 that had no PIT, only the HPET, some were off by 27 % (2026-11-21, two CPUs).
//     Emulation shows this machine's own TSC (cpu_get_host_ticks,
//     include/qemu/timer.h), whose speed Go knows: tsc_early_khz;
//   - a look whether the timer ticks, while it does not: no_timer_check.
//
// All three: Documentation/admin-guide/kernel-parameters.txt.
func clockParameters(arch string) string {
	if arch != "amd64" {
		return "" // its counter's speed stands in a register
	}
	const always = " tsc=reliable no_timer_check"
	if runtime.GOARCH != arch {
		return always
	}
	hertz, err := ticksPerSecond()
	if err != nil {
		return always // the kernel measures, as it always did
	}
	return fmt.Sprintf("%s tsc_early_khz=%.0f", always, hertz/1e3)
}

// ticksPerSecond is what Go's runtime found out about this machine's TSC; the
// text form of its contention profiles says it.
func ticksPerSecond() (float64, error) {
	var text bytes.Buffer
	if err := pprof.Lookup("mutex").WriteTo(&text, 1); err != nil {
		return 0, err
	}
	var hertz float64
	if _, err := fmt.Sscanf(text.String(), "--- mutex:\ncycles/second=%f\n", &hertz); err != nil {
		return 0, fmt.Errorf("read the speed of the TSC off Go's profile: %w", err)
	}
	return hertz, nil
}
