package kerneleventsreceiver

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// lookAtRanks is how often the living ranks are looked at, settled how long one runs until
// it is told of: what a launch script runs beside a rank is over by then.
const (
	lookAtRanks = time.Second
	settled     = 5 * time.Second
)

// starts remembers which ranks were told of.
type starts struct {
	told  map[rankStart]bool
	ranks []identity.Process // those that run
}

type rankStart struct {
	pid   uint32 // of its outermost process
	start int64  // and when that was started, in unix nanoseconds
}

// news returns the ranks that were not told of yet, the oldest first. Those that are gone
// are forgotten: there are never more than the identity probe knows.
func (s *starts) news(living []identity.Process, now time.Time) []identity.Process {
	told := make(map[rankStart]bool, len(s.told))
	var fresh []identity.Process
	s.ranks = nil
	for i := range living {
		p := &living[i]
		key := rankStart{p.RankPID, p.RankStart.UnixNano()}
		switch {
		case !p.Leads() || now.Sub(p.StartTime) < settled:
			continue
		case !s.told[key] && !told[key]:
			fresh = append(fresh, *p)
		}
		s.ranks = append(s.ranks, *p)
		told[key] = true
	}
	s.told = told
	slices.SortFunc(fresh, func(a, b identity.Process) int {
		return cmp.Or(a.StartTime.Compare(b.StartTime), cmp.Compare(a.PID, b.PID))
	})
	return fresh
}

// starts makes records of ranks that run.
func (c *converter) starts(ranks []identity.Process, observed time.Time) plog.Logs {
	for i := range ranks {
		p := &ranks[i]
		text := fmt.Sprintf("rank %d (%s, pid %d) was started", p.Rank, p.Comm, p.PID)
		a := c.builder.ProcessStart(record.Head{Trust: record.Proven, Time: p.StartTime, Observed: observed, Severity: record.Info, Text: text})
		a.Stamp(*p)
	}
	return c.builder.Emit()
}
