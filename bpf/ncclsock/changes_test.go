//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// changesOf names the rung of a probe that tells changes, or nothing.
func changesOf(p *Probe) string {
	if rung := p.Report().Rung; rung == RungProcess || rung == RungHost {
		return rung
	}
	return ""
}

// nextChange reads until a change that fits.
func nextChange(t testing.TB, p *Probe, fits func(Change) bool) Change {
	t.Helper()
	p.source.setDeadline(time.Now().Add(hosttest.Patience))
	defer p.source.setDeadline(time.Time{})
	for {
		var c Change
		require.NoError(t, p.ReadChange(&c))
		require.WithinDuration(t, time.Now(), c.Time, 10*hosttest.Patience)
		if fits(c) {
			return c
		}
	}
}

func TestSocketsOfOthersMakeNoChange(t *testing.T) {
	for _, p := range openAll(t, Options{}) {
		if changesOf(p) == "" {
			continue
		}
		rank, other := newPlayer(t), newPlayer(t)
		snapshot(t, p, rank.pid)
		c := connected(t, other, other, loopback4)
		other.must(t, order{Do: "shutdown", FD: c.connected})
		connected(t, rank, rank, loopback4)
		// Three by the rank itself, in this order, and none before them.
		netns := snapshot(t, p, rank.pid).Sockets[0].NetNS
		for _, state := range []State{Listen, SynSent, Established} {
			change := nextChange(t, p, func(Change) bool { return true })
			require.Equal(t, netns, change.NetNS)
			require.Equal(t, rank.pid, change.PID)
			require.Equal(t, state, change.New)
		}
	}
}

func TestFullRingIsCounted(t *testing.T) {
	for _, p := range openAll(t, Options{RingBytes: uint32(os.Getpagesize())}) {
		if changesOf(p) == "" {
			continue
		}
		rank := newPlayer(t)
		snapshot(t, p, rank.pid)
		for n := 0; p.Stats().Dropped == 0; n++ {
			require.Less(t, n, 200, "the ring is not full")
			c := connected(t, rank, rank, loopback4)
			for _, fd := range []int{c.listener, c.connected, c.accepted} {
				rank.must(t, order{Do: "close", FD: fd})
			}
		}
		dropped := p.Stats().Dropped
		require.NoError(t, p.Close())
		closed := p.Stats()
		require.GreaterOrEqual(t, closed.Dropped, dropped, "the kernel ends connections a while after their processes did")
		require.Equal(t, closed, p.Stats())
	}
}

// A user whose connections come and go without end fills the ring for himself alone.
func TestAFloodOfChangesLosesItsOwn(t *testing.T) {
	for _, p := range openAll(t, Options{RingBytes: 4 * uint32(os.Getpagesize())}) {
		if changesOf(p) == "" {
			continue
		}
		rank, flooder := newPlayer(t), newPlayer(t)
		flooder.must(t, order{Do: "become", N: 12345})
		c := connected(t, rank, rank, loopback4)
		snapshot(t, p, rank.pid, flooder.pid)
		for n := 0; p.Stats().Dropped < 20; n++ {
			require.Less(t, n, 100, "the flooder's share of the ring is not full")
			f := connected(t, flooder, flooder, loopback4)
			for _, fd := range []int{f.listener, f.connected, f.accepted} {
				flooder.must(t, order{Do: "close", FD: fd})
			}
		}
		stats := p.Stats()
		require.Equal(t, []uint64{stats.Dropped, 12345}, []uint64{stats.Crowded, uint64(stats.Crowder)})
		rank.must(t, order{Do: "shutdown", FD: c.connected})
		nextChange(t, p, func(change Change) bool { return change.New == FinWait1 })
		require.Equal(t, stats.Dropped, p.Stats().Dropped)
	}
}

func TestCloseUnblocksReadChange(t *testing.T) {
	for _, p := range openAll(t, Options{}) {
		done := make(chan error)
		go func() {
			for {
				if err := p.ReadChange(&Change{}); err != nil {
					done <- err
					return
				}
			}
		}()
		require.NoError(t, p.Close())
		require.Equal(t, probe.ErrClosed, <-done)
	}
}
