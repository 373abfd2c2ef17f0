package patterndetectorprocessor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tracecoreai/tracecore/extensions/filestorageextension"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadatatest"
)

var (
	began     = time.Date(2026, 11, 20, 14, 2, 11, 0, time.UTC)
	storageID = component.MustNewIDWithName("file_storage", "patterns")
)

// handClock is moved by the test: set changes the time, tick lets the detector
// see it and returns when it has.
type handClock struct {
	mu    sync.Mutex
	time  time.Time
	ticks chan time.Time
}

func newHandClock() *handClock { return &handClock{time: began, ticks: make(chan time.Time)} }

func (c *handClock) clock() clock {
	return clock{now: c.now, ticks: func() (<-chan time.Time, func()) { return c.ticks, func() {} }}
}

func (c *handClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time
}

// pass moves the time and ticks twice: when the second tick is taken, the work
// of the first is done.
func (c *handClock) pass(by time.Duration) {
	c.mu.Lock()
	c.time = c.time.Add(by)
	now := c.time
	c.mu.Unlock()
	c.ticks <- now
	c.ticks <- now
}

// downstream is the next consumer: it keeps verdicts and counts other records.
type downstream struct {
	consumertest.LogsSink
	mu       sync.Mutex
	refuse   error
	verdicts []verdict.Verdict
	batches  []plog.Logs // that held verdicts
	others   int
	runs     []history.Run // that ended
}

func (*downstream) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (d *downstream) ConsumeLogs(_ context.Context, ld plog.Logs) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse != nil {
		return d.refuse
	}
	found := false
	eachLog(ld, func(_ pcommon.Resource, record plog.LogRecord) bool {
		if run, err := history.FromRecord(record); err == nil {
			d.runs = append(d.runs, run)
			return false
		}
		v, err := verdict.FromRecord(record)
		if err == nil {
			found = true
			d.verdicts = append(d.verdicts, v)
		}
		if errors.Is(err, verdict.ErrNotVerdict) {
			d.others++
		}
		return false
	})
	if found {
		kept := plog.NewLogs()
		ld.CopyTo(kept)
		d.batches = append(d.batches, kept)
	}
	return nil
}

func (d *downstream) set(refuse error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuse = refuse
}

// ids are the verdicts delivered, in order.
func (d *downstream) ids() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := []string{}
	for _, v := range d.verdicts {
		ids = append(ids, v.Culprit["thing"])
	}
	return ids
}

// rig is one detector in a logs and a metrics pipeline.
type rig struct {
	factory   processor.Factory
	clock     *handClock
	logs      processor.Logs
	metrics   processor.Metrics
	next      *downstream
	telemetry *componenttest.Telemetry
	said      *observer.ObservedLogs
	host      component.Host
	detector  *detector
}

type rigOption func(*Config, *rig)

func withStorage(dir string) rigOption {
	return func(c *Config, r *rig) {
		c.Storage = &storageID
		r.host = hostWith(nil)
		if dir != "" {
			r.host = hostWith(newFileStorage(dir))
		}
	}
}

func withExtension(e component.Component) rigOption {
	return func(c *Config, r *rig) {
		c.Storage = &storageID
		r.host = hostWith(e)
	}
}

func withConfig(change func(*Config)) rigOption { return func(c *Config, _ *rig) { change(c) } }

type hostOf map[component.ID]component.Component

func (h hostOf) GetExtensions() map[component.ID]component.Component { return h }

func hostWith(e component.Component) component.Host {
	if e == nil {
		return hostOf{}
	}
	return hostOf{storageID: e}
}

func newFileStorage(dir string) extension.Extension {
	factory := filestorageextension.NewFactory()
	config := factory.CreateDefaultConfig().(*filestorageextension.Config)
	config.Directory = dir
	e, err := factory.Create(context.Background(), extensiontest.NewNopSettings(factory.Type()), config)
	if err != nil {
		panic(err)
	}
	return e
}

func newRig(t testing.TB, options ...rigOption) *rig {
	t.Helper()
	r := &rig{clock: newHandClock(), next: &downstream{}, telemetry: componenttest.NewTelemetry(), host: componenttest.NewNopHost()}
	r.factory = newFactory(r.clock.clock())
	config := createDefaultConfig().(*Config)
	config.Rules = []string{filepath.Join("testdata", "rules")}
	for _, o := range options {
		o(config, r)
	}
	set := metadatatest.NewSettings(r.telemetry)
	core, said := observer.New(zap.InfoLevel)
	set.Logger, r.said = zap.New(core), said
	var err error
	r.logs, err = r.factory.CreateLogs(context.Background(), set, config, r.next)
	require.NoError(t, err)
	r.metrics, err = r.factory.CreateMetrics(context.Background(), set, config, consumertest.NewNop())
	require.NoError(t, err)
	r.detector = r.logs.(*logsProcessor).detector
	t.Cleanup(func() { require.NoError(t, r.telemetry.Shutdown(context.Background())) })
	return r
}

func (r *rig) start(t testing.TB) *rig {
	t.Helper()
	require.NoError(t, r.metrics.Start(context.Background(), r.host))
	require.NoError(t, r.logs.Start(context.Background(), r.host))
	t.Cleanup(func() { r.stop(t) })
	return r
}

func (r *rig) stop(t testing.TB) {
	t.Helper()
	require.NoError(t, r.logs.Shutdown(context.Background()))
	require.NoError(t, r.metrics.Shutdown(context.Background()))
	if files, ok := r.host.GetExtensions()[storageID]; ok {
		require.NoError(t, files.Shutdown(context.Background()))
	}
}

// crashed returns the storage as a kill would have left it: a copy of its files
// while the detector is still up.
func crashed(t testing.TB, dir string) string {
	t.Helper()
	copied := t.TempDir()
	require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
	return copied
}

func (r *rig) send(t testing.TB, event string, things ...string) {
	t.Helper()
	require.NoError(t, r.logs.ConsumeLogs(context.Background(), records(r.clock.now(), event, things...)))
	r.delivered(t)
}

// delivered waits for a tick that was delivering when a record came: its verdicts
// go with the tick's.
func (r *rig) delivered(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return len(r.detector.busy) == 0 }, hosttest.Patience, time.Millisecond)
}

// stats counts what the engine holds. The clock's last tick may still be at work.
func (r *rig) stats() engine.Stats {
	r.detector.mu.Lock()
	defer r.detector.mu.Unlock()
	return r.detector.engine.Stats()
}

// records are log records about things, as a receiver makes them.
func records(at time.Time, event string, things ...string) plog.Logs {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("host.name", "node-17")
	list := rl.ScopeLogs().AppendEmpty().LogRecords()
	for _, thing := range things {
		record := list.AppendEmpty()
		record.SetEventName(event)
		record.SetTimestamp(pcommon.NewTimestampFromTime(at))
		record.Attributes().PutStr("thing", thing)
	}
	return ld
}

func levels(at time.Time, things ...string) pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("host.name", "node-17")
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("test.level")
	points := m.SetEmptyGauge().DataPoints()
	for _, thing := range things {
		point := points.AppendEmpty()
		point.SetTimestamp(pcommon.NewTimestampFromTime(at))
		point.SetIntValue(1)
		point.Attributes().PutStr("thing", thing)
	}
	return md
}
