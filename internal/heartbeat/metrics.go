package heartbeat

import (
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// OwnMetrics begins the names of a collector's own metrics.
const OwnMetrics = "otelcol_"

// Probes reads which hooks are in use, by the metric probe_up.
func Probes(families map[string]*dto.MetricFamily) []Probe {
	probes := []Probe{}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		component, isProbe := strings.CutSuffix(strings.TrimPrefix(name, OwnMetrics), "_probe_up")
		if !isProbe {
			continue
		}
		for _, m := range families[name].GetMetric() {
			probes = append(probes, Probe{Component: strings.Replace(component, "_", " ", 1), Hook: Label(m, "rung"), Up: Value(m) > 0})
		}
	}
	return probes
}

// Proven reads whether what the probe of the kernel log tells can prove anything.
func Proven(families map[string]*dto.MetricFamily) bool {
	return slices.ContainsFunc(families[OwnMetrics+"receiver_kernelevents_probe_proven"].GetMetric(), func(m *dto.Metric) bool { return Value(m) > 0 })
}

// Drop is a counter of what was lost or refused.
type Drop struct {
	Metric string            `json:"metric"`
	Labels map[string]string `json:"labels,omitempty"`
	Count  float64           `json:"count"`
}

// lossWords end the names of metrics that count what is lost, refused or failed.
var lossWords = []string{"cut", "dropped", "evicted", "failed", "failures", "lost", "refused", "rejected", "set_aside"}

// Drops reads the counters of losses that are above zero.
func Drops(families map[string]*dto.MetricFamily) []Drop {
	drops := []Drop{}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		plain := strings.TrimSuffix(strings.TrimPrefix(name, OwnMetrics), "_total")
		if !strings.HasPrefix(name, OwnMetrics) || !slices.ContainsFunc(lossWords, func(word string) bool { return strings.HasSuffix(plain, "_"+word) }) {
			continue
		}
		for _, m := range families[name].GetMetric() {
			if Value(m) == 0 || families[name].GetType() != dto.MetricType_COUNTER {
				continue
			}
			drop := Drop{Metric: plain, Count: Value(m), Labels: map[string]string{}}
			for _, label := range m.GetLabel() {
				if !strings.HasPrefix(label.GetName(), "otel_scope_") {
					drop.Labels[label.GetName()] = label.GetValue()
				}
			}
			drops = append(drops, drop)
		}
	}
	return drops
}

// Label is a label of a metric, "" without.
func Label(m *dto.Metric, name string) string {
	for _, label := range m.GetLabel() {
		if label.GetName() == name {
			return label.GetValue()
		}
	}
	return ""
}

// Value is that of a counter or a gauge.
func Value(m *dto.Metric) float64 {
	if m.GetCounter() != nil {
		return m.GetCounter().GetValue()
	}
	return m.GetGauge().GetValue()
}
