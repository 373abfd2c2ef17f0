package replay

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver"
)

// mostHosts is of how many machines one file may hold kernel records.
const mostHosts = 1024

// kernelLog turns kernel-log lines into the batches that the kernelevents
// receiver makes of them.
type kernelLog struct {
	host  string    // of lines that name none
	boot  time.Time // what uptimes count from; zero: not known
	told  bool      // that boot is not known
	emit  func(batch)
	warn  func(error)
	hosts map[string]*kerneleventsreceiver.Translator
	order []*kerneleventsreceiver.Translator // in order of appearance
}

func newKernelLog(host string, boot time.Time, emit func(batch), warn func(error)) *kernelLog {
	return &kernelLog{host: host, boot: boot, emit: emit, warn: warn, hosts: map[string]*kerneleventsreceiver.Translator{}}
}

// rtc is the line with which the kernel sets its clock: it gives an uptime its
// place in time (drivers/rtc/class.c, rtc_hctosys).
var rtc = regexp.MustCompile(`setting system clock to \S+ UTC \((\d{1,11})\)`)

// add takes in one line.
func (k *kernelLog) add(line kernelLine) error {
	if line.at.IsZero() {
		line.at = k.place(line)
	}
	name := line.host
	if name == "" {
		name = k.host
	}
	translator, err := k.of(name)
	if err != nil {
		return err
	}
	for _, t := range k.order {
		if t.Pending() {
			k.put(t.Advance(line.at))
		}
	}
	k.put(translator.Translate(event(line)))
	return nil
}

// place finds the time of a line that has only an uptime. Where nothing says when
// the machine booted, time counts from 1970.
func (k *kernelLog) place(line kernelLine) time.Time {
	if k.boot.IsZero() {
		if m := rtc.FindStringSubmatch(line.text); m != nil {
			if unix, err := seconds(m[1]); err == nil {
				k.boot = time.Unix(0, int64(unix)).Add(-line.uptime)
			}
		}
	}
	if k.boot.IsZero() {
		if !k.told {
			k.told = true
			k.warn(errors.New("the log has no time of day, only time since boot: times of this file count from 1970; --boot-time says when the machine booted"))
		}
		return time.Unix(0, int64(line.uptime))
	}
	return k.boot.Add(line.uptime)
}

func (k *kernelLog) of(host string) (*kerneleventsreceiver.Translator, error) {
	if t := k.hosts[host]; t != nil {
		return t, nil
	}
	if len(k.order) == mostHosts {
		return nil, fmt.Errorf("lines of more than %d hosts in one file: split it by host", mostHosts)
	}
	t, err := kerneleventsreceiver.NewTranslator(host)
	if err != nil {
		return nil, err
	}
	k.hosts[host] = t
	k.order = append(k.order, t)
	return t, nil
}

func (k *kernelLog) put(logs plog.Logs) {
	if logs.LogRecordCount() > 0 {
		k.emit(ofLogs(logs))
	}
}

// finish closes what waits for more lines.
func (k *kernelLog) finish() {
	for _, t := range k.order {
		k.put(t.Finish())
	}
}

// event is the record as the kernel-log probe would have read it.
func event(line kernelLine) *kmsg.Event {
	text, cut := line.text, false
	if len(text) > kmsg.MaxText {
		text, cut = text[:kmsg.MaxText], true
	}
	return &kmsg.Event{Time: line.at, Writer: line.writer, Truncated: cut, Text: strings.ToValidUTF8(text, "�")}
}

// textLog reads a kernel log line by line.
type textLog struct {
	in      *file
	times   times
	log     *kernelLog
	line    int
	pending kernelLine // a record whose next lines may belong to it
	open    bool
}

// mostLine is more than any kernel-log line has; of longer ones the beginning is
// read.
const mostLine = 64 << 10

func (t *textLog) fill() error {
	raw, _, err := readLine(t.in.r, mostLine)
	if err != nil {
		flushed := t.flush()
		t.log.finish()
		if errors.Is(err, io.EOF) {
			return errors.Join(damage(t.where(), flushed), io.EOF)
		}
		return errors.Join(err, damage(t.where(), flushed))
	}
	t.line++
	if len(raw) == 0 {
		return nil
	}
	return damage(t.where(), t.take(string(raw)))
}

func (t *textLog) where() string { return fmt.Sprintf("%s:%d", t.in.name, t.line) }

func (t *textLog) take(raw string) error {
	line, err := t.times.parse(raw)
	switch {
	case errors.Is(err, errNotice):
		return t.flush()
	case errors.Is(err, errForeign):
		return t.flush()
	case errors.Is(err, errContinues) && t.open:
		if len(t.pending.text) <= kmsg.MaxText {
			t.pending.text += "\n" + raw
		}
		return nil
	case errors.Is(err, errContinues), errors.Is(err, errNoRecord):
		return fmt.Errorf("%w: %s", errNoRecord, quote([]byte(raw)))
	case err != nil:
		return err
	}
	flushed := t.flush()
	t.pending, t.open = line, true
	return flushed
}

func (t *textLog) flush() error {
	if !t.open {
		return nil
	}
	t.open = false
	return t.log.add(t.pending)
}
