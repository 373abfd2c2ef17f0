package identityextension

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// observe makes the tracker's counters metrics of this extension; opened is nil
// where there is none.
func (x *identityExtension) observe(opened tracker) error {
	if opened == nil {
		return x.observeUp(0, "")
	}
	counter := func(value func(identity.Counters) uint64) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(value(opened.Counters())))
			return nil
		}
	}
	stat := func(value func(probe.Stats) uint64) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(value(opened.Stats())))
			return nil
		}
	}
	away := func(value func(probe.Away) uint64) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(value(opened.Report().Away)))
			return nil
		}
	}
	t := x.telemetry
	return errors.Join(
		x.observeUp(1, opened.Report().Rung),
		t.RegisterExtensionIdentityProbeDroppedCallback(stat(func(s probe.Stats) uint64 { return s.Dropped })),
		t.RegisterExtensionIdentityProbeInvalidCallback(stat(func(s probe.Stats) uint64 { return s.Invalid })),
		t.RegisterExtensionIdentityProbeLateCallback(away(func(a probe.Away) uint64 { return a.Records })),
		t.RegisterExtensionIdentityProbeMissedCallback(away(probe.Away.Missed)),
		t.RegisterExtensionIdentityRanksUnrememberedCallback(counter(func(c identity.Counters) uint64 { return c.Unremembered })),
		t.RegisterExtensionIdentityProcessesCallback(counter(func(c identity.Counters) uint64 { return uint64(c.Processes) })),
		t.RegisterExtensionIdentityRanksCallback(counter(func(c identity.Counters) uint64 { return uint64(c.Ranks) })),
		t.RegisterExtensionIdentityExecsCallback(counter(func(c identity.Counters) uint64 { return c.Execs })),
		t.RegisterExtensionIdentityExitsCallback(counter(func(c identity.Counters) uint64 { return c.Exits })),
		t.RegisterExtensionIdentityExitsDroppedCallback(counter(func(c identity.Counters) uint64 { return c.ExitsDropped })),
		t.RegisterExtensionIdentityProcessesEvictedCallback(counter(func(c identity.Counters) uint64 { return c.Evicted })),
		t.RegisterExtensionIdentityProcessesUnreadableCallback(counter(func(c identity.Counters) uint64 { return c.Unreadable })),
		t.RegisterExtensionIdentityEnvironmentsTruncatedCallback(counter(func(c identity.Counters) uint64 { return c.Truncated })),
		t.RegisterExtensionIdentityBadValuesCallback(counter(func(c identity.Counters) uint64 { return c.BadValues })),
		t.RegisterExtensionIdentitySendersUnnotedCallback(counter(func(c identity.Counters) uint64 { return c.SendersUnnoted })),
		t.RegisterExtensionIdentityScansCallback(counter(func(c identity.Counters) uint64 { return c.Scans })),
	)
}

func (x *identityExtension) observeUp(up int64, rung string) error {
	withRung := metric.WithAttributes(attribute.String("rung", rung))
	return x.telemetry.RegisterExtensionIdentityProbeUpCallback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(up, withRung)
		return nil
	})
}
