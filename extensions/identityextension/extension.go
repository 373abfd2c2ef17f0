package identityextension

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/extension"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/extensions/identityextension/internal/metadata"
	"github.com/tracecoreai/tracecore/internal/drillsecret"
	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/peer"
)

// tracker is identity.Tracker, or a test's fake.
type tracker interface {
	identity.Resolver
	Report() probe.Report
	Stats() probe.Stats
	Counters() identity.Counters
	Close() error
}

// identityExtension is an identity.Resolver over the tracker it opens in Start. It is also
// told how the components of the process fare.
type identityExtension struct {
	heartbeat.Roll
	config    *Config
	settings  extension.Settings
	open      func(identity.Options) (tracker, error)
	telemetry *metadata.TelemetryBuilder

	mu      sync.RWMutex // guards tracker
	tracker tracker      // nil before Start, and where nothing could be opened
	stop    sync.Once
}

var (
	_ extension.Extension = (*identityExtension)(nil)
	_ identity.Resolver   = (*identityExtension)(nil)
	_ identity.Stops      = (*identityExtension)(nil)
	_ identity.Asks       = (*identityExtension)(nil)
	_ identity.Endings    = (*identityExtension)(nil)
	_ identity.Candidates = (*identityExtension)(nil)
	_ identity.Members    = (*identityExtension)(nil)
	_ identity.Failing    = (*identityExtension)(nil)
	_ heartbeat.Watcher   = (*identityExtension)(nil)
	_ peer.Domains        = (*identityExtension)(nil)
)

func newExtension(settings extension.Settings, config *Config, open func(identity.Options) (tracker, error)) (*identityExtension, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	return &identityExtension{config: config, settings: settings, open: open, telemetry: telemetry}, nil
}

// Start begins to watch processes and reads those that run already. Extensions
// start before receivers, so these find it ready.
func (x *identityExtension) Start(_ context.Context, host component.Host) error {
	opened, err := x.open(x.options())
	if err == nil {
		err = degraded(opened.Report())
	}
	if err != nil && x.config.ErrorMode == ErrorModePropagate {
		if opened != nil {
			err = errors.Join(err, opened.Close())
		}
		return err
	}
	x.mu.Lock()
	x.tracker = opened
	x.mu.Unlock()
	x.tell(host, opened, err)
	if opened != nil {
		x.wasAway(opened.Report().Away)
	}
	return x.observe(opened)
}

// options are those of the tracker. Without a secret it goes on: drills are then real
// faults to it.
func (x *identityExtension) options() identity.Options {
	options := x.config.options()
	if x.config.DrillSecret == "" {
		return options
	}
	secret, _, err := drillsecret.Open(x.config.DrillSecret)
	if err != nil {
		x.settings.Logger.Warn("drills are taken for real faults", zap.Error(err))
		return options
	}
	options.Drill = secret.Proves
	return options
}

// tell logs what came out of Start, and reports it as the component's status when
// something is missing.
func (x *identityExtension) tell(host component.Host, opened tracker, err error) {
	switch {
	case opened == nil:
		x.settings.Logger.Warn("no process is known: the extension answers nothing", zap.Error(err))
		componentstatus.ReportStatus(host, componentstatus.NewPermanentErrorEvent(err))
	case err != nil:
		x.settings.Logger.Warn("not all of processes is known", zap.Error(err))
		componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(err))
	default:
		x.settings.Logger.Info("watching processes", zap.String("rung", opened.Report().Rung))
	}
}

// wasAway says in the log what is not known of the time before Start, and whether such a
// time will be known.
func (x *identityExtension) wasAway(away probe.Away) {
	if gap := away.Gap("starts and ends of processes"); gap != "" {
		x.settings.Logger.Warn(gap)
	}
	if away.Err != nil {
		x.settings.Logger.Warn("not all ends of processes will be known that happen while no agent runs", zap.Error(away.Err))
	}
}

// degraded says what is missing on a rung that is not the best, and why.
func degraded(report probe.Report) error {
	if report.Rung == identity.RungSignals {
		return nil
	}
	text := "watch processes: "
	for _, a := range report.Attempts {
		if a.Outcome != probe.OK {
			text += fmt.Sprintf("%s is %s (%s)", a.Rung, a.Outcome, a.Reason)
			if a.Hint != "" {
				text += ": " + a.Hint
			}
			text += "; "
			continue
		}
		text += fmt.Sprintf("%s is in use: %s", a.Rung, a.Hint)
	}
	return errors.New(text)
}

// Lookup implements identity.Resolver.
func (x *identityExtension) Lookup(pid, parentPID uint32, at time.Time) (identity.Process, bool) {
	if t := x.current(); t != nil {
		return t.Lookup(pid, parentPID, at)
	}
	return identity.Process{}, false
}

// Exits implements identity.Resolver. Subscribe after Start.
func (x *identityExtension) Exits(fn func(identity.Exit)) (cancel func()) {
	if t := x.current(); t != nil {
		return t.Exits(fn)
	}
	return func() {}
}

// Ranks implements identity.Resolver. There are none before Start.
func (x *identityExtension) Ranks() []identity.Process {
	if t := x.current(); t != nil {
		return t.Ranks()
	}
	return nil
}

// Stopped implements identity.Stops.
func (x *identityExtension) Stopped(p identity.Process) (identity.Signal, bool) {
	if t, ok := x.current().(identity.Stops); ok {
		return t.Stopped(p)
	}
	return identity.Signal{}, false
}

// Sent implements identity.Keeps.
func (x *identityExtension) Sent(p identity.Process) (identity.Sent, bool) {
	if t, ok := x.current().(identity.Keeps); ok {
		return t.Sent(p)
	}
	return identity.Sent{}, false
}

// WasSent implements identity.Keeps.
func (x *identityExtension) WasSent(p identity.Process, s identity.Sent) {
	if t, ok := x.current().(identity.Keeps); ok {
		t.WasSent(p, s)
	}
}

// Asked implements identity.Asks.
func (x *identityExtension) Asked() []identity.Asked {
	if t, ok := x.current().(identity.Asks); ok {
		return t.Asked()
	}
	return nil
}

// EndedUnseen implements identity.Endings.
func (x *identityExtension) EndedUnseen(p identity.Born) bool {
	t, ok := x.current().(identity.Endings)
	return ok && t.EndedUnseen(p)
}

// Unranked implements identity.Candidates.
func (x *identityExtension) Unranked() []identity.Process {
	if t, ok := x.current().(identity.Candidates); ok {
		return t.Unranked()
	}
	return nil
}

// Ranked implements identity.Candidates.
func (x *identityExtension) Ranked(p identity.Process, is identity.Place) {
	if t, ok := x.current().(identity.Candidates); ok {
		t.Ranked(p, is)
	}
}

// Joined implements identity.Members.
func (x *identityExtension) Joined(p identity.Process) {
	if t, ok := x.current().(identity.Members); ok {
		t.Joined(p)
	}
}

// Trains implements identity.Members.
func (x *identityExtension) Trains(p identity.Process) {
	if t, ok := x.current().(identity.Members); ok {
		t.Trains(p)
	}
}

// Led implements identity.Members.
func (x *identityExtension) Led(p identity.Process) {
	if t, ok := x.current().(identity.Members); ok {
		t.Led(p)
	}
}

// Raised implements identity.Failing.
func (x *identityExtension) Raised(p identity.Process) {
	if t, ok := x.current().(identity.Failing); ok {
		t.Raised(p)
	}
}

// DomainOf implements peer.Domains.
func (x *identityExtension) DomainOf(user uint32, cgroup, job string) string {
	if t, ok := x.current().(peer.Domains); ok {
		return t.DomainOf(user, cgroup, job)
	}
	return ""
}

func (x *identityExtension) current() tracker {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tracker
}

// Shutdown stops watching. Lookup goes on to answer from what is known.
func (x *identityExtension) Shutdown(context.Context) error {
	var err error
	x.stop.Do(func() {
		x.telemetry.Shutdown()
		if t := x.current(); t != nil {
			err = t.Close()
		}
	})
	return err
}
