package commandtest

import (
	"slices"
	"testing"
	"time"
)

// ReportDelays makes the percentiles of delays the figures of a benchmark.
func ReportDelays(b *testing.B, delays []time.Duration) {
	b.Helper()
	slices.Sort(delays)
	at := func(percent int) float64 {
		return float64(delays[(len(delays)-1)*percent/100].Nanoseconds()) / 1e6
	}
	b.ReportMetric(at(50), "p50-ms")
	b.ReportMetric(at(99), "p99-ms")
	b.ReportMetric(at(100), "max-ms")
	b.ReportMetric(0, "ns/op") // the waiting between two is not of interest
}
