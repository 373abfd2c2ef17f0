package fault

import (
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Saved is a fault as it stands in a snapshot. Rules and evidence are named, so
// that a snapshot survives a change of other rules.
type Saved struct {
	Rule    string             `json:"rule"`
	Fields  []string           `json:"fields"` // names of the values of its marks
	Key     string             `json:"key"`
	Seq     uint64             `json:"seq"`
	Owner   []string           `json:"owner,omitempty"`
	Marks   map[string][]Mark  `json:"marks"`
	Folded  map[string]float64 `json:"folded,omitempty"`
	Ranks   byTrust[[]int]     `json:"hit,omitzero"`
	Touched int64              `json:"touched"`
	Overdue int64              `json:"heard,omitempty"`
	After   byTrust[int64]     `json:"over,omitzero"`
	Past    bool               `json:"past,omitempty"`
	Aside   bool               `json:"aside,omitempty"`
	Real    bool               `json:"real,omitempty"`
	Others  []string           `json:"others,omitempty"`
	Verdict *savedVerdict      `json:"verdict,omitempty"`
}

type savedVerdict struct {
	ID         string             `json:"id"`
	End        int64              `json:"end"`
	Seen       []string           `json:"seen"`
	Confidence verdict.Confidence `json:"confidence"`
	Trust      verdict.Trust      `json:"trust,omitempty"`
	Stands     verdict.Trust      `json:"stands,omitempty"`
	Short      []string           `json:"short,omitempty"`
	Doubted    verdict.Trust      `json:"doubted,omitempty"`
	Onset      int64              `json:"onset"`
	Revision   int                `json:"revision"`
	Emitted    string             `json:"emitted"`
	Told       string             `json:"told,omitempty"`
	Leads      bool               `json:"leads,omitempty"`
	Due        bool               `json:"due,omitempty"`
	Changed    bool               `json:"dirty,omitempty"`
	QuietEvery int64              `json:"quiet_every"`
	NextQuiet  int64              `json:"next_quiet,omitempty"`
	Held       int64              `json:"held,omitempty"`
	Resolved   int64              `json:"resolved,omitempty"`
	Withdrawn  bool               `json:"withdrawn,omitempty"`
	Ended      int64              `json:"ended,omitempty"`
	Closing    *verdict.Evidence  `json:"closing,omitempty"`
	Before     returns            `json:"before,omitzero"`
	Parent     string             `json:"parent,omitempty"` // verdict id
	On         int                `json:"on,omitempty"`     // which explanation of the parent's rule
	Root       string             `json:"root"`
	Incident   string             `json:"incident,omitempty"` // after which its incident is named
	Known      bool               `json:"known,omitempty"`    // and whether that name was told
	Places     []SavedPlaces      `json:"places,omitempty"`
}

// SavedRecent is a mark that waits for its fault, as it stands in a snapshot.
type SavedRecent struct {
	Rule     string   `json:"rule"`
	Fields   []string `json:"fields"`
	Evidence string   `json:"evidence"`
	Mark     Mark     `json:"mark"`
	Until    int64    `json:"until"`
}

// State is a set as it stands in a snapshot.
type State struct {
	Faults []Saved                  `json:"faults"` // oldest touch first, without verdict before with
	Recent []SavedRecent            `json:"recent"`
	Out    []verdict.Verdict        `json:"out"`
	Lost   []*Loss                  `json:"lost,omitempty"`
	Clocks map[string]time.Duration `json:"clocks,omitempty"` // by host
}

// Save returns a copy of the state; equal states are saved equally.
func (s *Set) Save() State {
	saved := State{Out: s.out.list(), Lost: slices.Clone(s.losses), Clocks: maps.Clone(s.clocks)}
	one := func(f *Fault) { saved.Faults = append(saved.Faults, f.save()) }
	s.waiting.Each(one)
	s.open.Each(one)
	s.recent.order.Each(func(r *recentMark) {
		saved.Recent = append(saved.Recent, SavedRecent{
			Rule: r.w.Rule.Name, Fields: r.w.Rule.Names, Evidence: r.w.Name, Mark: r.mark, Until: r.until,
		})
	})
	return saved
}

func (f *Fault) save() Saved {
	saved := Saved{
		Rule: f.rule.Name, Fields: f.rule.Names, Key: f.key, Seq: f.seq, Owner: f.owner,
		Marks: map[string][]Mark{}, Folded: map[string]float64{},
		Touched: f.touched, Overdue: f.overdue, After: f.after, Past: f.past, Aside: f.aside, Real: f.real, Others: slices.Clone(f.others),
	}
	for i, ranks := range f.ranks {
		saved.Ranks[i] = slices.Clone(ranks)
	}
	for i, w := range f.rule.Watches {
		if len(f.marks[i]) > 0 {
			saved.Marks[w.Name] = slices.Clone(f.marks[i]) // what a mark leads to never changes
		}
		if f.folded[i] != 0 {
			saved.Folded[w.Name] = f.folded[i]
		}
	}
	if f.verdict != nil {
		saved.Verdict = f.saveVerdict()
	}
	return saved
}

func (f *Fault) saveVerdict() *savedVerdict {
	c := f.verdict
	v := &savedVerdict{
		ID: c.id, End: c.best.end, Confidence: c.best.confidence, Trust: c.best.trust, Stands: c.best.stands, Doubted: c.best.doubted, Onset: c.onset,
		Revision: c.revision, Emitted: c.emitted, Told: c.told, Leads: c.leads, Due: c.due, Changed: c.changed, QuietEvery: c.quietEvery, NextQuiet: c.nextQuiet, Held: c.held,
		Resolved: c.resolved, Withdrawn: c.withdrawn, Ended: c.ended, Closing: c.closing, Before: c.returns, Root: c.node.Root(),
	}
	v.Incident, v.Known = c.node.Incident()
	v.Seen, v.Short = f.rule.namesOf(c.best.seen), f.rule.namesOf(c.best.short)
	if cause, via := c.node.Cause(); cause != nil {
		v.Parent, v.On = cause.ID(), via.Index
	}
	v.Places = f.savePlaces()
	return v
}

// Find returns the evidence of these names, and counts what has none any more.
func (s *Set) Find(name, evidence string) *Evidence {
	if r := s.find(name); r != nil {
		return r.watch(evidence)
	}
	return nil
}

func (s *Set) find(name string) *Rule {
	at := slices.IndexFunc(s.rules, func(r *Rule) bool { return r.Name == name })
	if at < 0 {
		s.stats.NotRestored++
		return nil
	}
	return s.rules[at]
}

// Fit returns values of fields as the rule has its fields now: they go by their names, and
// a field that is new is unknown. What does not fit its own fields stays as it is.
func (r *Rule) Fit(fields, values []string) []string {
	if slices.Equal(fields, r.Names) || len(values) != len(fields) {
		return values
	}
	fitted := make([]string, len(r.Names))
	for i, name := range r.Names {
		if at := slices.Index(fields, name); at >= 0 {
			fitted[i] = values[at]
		}
	}
	return fitted
}

// fit does the same for a mark.
func (r *Rule) fit(fields []string, m *Mark) {
	var lists Lists
	for at, ranks := range m.Lists {
		if at >= 0 && at < len(fields) && slices.Contains(r.Names, fields[at]) {
			lists = lists.Keep(slices.Index(r.Names, fields[at]), ranks)
		}
	}
	var members Members
	for at, names := range m.Members {
		if at >= 0 && at < len(fields) && slices.Contains(r.Names, fields[at]) {
			members = members.Keep(slices.Index(r.Names, fields[at]), names)
		}
	}
	m.Values, m.Lists, m.Members = r.Fit(fields, m.Values), lists, members
	if m.Was != nil {
		was := *m.Was // what is saved may be read once more
		was.Was = nil
		r.fit(fields, &was)
		m.Was = &was
	}
}

// fits reports whether m has a value for each field of r.
func (m *Mark) fits(r *Rule) bool {
	return len(m.Values) == len(r.Names) && (m.Was == nil || m.Was.fits(r))
}

// fit makes a saved fault fit the rule as it is now, and reports whether it still has the
// key that it had: a rule with another key has other faults.
func (saved *Saved) fit(r *Rule) bool {
	began, keyed := false, false
	for name, marks := range saved.Marks {
		w := r.watch(name)
		for i := range marks {
			r.fit(saved.Fields, &marks[i])
			if w == nil || w.join >= 0 || len(marks[i].Values) != len(r.Names) {
				continue
			}
			key, ok := w.key(marks[i].Values)
			began, keyed = true, keyed || ok && key == saved.Key
		}
	}
	return keyed || !began
}
