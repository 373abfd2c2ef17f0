package ncclsocketstall

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// saved is the state as JSON; its maps are written in the order of their keys.
type saved struct {
	Jobs  map[string]*job `json:"jobs"`
	Facts facts           `json:"facts"`
}

// Snapshot returns the state.
func (d *detector) Snapshot() ([]byte, error) {
	data, err := json.Marshal(saved{Jobs: d.jobs, Facts: d.facts})
	if err != nil {
		return nil, fmt.Errorf("write stalls: %w", err)
	}
	return data, nil
}

var errState = errors.New("read stalls: not the state of this detector")

// Restore replaces the state.
func (d *detector) Restore(data []byte) error {
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read stalls: %w", err)
	}
	jobs, stalls := map[string]*job{}, 0
	for name, j := range s.Jobs {
		if j == nil || j.Name != name || !j.restore() {
			return errState
		}
		jobs[name] = j
		stalls += len(j.Stalls)
	}
	if stalls > maxStalls || len(jobs) > maxJobs || len(s.Facts.All) > maxFacts {
		return errState
	}
	fs := newFacts()
	for _, key := range slices.Sorted(maps.Keys(s.Facts.All)) {
		if s.Facts.All[key] == nil {
			return errState
		}
		fs.add(key, s.Facts.All[key])
	}
	d.jobs, d.stalls, d.facts = jobs, stalls, fs
	return nil
}

// restore works out what is not written down; false when parts do not fit.
func (j *job) restore() bool {
	if j.Stalls == nil || j.Procs == nil {
		return false
	}
	j.hosts = map[string]int{}
	for _, p := range j.Procs {
		if p == nil {
			return false
		}
		j.hosts[p.Host]++
	}
	for _, s := range j.Stalls {
		if s == nil || j.Procs[s.Proc] == nil {
			return false
		}
		j.Procs[s.Proc].Stalls++
	}
	return true
}
