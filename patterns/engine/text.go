package engine

import (
	"github.com/tracecoreai/tracecore/internal/cut"
	"github.com/tracecoreai/tracecore/internal/safetext"
)

// maxValue is how much of a value is kept, in bytes.
const maxValue = 256

// clean makes s safe to show and bounds it: long values that differ stay different. It is cut
// first: each field of each rule that reads a long value would else escape all of it. It is cut
// again: what does not show takes more bytes escaped.
func clean(s string) string { return cut.Text(safetext.Line(cut.Text(s, maxValue)), maxValue) }
