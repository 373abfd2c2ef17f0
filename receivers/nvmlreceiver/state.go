package nvmlreceiver

import (
	"errors"

	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/wire"
)

// The states of the library, beside those that the helper finds.
const (
	stateStarting  = "starting"
	stateReady     = wire.Ready
	stateGPULost   = "gpu_lost"
	stateHung      = "hung"
	stateCrashed   = "crashed"
	stateNoHelper  = "no_helper"
	stateNoCgo     = wire.NoCgo
	stateAbsent    = wire.LibraryAbsent
	stateNoDriver  = wire.DriverNotLoaded
	stateFailed    = wire.Failed
	attributeState = "state"
)

func stateNames() []string {
	return []string{
		stateReady, stateGPULost, stateHung, stateCrashed, stateAbsent, stateNoDriver, stateNoHelper, stateNoCgo, stateFailed, stateStarting,
	}
}

// state is the library's state, and what is known of it.
type state struct {
	name   string
	detail string
}

// advice says what to do about a state.
func (s *state) advice() string {
	switch s.name {
	case stateNoHelper:
		return s.detail
	case stateNoCgo:
		return "the helper was built without cgo: build it with a C compiler (make build)"
	case stateAbsent:
		return "libnvidia-ml.so.1 cannot be loaded: install the driver's libraries, in a container let NVIDIA's runtime add them, or set library"
	case stateNoDriver:
		return "the library is there, the kernel driver is not: load the nvidia module"
	case stateHung:
		return "a call of the library does not return (" + s.detail + "): look for the driver in the kernel log"
	case stateCrashed:
		return "the helper ended (" + s.detail + ")"
	case stateGPULost:
		return "a GPU no longer answers (" + s.detail + ")"
	default:
		return s.detail
	}
}

// quiet reports whether a state is no trouble: a node without GPUs is healthy.
func (s *state) quiet() bool {
	switch s.name {
	case stateHung, stateCrashed, stateGPULost, stateFailed:
		return false
	}
	return true
}

// become notes a state; a change is told once in the log, and in the component's
// status when it is trouble or trouble is over.
func (m *monitor) become(name, detail string) {
	before := m.state.Load()
	if before.name == name {
		return
	}
	after := &state{name: name, detail: detail}
	m.state.Store(after)
	if before.name == stateStarting {
		close(m.settled)
	}
	fields := []zap.Field{zap.String(attributeState, name), zap.Duration("retry_interval", m.config.RetryInterval)}
	switch {
	case name == stateReady:
		m.settings.Logger.Info("reading NVIDIA GPUs: " + detail)
	case after.quiet():
		m.settings.Logger.Info("no NVIDIA GPUs are read: "+after.advice(), fields...)
	default:
		m.settings.Logger.Warn("reading NVIDIA GPUs is disturbed: "+after.advice(), fields...)
	}
	switch {
	case !after.quiet():
		componentstatus.ReportStatus(m.host, componentstatus.NewRecoverableErrorEvent(errors.New(name+": "+after.advice())))
	case !before.quiet():
		componentstatus.ReportStatus(m.host, componentstatus.NewEvent(componentstatus.StatusOK))
	}
}
