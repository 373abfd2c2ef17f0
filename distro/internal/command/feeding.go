package command

import (
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/distro/internal/attributes"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// feeding is what feeds the patterns, and who would.
type feeding struct {
	known *attributes.Vocabulary
	last  map[[2]string]*time.Time // when such records last came, by pattern and evidence
	at    map[string]bool          // emitters: whether something came from each
}

// newFeeding learns from which emitters something came. That is known of one by a piece of
// evidence that it alone can feed.
func newFeeding(feeds []history.Feed) (*feeding, error) {
	known, err := attributes.LoadVocabulary()
	if err != nil {
		return nil, err
	}
	f := &feeding{known: known, last: map[[2]string]*time.Time{}, at: map[string]bool{}}
	for _, one := range feeds {
		if one.Last != nil {
			f.last[[2]string{one.Pattern, one.Evidence}] = one.Last
		}
		who := f.emitters(one.Reads)
		for _, name := range who {
			f.at[name] = f.at[name] || one.Last != nil && len(who) == 1
		}
	}
	return f, nil
}

// emitters are those that tell of events or metrics.
func (f *feeding) emitters(sources []string) []string {
	var who []string
	for _, source := range sources {
		who = append(append(who, f.known.Events[source].Emitters...), f.known.Metrics[source].Emitters...)
	}
	slices.Sort(who)
	return slices.Compact(who)
}

// unfed are the emitters from which nothing came that a pattern reads, but for those that are
// known to work: of them it says that nothing broke.
func (f *feeding) unfed(works ...string) []string {
	var names []string
	for name, came := range f.at {
		if !came && !slices.Contains(works, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// comes reports whether records of a piece of evidence came, or can come: an emitter that needs no
// probe sends them, and works.
func (f *feeding) comes(r *rule.Rule, e *rule.Evidence, works []string) bool {
	if f.last[[2]string{r.Name, e.Name}] != nil {
		return true
	}
	return slices.ContainsFunc(slices.Concat(r.Events(e), e.Metrics), func(source string) bool {
		return f.known.Events[source].Feature == "" && slices.ContainsFunc(f.emitters([]string{source}), func(who string) bool { return slices.Contains(works, who) })
	})
}

// feed says of a piece of evidence whether it could be seen, as incidentview asks.
func (f *feeding) feed(pattern, evidence string, sources []string) incidentview.Feed {
	if at := f.last[[2]string{pattern, evidence}]; at != nil {
		return incidentview.Feed{Kind: incidentview.NotThere, Why: "such records came, the last at " + at.UTC().Format("15:04:05"), Heard: *at}
	}
	who := f.emitters(sources)
	if len(who) == 0 {
		return incidentview.Feed{Kind: incidentview.NotKnown}
	}
	names := strings.Join(who[:min(len(who), 4)], " or ")
	if slices.ContainsFunc(who, func(name string) bool { return f.at[name] }) {
		return incidentview.Feed{Kind: incidentview.NotThere, Why: names + " was at work and told nothing of it"}
	}
	return incidentview.Feed{Kind: incidentview.CannotSee, Why: "nothing came from " + names + " since the start"}
}
