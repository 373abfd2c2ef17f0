package timeline

import (
	"slices"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Saved is a series as it stands in a snapshot.
type Saved struct {
	ID      uint64   `json:"id"`
	Kind    Kind     `json:"kind"`
	Points  []point  `json:"points,omitempty"`
	History []point  `json:"history,omitempty"`
	Values  []string `json:"values"`
	Source  string   `json:"source"`

	Trust  verdict.Trust `json:"trust,omitempty"`
	Newest int64         `json:"newest"`
	Stay   stay          `json:"stay"`
}

// Save visits copies of all series, those not sampled for longest first.
func (t *Table) Save(visit func(*Operator, Saved)) {
	t.order.Each(func(s *Series) {
		visit(s.op, Saved{
			ID: s.ID, Kind: s.kind, Points: slices.Clone(s.points), History: slices.Clone(s.history),
			Values: s.Values, Source: s.Source, Trust: s.Trust, Newest: s.newest, Stay: s.stay,
		})
	})
}

// Restore adds a saved series, in the order that Save visited them.
func (t *Table) Restore(op *Operator, group string, saved *Saved) {
	s := &Series{
		table: t, op: op, ID: saved.ID, kind: saved.Kind, points: saved.Points, history: saved.History,
		Values: saved.Values, Source: saved.Source, Trust: saved.Trust, newest: saved.Newest, stay: saved.Stay,
	}
	t.add(s, group)
	s.callAgain()
}
