package engine

import (
	"hash/fnv"
	"io"
	"slices"
	"strconv"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/ottl/contexts/ottldatapoint"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/ottl/contexts/ottllog"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine/fault"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// record is a log record or a data point in front of the rules.
type record struct {
	timeline.Span
	resource   pcommon.Map
	attributes pcommon.Map
	log        *ottllog.TransformContext // made when it is first needed
	point      *ottldatapoint.TransformContext

	resourceLogs plog.ResourceLogs // of a log record
	scopeLogs    plog.ScopeLogs
	logRecord    plog.LogRecord

	run     string // the start of its job that it is about
	source  string // event or metric name
	trust   verdict.Trust
	count   float64
	faultID string
	began   int64 // what it tells of, 0 for at its time

	finding *rule.Finding // that it was made from, nil for a record from outside

	number float64 // of a data point
	start  int64
	kind   timeline.Kind
}

// show hands r to each evidence whose condition it meets, and to detectors.
func (e *Engine) show(by interest, r *record) bool {
	wanted, admitted := false, false
	for _, w := range by.watches {
		w.heard = max(w.heard, min(r.Last, max(e.time.Now(), e.time.Clock()))) // not what a sender's clock says
		if e.judged = w; !w.where.holds(e, r) {
			continue
		}
		if !admitted && !e.admit(r) {
			return false
		}
		admitted = true
		if (r.Overdue == 0 || w.confirms()) && e.take(w, r) {
			wanted = true
		}
	}
	if len(by.detections) > 0 && !admitted && !e.admit(r) {
		return false
	}
	for _, d := range by.detections {
		if (r.Overdue == 0 || d.takesLate(r.source)) && d.observe(r) {
			wanted = true
		}
	}
	e.time.Used(&r.Span, wanted)
	return wanted
}

// admit puts r in event time, unless it is too late, and reads its trust.
func (e *Engine) admit(r *record) bool {
	r.trust = rule.TrustOf(r.resource, r.attributes)
	return e.time.Admit(&r.Span)
}

// confirms reports whether a record of w only adds to what a fault rests on,
// whenever it comes. A series needs its samples in order of time.
func (w *watch) confirms() bool { return w.operator == nil }

// take reads the fields of r and makes a mark of it, or a sample.
func (e *Engine) take(w *watch, r *record) bool {
	values, ranks, lists, members := w.read(e, r)
	if !known(values, w.Match) || !known(values, w.By) || !known(values, w.group) {
		if e.own.Unkeyed++; e.own.Unkeyed == 1 {
			e.own.UnkeyedBy = e.judgedOn(r)
		}
		return false
	}
	if w.operator != nil {
		e.sample(w, r, values)
		return true
	}
	first, last := r.Time, r.Last
	if w.Newest {
		if at := e.beginnings.Last(r.source, r.Time, r.attributes); at < r.Time {
			first, last = at, at
		}
	}
	e.faults.Place(w.Evidence, fault.Mark{
		Time: first, Last: last, Began: r.beganBefore(), Count: r.count, Values: values, Ranks: ranks, Lists: lists, Members: members, Source: r.source, Trust: r.trust, FaultID: r.faultID, Span: r.span(), Overdue: r.Overdue,
		Drill: isTrue(r.attributes, rule.AttributeDrill), Late: r.late(),
		Run: r.rankRun(), Finding: r.finding != nil, Gone: r.finding != nil && r.finding.Gone,
	})
	return true
}

// rankRun is the start of its job that the process is of which a finding names, "" where that is the start of r.
func (r *record) rankRun() string {
	if r.finding == nil {
		return ""
	}
	run := clean(rule.Text(r.attributes, rule.AttributeRankRun))
	if run == r.run {
		return ""
	}
	return run
}

// beganBefore is when that began which r tells of, 0 where it is not before r itself.
func (r *record) beganBefore() int64 {
	if r.began >= r.Time {
		return 0
	}
	return r.began
}

// span is the span that a log record was written in, as digits; "" for none.
func (r *record) span() string {
	if r.point != nil {
		return ""
	}
	s := verdict.SpanOf(r.logRecord.TraceID(), r.logRecord.SpanID())
	return s.TraceID + s.SpanID
}

// late reports whether it happened while nobody looked, and was read later.
func (r *record) late() bool {
	if r.finding != nil {
		return r.finding.Late
	}
	return isTrue(r.attributes, rule.AttributeLate) || isTrue(r.attributes, rule.AttributeLineLate)
}

// isTrue reports whether an attribute is there and true: a drill made what r tells, say.
func isTrue(attributes pcommon.Map, name string) bool {
	v, ok := attributes.Get(name)
	return ok && v.Type() == pcommon.ValueTypeBool && v.Bool()
}

// known reports whether no value at positions is unknown.
func known(values []string, positions []int) bool {
	for _, at := range positions {
		if values[at] == "" {
			return false
		}
	}
	return true
}

// read returns the fields of r, the ranks in the list of that name among them, and
// those in other lists that links look at, and the members of lists of names.
func (w *watch) read(e *Engine, r *record) (values []string, ranks []int, all fault.Lists, members fault.Members) {
	values = make([]string, len(w.Rule.Names))
	for i := range w.fields {
		g := &w.fields[i]
		isRanks, isList, isNames := w.Rule.RankList && g.to == w.Rule.Rank, slices.Contains(w.Rule.Lists, g.to), slices.Contains(w.Rule.Members, g.to)
		if !isRanks && !isList && !isNames {
			values[g.to] = g.read(e, r)
			continue
		}
		v := g.get(e, r)
		values[g.to] = anyString(v)
		if isRanks {
			ranks = ranksOf(v)
		}
		if isList {
			all = all.Keep(g.to, ranksOf(v))
		}
		if isNames {
			members = members.Keep(g.to, namesOf(v))
		}
	}
	if at, ok := w.Rule.Position("run"); ok && r.run != "" {
		values[at] = r.run
	}
	w.ownBoot(values, r)
	return values, ranks, all, members
}

// ownBoot leaves out the boot where r is about another machine than its sender's: a
// watcher of Kubernetes tells of all nodes.
func (w *watch) ownBoot(values []string, r *record) {
	boot, told := w.Rule.Position("boot")
	host, named := w.Rule.Position("host")
	if !told || !named || values[boot] == "" {
		return
	}
	if sender, ok := r.resource.Get("host.name"); !ok || clean(sender.AsString()) != values[host] {
		values[boot] = ""
	}
}

// sample gives r to its series.
func (e *Engine) sample(w *watch, r *record, values []string) {
	one := timeline.Sample{Time: r.Time, Start: r.start, Number: r.number, Kind: r.kind, Values: values, Source: r.source, Trust: r.trust, Late: r.late()}
	switch w.Operator {
	case rule.Change:
		one.Text = strconv.FormatFloat(r.number, 'g', -1, 64)
		if w.value != nil {
			one.Text = w.value.read(e, r)
		}
	case rule.Stay:
		one.On = w.while.holds(e, r)
	case rule.BelowMedian:
		one.Group = w.groupOf(values, r.trust)
	}
	e.series.Sample(w.operator, seriesID(w, r, values), &one)
}

// seriesID tells series apart: data points by all their attributes, log records
// by the thing that they are about. Nobody continues a series that is trusted more.
func seriesID(w *watch, r *record, values []string) uint64 {
	if !w.OnMetrics() {
		return w.thingID(values, r.trust)
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, r.source)
	_, _ = h.Write([]byte{byte(r.trust)})
	return (h.Sum64() + mapHash(r.resource) + mapHash(r.attributes)*31) | 1
}

// thingID is the series of log records that have these values.
func (w *watch) thingID(values []string, trust verdict.Trust) uint64 {
	t, _ := fault.Tuple(values, w.thing)
	h := fnv.New64a()
	_, _ = io.WriteString(h, t)
	_, _ = h.Write([]byte{byte(trust)})
	return h.Sum64() | 1
}

// groupOf is the group of below_median: series are compared with those that are trusted
// as much, so that nobody moves the median of others.
func (w *watch) groupOf(values []string, trust verdict.Trust) string {
	t, _ := fault.Tuple(values, w.group)
	return trust.String() + "\x00" + t
}

// mapHash does not depend on the order of the attributes.
func mapHash(m pcommon.Map) uint64 {
	var sum uint64
	for k, v := range m.All() {
		h := fnv.New64a()
		_, _ = io.WriteString(h, k)
		_, _ = h.Write([]byte{0})
		_, _ = io.WriteString(h, valueString(v))
		sum += h.Sum64()
	}
	return sum
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
	if v, ok := r.attributes.Get(rule.AttributeFirstTime); ok && v.Int() > 0 && v.Int() < r.Time {
		r.Time = v.Int()
	}
	if v, ok := r.attributes.Get(rule.AttributeLastTime); ok && v.Int() > r.Last {
		r.Last = v.Int()
	}
}
