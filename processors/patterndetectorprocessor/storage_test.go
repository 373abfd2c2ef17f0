package patterndetectorprocessor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/tracecoreai/tracecore/processors/internal/journal"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadatatest"
)

func TestCrashBetweenTwoPiecesOfEvidence(t *testing.T) {
	dir := t.TempDir()
	before := newRig(t, withStorage(dir)).start(t)
	before.send(t, "test.first", "gpu-1")

	after := newRig(t, withStorage(crashed(t, dir))).start(t)
	after.send(t, "test.second", "gpu-1")
	require.Equal(t, []string{"gpu-1"}, after.next.ids())
	require.Zero(t, after.said.FilterMessageSnippet("stored").Len())
}

func TestCrashBetweenALogAndAMetric(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	before := newRig(t, withStorage(dir)).start(t)
	require.NoError(t, before.metrics.ConsumeMetrics(ctx, levels(began, "gpu-1")))

	after := newRig(t, withStorage(crashed(t, dir))).start(t)
	after.send(t, "test.first", "gpu-1")
	require.Equal(t, []string{"gpu-1"}, after.next.ids())
}

func TestCrashAfterDeliveryRepeatsNothing(t *testing.T) {
	dir := t.TempDir()
	before := newRig(t, withStorage(dir)).start(t)
	before.send(t, "test.first", "gpu-1")
	before.send(t, "test.second", "gpu-1")
	require.Equal(t, []string{"gpu-1"}, before.next.ids())
	require.Zero(t, keys(t, before.detector.journal.Client, "o/"), "what was taken is not kept")

	after := newRig(t, withStorage(crashed(t, dir))).start(t)
	after.clock.pass(time.Minute)
	after.send(t, "test.second", "gpu-1")
	for _, v := range after.next.verdicts {
		require.Greater(t, v.Revision, 1, "a revision said before is not said again")
	}
}

func TestCrashBeforeDeliveryDeliversOnce(t *testing.T) {
	dir := t.TempDir()
	before := newRig(t, withStorage(dir)).start(t)
	before.next.set(errors.New("down"))
	for _, thing := range []string{"a", "b"} {
		_ = before.logs.ConsumeLogs(context.Background(), records(began, "test.first", thing))
		_ = before.logs.ConsumeLogs(context.Background(), records(began, "test.second", thing))
	}

	middle := crashed(t, dir)
	after := newRig(t, withStorage(middle)).start(t)
	after.clock.pass(time.Second)
	require.Equal(t, []string{"a", "b"}, after.next.ids(), "in order")

	third := newRig(t, withStorage(crashed(t, middle))).start(t)
	third.clock.pass(time.Second)
	require.Empty(t, third.next.ids())
}

// TestCrashBetweenTakingAndMarkRepeatsTheSameRevision shows the one window of
// repetition: the next consumer took the verdict, the mark was not written.
func TestCrashBetweenTakingAndMarkRepeatsTheSameRevision(t *testing.T) {
	dir := t.TempDir()
	before := newRig(t, withStorage(dir))
	snap := &copying{downstream: before.next, copy: func() string { return crashed(t, dir) }}
	before.detector.next = snap
	before.start(t)
	before.send(t, "test.first", "gpu-1")
	before.send(t, "test.second", "gpu-1")

	after := newRig(t, withStorage(snap.copied)).start(t)
	after.clock.pass(time.Second)
	require.Equal(t, before.next.verdicts, after.next.verdicts, "same id, same revision, same words")
}

// copying copies the storage when it has taken verdicts and not yet said so.
type copying struct {
	*downstream
	copy   func() string
	copied string
}

func (c *copying) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	err := c.downstream.ConsumeLogs(ctx, ld)
	c.copied = c.copy()
	return err
}

func TestShutdownAndStartKeepEverything(t *testing.T) {
	dir := t.TempDir()
	first := newRig(t, withStorage(dir)).start(t)
	first.send(t, "test.first", "a", "b")
	first.next.set(errors.New("down"))
	_ = first.logs.ConsumeLogs(context.Background(), records(began, "test.second", "a"))
	first.stop(t)
	require.Equal(t, 1, first.said.FilterMessage("verdicts wait in the storage for the next start").Len())

	second := newRig(t, withStorage(dir)).start(t)
	second.clock.pass(time.Second)
	second.send(t, "test.second", "b")
	require.Equal(t, []string{"a", "b"}, second.next.ids())
}

func TestSnapshotsReplaceTheJournal(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, withStorage(dir)).start(t)
	for i := range journal.SnapshotEntries + 10 {
		r.send(t, "test.first", fmt.Sprint(i))
	}
	r.detector.journal.Saved(&r.detector.mu)
	require.Equal(t, 10, keys(t, r.detector.journal.Client, "j/"))
	require.Greater(t, keys(t, r.detector.journal.Client, "s/"), 10)

	after := newRig(t, withStorage(crashed(t, dir))).start(t)
	after.send(t, "test.second", "0", fmt.Sprint(journal.SnapshotEntries+9))
	require.ElementsMatch(t, []string{"0", fmt.Sprint(journal.SnapshotEntries + 9)}, after.next.ids(), "one from the snapshot, one from the journal")
}

// Records come, verdicts leave and a crash loses nothing while a snapshot is being stored.
func TestASnapshotKeepsNobodyWaiting(t *testing.T) {
	store := &slowly{fickle: newFickle(), parts: make(chan struct{})}
	r := newRig(t, withExtension(store)).start(t)
	things := []string{"early", "last"}
	for i := range 3000 {
		things = append(things, fmt.Sprint(i))
	}
	r.send(t, "test.first", things...)
	r.detector.mu.Lock()
	r.detector.save(t.Context())
	r.detector.mu.Unlock()
	for n, thing := range []string{"0", "1", "2"} {
		store.parts <- struct{}{} // this part is taken, and the next waits
		r.send(t, "test.second", thing)
		require.Len(t, r.next.ids(), n+1)
		r.send(t, "test.first", "beside "+thing)
	}
	beside := newRig(t, withExtension(store.copy())).start(t)
	close(store.parts)
	r.detector.journal.Saved(&r.detector.mu)
	behind := newRig(t, withExtension(store.copy())).start(t)
	for _, after := range []*rig{beside, behind} {
		after.send(t, "test.second", "early", "last", "beside 2", "0")
		require.ElementsMatch(t, []string{"early", "last", "beside 2"}, after.next.ids(), "what was said is not said again")
	}
	require.Less(t, keys(t, store, "j/"), 10)
}

// slowly is a storage that takes each part of a snapshot when the test lets it.
type slowly struct {
	*fickle
	parts chan struct{}
}

func (s *slowly) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return s, nil
}

func (s *slowly) Batch(ctx context.Context, ops ...*storage.Operation) error {
	if len(ops) > 0 && strings.HasPrefix(ops[0].Key, "s/") && ops[0].Type == storage.Set {
		<-s.parts
	}
	return s.fickle.Batch(ctx, ops...)
}

func keys(t *testing.T, client storage.Client, prefix string) (n int) {
	t.Helper()
	eachKey(t, client, prefix, func([]byte) { n++ })
	return n
}

func eachKey(t testing.TB, client storage.Client, prefix string, give func(value []byte)) {
	t.Helper()
	require.NoError(t, client.(storage.Walker).Walk(context.Background(), func(key string, value []byte) ([]*storage.Operation, error) {
		if strings.HasPrefix(key, prefix) {
			give(value)
		}
		return nil, nil
	}))
}

// TestVerdictsThatOnlyReplayConcludesAreDelivered: a newer version may conclude
// from the journal what the older one did not say.
func TestVerdictsThatOnlyReplayConcludesAreDelivered(t *testing.T) {
	store := newFickle()
	r := newRig(t, withExtension(store)).start(t)
	r.send(t, "test.first", "a")
	r.send(t, "test.second", "a")
	forgetful := store.copy()
	for key, value := range forgetful.values {
		if e, err := journal.DecodeEntry(value); err == nil {
			e.Made = nil // as if nothing had come of it
			forgetful.values[key] = e.Encode()
		}
	}
	after := newRig(t, withExtension(forgetful)).start(t)
	after.clock.pass(time.Second)
	require.Equal(t, []string{"a"}, after.next.ids())
	again := newRig(t, withExtension(forgetful.copy())).start(t)
	again.clock.pass(time.Second)
	require.Empty(t, again.next.ids())
}

func TestReplayIsNotCountedTwice(t *testing.T) {
	dir := t.TempDir()
	before := newRig(t, withStorage(dir)).start(t)
	before.send(t, "test.first", "a", "b", "c")
	after := newRig(t, withStorage(crashed(t, dir))).start(t)
	after.send(t, "test.second", "a")
	metadatatest.AssertEqualProcessorPatterndetectorRecords(t, after.telemetry, []metricdata.DataPoint[int64]{
		{Value: 1, Attributes: attribute.NewSet(attribute.String("result", "matched"))},
		{Value: 0, Attributes: attribute.NewSet(attribute.String("result", "unmatched"))},
	}, metricdatatest.IgnoreTimestamp())
}

func TestWithoutStorageALostVerdictIsSaid(t *testing.T) {
	r := newRig(t).start(t)
	r.next.set(errors.New("down"))
	_ = r.logs.ConsumeLogs(context.Background(), records(began, "test.first", "a"))
	_ = r.logs.ConsumeLogs(context.Background(), records(began, "test.second", "a"))
	r.stop(t)
	require.Equal(t, 1, r.said.FilterMessageSnippet("undelivered verdicts are lost").Len())
}

func TestRulesThatHaveGone(t *testing.T) {
	dir := t.TempDir()
	before := newRig(t, withStorage(dir)).start(t)
	before.send(t, "test.first", "a", "b")
	before.next.set(errors.New("down"))
	_ = before.logs.ConsumeLogs(context.Background(), records(began, "test.second", "a"))
	before.stop(t)

	after := newRig(t, withStorage(dir), withConfig(func(c *Config) { c.Rules = nil })).start(t)
	require.Equal(t, 1, after.said.FilterMessageSnippet("rules have changed since the last run").Len())
	after.clock.pass(time.Second)
	after.send(t, "test.second", "b")
	require.Equal(t, []string{"a"}, after.next.ids(), "a verdict that waited is delivered though its rule has gone")
}
