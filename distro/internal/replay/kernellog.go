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
	"github.com/tracecoreai/tracecore/distro/internal/replay/kernelline"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver"
)

// mostHosts is of how many machines one file may hold kernel records.
const mostHosts = 1024

// kernelLog turns kernel-log lines into the batches that the kernelevents and
// oomkill receivers make of what they tell.
type kernelLog struct {
	host  string    // of lines that name none
	boot  time.Time // what uptimes count from; zero: not known
	told  bool      // that boot is not known
	emit  func(batch)
	warn  func(error)
	hosts map[string]*machine
	order []*machine // in order of appearance
}

// machine has what is known of one host's log so far.
type machine struct {
	events *kerneleventsreceiver.Translator
	kills  *oomkillreceiver.Translator
}

func newKernelLog(host string, boot time.Time, emit func(batch), warn func(error)) *kernelLog {
	return &kernelLog{host: host, boot: boot, emit: emit, warn: warn, hosts: map[string]*machine{}}
}

// rtc is the line with which the kernel sets its clock: it gives an uptime its
// place in time (drivers/rtc/class.c, rtc_hctosys).
var rtc = regexp.MustCompile(`setting system clock to \S+ UTC \((\d{1,11})\)`)

// add takes in one line.
func (k *kernelLog) add(line kernelline.Line) error {
	if line.At.IsZero() {
		line.At = k.place(line)
	}
	name := line.Host
	if name == "" {
		name = k.host
	}
	from, err := k.of(name)
	if err != nil {
		return err
	}
	for _, m := range k.order {
		if m.events.Pending() {
			k.put(m.events.Advance(line.At))
		}
	}
	k.put(from.events.Translate(event(line)))
	if line.Writer != kmsg.WriterUserspace { // no process reports a kill
		k.put(from.kills.Translate(line.At, line.Text))
	}
	return nil
}

// place finds the time of a line that has only an uptime. Where nothing says when
// the machine booted, time counts from 1970.
func (k *kernelLog) place(line kernelline.Line) time.Time {
	if k.boot.IsZero() {
		if m := rtc.FindStringSubmatch(line.Text); m != nil {
			if unix, err := kernelline.Seconds(m[1]); err == nil {
				k.boot = time.Unix(0, int64(unix)).Add(-line.Uptime)
			}
		}
	}
	if k.boot.IsZero() {
		if !k.told {
			k.told = true
			k.warn(errors.New("the log has no time of day, only time since boot: times of this file count from 1970; --boot-time says when the machine booted"))
		}
		return time.Unix(0, int64(line.Uptime))
	}
	return k.boot.Add(line.Uptime)
}

func (k *kernelLog) of(host string) (*machine, error) {
	if m := k.hosts[host]; m != nil {
		return m, nil
	}
	if len(k.order) == mostHosts {
		return nil, fmt.Errorf("lines of more than %d hosts in one file: split it by host", mostHosts)
	}
	events, err := kerneleventsreceiver.NewTranslator(host)
	if err != nil {
		return nil, err
	}
	m := &machine{events: events, kills: oomkillreceiver.NewTranslator(host)}
	k.hosts[host] = m
	k.order = append(k.order, m)
	return m, nil
}

func (k *kernelLog) put(logs plog.Logs) {
	if logs.LogRecordCount() > 0 {
		k.emit(ofLogs(logs))
	}
}

// finish closes what waits for more lines.
func (k *kernelLog) finish() {
	for _, m := range k.order {
		k.put(m.events.Finish())
	}
}

// event is the record as the kernel-log probe would have read it.
func event(line kernelline.Line) *kmsg.Event {
	text, cut := line.Text, false
	if len(text) > kmsg.MaxText {
		text, cut = text[:kmsg.MaxText], true
	}
	return &kmsg.Event{Time: line.At, Writer: line.Writer, Truncated: cut, Text: strings.ToValidUTF8(text, "�")}
}

// textLog reads a kernel log line by line.
type textLog struct {
	in      *file
	times   kernelline.Times
	log     *kernelLog
	line    int
	pending kernelline.Line // a record whose next lines may belong to it
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
	line, err := t.times.Parse(raw)
	switch {
	case errors.Is(err, kernelline.ErrNotice):
		return t.flush()
	case errors.Is(err, kernelline.ErrForeign):
		return t.flush()
	case errors.Is(err, kernelline.ErrContinues) && t.open:
		if len(t.pending.Text) <= kmsg.MaxText {
			t.pending.Text += "\n" + raw
		}
		return nil
	case errors.Is(err, kernelline.ErrContinues), errors.Is(err, kernelline.ErrNoRecord):
		return fmt.Errorf("%w: %s", kernelline.ErrNoRecord, quote([]byte(raw)))
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
