package nodeguard

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Plan is what a verdict asks for.
type Plan struct {
	Node    string
	Holds   bool   // its node is to be taken out of service for its sake
	Decides bool   // it may take out of service, and bring back
	Says    string // all of the verdict that matters here
}

// leasts are patterns whose milder verdicts are no reason to drain; what needs somebody at the machine is
// an error. A user of a GPU can make its driver report an Xid that takes a restart of the
// application and nothing else (13, 31; restart_application in catalogue/xid.yaml), and die of it. A
// port that somebody switched off on the machine has no fault: who did knows.
var leasts = map[string]verdict.Severity{"ib_link_down": verdict.Error, "xid_impact": verdict.Error}

// Judge says what to do about a verdict. A node is drained for it: it takes a verdict that
// is open, full, proven, nobody's symptom, no job's own doing and nobody's deliberate act. What held and no longer
// does (resolved, or explained by another verdict) is taken back, which takes a proven
// verdict, too. A drill does neither. Acts says whether its pattern is a reason at all.
func Judge(f verdicts.Found, node string, acts bool, least verdict.Severity) Plan {
	p := Plan{Node: node, Decides: f.Proven && !f.Drill && acts}
	p.Holds = p.Decides && f.Status == verdict.Open && f.Pages(least) && f.Pages(cmp.Or(leasts[f.Pattern], least))
	p.Says = strings.Join([]string{node, string(f.Role), string(f.Status), string(f.Confidence), string(f.Severity), strconv.FormatBool(p.Decides), f.Boot, f.Headline}, "\x00")
	return p
}

// MostKnown bounds the memory of verdicts, twice: a verdict id and what it says
// take half a KiB, all of it some 8 MiB.
const MostKnown = 8192

// Memory is what was last done about a verdict, so that a revision that says
// nothing new costs no request. It forgets the older half when it is full; what
// is forgotten is asked of the cluster again.
type Memory struct {
	most       int
	young, old map[string]string
}

// NewMemory remembers so many verdicts, and as many older ones.
func NewMemory(most int) *Memory {
	return &Memory{most: most, young: map[string]string{}, old: map[string]string{}}
}

// Has reports whether a verdict last said this.
func (m *Memory) Has(id, says string) bool {
	last, ok := m.young[id]
	if !ok {
		last, ok = m.old[id]
	}
	return ok && last == says
}

// Put remembers what a verdict says.
func (m *Memory) Put(id, says string) {
	if len(m.young) >= m.most {
		m.young, m.old = map[string]string{}, m.young
	}
	m.young[id] = says
}
