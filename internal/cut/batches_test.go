package cut

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

func wanted(name string) bool { return name == "wanted" }

// batchOf is a batch in which every resource and every record has a text.
func batchOf(resource string, records map[string]string) plog.Logs {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("host.name", resource)
	for _, name := range []string{"wanted", "other"} {
		lr := rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		lr.SetEventName(name)
		lr.Attributes().PutStr("text", records[name])
	}
	return ld
}

func TestABatchIsCutWhereItIsTooLong(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for name, c := range map[string]struct {
		resource string
		records  map[string]string
		cut      int
	}{
		"nothing":                    {resource: "node-1", records: map[string]string{"wanted": "a", "other": "b"}},
		"a record that is wanted":    {resource: "node-1", records: map[string]string{"wanted": long, "other": "b"}, cut: 1},
		"a record that nobody wants": {resource: "node-1", records: map[string]string{"wanted": "a", "other": long}},
		"a resource":                 {resource: long, records: map[string]string{"wanted": "a", "other": "b"}, cut: 1},
		"all":                        {resource: long, records: map[string]string{"wanted": long, "other": long}, cut: 2},
	} {
		t.Run(name, func(t *testing.T) {
			ld, before := batchOf(c.resource, c.records), batchOf(c.resource, c.records)
			short, cut := limits.Logs(ld, wanted)
			require.Equal(t, c.cut, cut)
			require.Equal(t, before, ld, "what passes on stays as it was")
			expected := batchOf(Text(c.resource, limits.Text), map[string]string{"wanted": Text(c.records["wanted"], limits.Text), "other": c.records["other"]})
			require.Equal(t, expected, short)
			again, cut := limits.Logs(short, wanted)
			require.Zero(t, cut)
			require.Equal(t, short, again)
		})
	}
}

func metricsOf(name, text string, points func(pmetric.Metric) pmetric.NumberDataPointSlice) pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("host.name", text)
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName(name)
	point := points(m).AppendEmpty()
	point.SetIntValue(7)
	point.Attributes().PutStr("text", text)
	return md
}

func encoded(t *testing.T, md pmetric.Metrics) string {
	t.Helper()
	text, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(md)
	require.NoError(t, err)
	return string(text)
}

func TestPointsOfABatchAreCut(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for kind, points := range map[string]func(pmetric.Metric) pmetric.NumberDataPointSlice{
		"gauge": func(m pmetric.Metric) pmetric.NumberDataPointSlice { return m.SetEmptyGauge().DataPoints() },
		"sum":   func(m pmetric.Metric) pmetric.NumberDataPointSlice { return m.SetEmptySum().DataPoints() },
	} {
		t.Run(kind, func(t *testing.T) {
			md := metricsOf("wanted", long, points)
			short, cut := limits.Metrics(md, wanted)
			require.Equal(t, 2, cut)
			require.Equal(t, encoded(t, metricsOf("wanted", long, points)), encoded(t, md), "what passes on stays as it was")
			require.Equal(t, encoded(t, metricsOf("wanted", Text(long, limits.Text), points)), encoded(t, short))

			_, cut = limits.Metrics(metricsOf("other", long, points), wanted)
			require.Equal(t, 1, cut, "of a metric that nobody wants, the resource alone")
			_, cut = limits.Metrics(metricsOf("wanted", "short", points), wanted)
			require.Zero(t, cut)
		})
	}
	histogram := pmetric.NewMetrics()
	m := histogram.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("wanted")
	m.SetEmptyHistogram().DataPoints().AppendEmpty().Attributes().PutStr("text", long)
	_, cut := limits.Metrics(histogram, wanted)
	require.Zero(t, cut, "no rule reads a histogram")
}
