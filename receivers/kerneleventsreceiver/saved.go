package kerneleventsreceiver

import (
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/fold"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/kernellog"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// Translator makes of the saved kernel-log records of one host what the receiver
// with its default configuration makes of live ones. Time is that of the records:
// nothing waits for a clock, and the same records give the same result. What a
// live receiver asks its machine is not there: no identity, no PCIe tree. It is
// not safe for concurrent use.
type Translator struct {
	enabled map[string]bool
	parser  *kernellog.Parser
	folder  *fold.Folder
	convert *converter
	tick    time.Duration
	now     time.Time // the newest time seen
	faults  []kernellog.Fault
	reports []fold.Report
}

// NewTranslator returns a translator of a host's records.
func NewTranslator(hostName string) (*Translator, error) {
	meanings, err := catalogue.Load()
	if err != nil {
		return nil, err
	}
	config := createDefaultConfig().(*Config)
	limits := fold.Limits{Quiet: config.Fold.Quiet, Longest: config.Fold.Longest, Open: config.Fold.MaxOpen}
	return &Translator{
		enabled: config.Events.ByName(),
		parser:  kernellog.NewParser(meanings), folder: fold.New(limits),
		convert: newConverter(metadata.NewLogsBuilder(config.LogsBuilderConfig, receiver.Settings{}), record.Host{Name: hostName}),
		tick:    limits.Quiet / 10,
	}, nil
}

// Pending reports whether something waits for time to pass.
func (t *Translator) Pending() bool { return t.folder.Open() > 0 || t.parser.Pending() }

// Advance moves time forward and returns what leaves because nothing more came.
func (t *Translator) Advance(to time.Time) plog.Logs {
	t.reports = t.reports[:0]
	for t.Pending() && t.now.Before(to) {
		t.now = t.now.Add(min(t.tick, to.Sub(t.now)))
		t.fold(t.parser.Expire(t.faults[:0], t.now))
		t.reports = t.folder.Expire(t.reports, t.now)
	}
	left := t.convert.faults(t.reports, t.now)
	if t.now.Before(to) {
		t.now = to
	}
	return left
}

// Translate returns what leaves at once because of one more record.
func (t *Translator) Translate(event *kmsg.Event) plog.Logs {
	t.reports = t.reports[:0]
	if t.now.Before(event.Time) {
		t.now = event.Time
	}
	faults, _ := t.parser.Parse(t.faults[:0], event)
	t.fold(faults)
	return t.convert.faults(t.reports, t.now)
}

// Finish returns what is left when no more records come.
func (t *Translator) Finish() plog.Logs {
	t.reports = t.reports[:0]
	const forever = 1 << 62
	t.fold(t.parser.Expire(t.faults[:0], time.Unix(0, forever)))
	t.reports = t.folder.Flush(t.reports)
	return t.convert.faults(t.reports, t.now)
}

func (t *Translator) fold(faults []kernellog.Fault) {
	for i := range faults {
		if t.enabled[faults[i].Key.Event] {
			t.reports = t.folder.Add(t.reports, faults[i], t.now)
		}
	}
	t.faults = faults
}
