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

// Patience is how long after a step its verdict may come: a busy node is slow.
const Patience = time.Minute

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
extensions: {identity: {error_mode: propagate, drill_secret: %q}}
receivers:
  kernelevents: {identity: identity, error_mode: propagate}
  oomkill: {identity: identity, error_mode: propagate}
  fusefault: {identity: identity, error_mode: propagate}
  ncclsock: {identity: identity, error_mode: propagate}
processors: {patterndetector: {}}
exporters: {sink: {}}
service:
  extensions: [identity]
  telemetry:
    logs: {level: error, encoding: console, disable_stacktrace: true}
    metrics: {level: none}
  pipelines:
    logs: {receivers: [kernelevents, oomkill, fusefault, ncclsock], processors: [patterndetector], exporters: [sink]}
`

// Run makes the fault and writes what came of it. It returns ErrNoVerdict when
// a step of the drill led to none.
func (d Drill) Run(ctx context.Context, w io.Writer) error {
	proof, err := openProof(w)
	if err != nil {
		return fmt.Errorf("drill %s: %w", d.Name, err)
	}
	defer proof.close()
	watch := &watcher{w: w, arrivals: make(chan arrival, 256), proof: proof}
	p, err := pipeline.Start(ctx, fmt.Sprintf(config, proof.path), watch.collect)
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
	proof    *proof
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

// step is something that a drill did to a process, and the pattern whose verdict
// it leads to. Without a time of its own it is timed from the event that the
// kernel reported.
type step struct {
	did     string
	at      time.Time
	pid     uint32
	device  string // of a mount, where the verdict is about one
	pattern string
}

// names reports whether a verdict names what the step was done to.
func (s step) names(v verdict.Verdict) bool {
	return v.Culprit["pid"] == fmt.Sprint(s.pid) || s.device != "" && v.Culprit["device"] == s.device
}

// expect waits for the verdict that a step leads to, and shows it with its delay
// and with what else came of the step until then.
func (w *watcher) expect(ctx context.Context, s step) error {
	news, arrived, err := w.await(ctx, s)
	if err != nil {
		return fmt.Errorf("%s: %w", s.did, err)
	}
	if !news[len(news)-1].Drill {
		return fmt.Errorf("%s: the verdict %s does not say that it is of a drill: another fault of this node has joined it; do not trust it, and drill again", s.did, s.pattern)
	}
	if s.at.IsZero() {
		s.at = news[len(news)-1].Onset
	}
	fmt.Fprintf(w.w, "%s\n  verdict after %s\n\n", s.did, arrived.Sub(s.at).Round(10*time.Microsecond))
	before := w.seen
	w.seen = verdict.Merge(before, news)
	return verdict.RenderChange(w.w, before, w.seen, verdict.Options{Now: arrived})
}

// await returns the news about a step's process up to the verdict that is
// waited for, which is the last, and when that came.
func (w *watcher) await(ctx context.Context, s step) ([]verdict.Verdict, time.Time, error) {
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	var news []verdict.Verdict
	for {
		select {
		case a := <-w.arrivals:
			if !w.about(a.verdict, s, news) {
				continue
			}
			news = append(news, a.verdict)
			if a.verdict.Pattern == s.pattern {
				return news, a.at, nil
			}
		case <-timer.C:
			return nil, time.Time{}, fmt.Errorf("%w within %s; `tracecore bpf-check` says what this node lacks", ErrNoVerdict, Patience)
		case <-ctx.Done():
			return nil, time.Time{}, ctx.Err()
		}
	}
}

// about reports whether a verdict is about the step or belongs to an incident
// that is. Other faults of this node are none of the drill's business.
func (w *watcher) about(v verdict.Verdict, s step, news []verdict.Verdict) bool {
	same := func(s verdict.Verdict) bool { return s.IncidentID == v.IncidentID }
	return s.names(v) || slices.ContainsFunc(w.seen, same) || slices.ContainsFunc(news, same)
}
