package identityextension

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/extensions/identityextension/internal/metadata"
)

// fakeTracker knows process 7 and has one exit to tell.
type fakeTracker struct {
	report probe.Report
	closed atomic.Int32
}

func (f *fakeTracker) Lookup(pid, _ uint32, _ time.Time) (identity.Process, bool) {
	return identity.Process{PID: pid, Rank: 3}, pid == 7
}

func (f *fakeTracker) Exits(fn func(identity.Exit)) func() {
	fn(identity.Exit{Signal: 6})
	return func() {}
}

func (f *fakeTracker) Ranks() []identity.Process {
	return []identity.Process{{PID: 7, Rank: 3}}
}

func (f *fakeTracker) Report() probe.Report { return f.report }
func (f *fakeTracker) Stats() probe.Stats   { return probe.Stats{Events: 1, Dropped: 2, Invalid: 3} }
func (f *fakeTracker) Close() error         { f.closed.Add(1); return nil }

func (f *fakeTracker) Counters() identity.Counters {
	return identity.Counters{
		Processes: 4, Ranks: 5, Execs: 6, Exits: 7, ExitsDropped: 8, Evicted: 9, BadValues: 10, Truncated: 11, Unreadable: 12, Scans: 13,
	}
}

func tracing() probe.Report {
	return probe.Report{Rung: identity.RungSignals, Attempts: []probe.Attempt{{Rung: identity.RungSignals, Outcome: probe.OK, Fired: true}}}
}

func scanning() probe.Report {
	return probe.Report{Rung: identity.RungScan, Attempts: []probe.Attempt{
		{Rung: identity.RungSignals, Outcome: probe.Denied, Reason: "operation not permitted", Hint: "give it CAP_BPF"},
		{Rung: identity.RungScan, Outcome: probe.OK, Fired: true, Hint: "no exits are reported"},
	}}
}

// host keeps the statuses reported to it.
type host struct {
	component.Host
	statuses []componentstatus.Status
	err      error
}

func (h *host) Report(e *componentstatus.Event) {
	h.statuses, h.err = append(h.statuses, e.Status()), e.Err()
}

type bench struct {
	*componenttest.Telemetry
	extension extension.Extension
	host      *host
}

func newBench(t *testing.T, mode ErrorMode, open func(identity.Options) (tracker, error)) *bench {
	t.Helper()
	b := &bench{Telemetry: componenttest.NewTelemetry(), host: &host{Host: componenttest.NewNopHost()}}
	t.Cleanup(func() { require.NoError(t, b.Telemetry.Shutdown(context.Background())) })
	config := createDefaultConfig().(*Config)
	config.ErrorMode = mode
	var err error
	b.extension, err = newFactory(open).Create(context.Background(), extension.Settings{
		ID: component.NewID(metadata.Type), TelemetrySettings: b.NewTelemetrySettings(),
	}, config)
	require.NoError(t, err)
	return b
}

func (b *bench) start() error { return b.extension.Start(context.Background(), b.host) }

func (b *bench) shutdown(t *testing.T) {
	t.Helper()
	require.NoError(t, b.extension.Shutdown(context.Background()))
}

func TestExtensionAnswersForItsTracker(t *testing.T) {
	fake := &fakeTracker{report: tracing()}
	b := newBench(t, ErrorModePropagate, func(opts identity.Options) (tracker, error) {
		require.Equal(t, identity.DefaultRetention, opts.Retention)
		return fake, nil
	})
	require.NoError(t, b.start())
	require.Empty(t, b.host.statuses)

	resolver := b.extension.(identity.Resolver)
	p, known := resolver.Lookup(7, 0, time.Time{})
	require.True(t, known)
	require.Equal(t, 3, p.Rank)
	_, known = resolver.Lookup(8, 0, time.Time{})
	require.False(t, known)
	require.Equal(t, []identity.Process{{PID: 7, Rank: 3}}, resolver.Ranks())
	told := 0
	cancel := resolver.Exits(func(e identity.Exit) { told = e.Signal })
	require.Equal(t, 6, told)
	cancel()

	b.shutdown(t)
	b.shutdown(t)
	require.EqualValues(t, 1, fake.closed.Load())
	_, known = resolver.Lookup(7, 0, time.Time{})
	require.True(t, known, "after Shutdown too")
}

func TestMetricsAreTheTrackersCounters(t *testing.T) {
	b := newBench(t, ErrorModeIgnore, func(identity.Options) (tracker, error) { return &fakeTracker{report: tracing()}, nil })
	require.NoError(t, b.start())
	for name, want := range map[string]int64{
		"probe_dropped": 2, "probe_invalid": 3, "processes": 4, "ranks": 5, "execs": 6, "exits": 7, "exits_dropped": 8,
		"processes_evicted": 9, "bad_values": 10, "environments_truncated": 11, "processes_unreadable": 12, "scans": 13, "probe_up": 1,
	} {
		points := b.points(t, name)
		require.Len(t, points, 1, name)
		require.Equal(t, want, points[0].Value, name)
	}
	rung, found := b.points(t, "probe_up")[0].Attributes.Value(attribute.Key("rung"))
	require.True(t, found)
	require.Equal(t, identity.RungSignals, rung.AsString())
	b.shutdown(t)
}

func (b *bench) points(t *testing.T, name string) []metricdata.DataPoint[int64] {
	t.Helper()
	m, err := b.GetMetric("otelcol_extension_identity_" + name)
	require.NoError(t, err)
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		return data.DataPoints
	case metricdata.Gauge[int64]:
		return data.DataPoints
	}
	require.Fail(t, "no integers", name)
	return nil
}

func TestTrackerWithoutBPFFollowsTheErrorMode(t *testing.T) {
	const reason = "watch processes: tp_btf/signal_generate is denied (operation not permitted): give it CAP_BPF; procfs/scan is in use: no exits are reported"
	t.Run("propagate", func(t *testing.T) {
		fake := &fakeTracker{report: scanning()}
		b := newBench(t, ErrorModePropagate, func(identity.Options) (tracker, error) { return fake, nil })
		require.EqualError(t, b.start(), reason)
		require.EqualValues(t, 1, fake.closed.Load(), "nothing is left open")
		b.shutdown(t)
	})
	t.Run("ignore", func(t *testing.T) {
		b := newBench(t, ErrorModeIgnore, func(identity.Options) (tracker, error) { return &fakeTracker{report: scanning()}, nil })
		require.NoError(t, b.start())
		require.Equal(t, []componentstatus.Status{componentstatus.StatusRecoverableError}, b.host.statuses)
		require.EqualError(t, b.host.err, reason)
		_, known := b.extension.(identity.Resolver).Lookup(7, 0, time.Time{})
		require.True(t, known)
		require.EqualValues(t, 1, b.points(t, "probe_up")[0].Value)
		b.shutdown(t)
	})
}

func TestTrackerThatDoesNotOpenFollowsTheErrorMode(t *testing.T) {
	open := func(identity.Options) (tracker, error) { return nil, errors.New("no /proc") }
	t.Run("propagate", func(t *testing.T) {
		b := newBench(t, ErrorModePropagate, open)
		require.EqualError(t, b.start(), "no /proc")
		b.shutdown(t)
	})
	t.Run("ignore", func(t *testing.T) {
		b := newBench(t, ErrorModeIgnore, open)
		require.NoError(t, b.start())
		require.Equal(t, []componentstatus.Status{componentstatus.StatusPermanentError}, b.host.statuses)
		_, known := b.extension.(identity.Resolver).Lookup(7, 0, time.Time{})
		require.False(t, known)
		require.Empty(t, b.extension.(identity.Resolver).Ranks())
		b.extension.(identity.Resolver).Exits(func(identity.Exit) { t.Error("nobody can know") })()
		require.Zero(t, b.points(t, "probe_up")[0].Value)
		b.shutdown(t)
	})
}

func TestShutdownBeforeStart(t *testing.T) {
	b := newBench(t, ErrorModeIgnore, func(identity.Options) (tracker, error) { return nil, errors.New("never called") })
	b.shutdown(t)
	_, known := b.extension.(identity.Resolver).Lookup(7, 0, time.Time{})
	require.False(t, known)
}
