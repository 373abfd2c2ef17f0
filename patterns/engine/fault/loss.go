package fault

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// Bounds of what is known to be lost.
const (
	mostLosses = 4096 // of all hosts, shared between them
	lossKept   = int64(2 * time.Hour)
	// lossNear is how far from the evidence of a verdict something was lost that it is told with:
	// what came before it may be its cause, and receivers look once in three seconds.
	lossNear   = int64(10 * time.Second)
	lossesTold = 4 // with one verdict
)

// Loss is what a receiver of a host did not learn.
type Loss struct {
	Host   string   `json:"h"`
	Things string   `json:"n"` // what was lost, in words
	Why    string   `json:"w"`
	Events []string `json:"e,omitempty"` // any of which it may have been
	Count  int64    `json:"c,omitempty"` // 0: not known
	Since  int64    `json:"s"`
	Until  int64    `json:"u"`
}

func (l *Loss) compare(o *Loss) int {
	return cmp.Or(
		cmp.Compare(l.Until, o.Until), cmp.Compare(l.Since, o.Since), cmp.Compare(l.Host, o.Host), cmp.Compare(l.Things, o.Things), cmp.Compare(l.Why, o.Why),
		cmp.Compare(l.Count, o.Count),
	)
}

// same reports whether both are told in one line.
func (l *Loss) same(o *Loss) bool { return l.Host == o.Host && l.Things == o.Things && l.Why == o.Why }

// Lose takes what was lost, and has the verdicts say it that it touches. It reports whether it
// was news.
func (s *Set) Lose(l Loss) bool {
	at, known := slices.BinarySearchFunc(s.losses, &l, func(a, b *Loss) int { return a.compare(b) })
	if known {
		return false
	}
	s.losses = slices.Insert(s.losses, at, &l)
	old := s.time.Now() - lossKept
	s.losses = slices.DeleteFunc(s.losses, func(o *Loss) bool { return o.Until < old })
	if len(s.losses) > mostLosses {
		s.losses = fairlru.Trim(s.losses, mostLosses-mostLosses/8, func(l *Loss) []string { return []string{l.Host} })
	}
	s.open.Each(func(f *Fault) {
		if f.verdict.resolved == 0 && !f.verdict.withdrawn && f.touches(&l) {
			f.Changed()
		}
	})
	return true
}

// touches reports whether evidence of the fault, or of what would explain it, may have been among
// what was lost. Once it is over, nothing is.
func (f *Fault) touches(l *Loss) bool {
	until := f.touched + lossNear
	if v := f.verdict; v.resolved != 0 && !v.withdrawn {
		until = min(until, v.resolved)
	}
	return l.Until >= f.verdict.onset-lossNear && l.Since <= until && f.on(l.Host) && f.rule.lacks(l.Events)
}

// lacks reports whether the rule, or one that explains it, reads one of these events.
func (r *Rule) lacks(events []string) bool {
	return slices.ContainsFunc(events, r.reads) ||
		slices.ContainsFunc(r.sources, func(cause *Rule) bool { return slices.ContainsFunc(events, cause.reads) })
}

// reads reports whether evidence of the rule, or its detector, reads an event.
func (r *Rule) reads(event string) bool {
	if r.Detect != nil && slices.Contains(r.Detect.Logs, event) {
		return true
	}
	return slices.ContainsFunc(r.Watches, func(w *Evidence) bool { return slices.Contains(w.Logs, event) })
}

// on reports whether evidence of the fault is of that host.
func (f *Fault) on(host string) bool {
	for i, w := range f.rule.Watches {
		if w.Resolves {
			continue
		}
		for j := range f.marks[i] {
			if values := f.marks[i][j].Values; f.rule.get(values, "host") == host || f.rule.get(values, "node") == host {
				return true
			}
		}
	}
	return false
}

// lost says what the verdict may lack because it was lost.
func (f *Fault) lost() (texts []string) {
	var told []Loss
	for _, l := range f.set.losses {
		if !f.touches(l) {
			continue
		}
		at := slices.IndexFunc(told, func(o Loss) bool { return o.same(l) })
		if at < 0 {
			told = append(told, *l)
			continue
		}
		told[at].Since, told[at].Until, told[at].Count = min(told[at].Since, l.Since), max(told[at].Until, l.Until), told[at].Count+l.Count
	}
	slices.SortFunc(told, func(a, b Loss) int { return cmp.Or(cmp.Compare(a.Since, b.Since), a.compare(&b)) })
	for i := range told[:min(len(told), lossesTold)] {
		texts = append(texts, told[i].words())
	}
	if more := len(told) - lossesTold; more > 0 {
		texts = append(texts, fmt.Sprintf("what %d more receivers lost in that time", more))
	}
	return texts
}

// words say it as something that was not seen.
func (l *Loss) words() string {
	what := l.Things
	if l.Count > 0 {
		what = fmt.Sprintf("%d of the %s", l.Count, l.Things)
	}
	text := fmt.Sprintf("%s of %s between %s and %s", what, l.Host, second(l.Since), second(l.Until))
	switch l.Why {
	case "overflow":
		return text + ": they were lost, there was no room for them"
	case "away":
		return text + ": they were lost, for no agent ran"
	case "down":
		return text + ": the probe did not work"
	}
	return text + ": they were lost"
}

func second(at int64) string { return moment(at).Format(time.RFC3339) }
