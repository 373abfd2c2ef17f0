package fault

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// news is what an operator reads of a verdict, without counts and times: who is named and who
// is hit, how bad and how sure it is, what was seen and by whom, what was not, what to do, and
// when it ended. It
// is the same for two revisions of which the later says nothing new.
func news(v verdict.Verdict) (string, error) {
	v.Revision, v.Onset, v.Updated, v.Run = 0, time.Time{}, time.Time{}, ""
	v.Headline = uncounted(v.Headline)
	evidence := make([]verdict.Evidence, len(v.Evidence))
	for i, e := range v.Evidence {
		evidence[i] = verdict.Evidence{Name: e.Name, Late: e.Late, Source: e.Source, Trust: e.Trust, Shows: uncounted(e.Shows)}
	}
	v.Evidence = evidence
	v.NotObserved = slices.Clone(v.NotObserved)
	for i, text := range v.NotObserved { // how much was lost until when
		v.NotObserved[i] = uncounted(text)
	}
	waits := make([]verdict.Wait, len(v.Waits))
	for i, w := range v.Waits { // who waits is among those that are hit
		waits[i] = verdict.Wait{For: w.For, What: uncounted(w.What)}
	}
	v.Waits = waits
	text, err := json.Marshal(v)
	return identifier(string(text)), err
}

// uncounted is text with one mark for each number, whatever its length. Ranks and processes
// that a text numbers are among those that are named or hit.
func uncounted(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch number := r >= '0' && r <= '9'; {
		case !number:
			b.WriteRune(r)
		case i == 0 || text[i-1] < '0' || text[i-1] > '9':
			b.WriteByte('#')
		}
	}
	return strings.NewReplacer("#.#", "#", "#,#", "#").Replace(b.String())
}
