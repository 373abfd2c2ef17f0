package alertexporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/exporters/alertexporter/internal/metadata"
	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// What became of a verdict, as metadata.yaml lists it.
const (
	outcomeCrowded   = "crowded"
	outcomeDrill     = "drill"
	outcomeEnded     = "ended"
	outcomeMild      = "mild"
	outcomeNotOpen   = "not_open"
	outcomeOutdated  = "outdated"
	outcomePartial   = "partial"
	outcomeRefused   = "refused"
	outcomeStarted   = "started"
	outcomeSymptom   = "symptom"
	outcomeUnchanged = "unchanged"
	outcomeUpdated   = "updated"
)

// alerts starts and ends alerts.
type alerts struct {
	config    *Config
	set       exporter.Settings
	now       func() time.Time
	telemetry *metadata.TelemetryBuilder
	courier   *courier
	end       context.CancelFunc
	rounds    sync.WaitGroup
	standing  atomic.Int64 // how many are open, for a scrape that does not wait for requests

	mu     sync.Mutex // verdicts and rounds take turns
	turns  verdicts.Turns
	book   *book
	crowd  verdicts.Crowd
	ends   map[string]told // told to an Alertmanager lately, by the ids of their verdicts
	warned map[string]bool // one log line for each outcome; metrics count the rest
	mute   bool            // the last renewal failed; one log line for each outage
}

func newAlerts(config *Config, set exporter.Settings, now func() time.Time) (*alerts, error) {
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	a := &alerts{config: config, set: set, now: now, telemetry: telemetry, book: newBook(), ends: map[string]told{}, warned: map[string]bool{}, end: func() {}}
	a.turns.Apply, a.turns.Count, a.turns.Now = a.settle, a.count, now
	a.turns.Wait = func(err error) { set.Logger.Warn("alerts wait until they are taken", zap.Error(err)) }
	a.turns.Refuse = func(err error) { a.warn(verdicts.OutcomeAside, err) }
	return a, nil
}

func (a *alerts) start(ctx context.Context, host component.Host) error {
	client, err := verdicts.Storage(ctx, host, a.set.ID, a.config.QueueConfig, "open")
	if err != nil {
		return err
	}
	if err := a.prepare(ctx, host, client); err != nil {
		return err
	}
	if err := a.turns.Start(ctx, host, a.set.ID, a.config.QueueConfig); err != nil {
		return err
	}
	running, end := context.WithCancel(context.Background())
	a.end = end
	a.rounds.Go(func() { a.keep(running) })
	return nil
}

// prepare makes all that a verdict needs, of what is stored.
func (a *alerts) prepare(ctx context.Context, host component.Host, client storage.Client) (err error) {
	if a.courier, err = newCourier(ctx, a.config, host, a.set.TelemetrySettings, a.telemetry); err != nil {
		return err
	}
	if err = a.book.load(ctx, client); err != nil {
		return err
	}
	a.standing.Store(int64(len(a.book.open)))
	return a.telemetry.RegisterExporterAlertOpenCallback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(a.standing.Load())
		return nil
	})
}

func (a *alerts) shutdown(ctx context.Context) error {
	a.end()
	a.rounds.Wait()
	a.telemetry.Shutdown()
	err := a.turns.Close(ctx)
	if a.book.client == nil {
		return err
	}
	return errors.Join(err, a.book.client.Close(ctx))
}

// consume applies the verdicts in their order. What could not be told now is the error's,
// for the next attempt. The queue has one consumer.
func (a *alerts) consume(ctx context.Context, ld plog.Logs) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.turns.Consume(ctx, ld)
}

// settle applies a verdict and counts what became of it.
func (a *alerts) settle(ctx context.Context, f *verdicts.Found) error {
	outcome, err := a.apply(ctx, f)
	if errors.Is(err, errRefused) {
		a.warn(outcomeRefused, err)
		outcome, err = outcomeRefused, nil
	}
	if err != nil {
		return err
	}
	a.book.note(f.ID, f.Revision)
	a.count(ctx, outcome)
	return nil
}

// apply does what one verdict asks for. An error is worth another attempt.
func (a *alerts) apply(ctx context.Context, f *verdicts.Found) (outcome string, err error) {
	if a.book.outdated(f.ID, f.Revision) {
		return outcomeOutdated, nil
	}
	stands := a.book.open[f.ID]
	why := a.config.silent(&f.Verdict)
	switch {
	case why == "" && stands == nil:
		return a.begin(ctx, f)
	case why == "":
		return a.update(ctx, &f.Verdict, stands)
	case stands == nil:
		return why, nil
	}
	return a.finish(ctx, &f.Verdict, stands)
}

// silent says why a verdict is told to nobody, "" where it is.
func (c *Config) silent(v *verdict.Verdict) string {
	least := verdict.Severity(c.MinSeverity)
	switch {
	case v.Pages(least):
		return ""
	case v.Status != verdict.Open && v.GoesOn == "":
		return outcomeNotOpen
	case v.Role != verdict.RootCause:
		return outcomeSymptom
	case v.Drill && c.Drills: // also a likely one: nobody is paged
		return ""
	case v.Drill:
		return outcomeDrill
	case v.Confidence != verdict.Full:
		return outcomePartial
	}
	return outcomeMild
}

// goesOn says why an alert ends whose verdict is open, "" where what it told of is over.
func (c *Config) goesOn(v *verdict.Verdict) string {
	switch c.silent(v) {
	case outcomeNotOpen:
		return ""
	case outcomeSymptom:
		return "explained by another root cause"
	case outcomePartial:
		return "no longer certain"
	case outcomeDrill:
		return "a drill"
	}
	return "no longer severe"
}

// begin starts an alert, unless as many of its pattern and owner began lately as are told:
// then it is told with its next revision for which there is room.
func (a *alerts) begin(ctx context.Context, f *verdicts.Found) (string, error) {
	if a.crowd.Full(f, a.now()) {
		a.warn(outcomeCrowded, fmt.Errorf("more than %d root causes of %s began within %s in the jobs of one owner on a machine (%d on all): the others are in the history", verdicts.MostTold, f.Pattern, verdicts.ToldWithin, verdicts.MostToldOfJobs))
		return outcomeCrowded, nil
	}
	entry := &open{alert: a.config.alertOf(&f.Verdict, f.On), Seen: a.now(), Domain: f.Culprit["job_domain"]}
	if err := a.tell(ctx, firing, &f.Verdict, entry.alert); err != nil {
		return "", err
	}
	a.crowd.Note(f)
	a.enter(ctx, f.ID, entry)
	return outcomeStarted, nil
}

// update says what an open alert says now, where that is renewed anyway. A webhook is told
// of beginnings and ends alone.
func (a *alerts) update(ctx context.Context, v *verdict.Verdict, before *open) (string, error) {
	entry := &open{alert: a.config.alertOf(v, ""), Seen: a.now()}
	entry.Labels, entry.Starts, entry.Domain = before.Labels, before.Starts, before.Domain
	same := a.config.Format != formatAlertmanager || maps.Equal(entry.Annotations, before.Annotations)
	if same {
		if entry.Annotations = before.Annotations; a.config.Stale > 0 && entry.Seen.Sub(before.Seen) >= a.config.Stale/4 {
			a.enter(ctx, v.ID, entry)
		}
		return outcomeUnchanged, nil
	}
	if err := a.tell(ctx, firing, v, entry.alert); err != nil {
		return "", err
	}
	a.enter(ctx, v.ID, entry)
	return outcomeUpdated, nil
}

// finish ends an alert: its verdict is resolved, or pages nobody any more.
func (a *alerts) finish(ctx context.Context, v *verdict.Verdict, stands *open) (string, error) {
	if err := a.tell(ctx, resolved, v, stands.alert); err != nil && !errors.Is(err, errRefused) {
		return "", err
	} else if err != nil {
		a.warn(outcomeRefused, err)
	}
	a.leave(ctx, v.ID)
	return outcomeEnded, nil
}

// tell posts what began or ended.
func (a *alerts) tell(ctx context.Context, status string, v *verdict.Verdict, about alert) error {
	ends := v.Updated
	if _, over := v.Incident(); over != nil {
		ends = *over
	}
	var body []byte
	var err error
	switch {
	case a.config.Format != formatAlertmanager:
		n := &notice{Status: status, Drill: v.Drill, alert: about, Verdict: *v}
		if status == resolved {
			n.Ends, n.Why = &ends, a.config.goesOn(v)
		}
		body, err = a.config.bodyOf(n)
	case status == resolved:
		if why := a.config.goesOn(v); why != "" {
			about.Annotations = maps.Clone(about.Annotations)
			about.Annotations["why"] = why
		}
		over := ended(about, ends, a.now())
		a.ends[v.ID] = told{over, a.now()}
		body, err = safetext.Marshal([]postable{over})
	default:
		delete(a.ends, v.ID)
		body, err = safetext.Marshal([]postable{a.config.standing(about, a.now())})
	}
	if err != nil { // a template that this verdict breaks: it will the next time
		return errors.Join(err, errRefused)
	}
	return a.post(ctx, body)
}

func (a *alerts) post(ctx context.Context, body []byte) error {
	err := a.courier.post(ctx, body)
	if err == nil {
		a.turns.Took()
	}
	return err
}

// enter remembers an open alert.
func (a *alerts) enter(ctx context.Context, id string, entry *open) {
	gone, err := a.book.put(ctx, id, entry)
	if gone != "" {
		a.telemetry.ExporterAlertForgotten.Add(ctx, 1)
		a.warn("forgotten", errors.New("too many alerts are open: one of the node and pattern that have most is renewed no longer"))
	}
	a.stored(err)
	a.standing.Store(int64(len(a.book.open)))
}

// leave forgets an alert.
func (a *alerts) leave(ctx context.Context, id string) {
	a.stored(a.book.remove(ctx, id))
	a.standing.Store(int64(len(a.book.open)))
}

// stored notes that the storage takes nothing: alerts go on, and a restart would lose
// what is open.
func (a *alerts) stored(err error) {
	if err != nil {
		a.warn("storage", err)
	}
}

// keep makes a round now and then.
func (a *alerts) keep(ctx context.Context) {
	tick := time.NewTicker(a.config.Resend)
	defer tick.Stop()
	for {
		err := a.renew(ctx)
		if ctx.Err() == nil {
			if err != nil && !a.mute {
				a.set.Logger.Warn("open alerts are not renewed until they are taken", zap.Error(err))
			}
			a.mute = err != nil
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// renew tells again what was set aside, forgets what nobody confirms, and tells an
// Alertmanager what is open.
func (a *alerts) renew(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turns.Again(ctx)
	var due []postable
	for _, id := range slices.Sorted(maps.Keys(a.book.open)) {
		entry := a.book.open[id]
		if a.config.Stale > 0 && !a.turns.Aside(id) && a.now().Sub(a.turns.Heard(entry.Seen)) > a.config.Stale {
			a.telemetry.ExporterAlertForgotten.Add(ctx, 1)
			a.leave(ctx, id)
			continue
		}
		due = append(due, a.config.standing(entry.alert, a.now()))
	}
	if a.config.Format != formatAlertmanager {
		return nil
	}
	var refused error
	for some := range slices.Chunk(append(due, a.overLately()...), mostAtOnce) {
		switch err := a.postAll(ctx, some); {
		case errors.Is(err, errRefused) || verdicts.IsAlone(err):
			refused = err // the others go on
		case err != nil:
			return err
		}
	}
	return refused
}

// postAll posts alerts together, or where these are too large for a request, in parts.
func (a *alerts) postAll(ctx context.Context, some []postable) error {
	body, err := safetext.Marshal(some)
	if err == nil {
		err = a.post(ctx, body)
	}
	if half := len(some) / 2; half > 0 && errors.Is(err, errTooLarge) {
		return errors.Join(a.postAll(ctx, some[:half]), a.postAll(ctx, some[half:]))
	}
	return err
}

// overLately are the ends that are told again: an Alertmanager takes in what comes close
// together in any order, and may have a beginning after its end.
func (a *alerts) overLately() (all []postable) {
	for _, id := range slices.Sorted(maps.Keys(a.ends)) {
		if over := a.ends[id]; a.now().Sub(over.at) > a.config.lasts() || len(all) >= mostOpen {
			delete(a.ends, id)
		} else {
			all = append(all, over.postable)
		}
	}
	return all
}

func (a *alerts) warn(what string, err error) {
	if !a.warned[what] {
		a.warned[what] = true
		a.set.Logger.Warn("not told as it should be; the metrics otelcol_exporter_alert_* count the rest", zap.String("what", cmp.Or(what, "alert")), zap.Error(err))
	}
}

func (a *alerts) count(ctx context.Context, outcome string) {
	a.telemetry.ExporterAlertVerdicts.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
}
