package reading

import (
	"time"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/worker"
)

// source is an NVML library for the helper.
type source struct {
	library nvml.Library
	types   uint64 // of events
	gpus    *GPUs
	events  nvml.Events
}

// NewSource reads a library and listens for events of these types; 0: none.
func NewSource(library nvml.Library, types uint64) worker.Source {
	return &source{library: library, types: types}
}

// Open loads the library, finds the GPUs and registers for their events.
func (s *source) Open(tracker worker.Tracker) wire.State {
	tracker.Begin("init", "")
	code := s.library.Init()
	tracker.End()
	switch code {
	case nvml.OK:
	case nvml.LibraryNotFound:
		return wire.State{Name: wire.LibraryAbsent, Detail: code.Error()}
	case nvml.DriverNotLoaded:
		return wire.State{Name: wire.DriverNotLoaded, Detail: code.Error()}
	default:
		return wire.State{Name: wire.Failed, Detail: "init: " + code.Error()}
	}
	state := wire.State{Name: wire.Ready}
	tracker.Begin("versions", "")
	state.Driver, state.Library, _ = s.library.Versions()
	tracker.End()
	if s.gpus, code = Open(s.library, tracker); code != nvml.OK {
		return wire.State{Name: wire.Failed, Detail: "device count: " + code.Error()}
	}
	state.GPUs = s.gpus.Count()
	if s.types != 0 {
		s.events, code = s.gpus.Listen(s.types)
		state.Events = code == nvml.OK
	}
	return state
}

// Snapshot reads all GPUs.
func (s *source) Snapshot() (*wire.Snapshot, *wire.State) { return s.gpus.Snapshot(), nil }

// Wait waits for one event. A lost GPU can make the wait fail at once; what
// becomes of it the snapshots tell.
func (s *source) Wait(tracker worker.Tracker, atMost time.Duration) []wire.Event {
	tracker.Begin(worker.EventWait, "")
	event, code := s.events.Wait(uint32(atMost.Milliseconds()))
	tracker.End()
	switch code {
	case nvml.OK:
		return []wire.Event{{Event: event}}
	case nvml.Timeout:
	default:
		time.Sleep(atMost)
	}
	return nil
}
