package gpureceiver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/process"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
	"github.com/tracecoreai/tracecore/receivers/internal/gpuask"
)

// silence is how many call timeouts a helper may be silent for when it owes an
// answer: its own watchdog names a call that hangs after one.
const silence = 3

// maxStuck is how many helpers may sit in the driver unkillable before no more
// are started.
const maxStuck = 1

// Extra readings, for memory that was refused. They are of use with NVML alone: DCGM says
// nothing of processes.
const (
	// afterRefusal lets an allocator ask again: PyTorch frees its cache and does so at once,
	// and only a reading after the last refusal is of use.
	afterRefusal = 50 * time.Millisecond
	// betweenExtra bounds what refusals without end cost.
	betweenExtra = time.Second
)

// end is why the talk with a helper is over.
type end int

const (
	endStopped end = iota // the monitor stops
	endFound              // the source is not ready, or no longer
	endReopen             // only a new connection finds a lost GPU again, or the other source is better
)

// ending is how the talk with a helper ended.
type ending struct {
	why end
	*condition
}

// read has one helper from its start to its end.
func (m *monitor) read(c choice) ending {
	m.stuck = slices.DeleteFunc(m.stuck, func(h stuckHelper) bool { return isGone(h.gone) })
	if len(m.stuck) >= maxStuck {
		return ending{endFound, m.stuck[0].on}
	}
	s, err := m.start(m.config, task{source: c.source, listen: m.logs != nil})
	if err != nil {
		name := protocol.Failed
		if errors.Is(err, process.ErrNoHelper) {
			name = noHelper
		}
		return ending{endFound, newCondition(c, name, err.Error())}
	}
	over := m.talk(s, c)
	over = m.ended(over, s.Close())
	if !isGone(s.Gone()) {
		on := over.condition
		if on == nil {
			on = newCondition(c, hung, "the helper cannot be killed")
		}
		m.stuck = append(m.stuck, stuckHelper{s.Gone(), on})
	}
	return over
}

// stuckHelper could not be killed.
type stuckHelper struct {
	gone <-chan struct{}
	on   *condition // what it ended with
}

// ended counts the end of a helper; what it said last is why it crashed.
func (m *monitor) ended(over ending, said string) ending {
	reason := "asked"
	switch {
	case over.why == endReopen:
	case over.why == endFound && over.name == hung:
		reason = hung
	case over.why == endFound && over.name == crashed:
		reason, over.detail = crashed, said
	default:
		return over
	}
	m.telemetry.ReceiverGpuHelperExits.Add(context.Background(), 1, metric.WithAttributes(attribute.String("reason", reason)))
	return over
}

// talk asks and listens until the helper or the monitor ends.
func (m *monitor) talk(s process.Session, c choice) ending {
	t := &talk{monitor: m, choice: c, session: s, timer: time.NewTimer(m.patience()), began: m.now()}
	defer t.timer.Stop()
	if c.source == NVML {
		told, stop := gpuask.Refusals()
		defer stop()
		t.refusals = told
		ranks, leave := gpuask.Ranks()
		defer leave()
		t.ranks = ranks
	}
	polls := time.NewTicker(m.config.CollectionInterval)
	defer polls.Stop()
	retry := time.NewTicker(m.config.RetryInterval)
	defer retry.Stop()
	for {
		select {
		case <-m.closing:
			m.logs.Put(m.convert.faults(m.storms.Flush(), m.gpus, m.now()))
			return ending{why: endStopped}
		case message, more := <-s.Messages():
			if !more {
				return t.found(crashed, "")
			}
			if over := t.hear(message); over != nil {
				return *over
			}
		case <-polls.C:
			t.poll()
		case <-t.refusals:
			t.refused()
		case <-t.extra:
			t.pollForRefusal()
		case rank := <-t.ranks:
			t.standing.hear(rank, t.gpus, t.now())
		case <-t.timer.C:
			if t.owes() {
				return t.hung(protocol.Hung{Call: "helper", Seconds: m.patience().Seconds()})
			}
		case <-retry.C:
			if m.condition.Load().name == gpuLost && t.snapshot {
				return ending{why: endReopen}
			}
			if m.config.Source == Auto && c.source == NVML {
				m.ask()
			}
		case answer := <-m.engine.answers:
			if m.engine.heard(answer, m.now(), m.config.RetryInterval) && c.source == NVML {
				return ending{why: endReopen}
			}
		}
	}
}

// patience is how long an answer may take.
func (m *monitor) patience() time.Duration { return silence * m.config.CallTimeout }

// talk is the state of one conversation.
type talk struct {
	*monitor
	choice
	session  process.Session
	timer    *time.Timer // runs while an answer is owed
	began    time.Time   // of the question under way; zero: none
	ready    *protocol.State
	snapshot bool // one came: before, there is nothing to look for again

	ranks    <-chan gpuask.Rank
	refusals <-chan struct{}  // of GPU memory
	extra    <-chan time.Time // when to read for one; nil: none waits
	last     time.Time        // of such a reading
}

func (t *talk) owes() bool { return !t.began.IsZero() }

// poll asks for a snapshot, unless one is owed.
func (t *talk) poll() {
	if t.ready == nil || t.owes() {
		return
	}
	t.began = t.now()
	t.timer.Reset(t.patience())
	_ = t.session.Poll() // a helper that does not read has ended, or is silent
}

// refused has the GPUs read soon.
func (t *talk) refused() {
	if t.extra == nil {
		t.extra = time.After(max(afterRefusal, betweenExtra-t.now().Sub(t.last)))
	}
}

// pollForRefusal reads, or waits on where a reading is under way: that one began before.
func (t *talk) pollForRefusal() {
	t.extra = nil
	if t.owes() {
		t.refused()
		return
	}
	t.last = t.now()
	t.poll()
}

// answered ends the waiting for an answer.
func (t *talk) answered() {
	if t.owes() {
		t.telemetry.ReceiverGpuPollTime.Add(context.Background(), t.now().Sub(t.began).Seconds())
	}
	t.began = time.Time{}
	t.timer.Stop()
}

// hear takes a message; not nil is the end of the talk.
func (t *talk) hear(message protocol.Message) *ending {
	switch {
	case message.Hung != nil:
		over := t.hung(*message.Hung)
		return &over
	case message.State != nil:
		t.answered()
		if message.State.Name != protocol.Ready || t.ready != nil {
			over := t.found(message.State.Name, message.State.Detail)
			return &over
		}
		t.ready = message.State
		t.poll()
	case message.Snapshot != nil && t.ready != nil:
		asked := t.began
		t.answered()
		t.snapshot = true
		t.reading(message.Snapshot, asked)
	case message.Event != nil && t.ready != nil:
		t.event(message.Event)
	}
	return nil
}

// found ends the talk with a source that cannot be read.
func (t *talk) found(state, detail string) ending {
	return ending{endFound, newCondition(t.choice, state, detail)}
}

func (t *talk) hung(h protocol.Hung) ending {
	t.telemetry.ReceiverGpuHangs.Add(context.Background(), 1, metric.WithAttributes(attribute.String("call", h.Call)))
	where := ""
	if h.GPU != "" {
		where = " of GPU " + h.GPU
	}
	return t.found(hung, fmt.Sprintf("%s%s for %.1f s", h.Call, where, h.Seconds))
}
