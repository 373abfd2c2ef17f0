// Package worker is the helper program: it alone loads the vendor's library, in a
// process of its own, so that a library that crashes or hangs costs this process
// and not the collector.
package worker

import (
	"bufio"
	"io"
	"time"

	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/nvml"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/reading"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/wire"
)

// eventWait is how long one wait for an event lasts. It bounds how long the
// driver is asked, not how long an event takes to be seen.
const eventWait = time.Second

// Options of the helper.
type Options struct {
	Library     nvml.Library  // nil: this build has none
	Events      uint64        // types to listen for; 0: none
	CallTimeout time.Duration // after so long a call hangs
	Commands    io.Reader
	Messages    io.Writer
}

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
	out := wire.NewWriter(o.Messages)
	watch := newWatchdog(o.CallTimeout, func(h wire.Hung) {
		_ = out.Write(wire.Message{Hung: &h})
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
		if lines.Text() != wire.Poll {
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
func work(o Options, out *wire.Writer, watch *watchdog, polls <-chan struct{}) int {
	gpus, state := connect(o.Library, watch.lane())
	var events nvml.Events
	if state.Name == wire.Ready && o.Events != 0 {
		var code nvml.Code
		events, code = gpus.Listen(o.Events)
		state.Events = code == nvml.OK
	}
	if out.Write(wire.Message{State: &state}) != nil {
		return Bad
	}
	if state.Name != wire.Ready {
		return Done
	}
	if state.Events {
		go listen(events, out, watch.lane())
	}
	for range polls {
		if out.Write(wire.Message{Snapshot: gpus.Snapshot()}) != nil {
			return Bad
		}
	}
	return Done
}

// connect loads the library and finds the GPUs.
func connect(library nvml.Library, lane *lane) (*reading.GPUs, wire.State) {
	if library == nil {
		return nil, wire.State{Name: wire.NoCgo}
	}
	lane.Begin("init", "")
	code := library.Init()
	lane.End()
	switch code {
	case nvml.OK:
	case nvml.LibraryNotFound:
		return nil, wire.State{Name: wire.LibraryAbsent, Detail: code.Error()}
	case nvml.DriverNotLoaded:
		return nil, wire.State{Name: wire.DriverNotLoaded, Detail: code.Error()}
	default:
		return nil, wire.State{Name: wire.Failed, Detail: "init: " + code.Error()}
	}
	state := wire.State{Name: wire.Ready}
	lane.Begin("versions", "")
	state.Driver, state.Library, _ = library.Versions()
	lane.End()
	gpus, code := reading.Open(library, lane)
	if code != nvml.OK {
		return nil, wire.State{Name: wire.Failed, Detail: "device count: " + code.Error()}
	}
	state.GPUs = gpus.Count()
	return gpus, state
}

// listen passes events on. A lost GPU can make the wait fail at once; what
// becomes of it the snapshots tell.
func listen(events nvml.Events, out *wire.Writer, lane *lane) {
	for {
		lane.Begin("event_wait", "")
		event, code := events.Wait(uint32(eventWait.Milliseconds()))
		lane.End()
		switch code {
		case nvml.OK:
			if out.Write(wire.Message{Event: &wire.Event{Event: event}}) != nil {
				return
			}
		case nvml.Timeout:
		default:
			time.Sleep(eventWait)
		}
	}
}
