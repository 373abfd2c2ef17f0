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
	Truncated bool     // Text was longer than MaxText
	Text      string   // without level prefix and trailing newline; arbitrary bytes made valid UTF-8
}
