package outbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// taker is a consumer that holds each batch until the test lets it go, with the
// answer that the test gives.
type taker struct {
	consumertest.Consumer
	answer chan error

	mu    sync.Mutex
	sizes []int
}

func newTaker() *taker { return &taker{Consumer: consumertest.NewNop(), answer: make(chan error)} }

func (k *taker) ConsumeLogs(_ context.Context, logs plog.Logs) error {
	err := <-k.answer
	if err == nil {
		k.took(logs.LogRecordCount())
		logs.ResourceLogs().RemoveIf(func(plog.ResourceLogs) bool { return true }) // as a consumer may
	}
	return err
}

func (k *taker) ConsumeMetrics(_ context.Context, metrics pmetric.Metrics) error {
	err := <-k.answer
	if err == nil {
		k.took(metrics.DataPointCount())
	}
	return err
}

func (k *taker) took(size int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sizes = append(k.sizes, size)
}

func (k *taker) taken() []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.sizes)
}

func logsOf(records int) plog.Logs {
	logs := plog.NewLogs()
	all := logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	for range records {
		all.AppendEmpty()
	}
	return logs
}

func settings(t *testing.T) (Settings, func() int64) {
	telemetry := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, telemetry.Shutdown(context.Background())) })
	of := receivertest.NewNopSettings(component.MustNewType("some"))
	of.TelemetrySettings = telemetry.NewTelemetrySettings()
	counter, err := of.MeterProvider.Meter("some").Int64Counter("dropped")
	require.NoError(t, err)
	return Settings{Receiver: of, Transport: "kernel", Dropped: counter}, func() int64 {
		m, err := telemetry.GetMetric("dropped")
		if err != nil {
			return 0
		}
		return m.Data.(metricdata.Sum[int64]).DataPoints[0].Value
	}
}

func newLogs(t *testing.T, next *taker) (*Outbox[plog.Logs], func() int64) {
	with, dropped := settings(t)
	o, err := NewLogs(next, with)
	require.NoError(t, err)
	o.Start()
	return o, dropped
}

func closeNow(o *Outbox[plog.Logs]) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return o.Close(ctx)
}

func TestPutNeverWaitsAndDropsTheNewest(t *testing.T) {
	next := newTaker()
	o, dropped := newLogs(t, next)
	for size := range 4 {
		o.Put(logsOf(size + 1))
	}
	o.Put(logsOf(Capacity)) // 10 wait
	o.Put(logsOf(Capacity - 10))
	o.Put(logsOf(1))
	require.EqualValues(t, Capacity+1, dropped())
	for range 5 {
		next.answer <- nil
	}
	require.NoError(t, o.Close(t.Context()))
	require.EqualValues(t, Capacity+1, o.Lost())
	require.Equal(t, []int{1, 2, 3, 4, Capacity - 10}, next.taken(), "in the order in which they came")
	require.EqualValues(t, Capacity+1, dropped())
}

// TestAFloodDropsItsOwn: claims, or what one user makes the kernel say, come without end
// while the next consumer holds back. What the driver says is delivered, and so is what
// was said of another user, early or late.
func TestAFloodDropsItsOwn(t *testing.T) {
	for name, flood := range map[string]owner{
		"claims":                   {},
		"claims about a user":      {domain: "user 2"},
		"a user's processes end":   {proven: true, domain: "user 2"},
		"a user's processes claim": {domain: "user 1"},
	} {
		t.Run(name, func(t *testing.T) {
			next := newTaker()
			o, dropped := newLogs(t, next)
			put := func(records int, of owner) {
				logs := logsOf(records)
				for _, r := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
					if of.domain != "" {
						r.Attributes().PutStr("gen_ai.training.job_domain", of.domain)
					}
					if of.proven {
						r.Attributes().PutStr("tracecore.trust", "proven")
					}
				}
				o.Put(logs)
			}
			put(10, owner{proven: true})
			for range 2 * Capacity {
				put(1, flood)
			}
			put(20, owner{proven: true})
			put(30, owner{proven: true, domain: "user 1"})
			for range Capacity {
				put(1, flood)
			}
			require.EqualValues(t, 3*Capacity+10+20+30-Capacity, dropped(), "all that found no room is counted")
			done := make(chan struct{})
			var answers sync.WaitGroup
			answers.Go(func() {
				for {
					select {
					case next.answer <- nil:
					case <-done:
						return
					}
				}
			})
			require.NoError(t, o.Close(context.Background()))
			close(done)
			answers.Wait()
			for _, size := range []int{10, 20, 30} {
				require.Contains(t, next.taken(), size)
			}
		})
	}
}

func TestBatchBeyondAnyRoomIsTakenWhenNothingWaits(t *testing.T) {
	next := newTaker()
	o, dropped := newLogs(t, next)
	o.Put(logsOf(2 * Capacity))
	o.Put(logsOf(1))
	require.EqualValues(t, 1, dropped())
	next.answer <- nil
	require.NoError(t, o.Close(t.Context()))
	require.Equal(t, []int{2 * Capacity}, next.taken())
}

func TestRefusalThatPassesLosesNothing(t *testing.T) {
	next := newTaker()
	o, dropped := newLogs(t, next)
	o.Put(logsOf(3))
	for _, answer := range []error{errors.New("queue is full"), errors.New("queue is full"), nil} {
		next.answer <- answer
	}
	require.NoError(t, o.Close(t.Context()))
	require.Equal(t, []int{3}, next.taken())
	require.Zero(t, dropped())
}

func TestPermanentRefusalIsFinalAndTheNextBatchIsTried(t *testing.T) {
	next := newTaker()
	o, dropped := newLogs(t, next)
	o.Put(logsOf(3))
	o.Put(logsOf(4))
	next.answer <- consumererror.NewPermanent(errors.New("no"))
	next.answer <- nil
	require.NoError(t, o.Close(t.Context()))
	require.Equal(t, []int{4}, next.taken())
	require.EqualValues(t, 3, dropped())
}

func TestCloseOffersEachWaitingBatchOnce(t *testing.T) {
	next := newTaker()
	o, dropped := newLogs(t, next)
	for range 3 {
		o.Put(logsOf(1))
	}
	closed := make(chan error)
	go func() { closed <- o.Close(context.Background()) }()
	require.Eventually(t, func() bool { return !o.Open() }, hosttest.Patience, time.Millisecond)
	for _, answer := range []error{errors.New("queue is full"), nil, errors.New("queue is full")} {
		next.answer <- answer
	}
	require.NoError(t, <-closed)
	require.Equal(t, []int{1}, next.taken())
	require.EqualValues(t, 2, dropped())
}

func TestConsumerThatHangsIsLeftBehindWithItsBatch(t *testing.T) {
	next := newTaker()
	o, dropped := newLogs(t, next)
	for range 3 {
		o.Put(logsOf(1))
	}
	require.Eventually(t, func() bool { o.mu.Lock(); defer o.mu.Unlock(); return len(o.waiting) == 2 }, hosttest.Patience, time.Millisecond)
	require.ErrorIs(t, closeNow(o), context.Canceled)
	require.EqualValues(t, 2, dropped(), "what it does not hold is lost")
	next.answer <- nil
	require.NoError(t, o.Close(t.Context()), "a second time")
	require.Equal(t, []int{1}, next.taken())
}

// TestWhoWantsToKnowHearsWhatWasTaken: of what was dropped, refused for good or left over at the end nothing is heard.
func TestWhoWantsToKnowHearsWhatWasTaken(t *testing.T) {
	next := newTaker()
	o, _ := newLogs(t, next)
	require.True(t, o.Empty())
	heard := make(chan int, 10)
	put := func(records int) { o.PutThen(logsOf(records), func() { heard <- records }) }
	put(1)
	require.False(t, o.Empty())
	next.answer <- nil
	require.Equal(t, 1, <-heard)
	put(2)
	next.answer <- consumererror.NewPermanent(errors.New("no"))
	put(3)
	put(Capacity) // no room for it
	next.answer <- nil
	require.Equal(t, 3, <-heard)
	put(4)
	go func() { next.answer <- nil }()
	require.NoError(t, o.Close(t.Context()))
	require.Equal(t, 4, <-heard)
	put(5)
	require.Empty(t, heard)
	require.True(t, o.Empty())
}

func TestNothingIsTakenBeforeStartAndAfterClose(t *testing.T) {
	with, dropped := settings(t)
	next := newTaker()
	o, err := NewLogs(next, with)
	require.NoError(t, err)
	o.Put(logsOf(1))
	require.False(t, o.Open())
	require.NoError(t, o.Close(t.Context()))
	o.Start()
	o.Put(logsOf(1))
	require.NoError(t, o.Close(t.Context()))
	require.Empty(t, next.taken())
	require.Zero(t, dropped())
}

func TestMetricsLeaveLikeLogs(t *testing.T) {
	with, _ := settings(t)
	next := newTaker()
	o, err := NewMetrics(next, with)
	require.NoError(t, err)
	o.Start()
	o.Start() // the second does nothing
	metrics := pmetric.NewMetrics()
	metrics.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty().SetEmptyGauge().DataPoints().AppendEmpty()
	o.Put(pmetric.NewMetrics()) // empty: nobody is asked to take it
	o.Put(metrics)
	next.answer <- nil
	require.NoError(t, o.Close(t.Context()))
	require.Equal(t, []int{1}, next.taken())
}

func TestSignalWithoutAPipelineHasNoOutbox(t *testing.T) {
	var o *Outbox[plog.Logs]
	o.Start()
	require.False(t, o.Open())
	o.Put(logsOf(1))
	require.NoError(t, o.Close(t.Context()))
}
