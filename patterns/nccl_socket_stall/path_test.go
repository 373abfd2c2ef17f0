package ncclsocketstall

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// end is what one end of a connection says: a path that is cut, or nothing but that it waits.
type end struct{ out, unacked, in int64 }

// record is what rank says of its connection with peer.
func (e end) record(rank, peer int, early bool) *rule.Record {
	r := idle(rank, peer, 4, rank > peer, 4*second)
	a := r.Attributes
	if e.unacked > 0 {
		a.PutStr("nccl.socket.cause", string(socketstall.Network))
		a.PutStr("nccl.socket.direction", string(socketstall.Send))
	}
	if early {
		a.PutInt("nccl.socket.stall.age_ns", 5*second)
	}
	a.PutInt("nccl.socket.sent_bytes", e.out)
	a.PutInt("nccl.socket.unacked_bytes", e.unacked)
	a.PutInt("nccl.socket.received_bytes", e.in)
	return r
}

// TestDirectionOfLoss: what arrived and what was acknowledged tell in which direction
// packets are lost, whichever end is told first.
func TestDirectionOfLoss(t *testing.T) {
	for name, tc := range map[string]struct {
		near, far end // of rank 1 and rank 2
		from, way string
	}{
		"there, the sender alone has data":        {near: end{out: 1000, unacked: 200, in: 500}, far: end{out: 500, in: 800}, from: "1"},
		"there, both have data":                   {near: end{out: 1000, unacked: 200, in: 500}, far: end{out: 500, unacked: 100, in: 800}, from: "1", way: "while they do the other way"},
		"back: all of it has arrived":             {near: end{out: 1000, unacked: 200, in: 500}, far: end{out: 500, in: 1000}, from: "2", way: "while they do the other way"},
		"back, and the far end sends in vain too": {near: end{out: 1000, unacked: 200, in: 400}, far: end{out: 500, unacked: 100, in: 1000}, from: "2", way: "while they do the other way"},
		"both ways":                      {near: end{out: 1000, unacked: 200, in: 400}, far: end{out: 500, unacked: 100, in: 800}, from: "1", way: "nor the other way"},
		"both ways, some was on its way": {near: end{out: 1000, unacked: 200, in: 400}, far: end{out: 500, in: 900}, from: "1", way: "nor the other way"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, farFirst := range []bool{false, true} {
				d := fresh()
				near, far := tc.near.record(1, 2, false), tc.far.record(2, 1, farFirst)
				d.Observe(near)
				d.Observe(far)
				findings := d.Decide(began + second)
				require.Len(t, findings, 1)
				a := findings[0].Attributes
				require.Equal(t, heldPath, a[attrHeld])
				if tc.way == "nor the other way" {
					require.Contains(t, []any{int64(1), int64(2)}, a["gen_ai.training.rank"])
				} else {
					require.EqualValues(t, tc.from[0]-'0', a["gen_ai.training.rank"], a[attrShows])
				}
				if tc.way == "" {
					require.NotContains(t, a, attrWay)
				} else {
					require.Equal(t, tc.way, a[attrWay])
				}
			}
		})
	}
}

// TestDirectionOfLossOnOneHost: the receiver has both ends in one snapshot and says what the
// other end has received, whether or not that end has a stall of its own.
func TestDirectionOfLossOnOneHost(t *testing.T) {
	for name, tc := range map[string]struct {
		received int64
		says     string
	}{
		"there":              {800, "none of it has arrived"},
		"back":               {1000, "its acknowledgement is lost on the way back"},
		"the end knows none": {socketstall.Unknown, "in which direction packets are lost is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			r := end{out: 1000, unacked: 200, in: 400}.record(1, 2, false)
			r.Attributes.PutInt("nccl.peer.rank", 2)
			r.Attributes.PutInt("nccl.peer.received_bytes", tc.received)
			d := fresh()
			d.Observe(r)
			findings := d.Decide(began + second)
			require.Len(t, findings, 1)
			require.Contains(t, findings[0].Attributes[attrShows], tc.says)
			require.NotContains(t, findings[0].Attributes[attrShows], "runs no agent")
		})
	}
}

// TestOneLossIsToldOnce: one end has two stalls of the connection, since its data does not arrive
// and since it gets none. Which of them is looked at first makes no difference.
func TestOneLossIsToldOnce(t *testing.T) {
	d := fresh()
	cut := end{out: 1000, unacked: 200, in: 500}
	d.Observe(cut.record(1, 2, false))
	waits := cut.record(1, 2, false)
	waits.Attributes.PutStr("nccl.socket.stall.id", "waits")
	waits.Attributes.PutStr("nccl.socket.cause", string(socketstall.Waiting))
	waits.Attributes.PutStr("nccl.socket.direction", string(socketstall.Receive))
	d.Observe(waits)
	d.Observe(end{out: 500, unacked: 100, in: 800}.record(2, 1, true))
	require.Len(t, d.Decide(began+second), 1)
	for i := range int64(50) {
		for _, j := range d.jobs {
			j.Changed = true
		}
		require.Empty(t, d.Decide(began+second+i), "nothing is new")
	}
}
