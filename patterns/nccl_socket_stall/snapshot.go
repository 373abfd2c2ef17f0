package ncclsocketstall

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// saved is the state as JSON; its maps are written in the order of their keys.
type saved struct {
	Stalls *socketstall.Book `json:"stalls"`
	Jobs   map[string]*job   `json:"jobs"`
	Facts  facts             `json:"facts"`
}

// Snapshot returns the state.
func (d *detector) Snapshot() ([]byte, error) {
	data, err := json.Marshal(saved{Stalls: d.book, Jobs: d.jobs, Facts: d.facts})
	if err != nil {
		return nil, fmt.Errorf("write stalls: %w", err)
	}
	return data, nil
}

var errState = errors.New("read stalls: not the state of this detector")

// Restore replaces the state.
func (d *detector) Restore(data []byte) error {
	s := saved{Stalls: socketstall.NewBook(d.limits)}
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read stalls: %w", err)
	}
	if s.Stalls == nil || len(s.Facts.All) > d.maxFacts {
		return errState
	}
	jobs := map[string]*job{}
	for stalls := range s.Stalls.Jobs() {
		j := s.Jobs[stalls.Name]
		if j == nil {
			return errState
		}
		j.stalls = stalls
		jobs[stalls.Name] = j
	}
	if len(jobs) != len(s.Jobs) {
		return errState
	}
	fs := newFacts()
	for _, key := range slices.Sorted(maps.Keys(s.Facts.All)) {
		if s.Facts.All[key] == nil {
			return errState
		}
		fs.add(key, s.Facts.All[key])
	}
	d.book, d.jobs, d.facts = s.Stalls, jobs, fs
	return nil
}
