package rankjoinprocessor

import (
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/processors/rankjoinprocessor/internal/join"
)

// Joiner is the join without a pipeline: for replay, where time is event time.
type Joiner struct{ join *join.Join }

// NewJoiner makes a joiner with the default settings.
func NewJoiner() *Joiner { return &Joiner{join: join.New(join.DefaultOptions)} }

// Add takes the Flight Recorder and socket-stall records among logs, as of now.
func (j *Joiner) Add(logs plog.Logs, now time.Time) { j.join.Add(logs, now) }

// Advance returns the findings that are due at now; it may be empty.
func (j *Joiner) Advance(now time.Time) plog.Logs { return records(j.join.Advance(now), now) }

// Due reports whether dumps wait to be joined; they are once time has passed by
// the window.
func (j *Joiner) Due() bool { return j.join.Due() }

// Flush returns the findings of all that still waits, at the end of the input.
func (j *Joiner) Flush(now time.Time) plog.Logs { return records(j.join.Flush(), now) }
