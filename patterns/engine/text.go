package engine

import (
	"github.com/tracecoreai/tracecore/internal/cut"
	"github.com/tracecoreai/tracecore/internal/safetext"
)

// maxValue is how much of a value is kept, in bytes.
const maxValue = 256

// clean makes s safe to show and bounds it: long values that differ stay different.
func clean(s string) string { return cut.Text(safetext.Line(s), maxValue) }
