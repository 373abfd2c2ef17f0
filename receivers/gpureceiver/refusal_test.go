package gpureceiver

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/process"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
	"github.com/tracecoreai/tracecore/receivers/internal/gpuask"
)

// askedHelper counts how often it is asked; what it answers the test decides.
type askedHelper struct {
	*fakeHelper
	polls atomic.Int64
}

func (h *askedHelper) Poll() error {
	h.polls.Add(1)
	return h.fakeHelper.Poll()
}

// readsSeldom runs a monitor that reads once at the start, and then not for an hour.
func readsSeldom(t *testing.T, source Source, answer func() protocol.Message) *askedHelper {
	h := &askedHelper{fakeHelper: newFakeHelper(answer, found(protocol.Ready))}
	start := func(*Config, task) (process.Session, error) { return h, nil }
	m, _ := makeMonitor(t, start, receivertest.NewNopSettings(metadata.Type), func(c *Config) {
		c.Source, c.CollectionInterval, c.RetryInterval = source, time.Hour, time.Hour
	})
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
	h.eventually(t, 1)
	return h
}

func (h *askedHelper) eventually(t *testing.T, polls int64) {
	t.Helper()
	require.Eventually(t, func() bool { return h.polls.Load() == polls }, deadline, time.Millisecond)
}

func TestRefusedMemoryIsReadForAtOnce(t *testing.T) {
	h := readsSeldom(t, NVML, healthy)
	gpuask.Refused()
	h.eventually(t, 2)
}

func TestRefusalsWithoutEndAreReadForOnceASecond(t *testing.T) {
	h := readsSeldom(t, NVML, healthy)
	began := time.Now()
	require.Eventually(t, func() bool {
		gpuask.Refused()
		return h.polls.Load() >= 4
	}, deadline, time.Millisecond)
	require.GreaterOrEqual(t, time.Since(began), 2*betweenExtra)
}

func TestNoReadingForARefusalWhileOneIsUnderWay(t *testing.T) {
	h := readsSeldom(t, NVML, nil)
	gpuask.Refused()
	require.Never(t, func() bool { return h.polls.Load() > 1 }, 3*afterRefusal, time.Millisecond)
	h.messages <- healthy()
	h.eventually(t, 2)
}

func TestRefusedMemoryIsNotReadForThroughDCGM(t *testing.T) {
	h := readsSeldom(t, DCGM, healthy)
	gpuask.Refused()
	require.Never(t, func() bool { return h.polls.Load() > 1 }, 3*afterRefusal, time.Millisecond)
}

// A reading that began before a refusal is none of the time after it.
func TestAReadingIsOfTheTimeAtWhichItWasAskedFor(t *testing.T) {
	h := &askedHelper{fakeHelper: newFakeHelper(nil, found(protocol.Ready))}
	config := createDefaultConfig().(*Config)
	config.Source = NVML
	r := run(t, newFactory(func(*Config, task) (process.Session, error) { return h, nil }), config)
	h.eventually(t, 1)
	answered := time.Now()
	h.messages <- healthy()
	require.Eventually(t, func() bool { return len(r.metrics.AllMetrics()) > 0 }, deadline, time.Millisecond)
	for _, m := range r.metrics.AllMetrics()[0].ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		if m.Name() == "hw.status" {
			require.False(t, m.Sum().DataPoints().At(0).Timestamp().AsTime().After(answered))
			return
		}
	}
	require.Fail(t, "no hw.status")
}
