package cudaoom

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// state is what a snapshot holds.
type state struct {
	Hosts    map[string]*host `json:"hosts"`
	Refusals []*refusal       `json:"refusals"`
}

var errState = errors.New("read GPU memory: not the state of this detector")

// Snapshot returns the state; maps are written in the order of their keys.
func (d *detector) Snapshot() ([]byte, error) {
	data, err := json.Marshal(state{Hosts: d.hosts, Refusals: d.refusals})
	if err != nil {
		return nil, fmt.Errorf("write GPU memory: %w", err)
	}
	return data, nil
}

// Restore replaces the state.
func (d *detector) Restore(data []byte) error {
	var s state
	numbers := json.NewDecoder(bytes.NewReader(data))
	numbers.UseNumber() // of a refusal's attributes
	if err := numbers.Decode(&s); err != nil {
		return fmt.Errorf("read GPU memory: %w", err)
	}
	if s.Hosts == nil {
		s.Hosts = map[string]*host{}
	}
	readings := 0
	for _, h := range s.Hosts {
		if !h.sound() {
			return errState
		}
		h.held = h.size()
		readings += h.held
	}
	for _, f := range s.Refusals {
		if f == nil || f.Resource == nil || f.Attributes == nil || !integers(f.Attributes) {
			return errState
		}
	}
	if readings > maxReadings || len(s.Hosts) > maxHosts || len(s.Refusals) > maxRefusals {
		return errState
	}
	d.hosts, d.refusals, d.readings = s.Hosts, s.Refusals, readings
	return nil
}

func (h *host) sound() bool {
	if h == nil || h.GPUs == nil {
		return false
	}
	for _, g := range h.GPUs {
		if g == nil {
			return false
		}
		if g.Held == nil { // written as nothing when empty
			g.Held = map[int64][]reading{}
		}
		for _, held := range g.Held {
			if len(held) == 0 {
				return false
			}
		}
	}
	return true
}

// integers turns the numbers of attributes into what they were.
func integers(attributes map[string]any) bool {
	for key, value := range attributes {
		number, ok := value.(json.Number)
		if !ok {
			continue
		}
		n, err := number.Int64()
		if err != nil {
			return false
		}
		attributes[key] = n
	}
	return true
}
