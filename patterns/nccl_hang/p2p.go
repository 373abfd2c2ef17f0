package ncclhang

import "fmt"

// maxPairs bounds the sends and receives explained in one group.
const maxPairs = 256

// pointToPoint explains the sends and receives that wait: the earliest of each
// rank.
func (g *group) pointToPoint() []*Finding {
	var found []*Finding
	byPeer := map[[2]int]*Finding{} // one finding for each culprit and kind of doubt
	for _, d := range g.dumps {
		if d.waitsWith == nil || len(found) == maxPairs {
			continue
		}
		f := g.pair(d.rank, d.waitsWith)
		if f == nil {
			continue
		}
		same := [2]int{-1, len(f.Culprits)}
		if len(f.Culprits) > 0 {
			same[0] = f.Culprits[0]
		} else if len(f.NoDump) > 0 {
			same[0] = f.NoDump[0]
		}
		if known := byPeer[same]; known != nil && f.Kind == known.Kind && f.Kind != Mismatch && same[0] >= 0 {
			known.Waiting = append(known.Waiting, d.rank)
			continue
		}
		byPeer[same] = f
		found = append(found, f)
	}
	return found
}

// pair explains one send or receive by what its other end does.
func (g *group) pair(rank int, op *operation) *Finding {
	f := &Finding{P2P: true, Operation: op.name, Seq: op.seq, Waiting: []int{rank}, Sure: Likely}
	peer, known := g.peer(rank, op)
	if !known {
		return nil
	}
	f.Detail = fmt.Sprintf("rank %d waits in %s with rank %d", rank, op.name, peer)
	theirs := g.dump(peer)
	if !g.run.spoke(peer) {
		f.Kind, f.NoDump, f.Sure = NoDump, []int{peer}, Unsure
		f.Because = append(f.Because, doubtNoDump)
		return f
	}
	answer := g.answer(theirs, op)
	switch {
	case answer == nil:
		f.Kind, f.Culprits, f.Sure = NotEntered, []int{peer}, Certain
	case op.sizes() != answer.sizes():
		if rank > peer {
			return nil // told from the other end
		}
		f.Kind, f.What, f.Culprits, f.Waiting = Mismatch, "sizes", nil, []int{rank, peer}
		f.Detail = fmt.Sprintf("rank %d: %s %s; rank %d: %s %s", rank, op.name, op.sizes(), peer, answer.name, answer.sizes())
		f.Because = append(f.Because, "which of the two is wrong cannot be told")
	default:
		if rank > peer {
			return nil
		}
		f.Kind, f.Waiting, f.Sure = Stuck, []int{rank, peer}, Unsure
		f.Because = append(f.Because, "both ends entered it: the network or a GPU stands still, or it takes long")
	}
	return f
}

// sizes are what travels: the input of a send, the output of a receive. NCCL
// records the tensor on both sides.
func (o *operation) sizes() string {
	if o.name == "send" && o.in != "" && o.in != "[]" || o.out == "" || o.out == "[]" {
		return o.in
	}
	return o.out
}

// peer returns the other end as a rank of the job. The ends of a send are ranks
// of the group; without its members they mean nothing, but in the group of all.
func (g *group) peer(rank int, op *operation) (peer int, known bool) {
	other := op.source
	if op.name == "send" {
		other = op.target
	}
	if other < 0 || other >= len(g.members) || g.doubt != "" && !g.isDefault() {
		return 0, false
	}
	peer = g.members[other]
	return peer, peer != rank
}

// answer finds the unfinished counterpart of op at the other end: the first
// receive from the sender, the first send to the receiver. The order of sends
// between two ranks is that of their receives.
func (g *group) answer(theirs *dump, op *operation) *operation {
	if theirs == nil {
		return nil
	}
	for i := range theirs.operations {
		other := &theirs.operations[i]
		if !other.finished && other.p2p && other.name != op.name && other.source == op.source && other.target == op.target {
			return other
		}
	}
	return nil
}
