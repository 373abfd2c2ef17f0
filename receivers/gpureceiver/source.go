package gpureceiver

import (
	"time"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// Why a source is read, beside the states of a host engine that is not.
const (
	configured    = "configured"
	engineAnswers = protocol.EngineAnswers
)

// choice is the source that is read.
type choice struct {
	source  Source
	reason  string // an attribute of metrics: one of a few
	instead string // why the other source is not read, for people
}

// round reads the GPUs until the source has to be opened again. It reports whether
// that is to be done at once. Only one source is read at a time.
func (m *monitor) round() (again bool) {
	if m.config.Source != Auto {
		return m.conclude(m.read(choice{source: m.config.Source, reason: configured}))
	}
	if m.engine.due(m.now()) {
		began := m.now()
		over := m.read(choice{source: DCGM, reason: engineAnswers})
		if over.why != endFound {
			return m.conclude(over)
		}
		m.engine.failed(over.condition, m.now().Sub(began), m.now(), m.config.RetryInterval)
		if !m.engine.quiet() {
			m.settings.Logger.Warn("DCGM is not read, NVML is tried: " + over.says())
		}
	}
	of := m.engine.condition
	over := m.read(choice{source: NVML, reason: of.name, instead: of.says()})
	if over.why == endFound && over.quiet && !m.engine.quiet() {
		over.condition = of // more than a node without GPUs
	}
	return m.conclude(over)
}

// conclude takes the consequence of a helper's end.
func (m *monitor) conclude(over ending) (again bool) {
	if over.why == endFound {
		m.become(over.condition)
	}
	return over.why == endReopen
}

// engine is what source auto knows of a host engine that it does not read.
type engine struct {
	condition *condition // why it is not read
	next      time.Time  // before, it is not tried again
	failures  int        // in a row, of an engine that answered

	asking  bool              // whether it answers
	answers chan engineAnswer // at most one is under way
	gone    <-chan struct{}   // of the helper that asked last
}

// engineAnswer is what a helper found that asked the host engine.
type engineAnswer struct {
	answers bool
	gone    <-chan struct{}
}

func (e *engine) due(now time.Time) bool { return !now.Before(e.next) }

// An engine that answers but cannot be read for long is tried again less and less
// often, so that the reading does not change its source all the time.
const (
	steady      = 10 // retry intervals that an engine has to be read for
	longestWait = 6  // doublings of the retry interval
)

// failed notes an engine that is not read, or no longer.
func (e *engine) failed(of *condition, lasted time.Duration, now time.Time, retry time.Duration) {
	e.condition = of
	switch {
	case e.quiet():
		e.failures = 0
	case lasted >= steady*retry:
		e.failures = 1
	default:
		e.failures++
	}
	e.next = now.Add(retry << min(max(e.failures-1, 0), longestWait))
}

// quiet reports whether it is no trouble that the engine is not read: a node without
// GPUs has none.
func (e *engine) quiet() bool {
	return e.condition.state.quiet || e.condition.name == protocol.EngineAbsent
}

// ask asks, beside the reading, whether the host engine answers; nobody reads GPUs
// for that. A helper that cannot be killed is the last that asks.
func (m *monitor) ask() {
	if m.engine.asking || !m.engine.due(m.now()) || !isGone(m.engine.gone) {
		return
	}
	m.engine.asking = true
	m.worker.Go(func() { m.engine.answers <- m.askEngine() })
}

func (m *monitor) askEngine() (answer engineAnswer) {
	s, err := m.start(m.config, task{source: DCGM, ask: true})
	if err != nil {
		return engineAnswer{}
	}
	timer := time.NewTimer(m.patience())
	defer timer.Stop()
	select {
	case message, more := <-s.Messages():
		answer.answers = more && message.State != nil && message.State.Name == protocol.EngineAnswers
	case <-timer.C:
	case <-m.closing:
	}
	s.Close()
	answer.gone = s.Gone()
	return answer
}

// heard takes an answer and reports whether to read the engine: an answer can be late.
func (e *engine) heard(a engineAnswer, now time.Time, retry time.Duration) bool {
	e.asking, e.gone = false, a.gone
	if !a.answers {
		e.next = now.Add(retry)
	}
	return a.answers && e.due(now)
}

// isGone reports whether a helper is no more; nil is none.
func isGone(gone <-chan struct{}) bool {
	if gone == nil {
		return true
	}
	select {
	case <-gone:
		return true
	default:
		return false
	}
}
