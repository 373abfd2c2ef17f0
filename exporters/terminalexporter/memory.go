package terminalexporter

import "github.com/tracecoreai/tracecore/patterns/verdict"

// Bounds of what is remembered of printed incidents. A remembered consequence
// takes about half a KiB, so all of it about 10 MiB. maxVerdicts also bounds one
// incident: its further consequences are not printed, after that many lines
// nobody misses them, and the root cause's ranks name them all.
const (
	maxIncidents = 500
	maxVerdicts  = 16_384
)

// memory is what the terminal shows: incident id → its verdicts. put adds; when
// full, the incident that has been quiet longest goes.
type memory struct {
	incidents, verdicts int // the most of each

	known map[string]*entry
	held  int    // verdicts in all entries
	clock uint64 // counts puts
}

type entry struct {
	incident []verdict.Verdict
	used     uint64
}

func newMemory(incidents, verdicts int) *memory {
	return &memory{incidents: incidents, verdicts: verdicts, known: map[string]*entry{}}
}

func (m *memory) incident(id string) []verdict.Verdict {
	if e := m.known[id]; e != nil {
		return e.incident
	}
	return nil
}

// merge is verdict.Merge within the most that one incident may have.
func (m *memory) merge(before, news []verdict.Verdict) []verdict.Verdict {
	after := verdict.Merge(before, news)
	return after[:min(len(after), m.verdicts)]
}

// put remembers an incident and returns how many others had to go.
func (m *memory) put(incident []verdict.Verdict) (evicted int) {
	id := incident[0].IncidentID
	m.clock++
	m.drop(id)
	m.known[id] = &entry{incident: slim(incident), used: m.clock}
	m.held += len(incident)
	for len(m.known) > m.incidents || m.held > m.verdicts {
		m.drop(m.quietest())
		evicted++
	}
	return evicted
}

func (m *memory) drop(id string) {
	if e := m.known[id]; e != nil {
		m.held -= len(e.incident)
		delete(m.known, id)
	}
}

func (m *memory) quietest() string {
	var quietest string
	var used uint64
	for id, e := range m.known {
		if quietest == "" || e.used < used {
			quietest, used = id, e.used
		}
	}
	return quietest
}

// slim keeps of a consequence what telling of changes needs; the first verdict
// stays whole.
func slim(incident []verdict.Verdict) []verdict.Verdict {
	for i := 1; i < len(incident); i++ {
		v := &incident[i]
		v.Evidence, v.NotObserved, v.Remediation = nil, nil, ""
		v.Culprit = map[string]string{"host": v.Culprit["host"]}
	}
	return incident
}
