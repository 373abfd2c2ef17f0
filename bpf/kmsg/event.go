package kmsg

import "time"

// Writer says who wrote a kernel-log record.
type Writer uint8

// The writers a record can have.
const (
	WriterUnknown   Writer = iota // this kernel did not let us tell
	WriterKernel                  // printk from the kernel or a driver
	WriterUserspace               // a write to /dev/kmsg
)

// MaxText is how much of one kernel-log record is copied, in bytes (a record
// can be about 1 KiB: LOG_LINE_MAX, kernel/printk/printk.c).
const MaxText = 1024

// Event is one kernel-log record, or one KERN_CONT fragment of a record, whose
// text matched one of the prefixes of interest.
type Event struct {
	Time      time.Time // wall clock of the write
	CPU       uint32
	PID       uint32 // thread group id of the writing task, 0 in interrupt context
	Comm      string // its name, at most 15 bytes
	Writer    Writer
	Origin    Function // the function that wrote the text, as the call stack shows it; zero when that is not known
	Late      bool     // read from the log's buffer, which nobody watched as it was written
	Truncated bool     // Text was longer than MaxText
	Text      string   // without level prefix and trailing newline; arbitrary bytes made valid UTF-8
}

// Moment is a reading of the boot clock, in nanoseconds. Within one boot it never steps.
type Moment uint64

// MaxBack is how many records Back hands on, the newest of those that match.
const MaxBack = 16384

// Back is what the kernel's own buffer still had of the time before the probe.
type Back struct {
	Events []Event // in the order of the log; their writer's stack is not known
	Cut    int     // older ones that matched, beyond MaxBack
	// Gap is true when the buffer no longer reaches back to the moment asked for: records
	// were overwritten before anybody looked.
	Gap bool
}
