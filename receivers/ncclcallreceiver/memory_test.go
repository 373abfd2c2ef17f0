package ncclcallreceiver

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
	"github.com/tracecoreai/tracecore/receivers/internal/learned"
)

var known = identity.Process{PID: 42, Rank: 3, StartNS: 70}

// restart is another worker, of the same process, with what was known of it. Its calls are counted anew.
func (w *worker) restart(t *testing.T) *worker {
	m, is := w.memory(&known)
	require.True(t, is)
	text, err := json.Marshal(m)
	require.NoError(t, err)
	return newStart(t, w.at, string(text))
}

func newStart(t *testing.T, at float64, kept string) *worker {
	w := newWorker()
	w.at = at
	w.meets = func(_ uint32, at time.Time) *process {
		p := &process{born: known.Born()}
		var m activity.Memory
		require.NoError(t, json.Unmarshal([]byte(kept), &m))
		p.Recall(&m, at)
		return p
	}
	return w
}

// overdue is after how many seconds without a call the process is.
func (w *worker) overdue() int {
	for second := range 100 {
		if w.second(false); w.processes[42].Silence == socketstall.Overdue {
			return second + 1
		}
	}
	return 0
}

func TestAHangAfterARestartIsOverdueAsSoonAsEver(t *testing.T) {
	w := newStart(t, 0, "{}")
	w.work(15)
	w = w.restart(t)
	w.work(2)
	require.Equal(t, 3, w.overdue())

	w = newStart(t, 0, "{}")
	w.work(2)
	require.Equal(t, 60, w.overdue(), "one of which nothing is known")
}

func TestPausesAreUsualAfterARestart(t *testing.T) {
	w := newStart(t, 0, "{}")
	for range 3 {
		w.work(2)
		for range 20 {
			w.second(false)
		}
	}
	w.work(12)
	w = w.restart(t)
	w.work(2)
	require.InDelta(t, 2*20, w.overdue(), 2)
}

func TestAnotherProcessOfThatNumberIsNotKept(t *testing.T) {
	w := newStart(t, 0, "{}")
	w.work(15)
	reborn := known
	reborn.StartNS++
	_, is := w.memory(&reborn)
	require.False(t, is)
}

// A hang that was told, and stands through the restart, is no pause after it.
func TestAHangThroughARestartTeachesNoPause(t *testing.T) {
	w := newStart(t, 0, "{}")
	w.work(15)
	for range 4 {
		require.Equal(t, 3, w.overdue())
		w = w.restart(t)
		w.work(1) // the first call that is seen
		w.second(false)
		w.second(false)
		w.work(2)
	}
	require.Equal(t, 3, w.overdue())
}

func TestADamagedMemoryIsNone(t *testing.T) {
	w := newStart(t, 0, `{"at_work":-9,"first_ms":9223372036854775807,"pauses":[{"end_ms":9223372036854775807,"ms":-1,"how":"\u0000"}]}`)
	w.work(2)
	require.Equal(t, 60, w.overdue())
}

// The receiver itself keeps it, of the process that lives and of no other of that number.
func TestWhatIsKnownOfAProcessOutlivesTheReceiver(t *testing.T) {
	b := newBench(t)
	b.config.Storage = b.Keeps()
	b.Resolver.Know(known)
	r := b.receiver(t, b.Sink)
	require.NoError(t, r.Start(t.Context(), b.Host))
	for at := range 15 {
		b.scan(t, scanAt(float64(at), calling(uint64(at+1), float64(at)-0.5)))
	}
	b.Eventually(t, "calls", 15)
	require.NoError(t, r.Shutdown(context.Background()))

	again := &ncclCall{resolver: b.Resolver, learned: learned.New[activity.Memory](b.Settings, b.config.Storage)}
	require.NoError(t, again.learned.Open(t.Context(), b.Host))
	m := again.meets(42, seconds(20)).Memory()
	require.Equal(t, 10, m.AtWork)
	reborn := known
	reborn.StartNS++
	b.Resolver.Know(reborn)
	require.Zero(t, again.meets(42, seconds(20)).Memory().AtWork)
	b.Resolver.Know()
	require.Zero(t, again.meets(42, seconds(20)).Memory().AtWork)
}
