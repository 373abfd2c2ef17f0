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
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/tracecoreai/tracecore/processors/internal/journal"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadatatest"
)

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
	files := newFileStorage(copied)
	client, err := files.(storage.Extension).GetClient(context.Background(), component.KindProcessor, r.detector.id, "")
	require.NoError(t, err)
	changed := 0
	require.NoError(t, client.(storage.Walker).Walk(context.Background(), func(key string, value []byte) ([]*storage.Operation, error) {
		if altered := change(key, bytes.Clone(value)); !bytes.Equal(altered, value) {
			changed++
			if altered == nil {
				return []*storage.Operation{storage.DeleteOperation(key)}, nil
			}
			return []*storage.Operation{storage.SetOperation(key, altered)}, nil
		}
		return nil, nil
	}))
	require.NotZero(t, changed, "the test must damage something")
	require.NoError(t, files.Shutdown(context.Background()))
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
	missing := func(prefix, suffix string) func(string, []byte) []byte {
		return func(key string, value []byte) []byte {
			if strings.HasPrefix(key, prefix) && strings.HasSuffix(key, suffix) {
				return nil
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
		{"one journal entry is missing", missing("j/", "/00000000"), []string{"in-snapshot", "in-journal-2"}, []string{"waiting"}},
		{"bounds of the outbox", flip("outbox"), []string{"in-snapshot", "in-journal-1", "in-journal-2"}, []string{"waiting"}},
		{"bounds of the outbox are missing", missing("outbox", ""), []string{"in-snapshot", "in-journal-1", "in-journal-2"}, []string{"waiting"}},
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
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.state1"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("garbage "), 4096), 0o600))
	}
	r := newRig(t, withStorage(dir)).start(t)
	r.send(t, "test.first", "b")
	r.send(t, "test.second", "a")
	require.Empty(t, r.next.ids(), "what was in the file is forgotten")
	after := newRig(t, withStorage(crashed(t, dir))).start(t)
	after.send(t, "test.second", "b")
	require.Equal(t, []string{"b"}, after.next.ids(), "and what is written since is kept")
}

// fickle is a storage in memory that fails on demand.
type fickle struct {
	component.StartFunc
	component.ShutdownFunc
	mu     sync.Mutex
	values map[string][]byte
	err    error
}

func newFickle() *fickle { return &fickle{values: map[string][]byte{}} }

func (f *fickle) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return f, nil
}

func (f *fickle) Batch(_ context.Context, ops ...*storage.Operation) error {
	f.mu.Lock()
	defer f.mu.Unlock()
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

func (f *fickle) Walk(ctx context.Context, fn storage.WalkFunc) error {
	var all []*storage.Operation
	for key, value := range f.copy().values {
		ops, err := fn(key, value)
		if err != nil {
			return err
		}
		all = append(all, ops...)
	}
	return f.Batch(ctx, all...)
}

func (f *fickle) Get(context.Context, string) ([]byte, error) { return nil, errors.ErrUnsupported }
func (f *fickle) Set(context.Context, string, []byte) error   { return errors.ErrUnsupported }
func (f *fickle) Delete(context.Context, string) error        { return errors.ErrUnsupported }
func (f *fickle) Close(context.Context) error                 { return nil }
func (f *fickle) set(err error)                               { f.mu.Lock(); f.err = err; f.mu.Unlock() }
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
	store := newFickle()
	r := newRig(t, withExtension(store)).start(t)
	r.send(t, "test.first", "a", "b", "c")
	store.set(storage.ErrStorageFull)
	r.send(t, "test.second", "a")
	require.Equal(t, []string{"a"}, r.next.ids(), "verdicts go on")
	r.next.set(errors.New("down"))
	_ = r.logs.ConsumeLogs(context.Background(), records(began, "test.second", "b"))
	require.Equal(t, 1, r.said.FilterMessageSnippet("storage refuses to write").Len(), "said once")
	errs, err := r.telemetry.GetMetric("otelcol_processor_patterndetector_journal_errors")
	require.NoError(t, err)
	require.NotZero(t, errs.Data.(metricdata.Sum[int64]).DataPoints[0].Value)

	store.set(nil)
	r.clock.pass(time.Second)
	require.Equal(t, 1, r.said.FilterMessageSnippet("storage takes writes again").Len())

	after := newRig(t, withExtension(store.copy())).start(t)
	after.clock.pass(time.Minute)
	require.Equal(t, []string{"b"}, after.next.ids(), "what was made meanwhile is stored, what was delivered is not repeated")
	after.send(t, "test.second", "c")
	require.Equal(t, []string{"b", "c"}, after.next.ids())
	r.next.set(nil)
}

func TestStorageThatFailsAtStart(t *testing.T) {
	store := newFickle()
	store.set(errors.New("input/output error"))
	r := newRig(t, withExtension(store)).start(t)
	r.send(t, "test.first", "a")
	r.send(t, "test.second", "a")
	require.Equal(t, []string{"a"}, r.next.ids())
	store.set(nil)
}

func TestForeignStateIsForgottenOnce(t *testing.T) {
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

func TestSnapshotOfAnotherVersion(t *testing.T) {
	store := newFickle()
	j := &journal.Journal{Client: store}
	require.NoError(t, j.Snapshot(context.Background(), []byte(`{"version":99}`), &journal.Outbox{}))

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
