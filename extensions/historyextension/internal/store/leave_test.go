package store

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/history"
)

// leaver is the context of a caller who goes away once somebody has asked so often
// whether he is still there.
type leaver struct {
	context.Context
	leave func()
	left  atomic.Int32
}

func leaving(t *testing.T, after int32) *leaver {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	l := &leaver{Context: ctx, leave: cancel}
	l.left.Store(after)
	return l
}

func (l *leaver) Done() <-chan struct{} {
	if l.left.Add(-1) <= 0 {
		l.leave()
	}
	return l.Context.Done()
}

func (l *leaver) Err() error {
	if l.left.Add(-1) <= 0 {
		l.leave()
	}
	return l.Context.Err()
}

// Whenever a caller goes away, the next one is served, and a stop comes to its end.
func TestWhoGoesAwayHoldsNobodyUp(t *testing.T) {
	dir := t.TempDir()
	b := newBench(t, dir, 1<<20)
	b.keep(t, lost("kept", "n1", "j", 1))
	require.NoError(t, b.Close())
	for after := int32(1); ; after++ {
		b := newBench(t, dir, 1<<20)
		ctx := leaving(t, after)
		_, _, err := b.Incidents(ctx, history.Filter{})
		b.keep(t, lost("next", "n1", "j", int(after)))
		require.Contains(t, b.ids(t, history.Filter{}), "kept")
		require.NoError(t, b.Close())
		if ctx.Context.Err() == nil {
			require.NoError(t, err)
			require.Greater(t, after, int32(5), "he never went away meanwhile")
			return
		}
	}
}

// What panics in a transaction holds nobody up either: its file is set aside.
func TestAPanicInATransactionHoldsNobodyUp(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<20)
	b.keep(t, lost("before", "n1", "j", 1))
	calls := 0
	err := b.commit(t.Context(), func(context.Context, *sql.Tx, *batch) error {
		if calls++; calls == 1 {
			panic("the file is not what it should be")
		}
		return errors.New("and no more")
	})
	require.ErrorContains(t, err, "and no more")
	require.Equal(t, 2, calls)
	b.pass(openEvery)
	b.keep(t, lost("after", "n1", "j", 1))
	require.NoError(t, b.Close())
}
