package nvml

import (
	"time"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/helper"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// source is an NVML library for the helper.
type source struct {
	library Library
	types   uint64 // of events
	gpus    *GPUs
	events  Events
}

// NewSource reads a library and listens for events of these types; 0: none.
func NewSource(library Library, types uint64) helper.Source {
	return &source{library: library, types: types}
}

// Open loads the library, finds the GPUs and registers for their events.
func (s *source) Open(tracker helper.Tracker) protocol.State {
	tracker.Begin("init", "")
	code := s.library.Init()
	tracker.End()
	switch code {
	case OK:
	case LibraryNotFound:
		return protocol.State{Name: protocol.LibraryAbsent, Detail: code.Error()}
	case DriverNotLoaded:
		return protocol.State{Name: protocol.DriverNotLoaded, Detail: code.Error()}
	default:
		return protocol.State{Name: protocol.Failed, Detail: "init: " + code.Error()}
	}
	state := protocol.State{Name: protocol.Ready}
	tracker.Begin("versions", "")
	state.Driver, state.Library, _ = s.library.Versions()
	tracker.End()
	if s.gpus, code = Open(s.library, tracker); code != OK {
		return protocol.State{Name: protocol.Failed, Detail: "device count: " + code.Error()}
	}
	state.GPUs = s.gpus.Count()
	if s.types != 0 {
		s.events, code = s.gpus.Listen(s.types)
		state.Events = code == OK
	}
	return state
}

// Snapshot reads all GPUs.
func (s *source) Snapshot() (*protocol.Snapshot, *protocol.State) { return s.gpus.Snapshot(), nil }

// Wait waits for one event. A lost GPU can make the wait fail at once; what
// becomes of it the snapshots tell.
func (s *source) Wait(tracker helper.Tracker, atMost time.Duration) []protocol.Event {
	tracker.Begin(helper.EventWait, "")
	event, code := s.events.Wait(uint32(atMost.Milliseconds()))
	tracker.End()
	switch code {
	case OK:
		return []protocol.Event{{Event: event}}
	case Timeout:
	default:
		time.Sleep(atMost)
	}
	return nil
}
