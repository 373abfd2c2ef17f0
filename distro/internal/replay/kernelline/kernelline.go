// Package kernelline reads lines of saved kernel logs, in the forms that dmesg,
// journalctl and syslog write them.
package kernelline

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
)

// Line is one line of a saved kernel log.
type Line struct {
	At     time.Time
	Uptime time.Duration // where the line has only that; at is zero then
	Host   string        // "" when the line does not say
	Writer kmsg.Writer
	Text   string
}

// The outcomes of a line that is no record.
var (
	ErrNotice    = errors.New("a line of the tool that wrote the log")
	ErrContinues = errors.New("the record before goes on")
	ErrForeign   = errors.New("not the kernel's line")
	ErrNoYear    = errors.New("its time has no year: give --year, or save the log with `journalctl -k -o json` or `dmesg --time-format iso`")
	ErrNoRecord  = errors.New("no line of a kernel log")
)

// The forms that dmesg and journalctl write a line in (dmesg(1) of util-linux:
// plain, -T, -x, -r and --time-format iso; journalctl(1): short-monotonic,
// short-iso, short-iso-precise and short; syslog files have the last two).
var (
	priority  = regexp.MustCompile(`^<(\d{1,3})>`)
	decoded   = regexp.MustCompile(`^([a-z0-9]+) *:[a-z]+ *: `)
	sinceBoot = regexp.MustCompile(`^\[ *(\d{1,9}\.\d{1,9})\](?:\[ *[TC]\d+\])? ?`) // the second bracket: CONFIG_PRINTK_CALLER
	calendar  = regexp.MustCompile(`^\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] ?`)
	iso       = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:([.,])\d{1,9})?(?:Z|[+-]\d\d:?\d\d)) `)
	yearless  = regexp.MustCompile(`^([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?) `)
	fromHost  = regexp.MustCompile(`^([^\s:\[\]]+) ([^\s:\[\]]+)(?:\[\d+\])?: ?`)
	notice    = regexp.MustCompile(`^-- .* --$`)
)

// Times say what a line's time means where the line leaves it open.
type Times struct {
	Zone *time.Location
	Year int // 0: not known
}

// Parse reads one line.
func (t Times) Parse(line string) (Line, error) {
	switch {
	case notice.MatchString(line):
		return Line{}, ErrNotice
	case strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"):
		return Line{}, ErrContinues
	}
	writer, line := writtenBy(line)
	parsed, rest, err := t.time(line)
	if err != nil {
		return Line{}, err
	}
	if writer != kmsg.WriterUnknown {
		parsed.Writer = writer
	}
	if parsed.Text == "" {
		parsed.Text = rest
	}
	return parsed, nil
}

// writtenBy takes off what dmesg -r and -x put before a line. A facility other
// than the kernel's is a write to /dev/kmsg (kernel/printk/printk.c,
// devkmsg_write: user space cannot say LOG_KERN). dmesg -r leaves the facility
// out, so that 0 says nothing.
func writtenBy(line string) (kmsg.Writer, string) {
	if m := priority.FindStringSubmatch(line); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil && n>>3 > 0 {
			return kmsg.WriterUserspace, line[len(m[0]):]
		}
		return kmsg.WriterUnknown, line[len(m[0]):]
	}
	if m := decoded.FindStringSubmatch(line); m != nil {
		if m[1] == "kern" {
			return kmsg.WriterKernel, line[len(m[0]):]
		}
		return kmsg.WriterUserspace, line[len(m[0]):]
	}
	return kmsg.WriterUnknown, line
}

// time reads the time at the beginning of a line and, in the forms that have
// them, host and program.
func (t Times) time(line string) (Line, string, error) {
	if m := sinceBoot.FindStringSubmatch(line); m != nil {
		uptime, err := Seconds(m[1])
		parsed, rest, foreign := host(line[len(m[0]):])
		if foreign { // dmesg -t prints no host: what looks like one is text
			parsed, rest = Line{}, line[len(m[0]):]
		}
		parsed.Uptime = uptime
		return parsed, rest, err
	}
	if m := calendar.FindStringSubmatch(line); m != nil {
		at, err := time.ParseInLocation(time.ANSIC, m[1], t.Zone)
		return Line{At: at}, line[len(m[0]):], err
	}
	if m := iso.FindStringSubmatch(line); m != nil {
		return t.iso(m, line[len(m[0]):])
	}
	if m := yearless.FindStringSubmatch(line); m != nil {
		return t.yearless(m[1], line[len(m[0]):])
	}
	return Line{}, "", ErrNoRecord
}

func (t Times) iso(m []string, rest string) (Line, string, error) {
	text := strings.Replace(m[1], ",", ".", 1)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		at, err = time.Parse("2006-01-02T15:04:05.999999999-0700", text)
	}
	if err != nil {
		return Line{}, "", err
	}
	if m[2] == "," { // dmesg --time-format iso: no host follows
		return Line{At: at}, rest, nil
	}
	return named(at, rest)
}

func (t Times) yearless(text, rest string) (Line, string, error) {
	if t.Year == 0 {
		return Line{}, "", ErrNoYear
	}
	at, err := time.ParseInLocation("2006 Jan _2 15:04:05.999999999", strconv.Itoa(t.Year)+" "+text, t.Zone)
	if err != nil {
		return Line{}, "", err
	}
	return named(at, rest)
}

// named reads "host kernel: text"; other programs of a syslog file are no
// business of ours. A syslog daemon may repeat the uptime before the text.
func named(at time.Time, rest string) (Line, string, error) {
	parsed, text, foreign := host(rest)
	if foreign || parsed.Host == "" {
		return Line{}, "", ErrForeign
	}
	parsed.At = at
	return parsed, text[len(sinceBoot.FindString(text)):], nil
}

// host reads "host kernel: " and returns what follows; foreign when a program
// other than the kernel is named.
func host(line string) (parsed Line, rest string, foreign bool) {
	m := fromHost.FindStringSubmatch(line)
	if m == nil {
		return Line{}, line, false
	}
	if m[2] != "kernel" {
		return Line{}, line, true
	}
	return Line{Host: m[1]}, line[len(m[0]):], false
}

// Seconds reads a time since boot in seconds.
func Seconds(text string) (time.Duration, error) {
	return time.ParseDuration(text + "s")
}
