package patterndetectorprocessor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadatatest"
)

var historyID = component.MustNewID("history")

// shelf is a history that can refuse, and that can hang.
type shelf struct {
	component.StartFunc
	component.ShutdownFunc

	mu     sync.Mutex
	refuse error
	held   chan struct{} // Keep waits until it is closed
	asked  int
	things []string
	feeds  func() []history.Feed
	ranks  []history.Sighting
	states history.RankSource

	ended   []history.Run // not told
	telling bool
	mutes   map[string]history.Mute
	// refusals are how often what ended had not left.
	refusals int
}

func (s *shelf) Keep(_ context.Context, verdicts []verdict.Verdict) error {
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	if held != nil {
		<-held
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.refuse != nil {
		return s.refuse
	}
	for _, v := range verdicts {
		s.things = append(s.things, v.Culprit["thing"])
	}
	return nil
}

func (s *shelf) Ranks(_ context.Context, seen []history.Sighting) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ranks = append(s.ranks, seen...)
	return s.refuse
}

// Ended gives out what ended, once for each call of Told that says it did not leave.
func (s *shelf) Ended(context.Context) ([]history.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.telling {
		return nil, nil
	}
	s.telling = len(s.ended) > 0
	return slices.Clone(s.ended), s.refuse
}

func (s *shelf) Told(_ context.Context, runs []history.Run, left bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.telling = false; left {
		s.ended = s.ended[len(runs):]
	} else {
		s.refusals++
	}
	return nil
}

func (s *shelf) Mutes(context.Context) (map[string]history.Mute, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mutes), nil
}

func (s *shelf) Listen(_ string, feeds func() []history.Feed) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds = feeds
	return func() {}
}

func (s *shelf) ListenRanks(_ string, source history.RankSource) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = source
	return func() {}
}

func (s *shelf) set(refuse error, held chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse, s.held = refuse, held
}

func (s *shelf) has() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.things)
}

func (s *shelf) tries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *shelf) requireHas(t *testing.T, things ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(s.has()) >= len(things) }, hosttest.Patience, time.Millisecond)
	require.Equal(t, things, s.has())
}

// withHistory comes after the option that brings the storage.
func withHistory(s *shelf) rigOption {
	return func(c *Config, r *rig) {
		c.History = &historyID
		extensions := hostOf{historyID: s}
		if files, ok := r.host.GetExtensions()[storageID]; ok {
			extensions[storageID] = files
		}
		r.host = extensions
	}
}

func TestHistoryIsToldWithoutTheNextConsumer(t *testing.T) {
	s := &shelf{}
	r := newRig(t, withStorage(t.TempDir()), withHistory(s)).start(t)
	r.fault(t, "gpu-0")
	s.requireHas(t, "gpu-0")
	r.next.set(errors.New("backend is down"))
	_ = r.logs.ConsumeLogs(t.Context(), records(r.clock.now(), "test.first", "gpu-1"))
	_ = r.logs.ConsumeLogs(t.Context(), records(r.clock.now(), "test.second", "gpu-1"))
	s.requireHas(t, "gpu-0", "gpu-1")
	require.Equal(t, []string{"gpu-0"}, r.next.ids())
}

func TestVerdictsWaitForAHistoryThatRefuses(t *testing.T) {
	dir, s := t.TempDir(), &shelf{}
	s.set(errors.New("no space left on device"), nil)
	r := newRig(t, withStorage(dir), withHistory(s)).start(t)
	r.fault(t, "gpu-0")
	require.Eventually(t, func() bool { return s.tries() > 0 }, hosttest.Patience, time.Millisecond)
	r.fault(t, "gpu-1")
	require.Equal(t, []string{"gpu-0", "gpu-1"}, r.next.ids(), "the next consumer does not wait for it")
	require.Empty(t, s.has())

	after := crashed(t, dir)
	s.set(nil, nil)
	r.clock.pass(time.Minute)
	s.requireHas(t, "gpu-0", "gpu-1")

	second := &shelf{}
	r = newRig(t, withStorage(after), withHistory(second)).start(t)
	require.Eventually(t, func() bool { return len(second.has()) >= 4 }, hosttest.Patience, time.Millisecond)
	require.Equal(t, []string{"gpu-0", "gpu-1"}, second.has()[:2], "what waited before the kill")
	require.ElementsMatch(t, []string{"gpu-0", "gpu-1"}, second.has()[2:], "then what is open")
	require.Empty(t, r.next.ids(), "the next consumer had them")
}

func TestAHistoryThatHangsStopsNothing(t *testing.T) {
	s, held := &shelf{}, make(chan struct{})
	s.set(nil, held)
	r := newRig(t, withHistory(s)).start(t)
	for _, thing := range []string{"gpu-0", "gpu-1", "gpu-2"} {
		r.fault(t, thing)
	}
	require.Equal(t, []string{"gpu-0", "gpu-1", "gpu-2"}, r.next.ids())
	require.Empty(t, s.has())
	s.set(nil, nil)
	close(held)
	s.requireHas(t, "gpu-0", "gpu-1", "gpu-2")
}

func TestWhatWaitsForTheHistoryIsBounded(t *testing.T) {
	s := &shelf{}
	s.set(errors.New("no space left on device"), nil)
	r := newRig(t, withHistory(s))
	r.detector.keeping.unkept.MostItems = 2
	r.start(t)
	for _, thing := range []string{"gpu-0", "gpu-1", "gpu-2", "gpu-3"} {
		r.fault(t, thing)
	}
	metadatatest.AssertEqualProcessorPatterndetectorHistoryDropped(t, r.telemetry,
		[]metricdata.DataPoint[int64]{{Value: 2, Attributes: attribute.NewSet(attribute.String("reason", droppedFull))}}, metricdatatest.IgnoreTimestamp())
	require.Equal(t, []string{"gpu-0", "gpu-1", "gpu-2", "gpu-3"}, r.next.ids())
}

func TestAHistoryThatIsNotThere(t *testing.T) {
	r := newRig(t, withConfig(func(c *Config) { c.History = &historyID }))
	require.ErrorContains(t, r.logs.Start(t.Context(), hostOf{}), `history "history" is not there: define it under extensions`)
	require.ErrorContains(t, r.logs.Start(t.Context(), hostOf{historyID: newFileStorage(t.TempDir())}), "keeps no verdicts")
}

func TestTheHistoryIsToldWhatFeedsThePatterns(t *testing.T) {
	s := &shelf{}
	r := newRig(t, withHistory(s)).start(t)
	r.send(t, "test.first", "gpu-0")
	last := map[string]*time.Time{}
	for _, feed := range s.feeds() {
		require.Equal(t, r.detector.id.String(), feed.Processor)
		require.NotEmpty(t, feed.Reads, feed.Evidence)
		last[feed.Reads[0]] = feed.Last
	}
	require.Equal(t, began, *last["test.first"])
	require.Nil(t, last["test.second"])
}

func TestTheHistoryIsToldWhichRanksBeginAndEnd(t *testing.T) {
	s := &shelf{}
	r := newRig(t, withHistory(s)).start(t)
	send := func(event string, attributes map[string]any) {
		ld := plog.NewLogs()
		resource := ld.ResourceLogs().AppendEmpty()
		resource.Resource().Attributes().PutStr("host.name", "node-1")
		record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		record.SetEventName(event)
		record.SetTimestamp(pcommon.NewTimestampFromTime(began))
		all := map[string]any{
			"gen_ai.training.job_id": "llm", "gen_ai.training.rank": 3, "gen_ai.training.world_size": 8, "process.pid": 40,
			"gen_ai.training.rank_pid": 40, "gen_ai.training.rank_start_unix_nano": began.Add(-time.Minute).UnixNano(),
		}
		maps.Copy(all, attributes)
		require.NoError(t, record.Attributes().FromRaw(all))
		require.NoError(t, r.logs.ConsumeLogs(t.Context(), ld))
	}
	send("process.start", nil)
	send("process.exit", map[string]any{"process.pid": 41, "process.exit.code": 1}) // a child
	send("process.exit", map[string]any{"process.pid": 42, "process.exit.signal_name": "SIGKILL", "process.exit.signal": 9, "process.exit.wrapper.pid": 40})
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.ranks) == 2 }, hosttest.Patience, time.Millisecond)
	want := history.Sighting{Run: s.ranks[0].Run, Job: "llm", Rank: 3, World: 8, Host: "node-1", Began: began.Add(-time.Minute), At: began}
	require.NotEmpty(t, want.Run)
	require.Equal(t, want, s.ranks[0])
	jobs, _ := s.states.States(began)
	require.Len(t, jobs, 1)
	require.Equal(t, s.ranks[0].Run, jobs[0].Run)
	require.Equal(t, map[string]int{history.RankDied: 1, history.RankUnseen: 7}, jobs[0].Counts)
	want.Ended, want.Failed = true, "SIGKILL"
	require.Equal(t, want, s.ranks[1])

	send("process.gone", map[string]any{"process.gone.unwatched_ns": 1, "process.gone.again": true}) // as another process
	send("process.gone", map[string]any{"gen_ai.training.rank": 4, "process.gone.unwatched_ns": 1})
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.ranks) == 3 }, hosttest.Patience, time.Millisecond)
	want.Rank, want.Failed, want.Unseen = 4, "", true
	require.Equal(t, want, s.ranks[2])
}
