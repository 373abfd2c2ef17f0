package recipes

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// scraped runs a recipe and returns the data points of the first scrape that came in
// time and that a pipeline passes on, in words: metric, kind, unit, value, attributes that
// rules read. What the receiver adds about the scrape itself is left out.
func scraped(t *testing.T, recipe, variable, receiver string, e *exporter) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "metrics.json")
	startScraping(t, recipe, variable, receiver, e,
		"--config=yaml:exporters::file::path: "+file,
		"--config=yaml:service::pipelines::metrics/out::exporters: [file]")
	deadline := time.Now().Add(patience)
	for {
		text, _ := os.ReadFile(file) // there soon
		for line := range bytes.Lines(text) {
			if !bytes.HasSuffix(line, []byte("\n")) {
				break // the rest of it is on its way
			}
			metrics, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(line)
			require.NoError(t, err)
			if words := inWords(t, metrics); len(words) > 0 {
				return words
			}
		}
		require.True(t, time.Now().Before(deadline), "nothing in %s", file)
		time.Sleep(2 * time.Millisecond)
	}
}

func inWords(t *testing.T, metrics pmetric.Metrics) (words []string) {
	t.Helper()
	for _, rm := range metrics.ResourceMetrics().All() {
		name, _ := rm.Resource().Attributes().Get("host.name")
		require.Equal(t, host, name.Str())
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if strings.HasPrefix(m.Name(), "scrape_") || m.Name() == "up" {
					continue
				}
				for _, p := range points(m) {
					words = append(words, fmt.Sprintf("%s %s %s %.6g%s", m.Name(), kind(m), m.Unit(), p.DoubleValue(), attributes(p.Attributes())))
				}
			}
		}
	}
	return words
}

func points(m pmetric.Metric) (all []pmetric.NumberDataPoint) {
	list := m.Gauge().DataPoints
	if m.Type() == pmetric.MetricTypeSum {
		list = m.Sum().DataPoints
	}
	for _, p := range list().All() {
		all = append(all, p)
	}
	return all
}

func kind(m pmetric.Metric) string {
	if m.Type() != pmetric.MetricTypeSum {
		return strings.ToLower(m.Type().String())
	}
	if m.Sum().IsMonotonic() && m.Sum().AggregationTemporality() == pmetric.AggregationTemporalityCumulative {
		return "counter"
	}
	return "sum"
}

// attributes are those that a rule may read, sorted.
func attributes(m pcommon.Map) string {
	var words []string
	for key, value := range m.All() {
		if key != "hw.type" && key != "hw.id" && key != "dcgm.field" && key != "xpum.counter" {
			words = append(words, " "+key+"="+value.AsString())
		}
	}
	slices.Sort(words)
	return strings.Join(words, "")
}
