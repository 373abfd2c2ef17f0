package historyextension

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/extensions/historyextension/internal/metadata"
	"github.com/tracecoreai/tracecore/extensions/historyextension/internal/store"
	"github.com/tracecoreai/tracecore/internal/gate"
	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/thishost"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// SocketName is the name of the Unix socket in the folder of the history: who may write
// to that folder may acknowledge incidents.
const SocketName = "history.sock"

// listenEvery is how often an address that cannot be listened on is tried again.
const listenEvery = 5 * time.Second

// keeper is the extension.
type keeper struct {
	config    *Config
	settings  extension.Settings
	telemetry *metadata.TelemetryBuilder
	store     *store.Store
	hostname  string
	now       func() time.Time

	started time.Time
	stop    func()

	mu      sync.Mutex
	refusal error // why nothing is kept: said, and not over
	feeds   map[string]func() []history.Feed

	heartbeat.Roll                 // the components of this process
	agents         *heartbeat.Book // of the machines whose records come here

	emitters    func() map[string][]string // of each event and metric
	revision    atomic.Uint64              // of what is kept
	rankSources rankSources
}

var (
	_ history.Keeper         = (*keeper)(nil)
	_ history.EvidenceKeeper = (*keeper)(nil)
	_ history.AgentKeeper    = (*keeper)(nil)
)

func newKeeper(settings extension.Settings, config *Config, now func() time.Time) (*keeper, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	k := &keeper{config: config, settings: settings, telemetry: telemetry, now: now, stop: func() {},
		started: now().UTC(), agents: heartbeat.NewBook(now()), emitters: sync.OnceValue(patterns.Emitters), feeds: map[string]func() []history.Feed{}}
	if k.hostname, err = thishost.Name(); err != nil {
		settings.Logger.Warn("answers name no host", zap.Error(err))
	}
	k.store = store.New(store.Options{
		Directory: config.Directory, MaxBytes: config.MaxBytes, MaxAge: config.MaxAge, Now: now, SetAside: k.setAside,
		Evicted: counting(telemetry.ExtensionHistoryEvicted), Damaged: counting(telemetry.ExtensionHistoryDamagedRows), Cut: counting(telemetry.ExtensionHistoryCut),
	})
	return k, k.observeAgents()
}

// observeAgents makes metrics of who watches.
func (k *keeper) observeAgents() error {
	return errors.Join(
		k.telemetry.RegisterExtensionHistoryAgentsCallback(func(_ context.Context, o metric.Int64Observer) error {
			counts := k.agents.Counts(k.now())
			for state, n := range map[string]int{heartbeat.Watching: counts.Watching, heartbeat.Silent: counts.Silent, heartbeat.Gone: counts.Gone} {
				o.Observe(int64(n), metric.WithAttributes(attribute.String("state", state)))
			}
			return nil
		}),
		k.telemetry.RegisterExtensionHistoryAgentsEvictedCallback(func(_ context.Context, o metric.Int64Observer) error {
			counts := k.agents.Counts(k.now())
			o.Observe(int64(counts.Evicted))
			return nil
		}))
}

func counting(counter metric.Int64Counter) func(int) {
	return func(n int) {
		if n > 0 {
			counter.Add(context.Background(), int64(n))
		}
	}
}

func (k *keeper) setAside(from, to string, why error) {
	k.telemetry.ExtensionHistorySetAside.Add(context.Background(), 1)
	k.settings.Logger.Warn("the file of the history is set aside and a new one begun", zap.String("file", from), zap.String("now", to), zap.Error(why))
}

// Keep implements history.Keeper.
func (k *keeper) Keep(ctx context.Context, verdicts []verdict.Verdict) error {
	err := k.store.Keep(ctx, verdicts)
	k.changed()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.telemetry.ExtensionHistoryWriteFailures.Add(ctx, 1)
		if k.refusal == nil {
			k.settings.Logger.Warn("incidents are not kept: what comes waits with the patterns, within bounds, and is tried again; make room or repair the folder",
				zap.String("folder", k.config.Directory), zap.Error(err))
		}
		k.refusal = err
		return fmt.Errorf("history: %w", err)
	}
	if k.refusal != nil {
		k.settings.Logger.Info("incidents are kept again")
	}
	k.refusal = nil
	k.telemetry.ExtensionHistoryKept.Add(ctx, int64(len(verdicts)))
	return nil
}

// Recall implements history.EvidenceKeeper.
func (k *keeper) Recall(ctx context.Context, incident string) (history.Recalled, error) {
	return k.store.Recall(ctx, incident)
}

// KeepEvidence implements history.EvidenceKeeper.
func (k *keeper) KeepEvidence(ctx context.Context, incident string, evidence []byte) error {
	err := k.store.KeepEvidence(ctx, incident, evidence)
	k.changed()
	if err != nil && !errors.Is(err, history.ErrNotFound) {
		k.telemetry.ExtensionHistoryWriteFailures.Add(ctx, 1)
	}
	return err
}

// Ranks implements history.Keeper.
func (k *keeper) Ranks(ctx context.Context, seen []history.Sighting) error {
	err := k.store.Ranks(ctx, seen)
	k.changed()
	if err != nil {
		k.telemetry.ExtensionHistoryWriteFailures.Add(ctx, 1)
	}
	return err
}

// Ended implements history.Keeper.
func (k *keeper) Ended(ctx context.Context) ([]history.Run, error) { return k.store.Ended(ctx) }

// Told implements history.Keeper.
func (k *keeper) Told(ctx context.Context, runs []history.Run, left bool) error {
	return k.store.Told(ctx, runs, left)
}

// Mutes implements history.Keeper.
func (k *keeper) Mutes(ctx context.Context) (map[string]history.Mute, error) {
	return k.store.Mutes(ctx)
}

// Start begins to answer. An address that is taken costs the answers and not the
// collector: it is said and tried again.
func (k *keeper) Start(ctx context.Context, host component.Host) error {
	read, err := k.config.HTTP.ToServer(ctx, host.GetExtensions(), k.settings.TelemetrySettings, k.handler(false))
	if err != nil {
		return err
	}
	write := &http.Server{Handler: k.handler(true), ReadHeaderTimeout: reading, ReadTimeout: reading, WriteTimeout: writing, IdleTimeout: idle, MaxHeaderBytes: maxHeader}
	read.ConnContext, write.ConnContext = gate.InContext, gate.InContext
	running, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	for _, s := range []struct {
		server *http.Server
		where  string
		remedy string
		listen func(context.Context) (net.Listener, error)
	}{
		{read, k.config.HTTP.NetAddr.Endpoint, "set http::endpoint of the history to another address, or stop what has it", gate.Listen(&k.config.HTTP.ServerConfig, k.config.HTTP.MaxConnections)},
		{write, filepath.Join(k.config.Directory, SocketName), "this user must be able to make and write that folder: mend its rights or its file system, or set directory of the history", k.listenUnix},
	} {
		serving.Go(func() { k.serve(running, host, s.server, s.where, s.remedy, s.listen) })
	}
	k.stop = func() {
		cancel()
		_ = read.Close()
		_ = write.Close()
		serving.Wait()
	}
	return nil
}

// serve answers until ctx ends.
func (k *keeper) serve(ctx context.Context, host component.Host, server *http.Server, where, remedy string, listen func(context.Context) (net.Listener, error)) {
	said := false
	for ctx.Err() == nil {
		listener, err := listen(ctx)
		if err == nil {
			if said {
				k.settings.Logger.Info("questions about incidents are answered again", zap.String("address", where))
			}
			err = server.Serve(listener)
			if errors.Is(err, http.ErrServerClosed) || ctx.Err() != nil {
				_ = listener.Close()
				return
			}
		}
		if !said {
			err = fmt.Errorf("listen on %s: %w", where, err)
			k.settings.Logger.Warn("questions about incidents are not answered there; "+remedy, zap.Error(err))
			componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(err))
		}
		said = true
		select {
		case <-ctx.Done():
		case <-time.After(listenEvery):
		}
	}
}

// Shutdown ends all answers and closes the file. What was kept is there.
func (k *keeper) Shutdown(context.Context) error {
	k.stop()
	k.stop = func() {}
	err := k.store.Close()
	k.telemetry.Shutdown()
	return err
}
