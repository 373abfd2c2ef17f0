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

// askedAgain is how long after a rank was told to be asked another signal of the same number tells nothing: who asks
// every second asks once.
const askedAgain = 30 * time.Second

// asks remembers which ranks were told to be asked to end, and by what.
type asks struct{ told map[identity.Born]ask }

type ask struct {
	signal int
	at     time.Time // when that was sent
}

// news returns those that were not told of yet, the earliest first. Those that are asked no more are forgotten.
func (s *asks) news(asked []identity.Asked) []identity.Asked {
	told := make(map[identity.Born]ask, len(asked))
	var fresh []identity.Asked
	for i := range asked {
		a := &asked[i]
		before, known := s.told[a.Born()]
		if known && before.signal == a.Signal.Number && a.Signal.Time.Sub(before.at) < askedAgain {
			told[a.Born()] = before
			continue
		}
		told[a.Born()] = ask{a.Signal.Number, a.Signal.Time}
		fresh = append(fresh, *a)
	}
	s.told = told
	slices.SortFunc(fresh, func(a, b identity.Asked) int {
		return cmp.Or(a.Signal.Time.Compare(b.Signal.Time), cmp.Compare(a.PID, b.PID))
	})
	return fresh
}

// asked makes records of ranks that were asked to end, and live.
func (c *converter) asked(ranks []identity.Asked, observed time.Time) plog.Logs {
	for i := range ranks {
		p := &ranks[i]
		text := fmt.Sprintf("rank %d (%s, pid %d) was sent %s by %s, and lives", p.Rank, p.Comm, p.PID, record.SignalName(p.Signal.Number), record.SentBy(p.Signal))
		a := c.builder.ProcessAsked(record.Head{Trust: record.Proven, Time: p.Signal.Time, Observed: observed, Severity: record.Info, Text: text})
		a.Stamp(p.Process)
		a.StampSignal(p.Signal)
		if p.Others.Lived > 0 {
			a.ProcessAskedSparedRanks(int64(p.Others.Spared()))
		}
	}
	return c.builder.Emit()
}
