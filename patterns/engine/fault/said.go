package fault

import (
	"slices"

	"github.com/tracecoreai/tracecore/patterns/engine/incident"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// saidOtherwise reports whether the process of m has evidence that speaks for it, as a claim too.
func (t *trail) saidOtherwise(w *Evidence, m *Mark) bool {
	if len(w.unsaid) == 0 {
		return false
	}
	process := t.rule.process(m.Values)
	return process.PID != "" && slices.ContainsFunc(w.unsaid, func(other int) bool {
		return slices.ContainsFunc(t.speakers(other)[process.Host+"\x00"+process.PID], process.Is)
	})
}

// speakers are the processes that have this evidence.
func (t *trail) speakers(evidence int) map[string][]incident.Process {
	if found, there := t.spoke[evidence]; there {
		return found
	}
	found := map[string][]incident.Process{}
	w := t.rule.Watches[evidence]
	dependent := w.Follows != nil || len(w.over)+len(w.unsaid) > 0
	for i := range t.marks[evidence] {
		m := &t.marks[evidence][i]
		if m.Trust < verdict.Claimed || m.Gone || dependent && !t.counts(w, m, verdict.Claimed) {
			continue
		}
		for _, p := range t.rule.processes(m) {
			found[p.Host+"\x00"+p.PID] = append(found[p.Host+"\x00"+p.PID], p)
		}
	}
	if dependent { // other marks change that
		return found
	}
	if t.spoke == nil {
		t.spoke = map[int]map[string][]incident.Process{}
	}
	t.spoke[evidence] = found
	return found
}
