package gpureceiver

import (
	"errors"
	"strings"

	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// The states that the helper does not say itself.
const (
	starting = "starting"
	gpuLost  = "gpu_lost"
	hung     = "hung"
	crashed  = "crashed"
	noHelper = "no_helper"
)

// state is one that a source can be in.
type state struct {
	name   string
	quiet  bool   // no trouble: a node without GPUs is healthy
	advice string // what to do; %s is what is known of it
}

// states are all of them.
func states() []state {
	return []state{
		{name: protocol.Ready, quiet: true, advice: "%s"},
		{name: starting, quiet: true, advice: "%s"},
		{name: noHelper, quiet: true, advice: "%s"},
		{name: protocol.NoCgo, quiet: true, advice: "the helper was built without cgo: build it with a C compiler (make build)"},
		{name: protocol.LibraryAbsent, quiet: true, advice: "%s"},
		{name: protocol.DriverNotLoaded, quiet: true, advice: "the library is there, the kernel driver is not: load the nvidia module"},
		{name: protocol.EngineAbsent, advice: "the host engine cannot be reached (%s): start nvidia-dcgm.service (nv-hostengine), or set dcgm::endpoint"},
		{name: protocol.ConnectionLost, advice: "the connection to the host engine broke (%s): look whether nv-hostengine still runs (journalctl -u nvidia-dcgm)"},
		{name: gpuLost, advice: "a GPU no longer answers (%s)"},
		{name: hung, advice: "a call of the library does not return (%s): look for the driver in the kernel log"},
		{name: crashed, advice: "the helper ended (%s)"},
		{name: protocol.Failed, advice: "%s"},
	}
}

// stateOf returns the state of a name; a name that no state has is a failure.
func stateOf(name string) state {
	var failed state
	for _, s := range states() {
		if s.name == name {
			return s
		}
		if s.name == protocol.Failed {
			failed = s
		}
	}
	return failed
}

// condition is the state of a source now, and what is known of it.
type condition struct {
	choice
	state
	detail string
}

// newCondition says of a library that is absent how it comes.
func newCondition(c choice, name, detail string) *condition {
	if name == protocol.LibraryAbsent {
		detail = "libnvidia-ml.so.1 cannot be loaded: install the driver's libraries, in a container let NVIDIA's runtime add them, or set nvml::library"
		if c.source == DCGM {
			detail = "libdcgm.so.4 cannot be loaded: install DCGM 4 (datacenter-gpu-manager-4-core), or set dcgm::library_folder"
		}
	}
	return &condition{choice: c, state: stateOf(name), detail: detail}
}

// says is what to do about it.
func (c *condition) says() string { return strings.ReplaceAll(c.advice, "%s", c.detail) }

// What says which source is read, and why, in the log, the status and the metrics.
const (
	attributeSource = "source"
	attributeReason = "source.reason"
)

// become notes a state; a change of state or source is told once in the log, and in
// the component's status.
func (m *monitor) become(after *condition) {
	before := m.condition.Load()
	if before.name == after.name && before.source == after.source {
		return
	}
	m.condition.Store(after)
	if before.name == starting {
		close(m.settled)
	}
	fields := []zap.Field{
		zap.String("state", after.name), zap.String(attributeSource, string(after.source)), zap.String(attributeReason, after.reason),
		zap.Duration("retry_interval", m.config.RetryInterval),
	}
	if after.instead != "" {
		fields = append(fields, zap.String("dcgm", after.instead))
	}
	through := " through " + strings.ToUpper(string(after.source))
	switch {
	case after.name == protocol.Ready:
		m.settings.Logger.Info("reading NVIDIA GPUs"+through+": "+after.detail, fields...)
	case after.quiet:
		m.settings.Logger.Info("no NVIDIA GPUs are read"+through+": "+after.says(), fields...)
	default:
		m.settings.Logger.Warn("reading NVIDIA GPUs"+through+" is disturbed: "+after.says(), fields...)
	}
	m.reportStatus(before, after)
}

// reportStatus makes trouble, its end and a change of the source the component's
// status, with the source and why it is read.
func (m *monitor) reportStatus(before, after *condition) {
	attributes := pcommon.NewMap()
	attributes.PutStr(attributeSource, string(after.source))
	attributes.PutStr(attributeReason, after.reason)
	of := componentstatus.WithAttributes(attributes)
	switch {
	case !after.quiet:
		err := errors.New(after.name + ": " + after.says())
		componentstatus.ReportStatus(m.host, componentstatus.NewEvent(componentstatus.StatusRecoverableError, componentstatus.WithError(err), of))
	case !before.quiet || after.name == protocol.Ready:
		componentstatus.ReportStatus(m.host, componentstatus.NewEvent(componentstatus.StatusOK, of))
	}
}
