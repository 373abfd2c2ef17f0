package engine

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// snapshotVersion changes when an older engine could not read the state.
const snapshotVersion = 1

// savedEngine is the state as JSON. Rules and evidence are named, so that a
// snapshot survives a change of other rules.
type savedEngine struct {
	Version int               `json:"version"`
	Now     int64             `json:"now"`
	Clock   int64             `json:"clock"`
	Faults  []savedFault      `json:"faults"` // oldest touch first, without verdict before with
	Recent  []savedRecent     `json:"recent"`
	Series  []savedSeries     `json:"series"`
	Out     []verdict.Verdict `json:"out"`

	Detectors map[string]json.RawMessage `json:"detectors,omitempty"` // by name
}

type savedFault struct {
	Rule    string             `json:"rule"`
	Fields  []string           `json:"fields"` // names of the values of its marks
	Key     string             `json:"key"`
	Seq     uint64             `json:"seq"`
	Marks   map[string][]mark  `json:"marks"`
	Folded  map[string]float64 `json:"folded,omitempty"`
	Ranks   []int              `json:"ranks,omitempty"`
	Touched int64              `json:"touched"`
	Heard   int64              `json:"heard,omitempty"`
	After   int64              `json:"after,omitempty"`
	Past    bool               `json:"past,omitempty"`
	Verdict *savedVerdict      `json:"verdict,omitempty"`
}

type savedVerdict struct {
	ID         string             `json:"id"`
	End        int64              `json:"end"`
	Seen       []string           `json:"seen"`
	Confidence verdict.Confidence `json:"confidence"`
	Onset      int64              `json:"onset"`
	Revision   int                `json:"revision"`
	Emitted    string             `json:"emitted"`
	Dirty      bool               `json:"dirty,omitempty"`
	QuietEvery int64              `json:"quiet_every"`
	NextQuiet  int64              `json:"next_quiet,omitempty"`
	Resolved   int64              `json:"resolved,omitempty"`
	Withdrawn  bool               `json:"withdrawn,omitempty"`
	Closing    *verdict.Evidence  `json:"closing,omitempty"`
	Parent     string             `json:"parent,omitempty"` // verdict id
	On         int                `json:"on,omitempty"`     // which explanation of the parent's rule
	Root       string             `json:"root"`
}

type savedRecent struct {
	Rule     string   `json:"rule"`
	Fields   []string `json:"fields"`
	Evidence string   `json:"evidence"`
	Mark     mark     `json:"mark"`
	Until    int64    `json:"until"`
}

type savedSeries struct {
	Rule     string   `json:"rule"`
	Fields   []string `json:"fields"`
	Evidence string   `json:"evidence"`
	ID       uint64   `json:"id"`
	Kind     kind     `json:"kind"`
	Points   []point  `json:"points,omitempty"`
	History  []point  `json:"history,omitempty"`
	Values   []string `json:"values"`
	Source   string   `json:"source"`
	Newest   int64    `json:"newest"`
	Stay     stay     `json:"stay"`
}

// Snapshot returns the state; equal states give equal bytes. Counters are not
// part of it.
func (e *Engine) Snapshot() ([]byte, error) {
	saved := savedEngine{Version: snapshotVersion, Now: e.now, Clock: e.clock, Out: e.out}
	fault := func(inst *instance) { saved.Faults = append(saved.Faults, inst.save()) }
	e.waiting.each(fault)
	e.open.each(fault)
	for at := e.recent.order.Front(); at != nil; at = at.Next() {
		r := at.Value.(*recentMark)
		saved.Recent = append(saved.Recent, savedRecent{
			Rule: r.w.state.rule.Name, Fields: r.w.state.names, Evidence: r.w.Name, Mark: r.mark, Until: r.until,
		})
	}
	e.series.order.each(func(s *series) { saved.Series = append(saved.Series, s.save()) })
	for _, d := range e.detections {
		state, err := d.algorithm.Snapshot()
		if err != nil {
			return nil, fmt.Errorf("write state of detector %s: %w", d.detector.Name, err)
		}
		if saved.Detectors == nil {
			saved.Detectors = map[string]json.RawMessage{}
		}
		saved.Detectors[d.detector.Name] = state
	}
	data, err := json.Marshal(saved)
	if err != nil {
		return nil, fmt.Errorf("write engine state: %w", err)
	}
	return data, nil
}

func (inst *instance) save() savedFault {
	f := savedFault{
		Rule: inst.state.rule.Name, Fields: inst.state.names, Key: inst.key, Seq: inst.seq,
		Marks: map[string][]mark{}, Folded: map[string]float64{},
		Ranks: inst.ranks, Touched: inst.touched, Heard: inst.heard, After: inst.after, Past: inst.past,
	}
	for i, w := range inst.state.watches {
		if len(inst.marks[i]) > 0 {
			f.Marks[w.Name] = inst.marks[i]
		}
		if inst.folded[i] != 0 {
			f.Folded[w.Name] = inst.folded[i]
		}
	}
	if inst.verdict != nil {
		f.Verdict = inst.saveVerdict()
	}
	return f
}

func (inst *instance) saveVerdict() *savedVerdict {
	c := inst.verdict
	v := &savedVerdict{
		ID: c.id, End: c.best.end, Confidence: c.best.confidence, Onset: c.onset,
		Revision: c.revision, Emitted: c.emitted, Dirty: c.dirty, QuietEvery: c.quietEvery, NextQuiet: c.nextQuiet,
		Resolved: c.resolved, Withdrawn: c.withdrawn, Closing: c.closing, Root: c.root,
	}
	for _, w := range inst.state.watches {
		if !w.resolves && c.best.seen&(1<<w.index) != 0 {
			v.Seen = append(v.Seen, w.Name)
		}
	}
	if c.parent != nil {
		v.Parent, v.On = c.parent.verdict.id, slices.Index(c.parent.state.causes, c.via)
	}
	return v
}

func (s *series) save() savedSeries {
	return savedSeries{
		Rule: s.w.state.rule.Name, Fields: s.w.state.names, Evidence: s.w.Name, ID: s.id, Kind: s.kind,
		Points: s.points, History: s.history, Values: s.values, Source: s.source, Newest: s.newest, Stay: s.stay,
	}
}
