package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// traced is a storage of which each state is known that a crash can leave.
type traced struct {
	storage.Client
	values map[string][]byte
	states []map[string][]byte // after each batch
	err    error
}

func (s *traced) Batch(_ context.Context, ops ...*storage.Operation) error {
	if s.err != nil {
		return s.err
	}
	for _, op := range ops {
		switch op.Type {
		case storage.Get:
			op.Value = s.values[op.Key]
		case storage.Set:
			s.values[op.Key] = op.Value
		case storage.Delete:
			delete(s.values, op.Key)
		}
	}
	s.states = append(s.states, maps.Clone(s.values))
	return nil
}

func (s *traced) Walk(ctx context.Context, fn storage.WalkFunc) error {
	var all []*storage.Operation
	for key, value := range maps.Clone(s.values) {
		ops, err := fn(key, value)
		if err != nil {
			return err
		}
		all = append(all, ops...)
	}
	return s.Batch(ctx, all...)
}

// told writes down what a journal was told: its state is the numbers of all entries, in a
// snapshot of several batches.
type told struct {
	*Journal
	store *traced
	n     int
}

func newTold() *told {
	store := &traced{values: map[string][]byte{}}
	return &told{Journal: &Journal{Client: store}, store: store}
}

const padding = chunksAtOnce*chunkBytes + 1 // two batches

func (j *told) state() []byte { return stateOf(j.n) }

func stateOf(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "%d ", i)
	}
	b.WriteString(strings.Repeat(".", padding))
	return b.Bytes()
}

func (j *told) tell(t *testing.T) {
	t.Helper()
	require.NoError(t, j.Append(t.Context(), &Entry{Payload: fmt.Append(nil, j.n)}, &Outbox{}))
	j.n++
}

// recalled is what the next start learns: the numbers of all entries.
func recalled(t *testing.T, values map[string][]byte) (*Journal, string) {
	t.Helper()
	j := &Journal{Client: &traced{values: maps.Clone(values)}}
	state, err := j.Load(t.Context())
	require.NoError(t, err)
	var text strings.Builder
	text.WriteString(strings.TrimRight(string(state), "."))
	require.NoError(t, j.Replay(t.Context(), func(e Entry, err error) {
		require.NoError(t, err)
		fmt.Fprintf(&text, "%s ", e.Payload)
	}))
	return j, text.String()
}

// numbers are those of the first n entries.
func numbers(n int) string { return strings.TrimRight(string(stateOf(n)), ".") }

// A crash at any time of a checkpoint loses no entry and repeats none, of those before it and
// of those that came while it was stored. What the next start makes of it stays so.
func TestACrashBesideACheckpointLosesNothing(t *testing.T) {
	j := newTold()
	var had []int // entries, by state of the storage
	note := func() {
		for len(had) < len(j.store.states) {
			had = append(had, j.n)
		}
	}
	tell := func(n int) {
		for range n {
			j.tell(t)
			note()
		}
	}
	for range 2 {
		tell(3)
		state := j.state()
		c := j.begin()
		tell(2)
		stored := c.store(t.Context(), state)
		note()
		tell(2)
		require.NoError(t, j.commit(t.Context(), c, stored))
		note()
		tell(1)
		require.NoError(t, c.clean(t.Context()))
		j.outdated = nil
		note()
	}
	tell(2)
	require.Greater(t, len(had), 20)
	for i, values := range j.store.states {
		next, text := recalled(t, values)
		require.Equal(t, numbers(had[i]), text, "after batch %d", i)
		require.NoError(t, next.Append(t.Context(), &Entry{Payload: fmt.Append(nil, had[i])}, &Outbox{}))
		after, text := recalled(t, next.Client.(*traced).values)
		require.Equal(t, numbers(had[i]+1), text, "after batch %d and one more entry", i)

		require.NoError(t, after.Snapshot(t.Context(), stateOf(had[i]+1), &Outbox{}))
		require.Len(t, after.Client.(*traced).values, int(after.chunks)+1, "chunks and head: nothing is left of what a snapshot replaces")
	}
}

// A storage that refuses in the middle of a checkpoint has, after the next snapshot, that and
// nothing else.
func TestACheckpointThatFails(t *testing.T) {
	refusal := errors.New("no space left on device")
	for _, when := range []string{"store", "commit", "clean"} {
		t.Run(when, func(t *testing.T) {
			j := newTold()
			j.tell(t)
			c := j.begin()
			refuse := func(at string) {
				if at == when {
					j.store.err = refusal
				}
			}
			refuse("store")
			err := c.store(t.Context(), j.state())
			refuse("commit")
			err = j.commit(t.Context(), c, err)
			if err == nil {
				refuse("clean")
				err = c.clean(t.Context())
			}
			require.ErrorIs(t, err, refusal)
			j.store.err = nil
			_, text := recalled(t, j.store.values)
			require.Equal(t, numbers(1), text)

			require.NoError(t, j.Snapshot(t.Context(), j.state(), &Outbox{}))
			again, text := recalled(t, j.store.values)
			require.Equal(t, numbers(1), text)
			require.Len(t, j.store.values, int(again.chunks)+1, "chunks and head")
		})
	}
}

// The caller of Save learns that the storage refuses, and the snapshot in one batch that comes next
// holds all.
func TestASaveThatFailsIsTold(t *testing.T) {
	j := newTold()
	j.tell(t)
	refusal := errors.New("no space left on device")
	var lock sync.Mutex
	failed := make(chan error, 1)
	lock.Lock()
	j.store.err = refusal
	j.Save(t.Context(), &lock, func() ([]byte, error) { return j.state(), nil }, func(err error) { failed <- err })
	require.True(t, j.Saving())
	require.ErrorIs(t, j.Append(t.Context(), &Entry{}, &Outbox{}), refusal)
	lock.Unlock()
	require.ErrorIs(t, <-failed, refusal)
	j.Saved(&lock)
	require.False(t, j.Saving())
	j.store.err = nil
	require.NoError(t, j.Snapshot(t.Context(), j.state(), &Outbox{}))
	_, text := recalled(t, j.store.values)
	require.Equal(t, numbers(1), text)
}

// Damage can take all entries since a snapshot, while the next is stored: those that came since
// then are told, and that some are missing.
func TestAGenerationThatIsMissingIsTold(t *testing.T) {
	j := newTold()
	j.tell(t)
	require.NoError(t, j.Snapshot(t.Context(), j.state(), &Outbox{}))
	j.tell(t)
	lost := keyEntry(j.number, 0)
	j.begin()
	j.tell(t)
	delete(j.store.values, lost)
	next := &Journal{Client: j.store}
	_, err := next.Load(t.Context())
	require.NoError(t, err)
	var got []string
	require.NoError(t, next.Replay(t.Context(), func(e Entry, err error) {
		if err != nil {
			got = append(got, err.Error())
			return
		}
		got = append(got, string(e.Payload))
	}))
	require.Equal(t, []string{"all journal entries of a generation are missing", "2"}, got)
}
