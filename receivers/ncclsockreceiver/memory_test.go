package ncclsockreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// train lets n snapshots be taken between which data moves from rank 3 to rank 4.
func (b *bench) train(t *testing.T, n int) {
	for i := range n {
		moving := connected(42, 43, uint64(i+1)<<20)
		for at := range moving {
			moving[at].Cookie, moving[at].LastReceivedAge, moving[at].LastSentAge = uint64(at+1), 0, 0
		}
		b.source.set(nil, moving...)
		b.look(t, 1)
	}
}

// usual says of each stall that was told whether the pauses of the job were known.
func (b *bench) usual() (known []bool) {
	for len(b.Records) > 0 {
		if r := <-b.Records; r.EventName() == "nccl.socket.stall" {
			_, is := r.Attributes().Get("nccl.rank.usual_phase_ns")
			known = append(known, is)
		}
	}
	return known
}

// A receiver that was killed, or upgraded, goes on with what it knew of a job: it tells of a silence in a
// few seconds. One without a storage waits for a minute.
func TestWhatIsKnownOfAJobOutlivesTheReceiver(t *testing.T) {
	for name, kept := range map[string]bool{"with a storage": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			ranks := []identity.Process{rank(42, 3), rank(43, 4)}
			ranks[0].StartNS, ranks[1].StartNS = 70, 71
			b.Resolver.Know(ranks...)
			if kept {
				b.config.Storage = b.Keeps()
			}
			receivers := b.start(t)
			b.train(t, 15)
			stop(t, receivers)
			require.Empty(t, b.usual())

			b.at = start.Add(time.Minute)
			receivers = b.start(t)
			b.train(t, 1)
			b.look(t, 6)
			stop(t, receivers)
			known := b.usual()
			require.Equal(t, kept, len(known) > 0)
			require.NotContains(t, known, false)
		})
	}
}

func TestAStorageThatIsNotThereIsAnError(t *testing.T) {
	b := newBench(t)
	id := component.MustNewID("file_storage")
	b.config.Storage = &id
	receivers := b.receivers(t, b.Sink)
	require.ErrorContains(t, receivers[0].Start(t.Context(), b.Host), "define it under extensions")
	stop(t, receivers)
}
