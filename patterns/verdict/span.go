package verdict

import (
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
)

// Span names a span, as W3C Trace Context writes it. It is the word of the job that wrote
// it: nothing is concluded from it.
type Span struct {
	TraceID string `json:"trace_id"`          // 32 hexadecimal digits
	SpanID  string `json:"span_id,omitempty"` // 16; "" where only the trace is known
	// Claimed: nobody shows that the job itself said it. It came over the network, and
	// nothing that the node read of the rank confirms it.
	Claimed bool `json:"claimed,omitempty"`
}

// RankSpan is a span of a rank.
type RankSpan struct {
	Rank    int    `json:"rank"`
	TraceID string `json:"trace_id"`
	SpanID  string `json:"span_id,omitempty"`
	Claimed bool   `json:"claimed,omitempty"`
}

// Span is the span without its rank.
func (s RankSpan) Span() Span { return Span{TraceID: s.TraceID, SpanID: s.SpanID, Claimed: s.Claimed} }

const (
	traceDigits = 32
	spanDigits  = 16
)

// SpanOf returns the span that a record was written in, the zero Span where it says none.
func SpanOf(traceID pcommon.TraceID, spanID pcommon.SpanID) Span {
	if traceID.IsEmpty() {
		return Span{}
	}
	s := Span{TraceID: hex.EncodeToString(traceID[:])}
	if !spanID.IsEmpty() {
		s.SpanID = hex.EncodeToString(spanID[:])
	}
	return s
}

// Known reports whether s names a span or a trace.
func (s Span) Known() bool { return s.TraceID != "" }

// IDs are the ids of s; both are empty where s names none.
func (s Span) IDs() (traceID pcommon.TraceID, spanID pcommon.SpanID) {
	if s.valid() {
		_, _ = hex.Decode(traceID[:], []byte(s.TraceID)) // valid says that they are digits
		_, _ = hex.Decode(spanID[:], []byte(s.SpanID))
	}
	return traceID, spanID
}

// put writes s on a record.
func (s Span) put(lr plog.LogRecord) {
	traceID, spanID := s.IDs()
	lr.SetTraceID(traceID)
	lr.SetSpanID(spanID)
}

func (s Span) valid() bool {
	return isID(s.TraceID, traceDigits) && (s.SpanID == "" || isID(s.SpanID, spanDigits))
}

// isID reports whether id has so many hexadecimal digits in lower case, not all of them 0.
func isID(id string, digits int) bool {
	return len(id) == digits && strings.Trim(id, "0123456789abcdef") == "" && strings.Trim(id, "0") != ""
}

// boundSpans leaves out what is no span: ids of a trace are no reason to refuse a verdict.
func boundSpans(spans []Span) []Span {
	var bounded []Span
	for _, s := range spans {
		if s.valid() && len(bounded) < MaxSpans {
			bounded = append(bounded, s)
		}
	}
	return bounded
}

func boundRankSpans(spans []RankSpan) []RankSpan {
	var bounded []RankSpan
	for _, s := range spans {
		if s.Span().valid() && s.Rank >= 0 && s.Rank <= MaxRank && len(bounded) < MaxRankSpans {
			bounded = append(bounded, s)
		}
	}
	return bounded
}
