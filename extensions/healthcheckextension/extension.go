package healthcheckextension

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/extension/extensioncapabilities"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/internal/gate"
)

// health is the extension.
type health struct {
	config   *Config
	settings component.TelemetrySettings
	ready    atomic.Bool
	server   *http.Server
	serving  sync.WaitGroup
}

var _ extensioncapabilities.PipelineWatcher = (*health)(nil)

// Start begins to answer: not ready, until the pipelines are.
func (h *health) Start(ctx context.Context, host component.Host) error {
	server, err := h.config.ToServer(ctx, host.GetExtensions(), h.settings, http.HandlerFunc(h.answer))
	if err != nil {
		return err
	}
	listener, err := gate.Patient(ctx, gate.Listen(&h.config.ServerConfig, h.config.MaxConnections), func(err error) {
		err = fmt.Errorf("listen on %s: %w; another program, perhaps a second tracecore, listens there: stop it, or set endpoint", h.config.NetAddr.Endpoint, err)
		h.settings.Logger.Warn("nobody can ask whether this process is well until the address is free", zap.Error(err))
		componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(err))
	}, func() {
		h.settings.Logger.Info("it can be asked again whether this process is well")
		componentstatus.ReportStatus(host, componentstatus.NewEvent(componentstatus.StatusOK))
	})
	if err != nil {
		return fmt.Errorf("listen on %s: %w", h.config.NetAddr.Endpoint, err)
	}
	h.server = server
	h.serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			componentstatus.ReportStatus(host, componentstatus.NewFatalErrorEvent(err))
		}
	})
	return nil
}

func (h *health) answer(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != h.config.Path:
		http.NotFound(w, r)
	case h.ready.Load():
		say(w, http.StatusOK, "Server available")
	default:
		say(w, http.StatusServiceUnavailable, "Server not available")
	}
}

func say(w http.ResponseWriter, code int, status string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, "{\"status\":%q}\n", status)
}

// Ready is called when all pipelines are up.
func (h *health) Ready() error {
	h.ready.Store(true)
	return nil
}

// NotReady is called before they stop.
func (h *health) NotReady() error {
	h.ready.Store(false)
	return nil
}

// Shutdown ends all connections.
func (h *health) Shutdown(context.Context) error {
	if h.server == nil {
		return nil
	}
	err := h.server.Close()
	h.serving.Wait()
	return err
}
