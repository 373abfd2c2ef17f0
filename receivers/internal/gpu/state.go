package gpu

import (
	"errors"
	"strings"

	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
)

// The states that every library can be in.
const (
	Starting = "starting"
	Ready    = wire.Ready
	GPULost  = "gpu_lost"
	Hung     = "hung"
	Crashed  = "crashed"
	NoHelper = "no_helper"
	NoCgo    = wire.NoCgo
	Absent   = wire.LibraryAbsent
	Failed   = wire.Failed
)

// State is one that a library can be in.
type State struct {
	Name   string
	Quiet  bool   // no trouble: a node without GPUs is healthy
	Advice string // what to do; %s is what is known of it
}

// States are those that every library can be in, and some more.
func States(more ...State) []State {
	return append([]State{
		{Name: Ready, Quiet: true, Advice: "%s"},
		{Name: Starting, Quiet: true, Advice: "%s"},
		{Name: NoHelper, Quiet: true, Advice: "%s"},
		{Name: NoCgo, Quiet: true, Advice: "the helper was built without cgo: build it with a C compiler (make build)"},
		{Name: GPULost, Advice: "a GPU no longer answers (%s)"},
		{Name: Hung, Advice: "a call of the library does not return (%s): look for the driver in the kernel log"},
		{Name: Crashed, Advice: "the helper ended (%s)"},
		{Name: Failed, Advice: "%s"},
	}, more...)
}

// find returns the state of a name; one that there is not is a failure.
func (p *Parts) find(name string) State {
	var failed State
	for _, s := range p.States {
		if s.Name == name {
			return s
		}
		if s.Name == Failed {
			failed = s
		}
	}
	return failed
}

// known keeps the names of states to those there are.
func (p *Parts) known(name string) string { return p.find(name).Name }

// Condition is the library's state now, and what is known of it.
type Condition struct {
	State
	Detail string
}

// Says is what to do about it.
func (c *Condition) Says() string { return strings.ReplaceAll(c.Advice, "%s", c.Detail) }

// become notes a state; a change is told once in the log, and in the component's
// status when it is trouble or trouble is over.
func (m *Monitor) become(name, detail string) {
	before := m.Condition()
	if before.Name == name {
		return
	}
	after := &Condition{State: m.parts.find(name), Detail: detail}
	m.condition.Store(after)
	if before.Name == Starting {
		close(m.settled)
	}
	fields := []zap.Field{zap.String("state", name), zap.Duration("retry_interval", m.parts.Config.RetryInterval)}
	switch {
	case name == Ready:
		m.settings.Logger.Info("reading NVIDIA GPUs: " + detail)
	case after.Quiet:
		m.settings.Logger.Info("no NVIDIA GPUs are read: "+after.Says(), fields...)
	default:
		m.settings.Logger.Warn("reading NVIDIA GPUs is disturbed: "+after.Says(), fields...)
	}
	switch {
	case !after.Quiet:
		componentstatus.ReportStatus(m.host, componentstatus.NewRecoverableErrorEvent(errors.New(name+": "+after.Says())))
	case !before.Quiet:
		componentstatus.ReportStatus(m.host, componentstatus.NewEvent(componentstatus.StatusOK))
	}
}
