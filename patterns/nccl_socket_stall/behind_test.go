package ncclsocketstall

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// inside are the records of a job of 16 ranks on two hosts whose data uses the network in ranks 0 and 8 alone: rank 8
// fell silent 80 ms before rank 0, and received after that.
func inside() []*rule.Record {
	all := pair(0, 8, 4*second)
	for _, r := range all[2:] {
		put(r, map[string]any{"nccl.rank.last_sent_age_ns": 4*second + int64(80e6), "nccl.rank.last_received_age_ns": 4 * second})
	}
	return all
}

// pair are the records of two ranks that send each other data.
func pair(a, b int, silence int64) []*rule.Record {
	return []*rule.Record{
		idle(a, b, 16, true, silence), idle(a, b, 16, false, silence),
		idle(b, a, 16, true, silence), idle(b, a, 16, false, silence),
	}
}

func put(r *rule.Record, attributes map[string]any) {
	for key, v := range attributes {
		if err := r.Attributes.PutEmpty(key).FromRaw(v); err != nil {
			panic(err)
		}
	}
}

// unread makes of a record that its rank does not read.
func unread(r *rule.Record) *rule.Record {
	put(r, map[string]any{"nccl.socket.cause": string(socketstall.NotReading), "nccl.socket.direction": "receive", "nccl.socket.stall.id": "unread", "nccl.socket.receive_queue_bytes": 4_000_000})
	return r
}

// TestARankThatNVLinkMayJoinToTheNamedOneIsNotRuledOut: sockets name a rank for certain where none of its job
// can be behind it unseen.
func TestARankThatNVLinkMayJoinToTheNamedOneIsNotRuledOut(t *testing.T) {
	all := func(changes map[string]any) func() []*rule.Record {
		return func() []*rule.Record {
			rs := inside()
			for _, r := range rs {
				put(r, changes)
			}
			return rs
		}
	}
	service := func(kind string) func() []*rule.Record {
		return func() []*rule.Record {
			rs := inside()
			for rank := 1; rank < 16; rank++ {
				if rank != 8 {
					r := idle(rank, 0, 16, true, 3*second)
					put(r, map[string]any{"nccl.socket.kind": kind})
					rs = append(rs, r)
				}
			}
			return rs
		}
	}
	// Two hosts of two ranks, all of which use the network: from node-1 to rank 0, and so on.
	rails := func(culprit int, silent int64) []*rule.Record {
		var rs []*rule.Record
		for _, r := range append(pair(0, 8, 4*second), pair(1, 9, 4*second)...) {
			put(r, map[string]any{"gen_ai.training.world_size": 4})
			if rank, _ := socketstall.Rank(r.Attributes, "gen_ai.training.rank"); rank >= 8 {
				put(r, map[string]any{"gen_ai.training.rank": rank - 6})
				if rank-6 == culprit {
					put(r, map[string]any{"nccl.rank.last_sent_age_ns": 4*second + silent, "nccl.rank.last_received_age_ns": 4 * second})
				}
			}
			rs = append(rs, r)
		}
		return rs
	}
	for name, tc := range map[string]struct {
		records func() []*rule.Record
		held    string
		missing string
	}{
		"silent":                    {inside, heldSilent, "data sockets of 14 ranks"},
		"does not read":             {func() []*rule.Record { rs := inside(); return append(rs, unread(idle(8, 0, 16, true, 4*second))) }, heldReading, "data sockets of 14 ranks"},
		"does not read, held in D":  {func() []*rule.Record { return inD(append(inside(), unread(idle(8, 0, 16, true, 4*second)))) }, heldReading, ""},
		"silent, held in D":         {func() []*rule.Record { return inD(inside()) }, heldSilent, ""},
		"nobody says how many":      {all(map[string]any{"gen_ai.training.world_size": 0}), heldSilent, "data sockets of 7 ranks"},
		"RAS stands of all":         {service("ras"), heldSilent, "data sockets of 14 ranks"},
		"the store stands of all":   {service("store"), heldSilent, "data sockets of 14 ranks"},
		"a rank for each host":      {all(map[string]any{"gen_ai.training.world_size": 2}), heldSilent, "data sockets of 7 ranks"},
		"sockets inside the hosts":  {func() []*rule.Record { return records(16, 3, 1) }, heldSilent, ""},
		"each rank has its network": {func() []*rule.Record { return rails(2, 80e6) }, heldSilent, ""},
		"unread, and another earlier": {func() []*rule.Record {
			return append(rails(3, 80e6), unread(renumbered(idle(8, 0, 16, true, 3*second), 4*second)))
		}, heldReading, "rank 3 fell silent no later"},
		"unread, and it was the first": {func() []*rule.Record {
			return append(rails(2, 80e6), unread(renumbered(idle(8, 0, 16, true, 3*second), 4*second+80e6)))
		}, heldReading, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := fresh()
			observe(d, tc.records())
			findings := d.Decide(began + 4*second)
			require.Len(t, findings, 1)
			a := findings[0].Attributes
			require.Equal(t, tc.held, a[attrHeld], a[attrShows])
			require.Equal(t, tc.missing == "", a[attrCertain], a[attrMissing])
			if tc.missing != "" {
				require.Contains(t, a[attrMissing], tc.missing)
				require.Equal(t, "a rank behind it", a[attrBehind])
				require.Equal(t, adviceBehind, a[attrAdvice])
				return
			}
			require.NotContains(t, a, attrBehind)
		})
	}
}

// renumbered makes rank 2 of rank 8, in a job of four.
func renumbered(r *rule.Record, sent int64) *rule.Record {
	put(r, map[string]any{"gen_ai.training.world_size": 4, "gen_ai.training.rank": 2, "nccl.rank.last_sent_age_ns": sent})
	return r
}

// inD says of rank 8 that the kernel holds it.
func inD(rs []*rule.Record) []*rule.Record {
	for _, r := range rs {
		if rank, _ := socketstall.Rank(r.Attributes, "gen_ai.training.rank"); rank == 8 {
			put(r, map[string]any{"nccl.rank.state": "disk_sleep", "nccl.rank.syscall": "fsync", "nccl.rank.wait_channel": "rpc_wait_bit_killable"})
		}
	}
	return rs
}
