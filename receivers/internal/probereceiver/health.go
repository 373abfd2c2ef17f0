package probereceiver

import (
	"errors"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/probe"
)

// Pauses before a probe is opened again: opening one loads and tests programs, which
// takes some tenths of a second of a CPU.
const (
	firstPause   = time.Second
	longestPause = 5 * time.Minute
	rarePause    = time.Hour
)

// Ticks is how a receiver waits for time to pass.
type Ticks func(time.Duration) (ticks <-chan time.Time, stop func())

// RealTime is the machine's own.
func RealTime(interval time.Duration) (<-chan time.Time, func()) {
	t := time.NewTicker(interval)
	return t.C, t.Stop
}

// pauseAfter is the pause after an error. One that lasts, such as a kernel without
// the hooks, says so itself.
func pauseAfter(err error, pause time.Duration) time.Duration {
	var lasting interface{ Lasting() bool }
	if errors.As(err, &lasting) && lasting.Lasting() {
		return rarePause
	}
	return pause
}

// wait returns false when the receiver stops first.
func (l *Life[S]) wait(pause time.Duration) bool {
	ticks, stop := l.parts.Ticks(pause)
	defer stop()
	select {
	case <-ticks:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// failed tells of a probe that does not work and will be opened again. What was said
// is not said again in the log.
func (l *Life[S]) failed(err error) {
	l.metrics.failures.Add(1)
	if err.Error() != l.said {
		l.said = err.Error()
		l.parts.Logger.Warn("no "+l.parts.Missing+": the receiver goes on without its probe, and opens it again later", zap.Error(err))
	}
	l.tell(componentstatus.NewRecoverableErrorEvent(err))
}

func (l *Life[S]) recovered() {
	l.said = ""
	l.parts.Logger.Info(l.parts.Missing + " are seen again: the probe works")
	l.tell(componentstatus.NewEvent(componentstatus.StatusOK))
}

// doubt tells of a probe that works and cannot show who said what it delivers.
func (l *Life[S]) doubt(source S) {
	why := source.Report().Unproven
	if why == "" {
		return
	}
	if why != l.doubted {
		l.doubted = why
		l.parts.Logger.Warn(l.parts.Missing + ": " + why)
	}
	l.tell(componentstatus.NewRecoverableErrorEvent(errors.New(why)))
}

// wasAway says in the log what is not known of the time before the probe was opened, and
// whether such a time will be known.
func (l *Life[S]) wasAway(away probe.Away) {
	if gap := away.Gap(l.parts.Missing); gap != "" {
		l.parts.Logger.Warn(gap)
	}
	if away.Err != nil {
		l.parts.Logger.Warn("not all "+l.parts.Missing+" will be known that happen while no agent runs", zap.Error(away.Err))
	}
}

// tell reports a status to the hosts of all signals.
func (l *Life[S]) tell(event *componentstatus.Event) {
	l.mu.Lock()
	l.status = event
	hosts := append([]component.Host(nil), l.hosts...)
	l.mu.Unlock()
	for _, host := range hosts {
		componentstatus.ReportStatus(host, event)
	}
}

// NotHere is the error of a probe on a system that cannot run it. The receiver still
// builds there, so that one configuration and one set of tests serve every system.
func NotHere(name string) error { return notHere(name) }

type notHere string

func (n notHere) Error() string {
	return "the " + string(n) + " needs Linux on amd64 or arm64: remove the receiver, or set error_mode: ignore"
}

// Lasting: no module brings another system.
func (notHere) Lasting() bool { return true }
