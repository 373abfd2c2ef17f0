package fault

import (
	"slices"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// traceDigits is how many of the digits of Mark.Span are the trace's.
const traceDigits = 32

// spansOf returns the spans in which the records of marks were written, each once.
func spansOf(marks []Mark) []verdict.Span {
	var spans []verdict.Span
	for i := range marks {
		text := marks[i].Span
		if len(text) < traceDigits {
			continue
		}
		one := verdict.Span{TraceID: text[:traceDigits], SpanID: text[traceDigits:], Claimed: marks[i].Trust < verdict.Claimed}
		if !slices.Contains(spans, one) {
			spans = append(spans, one)
		}
		if len(spans) == verdict.MaxSpans {
			break
		}
	}
	return spans
}

// spanOf returns the first span of the evidence that is trusted as much as the verdict, and
// one that the node read before one that is claimed.
func spanOf(v *verdict.Verdict) (found verdict.Span) {
	for i := range v.Evidence {
		e := &v.Evidence[i]
		if e.Trust < v.Trust {
			continue
		}
		for _, one := range e.Spans {
			if !found.Known() || found.Claimed && !one.Claimed {
				found = one
			}
		}
	}
	return found
}
