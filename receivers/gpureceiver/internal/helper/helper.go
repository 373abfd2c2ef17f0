// Package helper is the helper program's loop: it alone loads the vendor's library, in a
// process of its own, so that a library that crashes or hangs costs this process
// and not the collector.
package helper

import (
	"bufio"
	"io"
	"time"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// eventWait is how long one wait for an event lasts. It bounds how long the
// driver is asked, not how long an event takes to be seen.
const eventWait = time.Second

// Tracker is told of each call before it is made and after it has returned, so
// that one that hangs has a name.
type Tracker interface {
	Begin(call, gpu string)
	End()
}

// Source is a vendor's library. Each of its methods may hang as long as the
// driver does.
type Source interface {
	// Open loads the library and finds the GPUs. Events says whether somebody
	// will Wait.
	Open(Tracker) protocol.State
	// Snapshot reads all GPUs. A state that is not nil ends the helper.
	Snapshot() (*protocol.Snapshot, *protocol.State)
	// Wait returns the events that came, none when nothing did for so long. It
	// runs beside Snapshot, from another goroutine.
	Wait(Tracker, time.Duration) []protocol.Event
}

// Options of the helper.
type Options struct {
	Source      Source        // nil: this build has none
	CallTimeout time.Duration // after so long a call hangs
	Commands    io.Reader
	Messages    io.Writer
}

// EventWait is the call that waits for events: it is meant to last.
const EventWait = "event_wait"

// The exit codes of the helper.
const (
	Done = 0
	Hung = 3 // a call does not return
	Bad  = 1 // the receiver is gone, or messages cannot be written
)

// Run does what the commands say until they end and returns the exit code. A
// call that hangs stays behind: the process has to end then.
func Run(o Options) int {
	ended := make(chan int, 1)
	out := protocol.NewWriter(o.Messages)
	watch := newWatchdog(o.CallTimeout, func(h protocol.Hung) {
		_ = out.Write(protocol.Message{Hung: &h})
		end(ended, Hung)
	})
	defer watch.stop()
	polls := make(chan struct{}, 1)
	go readCommands(o.Commands, polls, ended)
	go func() { end(ended, work(o, out, watch, polls)) }()
	return <-ended
}

// end reports the first end of several.
func end(ended chan<- int, code int) {
	select {
	case ended <- code:
	default:
	}
}

// readCommands runs beside the calls: the end of the commands ends the helper
// though a call hangs.
func readCommands(commands io.Reader, polls chan<- struct{}, ended chan<- int) {
	defer close(polls)
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		if lines.Text() != protocol.Poll {
			continue
		}
		select {
		case polls <- struct{}{}:
		default: // one waits already
		}
	}
	end(ended, Done)
}

// work makes all calls but the waiting for events, one after the other.
func work(o Options, out *protocol.Writer, watch *watchdog, polls <-chan struct{}) int {
	state := protocol.State{Name: protocol.NoCgo}
	if o.Source != nil {
		state = o.Source.Open(watch.lane())
	}
	if out.Write(protocol.Message{State: &state}) != nil {
		return Bad
	}
	if state.Name != protocol.Ready {
		return Done
	}
	if state.Events {
		go listen(o.Source, out, watch.lane())
	}
	for range polls {
		snapshot, over := o.Source.Snapshot()
		if over != nil {
			_ = out.Write(protocol.Message{State: over})
			return Done
		}
		if out.Write(protocol.Message{Snapshot: snapshot}) != nil {
			return Bad
		}
	}
	return Done
}

// listen passes events on.
func listen(source Source, out *protocol.Writer, lane *lane) {
	for {
		for _, event := range source.Wait(lane, eventWait) {
			if out.Write(protocol.Message{Event: &event}) != nil {
				return
			}
		}
	}
}
