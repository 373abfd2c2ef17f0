package engine

import (
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// detection is one detector at work on the records of one trust. Rules that name the same
// detector share it.
type detection struct {
	engine    *Engine
	detector  *rule.Detector
	trust     verdict.Trust
	algorithm rule.Algorithm
	wait      int64 // for the time line
	shown     bool  // a record since the last decision
}

// detect enters a rule's detector, once.
func (e *Engine) detect(d *rule.Detector) {
	if d == nil || slices.ContainsFunc(e.detections, func(o *detection) bool { return o.detector.Name == d.Name }) {
		return
	}
	for trust := verdict.Proven; trust >= d.Trust; trust-- {
		e.detectFrom(d, trust)
	}
}

func (e *Engine) detectFrom(d *rule.Detector, trust verdict.Trust) {
	one := &detection{engine: e, detector: d, trust: trust}
	e.detections = append(e.detections, one)
	for _, entry := range []struct {
		to    map[string]interest
		names []string
	}{{e.logs, d.Logs}, {e.metrics, d.Metrics}} {
		for _, name := range entry.names {
			by := entry.to[name]
			by.detections = append(by.detections, one)
			entry.to[name] = by
		}
	}
}

// reset begins with an empty state.
func (d *detection) reset() {
	d.algorithm = d.detector.New(rule.Limits{Lateness: d.engine.time.Lateness()})
	d.wait, d.shown = 0, false
}

// observe shows one record to d. What it concludes waits for the end of the
// batch: records that were sent together are judged together.
func (d *detection) observe(r *record) bool {
	if !d.sees(r) {
		return false
	}
	matters := d.algorithm.Observe(&rule.Record{
		Name: r.source, Time: r.Time, Run: r.run, Beside: d.engine.runs.Beside(r.job(), r.run), With: d.engine.runs.With(r.job(), r.run, r.Time), Now: d.engine.time.Now(), Late: r.late(), Resource: r.resource, Attributes: r.attributes, Number: r.number,
	})
	d.shown = d.shown || matters
	return matters
}

// sees reports whether a record is of the trust that it is shown.
func (d *detection) sees(r *record) bool {
	if slices.Contains(d.detector.Facts, r.source) {
		return r.trust == verdict.Proven
	}
	return r.trust == d.trust
}

// takesLate reports whether d is shown records of that event that are later than the lateness allows.
func (d *detection) takesLate(event string) bool { return slices.Contains(d.detector.Ends, event) }

// decideDue lets detectors that saw records conclude, or wait.
func (e *Engine) decideDue() {
	for _, d := range e.detections {
		if d.shown {
			d.Fire()
		}
	}
}

// name is that of its state in a snapshot.
func (d *detection) name() string { return d.detector.Name + " " + d.trust.String() }

// Wait is for the time line.
func (d *detection) Wait() *int64 { return &d.wait }

// Fire takes over what d concludes by now, and waits until it is due again.
func (d *detection) Fire() {
	d.shown = false
	now := d.engine.time.Now()
	if due := d.algorithm.Due(); due != 0 && due <= now {
		for _, f := range d.algorithm.Decide(now) {
			d.engine.find(&f, d.trust)
		}
	}
	d.callAgain()
}

func (d *detection) callAgain() {
	if due := d.algorithm.Due(); due != 0 {
		d.engine.time.Call(d, max(due, d.engine.time.Now()+1))
	}
}

// find shows a finding to the rules, as a log record.
func (e *Engine) find(f *rule.Finding, trust verdict.Trust) {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	sl := rl.ScopeLogs().AppendEmpty()
	lr := sl.LogRecords().AppendEmpty()
	lr.SetEventName(f.Event)
	lr.SetTimestamp(pcommon.Timestamp(max(f.Time, 0)))
	if rl.Resource().Attributes().FromRaw(f.Resource) != nil || lr.Attributes().FromRaw(f.Attributes) != nil {
		e.own.EvalErrors++ // a value of a type that no attribute has
		return
	}
	lr.Attributes().PutStr(rule.AttributeTrust, trust.String())
	r := record{
		resource: rl.Resource().Attributes(), attributes: lr.Attributes(), finding: f, trust: trust,
		resourceLogs: rl, scopeLogs: sl, logRecord: lr,
		source: f.Event, Span: timeline.Span{Time: f.Time, Last: max(f.Time, f.Last)}, count: 1, faultID: clean(f.ID),
	}
	defer r.close()
	if e.identify(&r); e.moot(&r) {
		return
	}
	var others []*watch
	for _, w := range e.logs[f.Event].watches {
		if e.judged = w; w.where.holds(e, &r) {
			e.take(w, &r)
		} else {
			others = append(others, w)
		}
	}
	r.count = 0 // where it does not hold any more, it goes
	for _, w := range others {
		e.judged = w
		e.take(w, &r)
	}
}

// forged reports whether a record from outside claims to be a finding.
func forged(name string) bool { return strings.HasPrefix(name, rule.FindingPrefix) }
