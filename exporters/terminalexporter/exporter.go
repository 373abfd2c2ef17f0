package terminalexporter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/exporters/terminalexporter/internal/metadata"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// What became of a verdict, as metadata.yaml lists it.
const (
	outcomeInvalid   = "invalid"
	outcomeLost      = "lost"
	outcomePrinted   = "printed"
	outcomeUnchanged = "unchanged"
)

// mostWaiting bounds the verdicts that wait for a stream which takes nothing.
const mostWaiting = 1000

// pause is how long a stream that refused is left alone: records come all the time.
const pause = time.Second

// terminal prints what is new about each incident, and what runs that ended came to.
type terminal struct {
	config    *Config
	out       io.Writer
	color     bool
	now       func() time.Time
	telemetry *metadata.TelemetryBuilder
	logger    *zap.Logger
	hostname  string // as the pattern detector of this process writes it

	mu     sync.Mutex // one batch at a time: blocks do not interleave
	shown  *memory
	waits  []verdict.Verdict // the stream did not take them
	again  time.Time         // before then it is not tried
	warned bool              // an invalid verdict was logged; the metric counts the rest
}

func newTerminal(config *Config, set exporter.Settings, out io.Writer, now func() time.Time) (*terminal, error) {
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	hostname, err := os.Hostname()
	if err != nil {
		set.Logger.Warn("runs that end are not printed: this machine has no name", zap.Error(err))
		hostname = "\x00"
	}
	return &terminal{
		hostname: hostname, config: config, out: out, color: useColor(config.Color, out), now: now,
		telemetry: telemetry, logger: set.Logger, shown: newMemory(maxIncidents, maxVerdicts),
	}, nil
}

// useColor decides "auto" as https://no-color.org asks.
func useColor(mode string, out io.Writer) bool {
	if mode != colorAuto {
		return mode == colorAlways
	}
	file, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// consume prints the verdicts among ld, and those that a stream which refused has not taken.
// Such a stream is no reason to hold up what other exporters are told.
func (t *terminal) consume(ctx context.Context, ld plog.Logs) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.take(ctx, t.verdicts(ctx, ld))
	if t.config.Format == formatJSON { // a line of JSON is a verdict: its readers know no other
		return nil
	}
	var text bytes.Buffer
	t.summaries(ctx, &text, ld)
	return t.write(&text)
}

// take prints verdicts, after those that wait, or lets them wait.
func (t *terminal) take(ctx context.Context, found []verdict.Verdict) {
	if len(t.waits) > 0 && t.now().Before(t.again) {
		if len(found) > 0 {
			t.waits = t.newest(ctx, append(t.waits, found...))
		}
		return
	}
	found = append(t.waits, found...)
	err := t.show(ctx, found)
	if err == nil {
		t.waits = nil
		return
	}
	if len(t.waits) == 0 {
		t.logger.Warn("verdicts wait for what prints them", zap.Error(err))
	}
	t.waits, t.again = t.newest(ctx, found), t.now().Add(pause)
}

// newest is what waits: of each verdict what came last, and not too many.
func (t *terminal) newest(ctx context.Context, found []verdict.Verdict) (waits []verdict.Verdict) {
	last := map[string]int{}
	for i := range found {
		last[found[i].ID] = i
	}
	for i := range found {
		if last[found[i].ID] == i {
			waits = append(waits, found[i])
		}
	}
	t.count(ctx, len(found)-len(waits), outcomeUnchanged)
	lost := max(len(waits)-mostWaiting, 0)
	t.count(ctx, lost, outcomeLost)
	return waits[lost:]
}

// show prints what is new about each incident. What was printed is remembered only once it
// is written.
func (t *terminal) show(ctx context.Context, found []verdict.Verdict) error {
	count := map[string]int{}
	for i := range found {
		count[found[i].IncidentID]++
	}
	var text bytes.Buffer
	var changes []change
	for _, news := range verdict.Incidents(found) {
		c := change{before: t.shown.incident(news[0].IncidentID)}
		c.after = t.shown.merge(c.before, news)
		before := text.Len()
		t.print(&text, c)
		c.printed = text.Len() > before
		c.verdicts = count[news[0].IncidentID]
		changes = append(changes, c)
	}
	if err := t.write(&text); err != nil {
		return err
	}
	t.remember(ctx, changes)
	return nil
}

func (t *terminal) write(text *bytes.Buffer) error {
	if text.Len() == 0 {
		return nil
	}
	if _, err := t.out.Write(text.Bytes()); err != nil {
		return fmt.Errorf("write verdicts to %s: %w; check that what reads it still runs, or set stream to the other one", t.config.Stream, err)
	}
	return nil
}

// summaries prints the runs that ended as this host saw them: a gateway prints its own, not
// those of each agent.
func (t *terminal) summaries(ctx context.Context, text *bytes.Buffer, ld plog.Logs) {
	for _, resource := range ld.ResourceLogs().All() {
		host, _ := resource.Resource().Attributes().Get("host.name")
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				run, err := history.FromRecord(record)
				switch {
				case errors.Is(err, history.ErrNotSummary):
				case err != nil:
					t.invalid(ctx, err)
				case host.AsString() != t.hostname:
				default:
					_ = verdict.RenderNotice(text, "RUN ENDED", history.Words(&run), verdict.Options{Color: t.color, Now: t.now()})
				}
			}
		}
	}
}

// change is one incident before and after a batch.
type change struct {
	before, after []verdict.Verdict
	verdicts      int // received in the batch, every revision
	printed       bool
}

// verdicts reads the verdicts among ld.
func (t *terminal) verdicts(ctx context.Context, ld plog.Logs) (found []verdict.Verdict) {
	for _, resource := range ld.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				v, err := verdict.FromRecord(record)
				switch {
				case err == nil:
					found = append(found, v)
				case !errors.Is(err, verdict.ErrNotVerdict):
					t.invalid(ctx, err)
				}
			}
		}
	}
	return found
}

func (t *terminal) invalid(ctx context.Context, err error) {
	t.count(ctx, 1, outcomeInvalid)
	if !t.warned {
		t.warned = true
		t.logger.Warn("left out a record that claims to be a verdict; find who sends it, the metric otelcol_exporter_terminal_verdicts{outcome=invalid} counts the rest", zap.Error(err))
	}
}

func (t *terminal) print(text *bytes.Buffer, c change) {
	if t.config.Format == formatJSON {
		printJSON(text, c)
		return
	}
	// A bytes.Buffer takes every write.
	_ = verdict.RenderChange(text, c.before, c.after, verdict.Options{Color: t.color, Now: t.now()})
}

// printJSON writes each revision not written before.
func printJSON(text *bytes.Buffer, c change) {
	known := map[string]int{}
	for _, v := range c.before {
		known[v.ID] = v.Revision
	}
	for _, v := range c.after {
		if v.Revision > known[v.ID] {
			text.Write(verdict.ToJSON(v))
			text.WriteByte('\n')
		}
	}
}

func (t *terminal) remember(ctx context.Context, changes []change) {
	for _, c := range changes {
		outcome := outcomeUnchanged
		if c.printed {
			outcome = outcomePrinted
		}
		t.count(ctx, c.verdicts, outcome)
		if evicted := t.shown.put(c.after); evicted > 0 {
			t.telemetry.ExporterTerminalIncidentsEvicted.Add(ctx, int64(evicted))
		}
	}
}

func (t *terminal) count(ctx context.Context, n int, outcome string) {
	if n == 0 {
		return
	}
	t.telemetry.ExporterTerminalVerdicts.Add(ctx, int64(n), metric.WithAttributes(attribute.String("outcome", outcome)))
}

// shutdown tries what waits once more, and counts what is lost then.
func (t *terminal) shutdown(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.show(ctx, t.waits); err != nil {
		t.logger.Warn("verdicts were not printed", zap.Int("verdicts", len(t.waits)), zap.Error(err))
		t.count(ctx, len(t.waits), outcomeLost)
	}
	t.waits = nil
	t.telemetry.Shutdown()
	return nil
}
