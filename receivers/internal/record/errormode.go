package record

import (
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"
)

// ErrorMode says what a probe that does not work does to the collector.
type ErrorMode string

const (
	// Propagate stops the collector.
	Propagate ErrorMode = "propagate"
	// Ignore sets the component's status and a metric; the collector, and what else
	// the receiver does, live on.
	Ignore ErrorMode = "ignore"
)

// Check refuses a mode that there is not. (Under the name Validate the collector
// would call it too, and report each mistake twice.)
func (m ErrorMode) Check() error {
	if m != Propagate && m != Ignore {
		return fmt.Errorf("error_mode: %q is neither propagate nor ignore", string(m))
	}
	return nil
}

// NotOpened is the error with which a receiver starts whose probe did not open:
// none in mode Ignore, which logs what will be missing, such as "OOM kills".
func (m ErrorMode) NotOpened(host component.Host, logger *zap.Logger, missing string, err error) error {
	if m == Propagate {
		return err
	}
	logger.Warn("no "+missing+": the receiver goes on without its probe", zap.Error(err))
	componentstatus.ReportStatus(host, componentstatus.NewPermanentErrorEvent(err))
	return nil
}

// Stopped reports a probe that stopped working while the receiver runs. The event
// says whether that may pass; in mode Propagate it is fatal.
func (m ErrorMode) Stopped(host component.Host, logger *zap.Logger, missing string, event *componentstatus.Event) {
	logger.Error("no more "+missing+": the probe stopped working", zap.Error(event.Err()))
	if m == Propagate {
		event = componentstatus.NewFatalErrorEvent(event.Err())
	}
	componentstatus.ReportStatus(host, event)
}
