package fault

import (
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// shelve counts f where it belongs now: among those that wait or those with a verdict, by
// its trust, as large as it is.
func (f *Fault) shelve() {
	list := &f.set.waiting
	if f.verdict != nil {
		list = &f.set.open
	}
	if trust := f.shelf(); f.element == nil || trust != f.shelved {
		if f.element != nil {
			list.Remove(f.element)
		}
		f.shelved = trust
		f.element = list.Add(f, f.worth(), timeline.Path(trust, f.owner)...)
	}
	list.Resize(f.element, places(f.bytes()))
}

// shelf is the trust among which f takes room: that of its verdict, else of its most
// trusted mark.
func (f *Fault) shelf() verdict.Trust {
	if f.verdict != nil {
		return f.verdict.best.trust
	}
	for _, trust := range verdict.Trusts() {
		if f.held.has(trust) {
			return trust
		}
	}
	return verdict.Foreign
}

// worth is how much f matters among those of its owner: an open verdict more than one
// that is history.
func (f *Fault) worth() fairlru.Worth {
	if f.verdict != nil && (f.past || f.verdict.resolved != 0) {
		return fairlru.Little
	}
	return fairlru.Some
}

// Owner is whose room it takes.
func (f *Fault) Owner() []string { return timeline.Path(f.shelf(), f.owner) }
