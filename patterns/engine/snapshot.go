package engine

import (
	"encoding/json"
	"fmt"

	"github.com/tracecoreai/tracecore/patterns/engine/fault"
	"github.com/tracecoreai/tracecore/patterns/engine/run"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
)

// snapshotVersion changes when an older engine could not read the state.
const snapshotVersion = 1

// Saved is a copy of the state. Rules and evidence are named, so that a snapshot survives a
// change of other rules.
type Saved struct {
	Version int   `json:"version"`
	Now     int64 `json:"now"`
	Clock   int64 `json:"clock"`
	fault.State
	Runs      []run.Saved                `json:"runs,omitempty"`
	Series    []savedSeries              `json:"series"`
	Detectors map[string]json.RawMessage `json:"detectors,omitempty"` // by name and trust
}

type savedSeries struct {
	Rule     string   `json:"rule"`
	Fields   []string `json:"fields"`
	Evidence string   `json:"evidence"`
	timeline.Saved
}

// Snapshot returns the state as JSON; equal states give equal bytes. Counters are not
// part of it.
func (e *Engine) Snapshot() ([]byte, error) {
	saved, err := e.Save()
	if err != nil {
		return nil, err
	}
	return saved.Encode()
}

// Save returns a copy of the state, which takes a fraction of the time that its encoding does.
func (e *Engine) Save() (*Saved, error) {
	saved := &Saved{Version: snapshotVersion, Now: e.time.Now(), Clock: e.time.Clock(), Runs: e.runs.Save(), State: e.faults.Save()}
	owner := map[*timeline.Operator]*watch{}
	for _, w := range e.watches {
		owner[w.operator] = w
	}
	e.series.Save(func(op *timeline.Operator, s timeline.Saved) {
		w := owner[op]
		saved.Series = append(saved.Series, savedSeries{Rule: w.Rule.Name, Fields: w.Rule.Names, Evidence: w.Name, Saved: s})
	})
	for _, d := range e.detections {
		state, err := d.algorithm.Snapshot()
		if err != nil {
			return nil, fmt.Errorf("write state of detector %s: %w", d.detector.Name, err)
		}
		if saved.Detectors == nil {
			saved.Detectors = map[string]json.RawMessage{}
		}
		saved.Detectors[d.name()] = state
	}
	return saved, nil
}

// Encode returns the snapshot. The engine may go on meanwhile.
func (s *Saved) Encode() ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write engine state: %w", err)
	}
	return data, nil
}

// Restore replaces the state by that of a snapshot. Faults of rules that no longer
// exist, or that tell their faults apart by another key, are dropped and counted.
func (e *Engine) Restore(snapshot []byte) error {
	var saved Saved
	if err := json.Unmarshal(snapshot, &saved); err != nil {
		return fmt.Errorf("read engine state: %w: remove the stored state to start empty", err)
	}
	if saved.Version != snapshotVersion {
		return fmt.Errorf("read engine state: version %d, this engine reads %d: remove the stored state to start empty", saved.Version, snapshotVersion)
	}
	e.time.Reset(saved.Now, saved.Clock)
	e.runs.Restore(saved.Runs)
	e.series = timeline.NewTable(e.time)
	for i := range saved.Series {
		e.restoreSeries(&saved.Series[i])
	}
	e.faults.Restore(&saved.State)
	for _, d := range e.detections {
		e.restoreDetector(d, saved.Detectors[d.name()])
	}
	return nil
}

func (e *Engine) restoreSeries(s *savedSeries) {
	w := e.watches[e.faults.Find(s.Rule, s.Evidence)]
	if w == nil {
		return
	}
	s.Values = w.Rule.Fit(s.Fields, s.Values)
	if w.operator == nil || len(s.Values) != len(w.Rule.Names) || !known(s.Values, w.group) || !w.OnMetrics() && w.thingID(s.Values, s.Trust) != s.ID {
		e.own.NotRestored++ // its rule follows something else now
		return
	}
	e.series.Restore(w.operator, w.groupOf(s.Values, s.Trust), &s.Saved)
}

// restoreDetector gives d its state back. Where that cannot be read, d begins
// empty, counted: the others and all faults stay.
func (e *Engine) restoreDetector(d *detection, state json.RawMessage) {
	d.reset()
	if state == nil {
		return
	}
	if d.algorithm.Restore(state) != nil {
		e.own.NotRestored++
		d.reset()
	}
	d.callAgain()
}
