package probereceivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// Subject is a receiver under the tests of its life.
type Subject struct {
	*Bench
	// New makes the receivers of a component, one for each signal, the one of logs
	// first. Their probe opens when Bench.Open lets it.
	New func(t *testing.T, mode record.ErrorMode, next consumer.Logs) []component.Component
	// Fire makes the open probe see something of which a record is made.
	Fire func(t *testing.T)
	// Break breaks the open probe.
	Break func(t *testing.T, err error)
	// NeedsIdentity: without it there is nobody to watch.
	NeedsIdentity bool
	// WithoutIdentity takes the extension out of the configuration.
	WithoutIdentity func()
}

// Pauses before a probe is opened again.
const (
	firstPause  = time.Second
	secondPause = 2 * time.Second
	// lossInterval is the time between two looks at what was lost.
	lossInterval = 3 * time.Second
)

// Life holds a receiver to what package probereceiver promises; subject makes a new
// one for each test.
func Life(t *testing.T, subject func(*testing.T) *Subject) {
	for name, test := range map[string]func(*testing.T, *Subject){
		"shutdown before start and twice":                          shutdownTwice,
		"a missing identity extension is an error in either mode":  missingExtension,
		"without identity where it is needed the mode decides":     withoutIdentity,
		"a probe that does not open stops the collector":           neverOpens,
		"a probe that does not open is tried again":                opensLater,
		"a probe that breaks stops the collector":                  breaksForGood,
		"a probe that breaks is opened again":                      breaksAndComesBack,
		"what a broken probe has not seen is told":                 tellsWhatItLost,
		"a refused record is counted":                              refusedRecord,
		"a consumer that keeps refusing does not hold up shutdown": keepsRefusing,
		"a consumer that hangs is left behind at shutdown":         hangs,
	} {
		t.Run(name, func(t *testing.T) { test(t, subject(t)) })
	}
}

func stop(t *testing.T, receivers []component.Component) {
	for _, r := range receivers {
		require.NoError(t, r.Shutdown(context.Background()))
	}
}

func shutdownTwice(t *testing.T, s *Subject) {
	receivers := s.New(t, record.Propagate, s.Sink)
	stop(t, receivers)
	stop(t, receivers)

	receivers = s.New(t, record.Propagate, s.Sink)
	s.StartAll(t, receivers...)
	stop(t, receivers)
	stop(t, receivers)
}

func missingExtension(t *testing.T, s *Subject) {
	for _, mode := range []record.ErrorMode{record.Propagate, record.Ignore} {
		receivers := s.New(t, mode, s.Sink)
		require.ErrorContains(t, receivers[0].Start(t.Context(), NewHost()), "no such extension")
		stop(t, receivers)
	}
}

func withoutIdentity(t *testing.T, s *Subject) {
	s.WithoutIdentity()
	receivers := s.New(t, record.Propagate, s.Sink)
	err := receivers[0].Start(t.Context(), s.Host)
	stop(t, receivers)
	if !s.NeedsIdentity {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, "nobody to watch: set identity")
	receivers = s.New(t, record.Ignore, s.Sink)
	s.StartAll(t, receivers...)
	for range receivers {
		event := s.Host.Status(t)
		require.Equal(t, componentstatus.StatusPermanentError, event.Status())
		require.ErrorContains(t, event.Err(), "nobody to watch: set identity")
	}
	require.Zero(t, s.Own(t, "probe_up"))
	require.Zero(t, s.Opened())
}

var errRefused = errors.New("ring buffers need Linux 5.8")

func neverOpens(t *testing.T, s *Subject) {
	s.Refuse(errRefused)
	receivers := s.New(t, record.Propagate, s.Sink)
	for _, r := range receivers {
		require.ErrorIs(t, r.Start(t.Context(), s.Host), errRefused)
	}
	require.Empty(t, s.Host.Statuses)
	require.Equal(t, 1, s.Opened())
	stop(t, receivers)
}

// hears waits until each signal was told that status.
func (s *Subject) hears(t *testing.T, receivers []component.Component, status componentstatus.Status, cause error) {
	t.Helper()
	for range receivers {
		event := s.Host.Status(t)
		require.Equal(t, status, event.Status())
		require.ErrorIs(t, event.Err(), cause)
	}
}

func opensLater(t *testing.T, s *Subject) {
	s.Refuse(errRefused)
	receivers := s.New(t, record.Ignore, s.Sink)
	s.StartAll(t, receivers...)
	s.hears(t, receivers, componentstatus.StatusRecoverableError, errRefused)
	s.Tick(t, firstPause, Start)
	s.hears(t, receivers, componentstatus.StatusRecoverableError, errRefused)
	require.Zero(t, s.Own(t, "probe_up"))
	require.EqualValues(t, 2, s.Own(t, "probe_failures"))
	s.Refuse(nil)
	s.Tick(t, secondPause, Start)
	s.hears(t, receivers, componentstatus.StatusOK, nil)
	require.EqualValues(t, 1, s.Own(t, "probe_up", attribute.String("rung", "fake")))
	require.Equal(t, 3, s.Opened())
	s.Fire(t)
	s.Next(t)
}

func breaksForGood(t *testing.T, s *Subject) {
	receivers := s.New(t, record.Propagate, s.Sink)
	s.StartAll(t, receivers...)
	broken := errors.New("ring is gone")
	s.Break(t, broken)
	s.hears(t, receivers, componentstatus.StatusFatalError, broken)
	require.Zero(t, s.Own(t, "probe_up"))
	require.Equal(t, 1, s.Opened())
}

func breaksAndComesBack(t *testing.T, s *Subject) {
	receivers := s.New(t, record.Ignore, s.Sink)
	s.StartAll(t, receivers...)
	s.Fire(t)
	s.Next(t)
	require.EqualValues(t, 1, s.Own(t, "probe_up", attribute.String("rung", "fake")))
	broken := errors.New("ring is gone")
	s.Break(t, broken)
	s.hears(t, receivers, componentstatus.StatusRecoverableError, broken)
	require.Zero(t, s.Own(t, "probe_up", attribute.String("rung", "fake")))
	s.Tick(t, firstPause, Start)
	s.hears(t, receivers, componentstatus.StatusOK, nil)
	require.EqualValues(t, 1, s.Own(t, "probe_up"))
	require.EqualValues(t, 1, s.Own(t, "probe_failures"))
	s.Fire(t)
	s.Next(t)
}

// tellsWhatItLost: the record names the host's receiver, the time, and each of its events.
func tellsWhatItLost(t *testing.T, s *Subject) {
	receivers := s.New(t, record.Ignore, s.Sink)
	s.StartAll(t, receivers...)
	s.Tick(t, lossInterval, Start) // this look may come before the break, or after it
	broken := errors.New("ring is gone")
	s.Break(t, broken)
	s.hears(t, receivers, componentstatus.StatusRecoverableError, broken)
	s.Tick(t, firstPause, Start)
	s.hears(t, receivers, componentstatus.StatusOK, nil)
	s.Tick(t, lossInterval, Start.Add(lossInterval))
	s.Tick(t, lossInterval, Start.Add(2*lossInterval)) // the look before is over
	stop(t, receivers)
	lost, overflow := map[string]map[string]any{}, int64(0)
	for range len(s.Records) {
		if r := s.Next(t); r.EventName() == "tracecore.lost" {
			a := r.Attributes().AsRaw()
			why := a["tracecore.lost.why"].(string)
			lost[why] = a
			if why == "overflow" {
				overflow += a["tracecore.lost.count"].(int64)
			}
			require.LessOrEqual(t, a["tracecore.lost.since_unix_nano"], int64(r.Timestamp())) //nolint:gosec // a time of this century
			require.Equal(t, "proven", a["tracecore.trust"])
			require.NotEmpty(t, a["tracecore.lost.things"])
			require.NotEmpty(t, a["tracecore.lost.events"])
			require.NotContains(t, a["tracecore.lost.events"], "tracecore.lost")
		}
	}
	require.Contains(t, lost, "down")
	require.NotContains(t, lost["down"], "tracecore.lost.count", "nobody knows how many")
	require.EqualValues(t, 2*5, overflow, "of both probes: 2, and 3 that nobody can read")
}

func logsFunc(t *testing.T, consume func() error) consumer.Logs {
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error { return consume() })
	require.NoError(t, err)
	return next
}

func refusedRecord(t *testing.T, s *Subject) {
	receivers := s.New(t, record.Propagate, logsFunc(t, func() error { return consumererror.NewPermanent(errors.New("no")) }))
	s.StartAll(t, receivers...)
	s.Fire(t)
	s.Eventually(t, "records_dropped", 1)
}

func keepsRefusing(t *testing.T, s *Subject) {
	asked := make(chan struct{}, 1000)
	receivers := s.New(t, record.Propagate, logsFunc(t, func() error {
		asked <- struct{}{}
		return errors.New("queue is full")
	}))
	s.StartAll(t, receivers...)
	s.Fire(t)
	<-asked
	stop(t, receivers)
	require.EqualValues(t, 1, s.Own(t, "records_dropped"))
}

func hangs(t *testing.T, s *Subject) {
	entered, release := make(chan struct{}), make(chan struct{})
	receivers := s.New(t, record.Propagate, logsFunc(t, func() error {
		close(entered)
		<-release
		return nil
	}))
	for _, r := range receivers {
		require.NoError(t, r.Start(t.Context(), s.Host))
	}
	s.Fire(t)
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, receivers[0].Shutdown(ctx), context.Canceled)
	stop(t, receivers[1:])
	close(release)
}
