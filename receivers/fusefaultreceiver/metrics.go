package fusefaultreceiver

import (
	"cmp"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// placeAgain is how long a mount is taken to be where it was.
const placeAgain = time.Minute

// measurer turns mounts into metrics. It is not safe for concurrent use.
type measurer struct {
	builder  *metadata.MetricsBuilder
	resource pcommon.Resource
	machine  machine
	bounds   []float64
}

func newMeasurer(builder *metadata.MetricsBuilder, host record.Host, machine machine) *measurer {
	resource := builder.NewResourceBuilder()
	host.Set(resource.SetHostName, resource.SetHostID, resource.SetK8sNodeName, resource.SetHostBootID)
	return &measurer{builder: builder, resource: resource.Emit(), machine: machine, bounds: bounds()}
}

// bounds are the upper bounds of a probe's buckets in seconds: 2^i µs for the
// i-th, and none for the last.
func bounds() []float64 {
	bounds := make([]float64, len(fusefault.Histogram{}.Buckets)-1)
	for i := range bounds {
		bounds[i] = float64(uint64(1)<<i) / 1e6
	}
	return bounds
}

// measure returns the metrics of mounts as of a scan.
func (m *measurer) measure(mounts map[fusefault.Device]*mount, now time.Time) pmetric.Metrics {
	if len(mounts) == 0 {
		return pmetric.NewMetrics()
	}
	histograms := pmetric.NewMetricSlice()
	requests := newHistogram(histograms, "fuse.request.duration", "How long the daemon of a mount took to answer requests.")
	faults := newHistogram(histograms, "fuse.fault.duration", "How long page faults on a mount took that had to wait for its daemon.")
	for _, one := range sorted(mounts) {
		m.locate(one, now)
		m.scalars(one, now)
		m.histogram(requests.AppendEmpty(), one, &one.newest.Requests, now)
		m.histogram(faults.AppendEmpty(), one, &one.newest.Faults, now)
	}
	metrics := m.builder.Emit(metadata.WithResource(m.resource))
	putExemplars(metrics, mounts)
	histograms.MoveAndAppendTo(scopeOf(metrics, m.resource).Metrics())
	return metrics
}

func sorted(mounts map[fusefault.Device]*mount) []*mount {
	list := make([]*mount, 0, len(mounts))
	for _, one := range mounts {
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b *mount) int {
		return cmp.Or(cmp.Compare(a.device.Major, b.device.Major), cmp.Compare(a.device.Minor, b.device.Minor))
	})
	return list
}

// locate finds where process 1 sees a mount, or else its daemon: names that stay
// the same for every waiter.
func (m *measurer) locate(one *mount, now time.Time) {
	if !one.placed.IsZero() && now.Sub(one.placed) < placeAgain {
		return
	}
	one.placed = now
	tables := []string{procfs.OfInit, procfs.OfSelf}
	if one.daemon.pid != 0 {
		tables = append(tables, procfs.OfProcess(one.daemon.pid))
	}
	if place, found := m.machine.Mount(one.device.Major, one.device.Minor, tables...); found {
		one.place = place
	}
}

func (m *measurer) scalars(one *mount, now time.Time) {
	at, device := pcommon.NewTimestampFromTime(now), deviceName(one.device)
	var labels []metadata.MetricAttributeOption
	label := func(with func(string) metadata.MetricAttributeOption, value string) {
		if value != "" {
			labels = append(labels, with(value))
		}
	}
	label(metadata.WithFuseMountPointMetricAttribute, one.place.Point)
	label(metadata.WithFuseMountSourceMetricAttribute, one.place.Source)
	label(metadata.WithFuseMountTypeMetricAttribute, one.place.Type)
	m.builder.RecordFuseInFlightDataPoint(at, int64(one.newest.InFlight), device, labels...)
	age := 0.0
	if !one.oldest.IsZero() {
		age = now.Sub(one.oldest).Seconds()
	}
	m.builder.RecordFuseInFlightOldestAgeDataPoint(at, age, device, labels...)
	if waiting, known := m.machine.Waiting(one.device.Major, one.device.Minor); known {
		m.builder.RecordFuseConnectionWaitingDataPoint(at, waiting, device, labels...)
	}
}

// putExemplars says of what is stuck which rank waits longest for it.
func putExemplars(metrics pmetric.Metrics, mounts map[fusefault.Device]*mount) {
	waiters := map[string]*mount{}
	for device, one := range mounts {
		if one.waiter != nil && !one.oldest.IsZero() {
			waiters[deviceName(device)] = one
		}
	}
	if len(waiters) == 0 || metrics.ResourceMetrics().Len() == 0 {
		return
	}
	for _, metric := range metrics.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		if metric.Name() != metadata.MetricsInfo.FuseInFlightOldestAge.Name {
			continue
		}
		for _, point := range metric.Gauge().DataPoints().All() {
			device, _ := point.Attributes().Get("fuse.device")
			if one := waiters[device.Str()]; one != nil {
				record.Exemplar(point, one.waiter, one.waits.Seconds(), point.Timestamp())
			}
		}
	}
}

func newHistogram(to pmetric.MetricSlice, name, description string) pmetric.HistogramDataPointSlice {
	metric := to.AppendEmpty()
	metric.SetName(name)
	metric.SetDescription(description)
	metric.SetUnit("s")
	histogram := metric.SetEmptyHistogram()
	histogram.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	return histogram.DataPoints()
}

func (m *measurer) histogram(to pmetric.HistogramDataPoint, one *mount, h *fusefault.Histogram, now time.Time) {
	putMount(metadata.MountAttributesOn(record.On(to.Attributes())), one.device, &one.place)
	to.SetStartTimestamp(pcommon.NewTimestampFromTime(one.counted))
	to.SetTimestamp(pcommon.NewTimestampFromTime(now))
	to.ExplicitBounds().FromRaw(m.bounds)
	to.BucketCounts().FromRaw(h.Buckets[:])
	to.SetCount(total(h))
	to.SetSum(float64(h.SumNS) / 1e9)
}

// scopeOf is where the builder has put its metrics; it puts none when all of them
// are switched off.
func scopeOf(metrics pmetric.Metrics, resource pcommon.Resource) pmetric.ScopeMetrics {
	if metrics.ResourceMetrics().Len() > 0 {
		return metrics.ResourceMetrics().At(0).ScopeMetrics().At(0)
	}
	of := metrics.ResourceMetrics().AppendEmpty()
	resource.CopyTo(of.Resource())
	scope := of.ScopeMetrics().AppendEmpty()
	scope.Scope().SetName(metadata.ScopeName)
	return scope
}
