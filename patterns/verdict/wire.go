package verdict

import (
	"encoding/json"
	"fmt"
	"math/bits"
)

// members are those of a verdict.
type members Verdict

// wire is a verdict in JSON. Ranks that are scattered, so that their ranges are long, stand
// in it as bits: 2 kB for 16,384 ranks, of which every second makes 40 kB of ranges.
type wire struct {
	*members
	// Count is how many ranks the blast radius has, where its ranges are only the first.
	Count int `json:"blast_radius_ranks_count,omitempty"`
	// Bits are all ranks of the blast radius then: rank r is bit r%8 of byte r/8.
	Bits []byte `json:"blast_radius_bits,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (v Verdict) MarshalJSON() ([]byte, error) {
	w := wire{members: (*members)(&v)}
	if _, more := v.BlastRadius.First(MaxRangesBytes); more > 0 {
		w.Count, w.Bits = len(v.BlastRadius), v.BlastRadius.bits()
	}
	return json.Marshal(w)
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *Verdict) UnmarshalJSON(data []byte) error {
	w := wire{members: (*members)(v)}
	if err := json.Unmarshal(data, &w); err != nil || len(w.Bits) == 0 {
		return err
	}
	ranks, err := ranksOfBits(w.Bits)
	v.BlastRadius = ranks
	return err
}

// bits has the ranks below MaxScattered.
func (r Ranks) bits() []byte {
	var set []byte
	for _, rank := range r {
		if rank < 0 || rank >= MaxScattered {
			continue
		}
		for len(set) <= rank/8 {
			set = append(set, 0)
		}
		set[rank/8] |= 1 << (rank % 8)
	}
	return set
}

func ranksOfBits(set []byte) (Ranks, error) {
	count := 0
	for _, b := range set {
		count += bits.OnesCount8(b)
	}
	if count > MaxRanks || len(set) > MaxScattered/8 {
		return nil, fmt.Errorf("blast_radius_bits has %d ranks in %d bytes, at most %d in %d are allowed", count, len(set), MaxRanks, MaxScattered/8)
	}
	ranks := make(Ranks, 0, count)
	for i, b := range set {
		for ; b != 0; b &= b - 1 {
			ranks = append(ranks, 8*i+bits.TrailingZeros8(b))
		}
	}
	return ranks, nil
}
