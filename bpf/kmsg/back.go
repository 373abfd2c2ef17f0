//go:build linux && (amd64 || arm64)

package kmsg

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
)

// Now is the present moment.
func Now() Moment { return clock(unix.CLOCK_BOOTTIME) }

func clock(id int32) Moment {
	var t unix.Timespec
	_ = unix.ClockGettime(id, &t) // fails for a clock that does not exist alone
	return Moment(t.Nano())
}

// ReadBack reads once what the kernel's buffer (/dev/kmsg, Documentation/ABI/testing/dev-kmsg)
// holds of records that were stored after since and before the probe saw its own self-test.
// Those that a process wrote are left out: the kernel gives them a facility other than its own
// (devkmsg_write in kernel/printk/printk.c).
func (p *Probe) ReadBack(since Moment) (Back, error) {
	f, err := os.OpenFile(p.device, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Back{}, fmt.Errorf("read the kernel log back: %w", err)
	}
	defer f.Close()
	back, err := p.readBack(f.Read, since)
	if err != nil {
		return back, fmt.Errorf("read the kernel log back: %w", err)
	}
	return back, nil
}

// stored is a record of the buffer. Its time is the kernel's local clock.
type stored struct {
	priority, sequence, timeUS uint64
	text                       []byte
}

const facilityKernel = 0

func (p *Probe) readBack(next func([]byte) (int, error), since Moment) (Back, error) {
	var back Back
	var times []uint64 // of the events, by the local clock
	// Where the log could not be written, there is no marker to set the clocks by.
	offset := int64(clock(unix.CLOCK_BOOTTIME)) - int64(clock(unix.CLOCK_MONOTONIC))
	first, buffer := stored{}, make([]byte, 32<<10)
	for any := false; ; {
		n, err := next(buffer)
		switch {
		case errors.Is(err, syscall.EPIPE): // overwritten while we read
			back.Gap = true
			continue
		case errors.Is(err, syscall.EAGAIN):
			return back.since(since, times, offset, first), nil
		case err != nil:
			return Back{}, err
		}
		r, ok := parseStored(buffer[:n])
		if !ok {
			continue
		}
		if !any {
			first, any = r, true
		}
		text := unescape(r.text)
		if string(text) == p.marker {
			return back.since(since, times, p.markedNS-int64(r.timeUS)*1000, first), nil
		}
		if r.priority>>3 != facilityKernel || !p.automaton.match(text) {
			continue
		}
		if len(back.Events) == MaxBack {
			back.Events, times = back.Events[1:], times[1:]
			back.Cut++
		}
		back.Events = append(back.Events, Event{
			Writer: WriterKernel, Late: true, Truncated: len(text) > MaxText, Text: validText(text[:min(len(text), MaxText)]),
		})
		times = append(times, r.timeUS)
	}
}

// since gives the events their time and drops those that are not later. offset is what to
// add to the local clock to get the boot clock.
func (b Back) since(since Moment, times []uint64, offset int64, first stored) Back {
	// Never 0, which stands for before all: the clocks are read one after the other.
	moment := func(us uint64) Moment { return Moment(max(1, int64(us)*1000+offset)) }
	wall := wallOffset()
	keep := 0
	for i := range b.Events {
		at := moment(times[i])
		if at <= since {
			continue
		}
		b.Events[keep] = b.Events[i]
		b.Events[keep].Time = bootclock.Time(uint64(at), wall)
		keep++
	}
	b.Events = b.Events[:keep]
	b.Gap = b.Gap || first.sequence > 0 && moment(first.timeUS) > since
	return b
}

// wallOffset is what to add to the boot clock to get Unix time.
func wallOffset() int64 {
	if offset, err := bootclock.Offset(); err == nil {
		return offset
	}
	return time.Now().UnixNano() - int64(Now())
}

// parseStored reads "6,339,5140900,-;text" and what may follow it on other lines.
func parseStored(raw []byte) (stored, bool) {
	head, text, ok := bytes.Cut(raw, []byte{';'})
	fields := bytes.SplitN(head, []byte{','}, 4)
	if !ok || len(fields) < 3 {
		return stored{}, false
	}
	var r stored
	for i, into := range []*uint64{&r.priority, &r.sequence, &r.timeUS} {
		n, err := strconv.ParseUint(string(fields[i]), 10, 63)
		if err != nil {
			return stored{}, false
		}
		*into = n
	}
	r.timeUS = min(r.timeUS, 1<<53) // a sum with another clock does not overflow
	r.text, _, _ = bytes.Cut(text, []byte{'\n'})
	return r, true
}

// unescape undoes what the kernel does to bytes that do not print, and to the backslash:
// \x and two digits (append_char in kernel/printk/printk.c). It changes text.
func unescape(text []byte) []byte {
	to := text[:0]
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) && text[i+1] == 'x' {
			if b, err := strconv.ParseUint(string(text[i+2:i+4]), 16, 8); err == nil {
				to = append(to, byte(b))
				i += 3
				continue
			}
		}
		to = append(to, text[i])
	}
	return bytes.TrimRight(to, "\n")
}
