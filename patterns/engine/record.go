package engine

import (
	"math"
	"slices"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/ottl/contexts/ottldatapoint"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/ottl/contexts/ottllog"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// record is a log record or a data point in front of the rules.
type record struct {
	resource   pcommon.Map
	attributes pcommon.Map
	log        *ottllog.TransformContext // made when it is first needed
	point      *ottldatapoint.TransformContext

	resourceLogs plog.ResourceLogs // of a log record
	scopeLogs    plog.ScopeLogs
	logRecord    plog.LogRecord

	source  string // event or metric name
	time    int64
	last    int64 // end of what a folded record covers
	count   float64
	faultID string
	heard   int64 // when it came, if later than the lateness allows

	finding *rule.Finding // that it was made from, nil for a record from outside

	number float64 // of a data point
	start  int64
	kind   kind
}

// kind says how the numbers of a series add up.
type kind uint8

const (
	gauge kind = iota
	cumulative
	delta
)

// Logs evaluates each record and returns copies of those some rule wanted, for
// the caller's journal: the same calls again rebuild the same state.
func (e *Engine) Logs(ld plog.Logs) plog.Logs {
	wanted := plog.NewLogs()
	for i := range ld.ResourceLogs().Len() {
		rl := ld.ResourceLogs().At(i)
		to := plog.NewResourceLogs()
		for j := range rl.ScopeLogs().Len() {
			e.scopeLogs(rl, rl.ScopeLogs().At(j), to)
		}
		if to.ScopeLogs().Len() > 0 {
			rl.Resource().CopyTo(to.Resource())
			to.MoveTo(wanted.ResourceLogs().AppendEmpty())
		}
	}
	e.decideDue()
	return wanted
}

func (e *Engine) scopeLogs(rl plog.ResourceLogs, sl plog.ScopeLogs, to plog.ResourceLogs) {
	var wanted plog.LogRecordSlice
	found := false
	for k := range sl.LogRecords().Len() {
		lr := sl.LogRecords().At(k)
		by := e.logs[lr.EventName()]
		if by.none() || forged(lr.EventName()) || !e.log(by, rl, sl, lr) {
			e.stats.Unmatched++
			continue
		}
		e.stats.Matched++
		if !found {
			scope := to.ScopeLogs().AppendEmpty()
			sl.Scope().CopyTo(scope.Scope())
			found, wanted = true, scope.LogRecords()
		}
		lr.CopyTo(wanted.AppendEmpty())
	}
}

// log shows one record to those that watch its name.
func (e *Engine) log(by interest, rl plog.ResourceLogs, sl plog.ScopeLogs, lr plog.LogRecord) bool {
	r := record{
		resource: rl.Resource().Attributes(), attributes: lr.Attributes(),
		resourceLogs: rl, scopeLogs: sl, logRecord: lr,
		source: clean(lr.EventName()), time: int64(lr.Timestamp()), count: 1,
	}
	defer r.close()
	if r.time <= 0 || r.time > maxTime {
		r.time = int64(lr.ObservedTimestamp())
	}
	r.last = r.time
	r.storm()
	return e.show(by, &r)
}

// logContext is r as OTTL sees it.
func (r *record) logContext() *ottllog.TransformContext {
	if r.log == nil {
		r.log = ottllog.NewTransformContextPtr(r.resourceLogs, r.scopeLogs, r.logRecord)
	}
	return r.log
}

func (r *record) close() {
	if r.log != nil {
		r.log.Close()
	}
}

// storm reads what a folded record says of its storm: count, times and id.
func (r *record) storm() {
	if v, ok := r.attributes.Get(rule.AttributeCount); ok && v.Type() == pcommon.ValueTypeInt && v.Int() > 0 {
		r.count = float64(v.Int())
	}
	if v, ok := r.attributes.Get(rule.AttributeFaultID); ok {
		r.faultID = valueString(v)
	}
	if v, ok := r.attributes.Get(rule.AttributeFirstTime); ok && v.Int() > 0 && v.Int() < r.time {
		r.time = v.Int()
	}
	if v, ok := r.attributes.Get(rule.AttributeLastTime); ok && v.Int() > r.last {
		r.last = v.Int()
	}
}

// Metrics is Logs for number data points.
func (e *Engine) Metrics(md pmetric.Metrics) pmetric.Metrics {
	wanted := pmetric.NewMetrics()
	for i := range md.ResourceMetrics().Len() {
		rm := md.ResourceMetrics().At(i)
		to := pmetric.NewResourceMetrics()
		for j := range rm.ScopeMetrics().Len() {
			e.scopeMetrics(rm, rm.ScopeMetrics().At(j), to)
		}
		if to.ScopeMetrics().Len() > 0 {
			rm.Resource().CopyTo(to.Resource())
			to.MoveTo(wanted.ResourceMetrics().AppendEmpty())
		}
	}
	e.decideDue()
	return wanted
}

func (e *Engine) scopeMetrics(rm pmetric.ResourceMetrics, sm pmetric.ScopeMetrics, to pmetric.ResourceMetrics) {
	scope := pmetric.NewScopeMetrics()
	for k := range sm.Metrics().Len() {
		if matched := e.metric(rm, sm, sm.Metrics().At(k)); matched.Name() != "" {
			matched.MoveTo(scope.Metrics().AppendEmpty())
		}
	}
	if scope.Metrics().Len() > 0 {
		sm.Scope().CopyTo(scope.Scope())
		scope.MoveTo(to.ScopeMetrics().AppendEmpty())
	}
}

// metric shows the points of one metric and returns those that were wanted as
// a metric of the same kind, without a name when there are none.
func (e *Engine) metric(rm pmetric.ResourceMetrics, sm pmetric.ScopeMetrics, m pmetric.Metric) pmetric.Metric {
	matched := pmetric.NewMetric()
	points, kind := numberPoints(m)
	by := e.metrics[m.Name()]
	if by.none() {
		e.stats.Unmatched += uint64(points.Len())
		return matched
	}
	for i := range points.Len() {
		if !e.point(by, rm, sm, m, points.At(i), kind) {
			e.stats.Unmatched++
			continue
		}
		e.stats.Matched++
		if matched.Name() == "" {
			emptyLike(m, matched)
		}
		to, _ := numberPoints(matched)
		points.At(i).CopyTo(to.AppendEmpty())
	}
	return matched
}

// emptyLike makes to a metric like m, without points.
func emptyLike(m, to pmetric.Metric) {
	to.SetName(m.Name())
	to.SetUnit(m.Unit())
	if m.Type() != pmetric.MetricTypeSum {
		to.SetEmptyGauge()
		return
	}
	to.SetEmptySum().SetAggregationTemporality(m.Sum().AggregationTemporality())
	to.Sum().SetIsMonotonic(m.Sum().IsMonotonic())
}

// numberPoints returns the points of a sum or gauge; other types have none.
func numberPoints(m pmetric.Metric) (pmetric.NumberDataPointSlice, kind) {
	switch m.Type() {
	case pmetric.MetricTypeSum:
		switch {
		case m.Sum().AggregationTemporality() == pmetric.AggregationTemporalityDelta:
			return m.Sum().DataPoints(), delta
		case m.Sum().IsMonotonic():
			return m.Sum().DataPoints(), cumulative
		default:
			return m.Sum().DataPoints(), gauge
		}
	case pmetric.MetricTypeGauge:
		return m.Gauge().DataPoints(), gauge
	default:
		return pmetric.NewNumberDataPointSlice(), gauge
	}
}

func (e *Engine) point(by interest, rm pmetric.ResourceMetrics, sm pmetric.ScopeMetrics, m pmetric.Metric, dp pmetric.NumberDataPoint, kind kind) bool {
	number := dp.DoubleValue()
	if dp.ValueType() == pmetric.NumberDataPointValueTypeInt {
		number = float64(dp.IntValue())
	}
	if math.IsNaN(number) || math.IsInf(number, 0) || dp.Flags().NoRecordedValue() {
		return false
	}
	r := record{
		resource: rm.Resource().Attributes(), attributes: dp.Attributes(),
		point:  ottldatapoint.NewTransformContextPtr(rm, sm, m, dp),
		source: clean(m.Name()), time: int64(dp.Timestamp()), count: 1,
		number: number, start: int64(dp.StartTimestamp()), kind: kind,
	}
	defer r.point.Close()
	r.last = r.time
	return e.show(by, &r)
}

// show hands r to each evidence whose condition it meets, and to detectors.
func (e *Engine) show(by interest, r *record) bool {
	wanted, admitted := false, false
	for _, w := range by.watches {
		if !w.where.holds(e, r) {
			continue
		}
		if !admitted && !e.admit(r) {
			return false
		}
		admitted = true
		if (r.heard == 0 || w.confirms()) && e.take(w, r) {
			wanted = true
		}
	}
	if len(by.detections) > 0 && !admitted && !e.admit(r) {
		return false
	}
	if e.settleLate(r, wanted); r.heard != 0 {
		return wanted
	}
	for _, d := range by.detections {
		if e.observe(d, r) {
			wanted = true
		}
	}
	return wanted
}

// maxStep is how far one record may move event time while Advance was never
// called and records are the only clock.
const maxStep = int64(3600e9)

// maxTime is the last moment that is believed: the year 2200. Sums of times and
// durations below it do not overflow.
const maxTime = int64(7_258_118_400e9)

// admit places r in event time, or drops it as too late. A record without a
// believable time is taken as of now.
func (e *Engine) admit(r *record) bool {
	r.time = max(r.time, r.last-maxStep)
	if r.time <= 0 || r.time > maxTime || r.last > maxTime {
		r.time, r.last = max(e.now, 1), max(e.now, 1)
		return true
	}
	if e.now == 0 {
		e.now = r.last
	}
	limit, then := e.now+maxStep, e.now
	if e.clock != 0 {
		limit, then = e.clock+int64(e.opts.MaxAhead), e.clock
	}
	if r.last > limit {
		e.stats.Ahead++
		r.time, r.last = min(r.time, then), then
	}
	if r.last < e.watermark() {
		return e.late(r)
	}
	e.moveTo(r.last)
	return true
}

// take reads the fields of r and hands it to the operator of w.
func (e *Engine) take(w *watch, r *record) bool {
	values, ranks, lists := w.read(e, r)
	if !known(values, w.match) || !known(values, w.by) {
		e.stats.Unkeyed++
		return false
	}
	switch w.Operator {
	case rule.Occur:
		e.place(w, mark{
			Time: r.time, Last: r.last, Count: r.count, Values: values, Ranks: ranks, Lists: lists, Source: r.source, FaultID: r.faultID, Heard: r.heard,
			Finding: r.finding != nil, Gone: r.finding != nil && r.finding.Gone,
		})
	default:
		e.sample(w, r, values)
	}
	return true
}

// read returns the fields of r, the ranks in the list of that name among them, and
// those in other lists that links look at.
func (w *watch) read(e *Engine, r *record) (values []string, ranks []int, all lists) {
	values = make([]string, len(w.state.names))
	for i := range w.fields {
		g := &w.fields[i]
		v := g.get(e, r)
		values[g.to] = anyString(v)
		if w.state.list && g.to == w.state.rank {
			ranks = ranksOf(v)
		}
		if slices.Contains(w.state.lists, g.to) {
			all = all.keep(g.to, ranksOf(v))
		}
	}
	return values, ranks, all
}
