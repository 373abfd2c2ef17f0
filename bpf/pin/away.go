//go:build linux

package pin

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// Away is what was found out about the time in which nobody looked.
type Away struct {
	Since   uint64 // boot clock: when somebody last looked; 0 when nothing was left
	Until   uint64 // boot clock: from when on this process sees everything
	Records uint64 // that waited and were read
	Dropped uint64 // that found a ring full
	Full    uint64 // boot clock: the last record in a ring that was full; 0 when none was
	Foreign uint64 // that another version of tracecore left, and nobody can read
}

// Gap reports whether anything of that time is not known.
func (a Away) Gap() bool { return a.Dropped > 0 || a.Foreign > 0 }

// Seen is the moment of the boot clock up to which the heir has read everything: earlier
// records of this process's own ring it has read already. 0 where this ring may have
// records that an earlier one had no room for.
func (a Away) Seen() uint64 {
	if a.Since == 0 || a.Gap() {
		return 0
	}
	return a.Until
}

// Told is the same by the wall clock.
func (a Away) Told(pinned bool, err error) probe.Away {
	told := probe.Away{Pinned: pinned, Records: a.Records, Lost: a.Dropped, Foreign: a.Foreign, Err: err}
	offset, problem := bootclock.Offset()
	if problem != nil {
		return told
	}
	wall := func(ns uint64) (at time.Time) {
		if ns != 0 {
			at = bootclock.Time(ns, offset)
		}
		return at
	}
	told.Since, told.Until, told.Full = wall(a.Since), wall(a.Until), wall(a.Full)
	return told
}
