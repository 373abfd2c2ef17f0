package engine

import "github.com/tracecoreai/tracecore/internal/safetext"

// maxValue is how much of a value is kept, in bytes.
const maxValue = 256

// clean bounds s and makes it safe to show.
func clean(s string) string { return safetext.Clip(safetext.Line(s[:min(len(s), maxValue)]), maxValue) }
