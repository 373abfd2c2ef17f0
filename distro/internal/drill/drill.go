// Package drill makes a harmless real fault on this node and shows the verdict
// it leads to, and after how long. The pipeline runs in this process and is the
// one of production: the probe, its receiver, the pattern detector.
package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/distro/internal/pipeline"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Drill is one fault that can be made.
type Drill struct {
	Name  string
	Short string // what it does, in one line
	// act makes the fault step by step, and tells the watcher of each step.
	act func(ctx context.Context, w *watcher) error
}

// Patience is how long after a step its verdict may come.
const Patience = 15 * time.Second

// ErrNoVerdict is returned when a fault was made and nothing was said about it.
var ErrNoVerdict = errors.New("no verdict came")

// arrival is a verdict and when it reached the end of the pipeline.
type arrival struct {
	at      time.Time
	verdict verdict.Verdict
}

// config is the part of the default configuration between the kernel and a
// verdict: no port is opened and no state is kept.
const config = `
extensions: {identity: {error_mode: propagate}}
receivers:
  kernelevents: {identity: identity, error_mode: propagate}
  oomkill: {identity: identity, error_mode: propagate}
processors: {patterndetector: {}}
exporters: {sink: {}}
service:
  extensions: [identity]
  telemetry:
    logs: {level: error, encoding: console, disable_stacktrace: true}
    metrics: {level: none}
  pipelines:
    logs: {receivers: [kernelevents, oomkill], processors: [patterndetector], exporters: [sink]}
`

// Run makes the fault and writes what came of it. It returns ErrNoVerdict when
// a step of the drill led to none.
func (d Drill) Run(ctx context.Context, w io.Writer) error {
	watch := &watcher{w: w, arrivals: make(chan arrival, 256)}
	p, err := pipeline.Start(ctx, config, watch.collect)
	if err != nil {
		return fmt.Errorf("drill %s: %w; `tracecore bpf-check` says what this node lacks", d.Name, err)
	}
	fmt.Fprintf(w, "This is a drill: %s.\n\n", d.Short)
	if err := errors.Join(d.act(ctx, watch), p.Stop()); err != nil {
		return fmt.Errorf("drill %s: %w", d.Name, err)
	}
	return nil
}

// watcher takes verdicts from the pipeline and shows those of the drill.
type watcher struct {
	w        io.Writer
	arrivals chan arrival
	seen     []verdict.Verdict // of the drill's incident
}

// collect takes the verdicts out of a batch. A full channel means that nobody
// looks any more.
func (w *watcher) collect(at time.Time, records plog.Logs) {
	for _, resource := range records.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				if record.EventName() != verdict.EventName {
					continue
				}
				v, err := verdict.FromRecord(record)
				if err != nil {
					continue
				}
				select {
				case w.arrivals <- arrival{at, v}:
				default:
				}
			}
		}
	}
}

// expect waits for the verdict that what was done to a process leads to, and
// shows it with its delay. Without a time of its own (zero) a step is timed from
// the event that the kernel reported.
func (w *watcher) expect(ctx context.Context, did string, at time.Time, pid uint32) error {
	news, arrived, err := w.await(ctx, pid)
	if err != nil {
		return fmt.Errorf("%s: %w", did, err)
	}
	if at.IsZero() {
		at = news[0].Onset
	}
	fmt.Fprintf(w.w, "%s\n  verdict after %s\n\n", did, arrived.Sub(at).Round(10*time.Microsecond))
	before := w.seen
	w.seen = verdict.Merge(before, news)
	return verdict.RenderChange(w.w, before, w.seen, verdict.Options{Now: arrived})
}

// await returns the first news about a process and what came with it, and when.
func (w *watcher) await(ctx context.Context, pid uint32) ([]verdict.Verdict, time.Time, error) {
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	for {
		select {
		case a := <-w.arrivals:
			if w.about(a.verdict, pid, nil) {
				return w.drain(a, pid), a.at, nil
			}
		case <-timer.C:
			return nil, time.Time{}, fmt.Errorf("%w within %s; `tracecore bpf-check` says what this node lacks", ErrNoVerdict, Patience)
		case <-ctx.Done():
			return nil, time.Time{}, ctx.Err()
		}
	}
}

// drain adds what arrived in the same moment: a cause and its symptoms leave the
// engine together.
func (w *watcher) drain(first arrival, pid uint32) []verdict.Verdict {
	news := []verdict.Verdict{first.verdict}
	for {
		select {
		case a := <-w.arrivals:
			if w.about(a.verdict, pid, news) {
				news = append(news, a.verdict)
			}
		default:
			return news
		}
	}
}

// about reports whether a verdict names the process or belongs to an incident
// that does. Other faults of this node are none of the drill's business.
func (w *watcher) about(v verdict.Verdict, pid uint32, news []verdict.Verdict) bool {
	same := func(s verdict.Verdict) bool { return s.IncidentID == v.IncidentID }
	return v.Culprit["pid"] == fmt.Sprint(pid) || slices.ContainsFunc(w.seen, same) || slices.ContainsFunc(news, same)
}
