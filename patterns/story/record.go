package story

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// start is the moment +0s of every story.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// arrival is one copy of a record, ready for the engine.
type arrival struct {
	record *Record
	n      int
	at     time.Time // arrives
	time   time.Time // happened
}

// arrivals returns all records of the story in order of arrival.
func (in *Input) arrivals() []arrival {
	var all []arrival
	for i := range in.Records {
		r := &in.Records[i]
		for n := range r.copies() {
			a := arrival{record: r, n: n, at: start.Add(time.Duration(r.At))}
			a.time = a.at
			if r.Time != nil {
				a.time = start.Add(time.Duration(*r.Time))
			}
			if r.Repeat != nil {
				step := time.Duration(n) * time.Duration(r.Repeat.Every)
				a.at, a.time = a.at.Add(step), a.time.Add(step)
			}
			all = append(all, a)
		}
	}
	return all
}

func (a *arrival) logs(shared map[string]any) (plog.Logs, error) {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	lr := rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	lr.SetEventName(a.record.Log)
	lr.SetTimestamp(pcommon.NewTimestampFromTime(a.time))
	lr.SetObservedTimestamp(pcommon.NewTimestampFromTime(a.at))
	lr.Body().SetStr(a.record.Body)
	return ld, a.fill(rl.Resource(), shared, lr.Attributes())
}

func (a *arrival) metrics(shared map[string]any) (pmetric.Metrics, error) {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName(a.record.Metric)
	var dp pmetric.NumberDataPoint
	switch a.record.Type {
	case "gauge":
		dp = m.SetEmptyGauge().DataPoints().AppendEmpty()
	default:
		sum := m.SetEmptySum()
		sum.SetIsMonotonic(true)
		sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		if a.record.Type == "delta" {
			sum.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
		}
		dp = sum.DataPoints().AppendEmpty()
	}
	dp.SetTimestamp(pcommon.NewTimestampFromTime(a.time))
	value := a.record.Value
	if a.record.Repeat != nil {
		value += float64(a.n) * a.record.Repeat.Add
	}
	dp.SetDoubleValue(value)
	return md, a.fill(rm.Resource(), shared, dp.Attributes())
}

func (a *arrival) fill(resource pcommon.Resource, shared map[string]any, attributes pcommon.Map) error {
	of := a.record.Resource
	if of == nil {
		of = shared
	}
	for _, one := range []struct {
		from map[string]any
		to   pcommon.Map
	}{{of, resource.Attributes()}, {a.record.Attributes, attributes}} {
		if err := one.to.FromRaw(one.from); err != nil {
			return fmt.Errorf("attributes of %s%s: %w", a.record.Log, a.record.Metric, err)
		}
		if a.record.Repeat != nil {
			a.number(one.to)
		}
	}
	return nil
}

// number fills in the number of the copy. A value of digits alone becomes an
// integer, as pids and ranks are.
func (a *arrival) number(m pcommon.Map) {
	fill := strings.NewReplacer("{n:hex}", fmt.Sprintf("%04x", a.n), "{n}", strconv.Itoa(a.n))
	for _, v := range m.All() {
		if v.Type() != pcommon.ValueTypeStr || !strings.Contains(v.Str(), "{n") {
			continue
		}
		whole := v.Str() == "{n}"
		v.SetStr(fill.Replace(v.Str()))
		if whole {
			v.SetInt(int64(a.n))
		}
	}
}
