package probereceiver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/probe"
)

// Register is how mdatagen lets a receiver observe one of its own metrics.
type Register func(metric.Int64Callback) error

// Metrics are a receiver's own, of its probe; nil where it has none.
type Metrics struct {
	Up       Register // 1 while the probe is open, with its rung
	Proven   Register // 1 while it shows who said what it delivers
	Dropped  Register // what the kernel side could not deliver
	Invalid  Register // what the decoder refused
	Failures Register // times that the probe did not open, or broke
	Late     Register // records of the time in which no agent ran, read late
	Missed   Register // records of that time that nobody will read
}

// counters outlive the probe that counts: each starts at zero.
type counters struct {
	failures atomic.Int64

	mu     sync.Mutex // guards what follows
	source Source     // nil while no probe is open
	past   probe.Stats
	breaks uint64 // of probes that were open
	rung   string // the last, also while no probe is open
	late   uint64
	missed uint64
	told   uint64       // of past and present Crowded, when it was last logged
	aways  []probe.Away // of probes that were opened, until somebody asks
}

func (c *counters) opened(source Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.source = source
	away := source.Report().Away
	c.late, c.missed = c.late+away.Records, c.missed+away.Missed()
	if away.Missed() > 0 && len(c.aways) < mostAways {
		c.aways = append(c.aways, away)
	}
}

// mostAways is how many times without an agent may wait to be told.
const mostAways = 16

// tookOver is what probes that were opened since it was asked last know of times without an agent.
func (c *counters) tookOver() []probe.Away {
	c.mu.Lock()
	defer c.mu.Unlock()
	aways := c.aways
	c.aways = nil
	return aways
}

// away is what all probes together knew of times in which no agent ran.
func (c *counters) away() (late, missed uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late, c.missed
}

func (c *counters) closed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past = plus(c.past, c.source.Stats())
	c.rung, c.source = c.source.Report().Rung, nil
	c.breaks++
}

// broken is how many probes were open and are not.
func (c *counters) broken() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.breaks
}

func plus(a, b probe.Stats) probe.Stats {
	sum := probe.Stats{Events: a.Events + b.Events, Dropped: a.Dropped + b.Dropped, Invalid: a.Invalid + b.Invalid, Crowded: a.Crowded + b.Crowded, Crowder: b.Crowder}
	if b.Crowded == 0 {
		sum.Crowder = a.Crowder
	}
	return sum
}

// crowded returns who floods the ring, when there is more to say than before: twice as much.
func (c *counters) crowded() (user uint32, records uint64, more bool) {
	total, _, _ := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if total.Crowded == 0 || total.Crowded < 2*c.told {
		return 0, 0, false
	}
	c.told = total.Crowded
	return total.Crowder, total.Crowded, true
}

// proven reports whether what comes now can prove anything.
func (c *counters) proven() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.source != nil && c.source.Report().Unproven == ""
}

// now returns the sums over all probes, and the rung of the one that is open.
func (c *counters) now() (total probe.Stats, rung string, up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.source == nil {
		return c.past, c.rung, false
	}
	return plus(c.past, c.source.Stats()), c.source.Report().Rung, true
}

// observe makes the counters metrics of the receiver.
func (l *Life[S]) observe() error {
	c, m := &l.metrics, l.parts.Metrics
	return errors.Join(
		observe(m.Up, func() (int64, []metric.ObserveOption) {
			_, rung, up := c.now()
			return bit(up), []metric.ObserveOption{metric.WithAttributes(attribute.String("rung", rung))}
		}),
		Observe(m.Proven, func() int64 { return bit(c.proven()) }),
		observe(m.Dropped, func() (int64, []metric.ObserveOption) {
			total, _, _ := c.now()
			if user, records, more := c.crowded(); more {
				l.parts.Logger.Warn("a user floods the "+l.parts.Probe+", and loses its own records",
					zap.Uint32("uid", user), zap.Uint64("dropped", records))
			}
			return int64(total.Dropped), nil
		}),
		observe(m.Invalid, func() (int64, []metric.ObserveOption) {
			total, _, _ := c.now()
			return int64(total.Invalid), nil
		}),
		Observe(m.Failures, c.failures.Load),
		Observe(m.Late, func() int64 { late, _ := c.away(); return int64(late) }),
		Observe(m.Missed, func() int64 { _, missed := c.away(); return int64(missed) }),
	)
}

// Observe makes a value a metric.
func Observe(register Register, value func() int64) error {
	return observe(register, func() (int64, []metric.ObserveOption) { return value(), nil })
}

func observe(register Register, value func() (int64, []metric.ObserveOption)) error {
	if register == nil {
		return nil
	}
	return register(func(_ context.Context, o metric.Int64Observer) error {
		v, options := value()
		o.Observe(v, options...)
		return nil
	})
}

func bit(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
