package patterndetectorprocessor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadata"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadatatest"
)

func TestRecordsPassThroughUnchanged(t *testing.T) {
	r := newRig(t).start(t)
	sink := &r.next.others
	r.send(t, "anything", "a", "b")
	r.send(t, "test.first", "a")
	require.Equal(t, 3, *sink)
	require.False(t, r.logs.Capabilities().MutatesData)
}

func TestVerdictRecordCarriesItsPlace(t *testing.T) {
	r := newRig(t).start(t)
	r.send(t, "test.first", "gpu-1")
	r.send(t, "test.second", "gpu-1")
	require.Len(t, r.next.batches, 1)
	resource := r.next.batches[0].ResourceLogs().At(0)
	require.Equal(t, map[string]any{"host.name": "node-17"}, resource.Resource().Attributes().AsRaw())
	scope := resource.ScopeLogs().At(0)
	require.Equal(t, metadata.ScopeName, scope.Scope().Name())
	require.Equal(t, "test_pair", r.next.verdicts[0].Pattern)
	require.Equal(t, r.clock.now(), scope.LogRecords().At(0).ObservedTimestamp().AsTime())
}

func TestVerdictWithoutAHostIsPlacedHere(t *testing.T) {
	t.Setenv("K8S_NODE_NAME", "here")
	r := newRig(t)
	host, node := r.detector.place(verdict.Verdict{})
	name, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, name, host)
	require.Equal(t, "here", node)
	host, node = r.detector.place(verdict.Verdict{Culprit: map[string]string{"host": "elsewhere"}})
	require.Equal(t, "elsewhere", host)
	require.Empty(t, node, "this machine's node name says nothing about another host")
	r.stop(t)
}

func TestRefusedVerdictsWaitAndLeaveInOrder(t *testing.T) {
	r := newRig(t).start(t)
	refusal := errors.New("backend is down")
	r.next.set(refusal)
	for _, thing := range []string{"a", "b", "c"} {
		require.ErrorIs(t, r.logs.ConsumeLogs(context.Background(), records(r.clock.now(), "test.first", thing)), refusal, "the sender hears of its own records")
		require.ErrorIs(t, r.logs.ConsumeLogs(context.Background(), records(r.clock.now(), "test.second", thing)), refusal)
	}
	require.Empty(t, r.next.ids())
	r.next.set(nil)
	r.send(t, "anything", "x")
	require.Empty(t, r.next.ids(), "not before the pause after a refusal is over")
	r.clock.pass(2 * time.Second)
	require.Equal(t, []string{"a", "b", "c"}, r.next.ids())
	r.clock.pass(time.Minute)
	require.Equal(t, []string{"a", "b", "c"}, r.next.ids(), "once")
	metadatatest.AssertEqualProcessorPatterndetectorDeliveryFailures(t, r.telemetry, []metricdata.DataPoint[int64]{{Value: 1}}, metricdatatest.IgnoreTimestamp())
}

func TestRecordsOfARefusedBatchCountOnce(t *testing.T) {
	r := newRig(t).start(t)
	ctx := context.Background()
	r.next.set(errors.New("try again"))
	batch := records(r.clock.now(), "test.first", "a")
	for range 5 {
		require.Error(t, r.logs.ConsumeLogs(ctx, batch))
	}
	r.next.set(nil)
	require.NoError(t, r.logs.ConsumeLogs(ctx, batch), "the last try")
	r.send(t, "test.second", "a")
	require.Len(t, r.next.verdicts, 1)
	require.EqualValues(t, 1, r.next.verdicts[0].Evidence[0].Count)
	require.Empty(t, r.detector.refusals.again, "nothing is left over")
}

func TestRefusedRecordsAreRememberedWithinBounds(t *testing.T) {
	r := newRefused()
	for i := range 3 * mostRefused {
		r.remember(r.hashes(records(began, "test.first", fmt.Sprint(i))))
	}
	require.Len(t, r.again, mostRefused)
	require.LessOrEqual(t, len(r.order), mostRefused)
	same := records(began, "test.first", "new", fmt.Sprint(3*mostRefused-1))
	fresh, repeated := r.without(same)
	require.Equal(t, 1, fresh.LogRecordCount())
	require.Len(t, repeated, 1)
	require.Equal(t, 2, same.LogRecordCount(), "the batch that passes on is whole")
}

func TestOutboxIsBoundedAndDropsAreCounted(t *testing.T) {
	r := newRig(t, withConfig(func(c *Config) { c.OutboxSize = 3 })).start(t)
	r.next.set(errors.New("down"))
	for _, thing := range []string{"a", "b", "c", "d", "e"} {
		_ = r.logs.ConsumeLogs(context.Background(), records(r.clock.now(), "test.first", thing))
		_ = r.logs.ConsumeLogs(context.Background(), records(r.clock.now(), "test.second", thing))
	}
	r.requireDropped(t, droppedFull, 2)
	metadatatest.AssertEqualProcessorPatterndetectorOutboxSize(t, r.telemetry, []metricdata.DataPoint[int64]{{Value: 3}}, metricdatatest.IgnoreTimestamp())
	r.next.set(nil)
	r.clock.pass(time.Minute)
	require.Equal(t, []string{"c", "d", "e"}, r.next.ids())
}

func (r *rig) requireDropped(t *testing.T, reason string, n int64) {
	t.Helper()
	metadatatest.AssertEqualProcessorPatterndetectorOutboxDropped(t, r.telemetry, []metricdata.DataPoint[int64]{
		{Value: n, Attributes: attribute.NewSet(attribute.String("reason", reason))},
	}, metricdatatest.IgnoreTimestamp())
}

func TestVerdictRefusedForGoodIsDroppedAndCounted(t *testing.T) {
	r := newRig(t).start(t)
	r.send(t, "test.first", "a", "b")
	r.next.set(consumererror.NewPermanent(errors.New("malformed")))
	_ = r.logs.ConsumeLogs(context.Background(), records(r.clock.now(), "test.second", "a"))
	r.next.set(nil)
	r.send(t, "test.second", "b")
	require.Equal(t, []string{"b"}, r.next.ids())
	r.requireDropped(t, droppedRefused, 1)
}

// TestDataNeverWaitsForVerdicts: while the next consumer sits on a verdict, other
// records and other verdicts' evidence go their way.
func TestDataNeverWaitsForVerdicts(t *testing.T) {
	ctx := context.Background()
	r := newRig(t)
	slow := &stuck{downstream: r.next, entered: make(chan struct{}), release: make(chan struct{})}
	r.detector.next = slow
	r.start(t)
	r.send(t, "test.first", "a", "b")
	delivered := make(chan error)
	go func() { delivered <- r.logs.ConsumeLogs(ctx, records(began, "test.second", "a")) }()
	<-slow.entered
	for _, ld := range []plog.Logs{records(began, "anything", "x"), records(began, "test.second", "b")} {
		require.NoError(t, r.logs.ConsumeLogs(ctx, ld))
	}
	require.NoError(t, r.metrics.ConsumeMetrics(ctx, levels(began, "c")))
	require.Empty(t, r.next.ids())

	close(slow.release)
	require.NoError(t, <-delivered)
	require.Equal(t, []string{"a", "b"}, r.next.ids(), "the one who was at it delivers what came meanwhile")
}

// stuck holds the first verdict until released.
type stuck struct {
	*downstream
	entered, release chan struct{}
}

func (s *stuck) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	select {
	case <-s.release:
	case s.entered <- struct{}{}:
		<-s.release
	}
	return s.downstream.ConsumeLogs(ctx, ld)
}

func TestShutdownEndsACallThatHangs(t *testing.T) {
	r := newRig(t)
	hung := make(chan struct{}, 1)
	r.detector.next = hanging{hung}
	r.start(t)
	r.send(t, "test.first", "a")
	done := make(chan error)
	go func() { done <- r.logs.ConsumeLogs(context.Background(), records(began, "test.second", "a")) }()
	<-hung
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, r.logs.Shutdown(ctx))
	require.NoError(t, <-done)
}

// hanging is a consumer that answers only when its context ends.
type hanging struct{ entered chan struct{} }

func (hanging) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (h hanging) ConsumeLogs(ctx context.Context, _ plog.Logs) error {
	select {
	case h.entered <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestEngineMetrics(t *testing.T) {
	r := newRig(t).start(t)
	r.send(t, "anything", "x", "y", "z")
	r.send(t, "test.first", "a")
	r.send(t, "test.second", "a")
	label := func(key, value string) attribute.Set { return attribute.NewSet(attribute.String(key, value)) }
	metadatatest.AssertEqualProcessorPatterndetectorRecords(t, r.telemetry, []metricdata.DataPoint[int64]{
		{Value: 2, Attributes: label("result", "matched")}, {Value: 3, Attributes: label("result", "unmatched")},
	}, metricdatatest.IgnoreTimestamp())
	metadatatest.AssertEqualProcessorPatterndetectorVerdicts(t, r.telemetry, []metricdata.DataPoint[int64]{
		{Value: 1, Attributes: attribute.NewSet(attribute.Bool("pages", false), attribute.String("pattern", "test_pair"), attribute.String("status", "open"), attribute.String("verdict_severity", "error"))},
	}, metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars())
	for _, name := range []string{"records_irregular", "evicted", "held"} {
		_, err := r.telemetry.GetMetric("otelcol_processor_patterndetector_" + name)
		require.NoError(t, err)
	}
}

// besideFullQueue is what the collector's fan-out does with two exporters of which one takes
// nothing and whose queue is full: each gets each batch, and the errors of both are the answer.
type besideFullQueue struct {
	*downstream
	answer func(verdicts bool, healthy error) error
}

func (b besideFullQueue) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	before := len(b.ids())
	healthy := b.downstream.ConsumeLogs(ctx, ld)
	return b.answer(healthy != nil || len(b.ids()) > before, healthy)
}

// A verdict that one exporter cannot take reaches the others, once.
func TestAFullQueueKeepsNothingFromTheOthers(t *testing.T) {
	r := newRig(t)
	r.detector.next = besideFullQueue{r.next, func(verdicts bool, healthy error) error {
		if !verdicts { // the exporter of alerts lets nothing else into its queue
			return healthy
		}
		return consumererror.NewDownstream(errors.Join(healthy, fmt.Errorf("alert/slack: %w", exporterhelper.ErrQueueIsFull)))
	}}
	r.start(t)
	const n = 250
	for i := range n {
		thing := fmt.Sprint("t", i)
		r.send(t, "test.first", thing)
		r.send(t, "test.second", thing)
	}
	for range 60 { // half an hour
		r.clock.pass(31 * time.Second)
	}
	require.Len(t, r.next.ids(), n)
	distinct := map[string]bool{}
	for _, id := range r.next.ids() {
		distinct[id] = true
	}
	require.Len(t, distinct, n)
	r.requireDropped(t, droppedQueueFull, n)
}

// The answer of several consumers is one error. What one of them would take at another
// attempt waits for it, whatever the others say.
func TestWhoIsTriedAgain(t *testing.T) {
	away, full := errors.New("away"), fmt.Errorf("slack: %w", exporterhelper.ErrQueueIsFull)
	never := consumererror.NewPermanent(errors.New("malformed"))
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"taken":                                 {nil, false},
		"away":                                  {away, true},
		"a full queue":                          {full, false},
		"refused for good":                      {never, false},
		"refused for good, further on":          {consumererror.NewDownstream(never), false},
		"a full queue beside a refusal":         {errors.Join(full, never), false},
		"away beside a full queue":              {errors.Join(full, away), true},
		"away beside a refusal":                 {errors.Join(never, away), true},
		"away beside a refusal, further on":     {consumererror.NewDownstream(fmt.Errorf("forward: %w", errors.Join(never, away))), true},
		"all of several, of which one was away": {consumererror.NewPermanent(errors.Join(full, away)), false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.want, worthAgain(tt.err)) })
	}
}
