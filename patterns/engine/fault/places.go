package fault

import (
	"cmp"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/engine/incident"
)

// Connect enters f in the graph of incidents by the values on the marks that name it.
func (f *Fault) Connect() {
	if f.verdict.node.Entered() {
		f.connect(f.set.graph.MeetAgain)
	} else {
		f.connect(f.set.graph.Meet)
	}
}

func (f *Fault) connect(enter enter) {
	f.verdict.bore = f.bearing()
	for _, m := range f.lending {
		f.enter(m, enter)
	}
}

// meet enters a mark that came after the verdict. The cap may have it left already.
func (f *Fault) meet(w *Evidence, m *Mark) {
	if f.bears(w) && f.lends(w, m) {
		f.enter(m, f.set.graph.MeetAgain)
	}
}

// enter is how the graph takes a verdict under the values that one side of a link shares.
type enter func(*incident.Node, *incident.Link, string, incident.Role)

// enter does so by the values of m, where no mark before it named the same.
func (f *Fault) enter(m *Mark, enter enter) {
	node := f.verdict.node
	if node.Named(f.rule.name(m)) {
		return
	}
	f.rule.places(m, func(l *incident.Link, values string, role incident.Role) { enter(node, l, values, role) })
}

// places visits where m has a fault in the graph.
func (r *Rule) places(m *Mark, visit func(*incident.Link, string, incident.Role)) {
	for _, x := range r.causes {
		x.meets(m, func(values string) { visit(x.link, values, incident.Cause) })
	}
	for _, x := range r.effects {
		x.meets(m, func(values string) { visit(x.link, values, incident.Effect) })
	}
}

// short reports whether the cap took marks of f.
func (f *Fault) short() bool {
	return slices.ContainsFunc(f.folded, func(count float64) bool { return count != 0 })
}

// SavedPlaces are the values by which a fault met others, and of which no mark tells any more: the cap took
// it. In a job of more ranks than a verdict keeps marks of, its cause may have met any of them.
type SavedPlaces struct {
	Fields []string `json:"fields"`
	Among  string   `json:"among,omitempty"` // the field of them that is a list
	Values []string `json:"values"`          // sorted
}

func (p *SavedPlaces) compare(o *SavedPlaces) int {
	return cmp.Or(slices.Compare(p.Fields, o.Fields), cmp.Compare(p.Among, o.Among))
}

// shares is what x shares, without values.
func (r *Rule) shares(x *explanation) SavedPlaces {
	var p SavedPlaces
	for _, at := range x.fields {
		p.Fields = append(p.Fields, r.Names[at])
	}
	if x.among >= 0 {
		p.Among = r.Names[x.among]
	}
	return p
}

// eachLink visits the explanations that a rule has a part in.
func (r *Rule) eachLink(visit func(*explanation, incident.Role)) {
	for i := range r.causes {
		visit(&r.causes[i], incident.Cause)
	}
	for i := range r.effects {
		visit(&r.effects[i], incident.Effect)
	}
}

// linkEnd is one side of one explanation.
type linkEnd struct {
	link *incident.Link
	role incident.Role
}

// savePlaces returns where the evidence that the cap took has f in the graph. What a mark names it
// names on each side of each explanation.
func (f *Fault) savePlaces() []SavedPlaces {
	values := map[linkEnd][]string{}
	f.verdict.node.Past(func(l *incident.Link, of string, role incident.Role) {
		values[linkEnd{l, role}] = append(values[linkEnd{l, role}], of)
	})
	if len(values) == 0 {
		return nil
	}
	var all []SavedPlaces
	f.rule.eachLink(func(x *explanation, role incident.Role) {
		here := values[linkEnd{x.link, role}]
		if len(here) == 0 {
			return
		}
		one := f.rule.shares(x)
		at, there := slices.BinarySearchFunc(all, &one, func(a SavedPlaces, b *SavedPlaces) int { return a.compare(b) })
		if !there {
			all = slices.Insert(all, at, one)
		}
		all[at].Values = append(all[at].Values, here...)
	})
	for i := range all {
		slices.Sort(all[i].Values)
		all[i].Values = slices.Compact(all[i].Values)
	}
	return all
}

// restorePlaces enters f where it was. The graph keeps so many places and no more: each kind of values
// gets its turn.
func (f *Fault) restorePlaces(saved []SavedPlaces) {
	meets := make([][]linkEnd, len(saved))
	f.rule.eachLink(func(x *explanation, role incident.Role) {
		shares := f.rule.shares(x)
		for i := range saved {
			if shares.compare(&saved[i]) == 0 {
				meets[i] = append(meets[i], linkEnd{x.link, role})
			}
		}
	})
	for turn, more := 0, true; more; turn++ {
		more = false
		for i := range saved {
			if turn >= len(saved[i].Values) {
				continue
			}
			more = true
			for _, at := range meets[i] {
				f.set.graph.Return(f.verdict.node, at.link, saved[i].Values[turn], at.role)
			}
		}
	}
}
