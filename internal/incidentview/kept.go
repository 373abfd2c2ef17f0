package incidentview

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// mostUnpacked bounds what Restore unpacks.
const mostUnpacked = 32 << 20

// kept is the form in which Records outlive a process. Times of ranks are milliseconds from
// From on, one more than they are: 0 says that there is none.
type kept struct {
	From   int64                `json:"from"`
	Near   []keptNear           `json:"near,omitempty"`
	Raw    map[string]keptRaw   `json:"raw,omitempty"`
	Ranks  [][3]int64           `json:"ranks,omitempty"` // rank, waits, dead
	Stacks map[string]keptStack `json:"stacks,omitempty"`
	Frames []keptFrames         `json:"stack_frames,omitempty"` // once for each stack
}

type keptNear struct {
	Near      Near            `json:"near"`
	Closeness int             `json:"closeness"`
	Raw       json.RawMessage `json:"raw"`
}

type keptRaw struct {
	Count uint64          `json:"count"`
	First json.RawMessage `json:"first,omitempty"`
	Last  json.RawMessage `json:"last,omitempty"`
	From  int64           `json:"from"`
	Until int64           `json:"until"`
}

type keptStack struct {
	StackKey
	At     int64  `json:"at"`
	Wait   string `json:"wait,omitempty"`
	Thread string `json:"thread,omitempty"`
	Unread string `json:"unread,omitempty"`
}

type keptFrames struct {
	StackKey
	List []Frame `json:"list"`
	More int     `json:"more,omitempty"`
	Here int     `json:"here,omitempty"`
}

// Keep returns what was collected in at most most bytes, nil for nothing. Where there is
// too much, records as they came go first, then frames, then how each rank fared.
func (r *Records) Keep(most int) ([]byte, error) {
	k := r.keep()
	for _, less := range []func(){
		func() {},
		func() {
			for event, raw := range k.Raw {
				raw.Last = nil
				k.Raw[event] = raw
			}
		},
		func() { k.Raw, k.Near = nil, k.Near[:min(len(k.Near), mostNear/4)] },
		func() { k.Frames, k.Near = nil, nil },
		func() { k.Stacks, k.Ranks = nil, nil },
	} {
		less()
		if len(k.Near)+len(k.Raw)+len(k.Ranks)+len(k.Stacks) == 0 {
			return nil, nil
		}
		packed, err := pack(k)
		if err != nil || len(packed) <= most {
			return packed, err
		}
	}
	return nil, nil
}

func (r *Records) keep() *kept {
	k := &kept{From: r.about.from, Raw: map[string]keptRaw{}, Stacks: map[string]keptStack{}}
	for _, n := range r.near {
		k.Near = append(k.Near, keptNear{n.Near, n.closeness, n.raw.json()})
	}
	for event, raw := range r.raw {
		k.Raw[event] = keptRaw{Count: raw.count, First: raw.first.json(), Last: raw.last.json(), From: raw.from, Until: raw.until}
	}
	for _, rank := range slices.Sorted(maps.Keys(r.ranks)) {
		state := r.ranks[rank]
		k.Ranks = append(k.Ranks, [3]int64{int64(rank), k.offset(state.waits), k.offset(state.dead)})
	}
	for rank, s := range r.stacks {
		k.Stacks[strconv.Itoa(rank)] = keptStack{s.key, s.at, s.wait, s.thread, s.unread}
	}
	for _, key := range slices.SortedFunc(maps.Keys(r.frames), StackKey.compare) {
		if frames := r.frames[key]; r.stands(key) {
			k.Frames = append(k.Frames, keptFrames{key, frames.list, frames.more, frames.here})
		}
	}
	return k
}

// stands reports whether a rank stands there.
func (r *Records) stands(there StackKey) bool {
	for _, s := range r.stacks {
		if s.key == there {
			return true
		}
	}
	return false
}

func (k *kept) offset(at int64) int64 {
	if at == 0 {
		return 0
	}
	return 1 + (at-k.From)/int64(time.Millisecond)
}

func (k *kept) moment(offset int64) int64 {
	if offset == 0 {
		return 0
	}
	return k.From + (offset-1)*int64(time.Millisecond)
}

func pack(k *kept) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if err := errors.Join(json.NewEncoder(w).Encode(k), w.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Restore takes up what Keep returned. Records that were collected then may come again.
func (r *Records) Restore(packed []byte) error {
	if len(packed) == 0 {
		return nil
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return fmt.Errorf("kept evidence: %w", err)
	}
	var k kept
	if err := json.NewDecoder(io.LimitReader(unpacked, mostUnpacked)).Decode(&k); err != nil {
		return fmt.Errorf("kept evidence: %w", err)
	}
	for _, n := range k.Near[:min(len(k.Near), mostNear)] {
		r.addNear(nearRecord{Near: n.Near, closeness: n.Closeness, raw: madeRecord(n.Raw)})
	}
	for _, event := range slices.Sorted(maps.Keys(k.Raw)) {
		if raw := k.Raw[event]; len(r.raw) < mostEvents {
			r.raw[event] = &rawRecords{count: raw.Count, first: madeRecord(raw.First), last: madeRecord(raw.Last), from: raw.From, until: raw.Until, counted: raw.Until}
		}
	}
	for _, one := range k.Ranks[:min(len(k.Ranks), mostRanks)] {
		if rank := one[0]; rank >= 0 && rank <= verdict.MaxRank {
			r.ranks[int(rank)] = &rankState{waits: k.moment(one[1]), dead: k.moment(one[2])}
		}
	}
	for name, s := range k.Stacks {
		if rank, err := strconv.Atoi(name); err == nil && rank >= 0 && rank <= verdict.MaxRank && len(r.stacks) < mostRanks {
			r.stacks[rank] = rankStack{key: s.StackKey, at: s.At, wait: s.Wait, thread: s.Thread, unread: s.Unread}
		}
	}
	for _, frames := range k.Frames {
		if len(r.frames) < mostHashes {
			r.frames[frames.StackKey] = stackFrames{frames.List[:min(len(frames.List), mostFrames)], frames.More, frames.Here}
		}
	}
	return nil
}

// Through has records of an incident that goes on count until a time: its verdicts say only
// what was news.
func (r *Records) Through(now time.Time) { r.about.to = max(r.about.to, now.UnixNano()) }

// Unnamed are the stacks of which nothing but the kernel's function came.
func (r *Records) Unnamed() []StackKey {
	missing := map[StackKey]bool{}
	for _, s := range r.stacks {
		named := slices.ContainsFunc(r.frames[s.key].list, func(f Frame) bool { return f.Kind != "kernel" })
		if !named && s.key.Hash != "" {
			missing[s.key] = true
		}
	}
	return slices.SortedFunc(maps.Keys(missing), StackKey.compare)
}
