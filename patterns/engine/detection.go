package engine

import (
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// interest is who wants the records of one name.
type interest struct {
	watches    []*watch
	detections []*detection
}

func (i interest) none() bool { return len(i.watches)+len(i.detections) == 0 }

// detection is one detector at work. Rules that name the same detector share it.
type detection struct {
	detector  *rule.Detector
	algorithm rule.Algorithm
	wait      int64 // for the tasks
	shown     bool  // a record since the last decision
}

// detect enters a rule's detector, once.
func (e *Engine) detect(d *rule.Detector) {
	if d == nil || slices.ContainsFunc(e.detections, func(o *detection) bool { return o.detector.Name == d.Name }) {
		return
	}
	one := &detection{detector: d}
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
func (d *detection) reset(e *Engine) {
	d.algorithm = d.detector.New(rule.Limits{Lateness: int64(e.opts.Lateness)})
	d.wait, d.shown = 0, false
}

// observe shows one record to d. What it concludes waits for the end of the
// batch: records that were sent together are judged together.
func (e *Engine) observe(d *detection, r *record) bool {
	matters := d.algorithm.Observe(&rule.Record{
		Name: r.source, Time: r.time, Now: e.now, Resource: r.resource, Attributes: r.attributes, Number: r.number,
	})
	d.shown = d.shown || matters
	return matters
}

// decideDue lets detectors that saw records conclude, or wait.
func (e *Engine) decideDue() {
	for _, d := range e.detections {
		if d.shown {
			d.fire(e)
		}
	}
}

// due is for the tasks.
func (d *detection) due() *int64 { return &d.wait }

// fire takes over what d concludes by now, and waits until it is due again.
func (d *detection) fire(e *Engine) {
	d.shown = false
	if due := d.algorithm.Due(); due != 0 && due <= e.now {
		for _, f := range d.algorithm.Decide(e.now) {
			e.find(&f)
		}
	}
	if due := d.algorithm.Due(); due != 0 {
		e.schedule(d, max(due, e.now+1))
	}
}

// find shows a finding to the rules, as a log record.
func (e *Engine) find(f *rule.Finding) {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	sl := rl.ScopeLogs().AppendEmpty()
	lr := sl.LogRecords().AppendEmpty()
	lr.SetEventName(f.Event)
	lr.SetTimestamp(pcommon.Timestamp(max(f.Time, 0)))
	if rl.Resource().Attributes().FromRaw(f.Resource) != nil || lr.Attributes().FromRaw(f.Attributes) != nil {
		e.stats.EvalErrors++ // a value of a type that no attribute has
		return
	}
	r := record{
		resource: rl.Resource().Attributes(), attributes: lr.Attributes(), finding: f,
		resourceLogs: rl, scopeLogs: sl, logRecord: lr,
		source: f.Event, time: f.Time, last: max(f.Time, f.Last), count: 1, faultID: clean(f.ID),
	}
	defer r.close()
	var others []*watch
	for _, w := range e.logs[f.Event].watches {
		if w.where.holds(e, &r) {
			e.take(w, &r)
		} else {
			others = append(others, w)
		}
	}
	r.count = 0 // where it does not hold any more, it goes
	for _, w := range others {
		e.take(w, &r)
	}
}

// forged reports whether a record from outside claims to be a finding.
func forged(name string) bool { return strings.HasPrefix(name, rule.FindingPrefix) }
