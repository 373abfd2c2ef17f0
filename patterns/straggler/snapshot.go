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

// Snapshot returns the state; maps are written in the order of their keys.
func (d *detector) Snapshot() ([]byte, error) {
	data, err := json.Marshal(d.jobs)
	if err != nil {
		return nil, fmt.Errorf("write steps: %w", err)
	}
	return data, nil
}

// Restore replaces the state.
func (d *detector) Restore(data []byte) error {
	var jobs map[string]*job
	if err := json.Unmarshal(data, &jobs); err != nil {
		return fmt.Errorf("read steps: %w", err)
	}
	values := 0
	for name, j := range jobs {
		if j == nil || j.Name != name || j.Steps == nil || j.Ranks == nil {
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
	for _, j := range slices.SortedFunc(maps.Values(jobs), func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.Last, b.Last), cmp.Compare(a.Name, b.Name))
	}) {
		d.enter(j)
		for _, s := range j.Steps {
			d.count(j, len(s.Took))
		}
	}
	return nil
}
