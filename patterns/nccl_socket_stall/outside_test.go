package ncclsocketstall

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// TestARankThatWaitsForAProcessOfNoRankIsInformation: for ten minutes. A rank that fell silent before, and owes data, is to blame,
// and so is one that is stopped.
func TestARankThatWaitsForAProcessOfNoRankIsInformation(t *testing.T) {
	for name, tc := range map[string]struct {
		other func(*rule.Record) // of rank 1
		held  string
		rank  int64
	}{
		"all others wait for it": {func(*rule.Record) {}, heldOutside, 0},
		"a rank is stopped":      {func(r *rule.Record) { r.Attributes.PutStr("nccl.rank.state", string(socketstall.Stopped)) }, heldStopped, 1},
		"a rank sleeps in the kernel": {func(r *rule.Record) {
			r.Attributes.PutStr("nccl.rank.state", string(socketstall.DiskSleep))
			r.Attributes.PutInt("nccl.rank.last_sent_age_ns", 6*second)
		}, heldSilent, 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := fresh()
			round := func(at int64) {
				for rank := range 3 {
					for _, peer := range []int{(rank + 1) % 3, (rank + 2) % 3} {
						r := idle(rank, peer, 3, peer == (rank+2)%3, 4*second+at)
						r.Time += at
						r.Attributes.PutStr("nccl.socket.kind", "gloo")
						r.Attributes.PutInt("nccl.peer.rank", int64(peer))
						r.Attributes.PutInt("nccl.rank.last_received_age_ns", 4*second+at)
						if rank == 1 {
							tc.other(r)
						}
						d.Observe(r)
					}
				}
				engine := idle(0, 16, 3, false, 4*second+at-50e6)
				engine.Time += at
				engine.Attributes.PutStr("nccl.socket.kind", "gloo")
				d.Observe(engine)
			}
			kinds := map[bool]int{} // whether it is an error
			var last rule.Finding
			for at := int64(0); at < 620*second; at += 10 * second {
				round(at)
				for _, f := range append(d.Decide(began+at+second), d.Decide(began+at+4*second)...) {
					last = f
					kinds[f.Attributes[attrKind] != nil]++
					if at < 590*second && tc.held == heldOutside {
						require.Nil(t, f.Attributes[attrKind])
					}
				}
			}
			require.Equal(t, []any{tc.held, tc.rank}, []any{last.Attributes[attrHeld], last.Attributes["gen_ai.training.rank"]}, last.Attributes[attrShows])
			require.NotNil(t, last.Attributes[attrKind], "it lasts for longer than ten minutes")
			if tc.held == heldOutside {
				require.Equal(t, "10.0.2.1:40000", last.Attributes[attrPeer])
				require.NotZero(t, kinds[false])
			}
		})
	}
}

// TestARankThatWaitsForAnAnswerIsInformationForAMinute: of several that fell silent at once it is the one that is meant.
func TestARankThatWaitsForAnAnswerIsInformationForAMinute(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*rule.Record) // of rank 0
		held   string
		early  bool
	}{
		"asleep for the answer": {func(*rule.Record) {}, heldSilent, true},
		"stopped meanwhile":     {func(r *rule.Record) { r.Attributes.PutStr("nccl.rank.state", string(socketstall.Stopped)) }, heldStopped, false},
		"a child holds it up": {func(r *rule.Record) {
			r.Attributes.PutStr("nccl.rank.child_state", string(socketstall.Stopped))
			r.Attributes.PutBool("nccl.rank.child_awaited", true)
			r.Attributes.PutStr("nccl.rank.child_name", "loader")
			r.Attributes.PutInt("nccl.rank.child_pid", 77)
		}, heldSilent, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := fresh()
			early, late := false, false
			for at := int64(0); at < 90*second; at += 10 * second {
				for rank := range 3 {
					for _, peer := range []int{(rank + 1) % 3, (rank + 2) % 3} {
						r := idle(rank, peer, 3, peer == (rank+2)%3, 4*second+at)
						r.Time += at
						r.Attributes.PutInt("nccl.peer.rank", int64(peer))
						r.Attributes.PutInt("nccl.rank.last_received_age_ns", 4*second+at)
						if rank == 0 {
							r.Attributes.PutStr("nccl.rank.awaits", "10.0.0.9:8000")
							r.Attributes.PutStr("nccl.rank.activity", string(socketstall.Idle))
							tc.change(r)
						}
						d.Observe(r)
					}
				}
				for _, f := range append(d.Decide(began+at+2*second), d.Decide(began+at+8*second)...) {
					require.Equal(t, []any{tc.held, int64(0)}, []any{f.Attributes[attrHeld], f.Attributes["gen_ai.training.rank"]}, f.Attributes[attrShows])
					if f.Attributes[attrKind] == nil {
						early = true
						require.False(t, late)
					} else {
						late = true
					}
				}
			}
			require.Equal(t, tc.early, early)
			require.True(t, late, "a fault in the end")
		})
	}
}
