package otlpreceiver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/config/confignet"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/internal/gate"
	"github.com/tracecoreai/tracecore/receivers/otlpreceiver/internal/metadata"
)

// transport is one way in: gRPC or HTTP.
type transport struct {
	report *receiverhelper.ObsReport
	stop   func(context.Context) error // nil before it serves
}

// otlpReceiver serves all signals of one configuration.
type otlpReceiver struct {
	config    *otlpreceiver.Config
	settings  receiver.Settings
	telemetry *metadata.TelemetryBuilder
	budget    *shares
	turns     *turns
	gate      *shares
	exporters []exporter
	grpc      transport
	http      transport
	once      sync.Once // starts it
	serving   sync.WaitGroup
}

func newReceiver(settings receiver.Settings, config *otlpreceiver.Config) (*otlpReceiver, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	r := &otlpReceiver{config: config, settings: settings, telemetry: telemetry, budget: newBudget(requestShare), turns: newTurns(), gate: newGate()}
	for name, t := range map[string]*transport{"grpc": &r.grpc, "http": &r.http} {
		t.report, err = receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{
			ReceiverID: settings.ID, Transport: name, ReceiverCreateSettings: settings,
		})
		if err != nil {
			return nil, err
		}
	}
	return r, telemetry.RegisterReceiverOtlpConnectionsCallback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(r.gate.all())
		return nil
	})
}

// start listens on what is configured.
func (r *otlpReceiver) start(ctx context.Context, host component.Host) error {
	err := r.startGRPC(ctx, host)
	if err == nil {
		err = r.startHTTP(ctx, host)
	}
	if err != nil {
		return errors.Join(err, r.shutdown(ctx))
	}
	return nil
}

// listen listens where the configuration says, or as soon as the address is free.
func (r *otlpReceiver) listen(ctx context.Context, host component.Host, address confignet.AddrConfig) (net.Listener, error) {
	return gate.Patient(ctx, func(ctx context.Context) (net.Listener, error) { return listen(ctx, address) }, func(err error) {
		err = fmt.Errorf("%w; another program, perhaps a second tracecore, listens there: stop it, or set another endpoint", err)
		r.settings.Logger.Warn("nothing is received there until the address is free", zap.Error(err))
		componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(err))
	}, func() {
		r.settings.Logger.Info("records are received again", zap.String("address", address.Endpoint))
		componentstatus.ReportStatus(host, componentstatus.NewEvent(componentstatus.StatusOK))
	})
}

// bounded is a listener within the limits on connections.
func (r *otlpReceiver) bounded(inner net.Listener) net.Listener {
	return listener{inner, r.gate, func() { r.refuse(context.Background(), connections) }}
}

// serve runs a server until it is stopped.
func (r *otlpReceiver) serve(host component.Host, serve func() error, stopped error) {
	r.serving.Go(func() {
		if err := serve(); err != nil && !errors.Is(err, stopped) {
			componentstatus.ReportStatus(host, componentstatus.NewFatalErrorEvent(err))
		}
	})
}

// shutdown lets the requests under way end and takes no more.
func (r *otlpReceiver) shutdown(ctx context.Context) error {
	var err error
	for _, t := range []*transport{&r.http, &r.grpc} {
		if t.stop != nil {
			err = errors.Join(err, t.stop(ctx))
		}
	}
	r.serving.Wait()
	r.telemetry.Shutdown()
	return err
}

// reason says why something was refused, as metadata.yaml lists it.
type reason string

const (
	busy        reason = "busy"
	connections reason = "connections"
	malformed   reason = "malformed"
	tooCostly   reason = "too_costly"
	tooDeep     reason = "too_deep"
	tooLong     reason = "too_long"
)

func (r *otlpReceiver) refuse(ctx context.Context, why reason) {
	r.telemetry.ReceiverOtlpRefused.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", string(why))))
}
