package identity

import (
	"encoding/hex"
	"fmt"
)

// Trace is where a job says that the work of a rank belongs: the trace and the span of
// TRACEPARENT in the environment. It is the user's own text, and nothing is concluded
// from it.
type Trace struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
}

// Known reports whether there is one.
func (t Trace) Known() bool { return t.TraceID != [16]byte{} }

// String is t as a traceparent, "" where there is none.
func (t Trace) String() string {
	if !t.Known() {
		return ""
	}
	return fmt.Sprintf("00-%x-%x-%02x", t.TraceID, t.SpanID, t.Flags)
}

// The form of a traceparent (W3C Trace Context, section 3.2): version, trace id, span id
// and flags in lower-case hexadecimal digits. A later version may have more behind them.
const (
	atTrace, atSpan, atFlags = 3, 36, 53
	traceparentBytes         = 55
	maxTraceparent           = 512 // of a later version; the standard names no limit
)

// parseTraceparent reads a traceparent; false where it is none.
func parseTraceparent(text []byte) (t Trace, ok bool) {
	if len(text) < traceparentBytes || len(text) > maxTraceparent {
		return Trace{}, false
	}
	var version, flags [1]byte
	for _, field := range [...]struct {
		to []byte
		at int
	}{{version[:], 0}, {t.TraceID[:], atTrace}, {t.SpanID[:], atSpan}, {flags[:], atFlags}} {
		end := field.at + 2*len(field.to)
		if !lowerHex(text[field.at:end]) || end < traceparentBytes && text[end] != '-' {
			return Trace{}, false
		}
		_, _ = hex.Decode(field.to, text[field.at:end]) // they are digits
	}
	longer := len(text) > traceparentBytes
	if version[0] == 0xff || longer && (version[0] == 0 || text[traceparentBytes] != '-') {
		return Trace{}, false
	}
	t.Flags = flags[0]
	return t, t.Known() && t.SpanID != [8]byte{}
}

func lowerHex(text []byte) bool {
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
