// Package selfmetrics serves tracecore's own metrics to a Prometheus that scrapes them,
// within limits on connections and questions. All else of the collector's telemetry is as
// the collector makes it. Its own server has limits on time alone.
package selfmetrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configtelemetry"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/service/telemetry"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
	"go.opentelemetry.io/contrib/otelconf/v0.3.0"
	"go.opentelemetry.io/otel"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/internal/gate"
)

// Limits of the server. Times are those of the collector's own server.
const (
	mostConnections = 64
	mostQuestions   = 4 // at once; each answer is all metrics as text
	patience        = time.Second
	readTimeout     = 5 * time.Second
	writeTimeout    = 10 * time.Second
	idleTimeout     = 2 * time.Minute
)

// Reading is the metrics that are served, for the components of this process. It is empty
// where none are.
type Reading struct {
	mu     sync.Mutex
	served prometheus.Gatherer
}

// Gather implements prometheus.Gatherer.
func (r *Reading) Gather() ([]*dto.MetricFamily, error) {
	r.mu.Lock()
	served := r.served
	r.mu.Unlock()
	if served == nil {
		return nil, nil
	}
	return served.Gather()
}

func (r *Reading) serve(from prometheus.Gatherer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served = from
}

// NewFactory is the collector's, with our server of metrics. Each reading has what is served.
func NewFactory(readings ...*Reading) telemetry.Factory {
	its := otelconftelemetry.NewFactory()
	return telemetry.NewFactory(its.CreateDefaultConfig,
		telemetry.WithCreateResource(its.CreateResource),
		telemetry.WithCreateLogger(its.CreateLogger),
		telemetry.WithCreateTracerProvider(its.CreateTracerProvider),
		telemetry.WithCreateMeterProvider(func(ctx context.Context, set telemetry.MeterSettings, config component.Config) (telemetry.MeterProvider, error) {
			c := config.(*otelconftelemetry.Config)
			served, others := split(c.Metrics.Readers)
			if len(served) == 0 || c.Metrics.Level == configtelemetry.LevelNone {
				return its.CreateMeterProvider(ctx, set, config)
			}
			return provide(ctx, set, c, served, others, readings)
		}))
}

// split separates the readers that we serve. One with labels of the resource is the
// collector's.
func split(readers []otelconf.MetricReader) (served []*otelconf.Prometheus, others []otelconf.MetricReader) {
	for _, r := range readers {
		if r.Pull != nil && r.Pull.Exporter.Prometheus != nil && r.Pull.Exporter.Prometheus.WithResourceConstantLabels == nil {
			served = append(served, r.Pull.Exporter.Prometheus)
		} else {
			others = append(others, r)
		}
	}
	return served, others
}

// provide makes the collector's meter provider with our readers.
func provide(ctx context.Context, set telemetry.MeterSettings, c *otelconftelemetry.Config, served []*otelconf.Prometheus, others []otelconf.MetricReader, readings []*Reading) (telemetry.MeterProvider, error) {
	if set.Resource == nil {
		return nil, errors.New("no resource of the collector")
	}
	if c.Metrics.Views == nil && set.DefaultViews != nil {
		c.Metrics.Views = set.DefaultViews(c.Metrics.Level)
	}
	var options []metric.Option
	var made []metric.Reader
	for _, one := range served {
		registry := prometheus.NewRegistry()
		reader, err := serve(ctx, one, registry, set.Logger)
		if err != nil {
			for _, m := range made {
				err = errors.Join(err, m.Shutdown(ctx))
			}
			return nil, err
		}
		made, options = append(made, reader), append(options, metric.WithReader(reader))
		for _, r := range readings {
			r.serve(registry)
		}
	}
	provider := c.Metrics.MeterProvider
	provider.Readers = others
	sdk, err := otelconf.NewSDK(otelconf.WithContext(ctx), otelconf.WithMeterProviderOptions(options...), otelconf.WithOpenTelemetryConfiguration(
		otelconf.OpenTelemetryConfiguration{Resource: resource(&c.Resource, set.Resource), MeterProvider: &provider}))
	if err != nil {
		for _, m := range made {
			err = errors.Join(err, m.Shutdown(ctx))
		}
		return nil, err
	}
	return sdk.MeterProvider().(telemetry.MeterProvider), nil
}

func resource(c *otelconftelemetry.ResourceConfig, of *pcommon.Resource) *otelconf.Resource {
	r := &otelconf.Resource{SchemaUrl: c.SchemaUrl}
	for name, value := range of.Attributes().All() {
		r.Attributes = append(r.Attributes, otelconf.AttributeNameValue{Name: name, Value: value.AsRaw()})
	}
	slices.SortFunc(r.Attributes, func(a, b otelconf.AttributeNameValue) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// server is a reader of metrics with the server that asks it.
type server struct {
	metric.Reader
	http *http.Server
}

// Shutdown ends both.
func (s server) Shutdown(ctx context.Context) error {
	return errors.Join(s.Reader.Shutdown(ctx), s.http.Shutdown(ctx))
}

func busy(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "too many questions at once: ask again", http.StatusServiceUnavailable)
}

// serve answers at /metrics.
func serve(ctx context.Context, c *otelconf.Prometheus, registry *prometheus.Registry, logger *zap.Logger) (metric.Reader, error) {
	if c.Host == nil || c.Port == nil {
		return nil, errors.New("service::telemetry::metrics: a reader for Prometheus needs host and port")
	}
	reader, err := otelprom.New(append(naming(c), otelprom.WithRegisterer(registry))...)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(strings.Trim(*c.Host, "[]"), strconv.Itoa(*c.Port))
	listener, err := gate.Patient(ctx, func(ctx context.Context) (net.Listener, error) {
		return new(net.ListenConfig).Listen(ctx, "tcp", address)
	},
		func(err error) {
			logger.Warn("metrics are not served until the address is free; another program, perhaps a second tracecore, listens there: stop it, or set service::telemetry::metrics", zap.Error(err))
		}, func() { logger.Info("metrics are served again", zap.String("address", address)) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("binding address %s for Prometheus exporter: %w", address, err), reader.Shutdown(ctx))
	}
	routes := http.NewServeMux()
	routes.Handle("/metrics", gate.Answers(mostQuestions, mostConnections, patience, promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}).ServeHTTP, busy))
	s := server{reader, &http.Server{Handler: routes, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, ConnContext: gate.InContext}}
	go func() {
		if err := s.http.Serve(gate.Share(listener, mostConnections)); !errors.Is(err, http.ErrServerClosed) {
			otel.Handle(fmt.Errorf("serve metrics on %s: %w", address, err))
		}
	}()
	return s, nil
}

// naming is how metrics are called, as otelconf has it.
func naming(c *otelconf.Prometheus) []otelprom.Option {
	is := func(b *bool) bool { return b != nil && *b }
	strategy := otlptranslator.NoUTF8EscapingWithSuffixes
	if is(c.WithoutTypeSuffix) && is(c.WithoutUnits) {
		strategy = otlptranslator.NoTranslation
	}
	options := []otelprom.Option{otelprom.WithTranslationStrategy(strategy)}
	if is(c.WithoutScopeInfo) {
		options = append(options, otelprom.WithoutScopeInfo())
	}
	return options
}
