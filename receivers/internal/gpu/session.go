package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
)

// silence is how many call timeouts a helper may be silent for when it owes an
// answer: its own watchdog names a call that hangs after one.
const silence = 3

// maxStuck is how many helpers may sit in the driver unkillable before no more
// are started.
const maxStuck = 1

// one has one helper from its start to its end. It reports whether the next is
// to be started at once.
func (m *Monitor) one() (again bool) {
	m.stuck = slices.DeleteFunc(m.stuck, func(gone <-chan struct{}) bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
	if len(m.stuck) >= maxStuck {
		return false // still hung
	}
	s, err := m.parts.Start(m.out.logs != nil)
	if err != nil {
		name := Failed
		if errors.Is(err, ErrNoHelper) {
			name = NoHelper
		}
		m.become(name, err.Error())
		return false
	}
	end := m.talk(s)
	detail := s.Close()
	select {
	case <-s.Gone():
	default:
		m.stuck = append(m.stuck, s.Gone())
	}
	return m.ended(end, detail)
}

// end is why the talk with a helper is over.
type end int

const (
	endStopped end = iota // the monitor stops
	endState              // the helper found the library not ready, and said so
	endHung
	endCrashed
	endReopen // a GPU is lost: only a new connection can find it again
)

// ended counts a helper's end and takes its consequence.
func (m *Monitor) ended(why end, detail string) (again bool) {
	reason := "asked"
	switch why {
	case endStopped, endState:
		return false
	case endHung:
		reason = "hung"
	case endCrashed:
		reason = "crashed"
		m.become(Crashed, detail)
	case endReopen:
		again = true
	}
	m.telemetry.HelperExits.Add(context.Background(), 1, metric.WithAttributes(attribute.String("reason", reason)))
	return again
}

// talk asks and listens until the helper or the monitor ends.
func (m *Monitor) talk(s Session) end {
	t := &talk{Monitor: m, session: s, timer: time.NewTimer(m.patience())}
	defer t.timer.Stop()
	t.began = m.now()
	polls := time.NewTicker(m.parts.Config.CollectionInterval)
	defer polls.Stop()
	reopen := time.NewTimer(m.parts.Config.RetryInterval)
	defer reopen.Stop()
	for {
		select {
		case <-m.closing:
			m.out.putLogs(m.convert.Faults(m.faults.flush(), m.cards, m.now()))
			return endStopped
		case message, more := <-s.Messages():
			if !more {
				return t.silent()
			}
			if why, over := t.hear(message); over {
				return why
			}
		case <-polls.C:
			t.poll()
		case <-t.timer.C:
			if t.owes() {
				return t.hung(wire.Hung{Call: "helper", Seconds: m.patience().Seconds()})
			}
		case <-reopen.C:
			if m.Condition().Name == GPULost && t.read {
				return endReopen
			}
			reopen.Reset(m.parts.Config.RetryInterval)
		}
	}
}

// patience is how long an answer may take.
func (m *Monitor) patience() time.Duration { return silence * m.parts.Config.CallTimeout }

// talk is the state of one conversation.
type talk struct {
	*Monitor
	session Session
	timer   *time.Timer // runs while an answer is owed
	began   time.Time   // of the question under way; zero: none
	ready   *wire.State
	read    bool // a snapshot came: before, there is nothing to look for again
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

// answered ends the waiting for an answer.
func (t *talk) answered() {
	if t.owes() {
		t.telemetry.PollTime.Add(context.Background(), t.now().Sub(t.began).Seconds())
	}
	t.began = time.Time{}
	t.timer.Stop()
}

// hear takes a message; over is the end of the talk.
func (t *talk) hear(message wire.Message) (why end, over bool) {
	switch {
	case message.Hung != nil:
		return t.hung(*message.Hung), true
	case message.State != nil:
		t.answered()
		if message.State.Name != wire.Ready || t.ready != nil {
			t.become(t.parts.known(message.State.Name), message.State.Detail)
			return endState, true
		}
		t.ready = message.State
		t.poll()
	case message.Snapshot != nil && t.ready != nil:
		t.answered()
		t.read = true
		t.reading(message.Snapshot)
	case message.Event != nil && t.ready != nil:
		t.event(message.Event)
	}
	return endStopped, false
}

func (t *talk) hung(h wire.Hung) end {
	t.telemetry.Hangs.Add(context.Background(), 1, metric.WithAttributes(attribute.String("call", h.Call)))
	where := ""
	if h.GPU != "" {
		where = " of GPU " + h.GPU
	}
	t.become(Hung, fmt.Sprintf("%s%s for %.1f s", h.Call, where, h.Seconds))
	return endHung
}

// silent is the end of a helper that said nothing about why.
func (t *talk) silent() end { return endCrashed }
