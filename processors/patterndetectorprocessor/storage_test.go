package patterndetectorprocessor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

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
	require.Zero(t, keys(t, before.detector.journal.client, "o/"), "what was taken is not kept")

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
	generation := r.detector.journal.generation
	for i := range snapshotEntries + 10 {
		r.send(t, "test.first", fmt.Sprint(i))
	}
	require.Equal(t, generation+1, r.detector.journal.generation)
	require.EqualValues(t, 10, r.detector.journal.entries)
	require.Equal(t, 10, keys(t, r.detector.journal.client, "j/"))
	require.Greater(t, r.detector.journal.chunks, uint64(10))
	require.EqualValues(t, r.detector.journal.chunks, keys(t, r.detector.journal.client, "s/"))

	after := newRig(t, withStorage(crashed(t, dir))).start(t)
	after.send(t, "test.second", "0", fmt.Sprint(snapshotEntries+9))
	require.ElementsMatch(t, []string{"0", fmt.Sprint(snapshotEntries + 9)}, after.next.ids(), "one from the snapshot, one from the journal")
}

func keys(t *testing.T, client storage.Client, prefix string) (n int) {
	t.Helper()
	require.NoError(t, client.(storage.Walker).Walk(context.Background(), func(key string, _ []byte) ([]*storage.Operation, error) {
		if strings.HasPrefix(key, prefix) {
			n++
		}
		return nil, nil
	}))
	return n
}

// withStored runs a detector, stops it without Shutdown and lets change have its
// way with what is stored.
func withStored(t *testing.T, change func(key string, value []byte) []byte) string {
	t.Helper()
	dir := t.TempDir()
	r := newRig(t, withStorage(dir)).start(t)
	r.send(t, "test.first", "in-snapshot")
	r.detector.mu.Lock()
	require.NoError(t, r.detector.checkpoint(context.Background()))
	r.detector.mu.Unlock()
	r.send(t, "test.first", "in-journal-1")
	r.send(t, "test.first", "in-journal-2")
	r.send(t, "test.first", "waiting")
	r.next.set(errors.New("down"))
	_ = r.logs.ConsumeLogs(context.Background(), records(began, "test.second", "waiting"))

	copied := crashed(t, dir)
	client, err := newFileStorage(copied).(storage.Extension).GetClient(context.Background(), component.KindProcessor, r.detector.id, "")
	require.NoError(t, err)
	changed := 0
	require.NoError(t, client.(storage.Walker).Walk(context.Background(), func(key string, value []byte) ([]*storage.Operation, error) {
		if altered := change(key, bytes.Clone(value)); !bytes.Equal(altered, value) {
			changed++
			return []*storage.Operation{storage.SetOperation(key, altered)}, nil
		}
		return nil, nil
	}))
	require.NotZero(t, changed, "the test must damage something")
	require.NoError(t, client.Close(context.Background()))
	return copied
}

func TestDamagedStorage(t *testing.T) {
	flip := func(prefix string) func(string, []byte) []byte {
		return func(key string, value []byte) []byte {
			if strings.HasPrefix(key, prefix) {
				value[len(value)/2] ^= 1
			}
			return value
		}
	}
	foreign := func(string, []byte) []byte { return []byte("another program's bytes") }
	for _, c := range []struct {
		name   string
		change func(string, []byte) []byte
		known  []string // things whose first record is still known
		waits  []string // verdicts still delivered
	}{
		{"generation", flip("state"), nil, []string{"waiting"}},
		{"snapshot", flip("s/"), nil, []string{"waiting"}},
		{"one journal entry", func(key string, value []byte) []byte {
			if strings.HasPrefix(key, "j/") && strings.HasSuffix(key, "/00000000") {
				return value[:len(value)-1]
			}
			return value
		}, []string{"in-snapshot", "in-journal-2"}, []string{"waiting"}},
		{"waiting verdict", flip("o/"), []string{"in-snapshot", "in-journal-1", "in-journal-2"}, nil},
		{"bounds of the outbox", flip("outbox"), []string{"in-snapshot", "in-journal-1", "in-journal-2"}, nil},
		{"everything foreign", foreign, nil, nil},
		{"everything empty", func(string, []byte) []byte { return []byte{} }, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := withStored(t, c.change)
			r := newRig(t, withStorage(dir)).start(t)
			require.NotZero(t, r.said.FilterMessageSnippet("cannot be used").Len(), "said loudly")
			_, err := r.telemetry.GetMetric("otelcol_processor_patterndetector_state_resets")
			require.NoError(t, err)
			r.clock.pass(time.Second)
			require.ElementsMatch(t, c.waits, r.next.ids())

			r.send(t, "test.second", "in-snapshot", "in-journal-1", "in-journal-2")
			require.ElementsMatch(t, append(c.known, c.waits...), r.next.ids())

			again := newRig(t, withStorage(crashed(t, dir))).start(t)
			require.Zero(t, again.said.FilterMessageSnippet("cannot be used").Len(), "the damage is gone at the next start")
			r.send(t, "test.first", "after")
			after := newRig(t, withStorage(crashed(t, dir))).start(t)
			after.send(t, "test.second", "after")
			require.Equal(t, []string{"after"}, after.next.ids(), "and the storage works")
		})
	}
}

func TestDamagedFileDoesNotKeepTheDetectorFromStarting(t *testing.T) {
	dir := t.TempDir()
	first := newRig(t, withStorage(dir)).start(t)
	first.send(t, "test.first", "a")
	first.stop(t)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.WriteFile(files[0], bytes.Repeat([]byte("garbage "), 4096), 0o600))

	r := newRig(t, withStorage(dir)).start(t)
	require.Equal(t, 1, r.said.FilterMessageSnippet("storage cannot be opened").Len())
	metadatatest.AssertEqualProcessorPatterndetectorStateResets(t, r.telemetry, []metricdata.DataPoint[int64]{
		{Value: 1, Attributes: attribute.NewSet(attribute.String("reason", resetUnavailable))},
	}, metricdatatest.IgnoreTimestamp())
	r.send(t, "test.first", "a")
	r.send(t, "test.second", "a")
	require.Equal(t, []string{"a"}, r.next.ids(), "the patterns work without memory")
}

// fickle is a storage in memory that fails or panics on demand and cannot be
// walked.
type fickle struct {
	component.StartFunc
	component.ShutdownFunc
	mu     sync.Mutex
	values map[string][]byte
	fail   func()
	err    error
}

func newFickle() *fickle { return &fickle{values: map[string][]byte{}} }

func (f *fickle) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return f, nil
}

func (f *fickle) Batch(_ context.Context, ops ...*storage.Operation) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		f.fail()
	}
	if f.err != nil {
		return f.err
	}
	for _, op := range ops {
		switch op.Type {
		case storage.Get:
			op.Value = f.values[op.Key]
		case storage.Set:
			f.values[op.Key] = op.Value
		case storage.Delete:
			delete(f.values, op.Key)
		}
	}
	return nil
}

func (f *fickle) Get(context.Context, string) ([]byte, error) { return nil, errors.ErrUnsupported }
func (f *fickle) Set(context.Context, string, []byte) error   { return errors.ErrUnsupported }
func (f *fickle) Delete(context.Context, string) error        { return errors.ErrUnsupported }
func (f *fickle) Close(context.Context) error                 { return nil }
func (f *fickle) set(err error, fail func())                  { f.mu.Lock(); f.err, f.fail = err, fail; f.mu.Unlock() }
func (f *fickle) copy() *fickle {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := newFickle()
	for key, value := range f.values {
		c.values[key] = value
	}
	return c
}

func TestStorageThatRefusesWritesForAWhile(t *testing.T) {
	for name, trouble := range map[string]struct {
		err  error
		fail func()
	}{
		"full":   {err: storage.ErrStorageFull},
		"panics": {fail: func() { panic("page 7: invalid") }},
	} {
		t.Run(name, func(t *testing.T) {
			store := newFickle()
			r := newRig(t, withExtension(store)).start(t)
			r.send(t, "test.first", "a", "b", "c")
			store.set(trouble.err, trouble.fail)
			r.send(t, "test.second", "a")
			require.Equal(t, []string{"a"}, r.next.ids(), "verdicts go on")
			r.next.set(errors.New("down"))
			_ = r.logs.ConsumeLogs(context.Background(), records(began, "test.second", "b"))
			require.Equal(t, 1, r.said.FilterMessageSnippet("storage refuses to write").Len(), "said once")
			errs, err := r.telemetry.GetMetric("otelcol_processor_patterndetector_journal_errors")
			require.NoError(t, err)
			require.NotZero(t, errs.Data.(metricdata.Sum[int64]).DataPoints[0].Value)

			store.set(nil, nil)
			r.clock.pass(time.Second)
			require.Equal(t, 1, r.said.FilterMessageSnippet("storage takes writes again").Len())

			after := newRig(t, withExtension(store.copy())).start(t)
			after.clock.pass(time.Minute)
			require.Equal(t, []string{"b"}, after.next.ids(), "what was made meanwhile is stored, what was delivered is not repeated")
			after.send(t, "test.second", "c")
			require.Equal(t, []string{"b", "c"}, after.next.ids())
			r.next.set(nil)
		})
	}
}

func TestStorageThatFailsAtStart(t *testing.T) {
	store := newFickle()
	store.set(errors.New("input/output error"), nil)
	r := newRig(t, withExtension(store)).start(t)
	r.send(t, "test.first", "a")
	r.send(t, "test.second", "a")
	require.Equal(t, []string{"a"}, r.next.ids())
	store.set(nil, nil)
}

func TestDamageInAStorageThatCannotBeWalked(t *testing.T) {
	store := newFickle()
	r := newRig(t, withExtension(store)).start(t)
	r.send(t, "test.first", "a")
	damaged := store.copy()
	for key := range damaged.values {
		damaged.values[key] = []byte("x")
	}
	for round := range 2 {
		after := newRig(t, withExtension(damaged)).start(t)
		after.send(t, "test.first", fmt.Sprint(round))
		damaged = damaged.copy()
		after = newRig(t, withExtension(damaged)).start(t)
		after.send(t, "test.second", fmt.Sprint(round))
		require.Equal(t, []string{fmt.Sprint(round)}, after.next.ids())
	}
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
		if e, err := decodeEntry(value); err == nil {
			e.made = nil // as if nothing had come of it
			forgetful.values[key] = e.encode()
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

func TestSnapshotOfAnotherVersion(t *testing.T) {
	store := newFickle()
	j := &journal{client: store}
	require.NoError(t, j.snapshot(context.Background(), []byte(`{"version":99}`), &outbox{}))

	r := newRig(t, withExtension(store)).start(t)
	require.Equal(t, 1, r.said.FilterMessageSnippet("the patterns start afresh").Len())
	metadatatest.AssertEqualProcessorPatterndetectorStateResets(t, r.telemetry, []metricdata.DataPoint[int64]{
		{Value: 1, Attributes: attribute.NewSet(attribute.String("reason", resetIncompatible))},
	}, metricdatatest.IgnoreTimestamp())
	r.send(t, "test.first", "a")
	after := newRig(t, withExtension(store.copy())).start(t)
	after.send(t, "test.second", "a")
	require.Equal(t, []string{"a"}, after.next.ids())
}
