package straggler

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

var errState = errors.New("read steps: not the state of this detector")

// saved is the state as JSON.
type saved struct {
	Jobs   map[string]*job   `json:"jobs"`
	Groups map[string]*group `json:"groups,omitempty"`
}

// Snapshot returns the state; maps are written in the order of their keys.
func (d *detector) Snapshot() ([]byte, error) {
	for _, g := range d.arrivals.groups {
		g.toSave(true)
		defer g.toSave(false)
	}
	data, err := json.Marshal(saved{d.jobs, d.arrivals.groups})
	if err != nil {
		return nil, fmt.Errorf("write steps: %w", err)
	}
	return data, nil
}

// toSave writes the arrivals of a communicator by rank, or forgets that again.
func (g *group) toSave(is bool) {
	for _, s := range g.Samples {
		if s.At = nil; !is {
			continue
		}
		s.At = make(map[int64]int64, s.heard)
		for slot, at := range s.at {
			if at != 0 {
				s.At[g.slots[slot].inComm] = at
			}
		}
	}
}

// read decodes a state. One of before arrivals were judged is the jobs alone.
func read(data []byte) (state saved, err error) {
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return saved{}, err
	}
	if _, is := parts["jobs"]; is {
		err = json.Unmarshal(data, &state)
	} else {
		err = json.Unmarshal(data, &state.Jobs)
	}
	return state, err
}

// Restore replaces the state.
func (d *detector) Restore(data []byte) error {
	state, err := read(data)
	if err != nil {
		return fmt.Errorf("read steps: %w", err)
	}
	if err := d.arrivals.check(state.Groups); err != nil {
		return err
	}
	jobs := state.Jobs
	values := 0
	for at, j := range jobs {
		if j == nil || j.key() != at || j.Steps == nil || j.Ranks == nil {
			return errState
		}
		for _, s := range j.Steps {
			if s == nil || s.Took == nil {
				return errState
			}
			values += len(s.Took)
		}
		for _, r := range j.Ranks {
			if r == nil {
				return errState
			}
		}
	}
	if values > maxValues || len(jobs) > maxJobs {
		return errState
	}
	d.reset()
	d.arrivals.restore(state.Groups)
	for _, j := range slices.SortedFunc(maps.Values(jobs), func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.Last, b.Last), cmp.Compare(a.key(), b.key()))
	}) {
		d.enter(j)
		for _, s := range j.Steps {
			d.count(j, len(s.Took))
		}
	}
	return nil
}

func (a *arrivals) check(groups map[string]*group) error {
	held := 0
	for at, g := range groups {
		if g == nil || g.key() != at || g.Members == nil || g.Samples == nil {
			return errState
		}
		held += len(g.Members)
		for _, m := range g.Members {
			if m == nil || len(m.Peers) > maxPeers || len(m.Late) > maxSamples {
				return errState
			}
		}
		for _, s := range g.Samples {
			if s == nil || s.At == nil {
				return errState
			}
			for inComm := range s.At {
				if g.Members[inComm] == nil {
					return errState
				}
			}
			held += len(s.At)
		}
	}
	if held > maxArrivals || len(groups) > maxGroups {
		return errState
	}
	return nil
}

func (a *arrivals) restore(groups map[string]*group) {
	a.reset()
	for _, g := range slices.SortedFunc(maps.Values(groups), func(x, y *group) int {
		return cmp.Or(cmp.Compare(x.Last, y.Last), cmp.Compare(x.key(), y.key()))
	}) {
		a.enter(g)
		for _, inComm := range slices.Sorted(maps.Keys(g.Members)) {
			m := g.Members[inComm]
			for _, comm := range m.Peers {
				g.shared[comm]++
			}
			a.join(g, m, inComm, len(g.slots))
			a.resize(g, 1)
		}
		if len(g.Samples) > 4*maxArrivals/max(1, len(g.slots)) {
			g.Samples = map[int64]*arrival{} // they would take more room than there is
			a.evicted++
		}
		for _, s := range g.Samples {
			for inComm, at := range s.At {
				s.hear(g.Members[inComm].slot, at)
			}
			s.At = nil
			a.resize(g, len(s.at))
		}
		a.wait(g)
		a.makeRoom()
	}
}
