// Package pipeline runs a whole collector inside this process, with every component
// of the distribution. It hands each batch that reaches the end of its log pipelines
// to a function. Drills, benchmarks and the acceptance tests use it: what they see
// went the way it goes in production.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/distro/internal/components"
)

// Sink is given each batch of records that arrives, and when. It must not keep
// the batch, and is called by several goroutines at once.
type Sink func(at time.Time, records plog.Logs)

// Pipeline is a running collector.
type Pipeline struct {
	collector *otelcol.Collector
	done      chan struct{}
	err       error // of the run; read after done
}

// Start runs a collector with this configuration, in which the exporter `sink`
// is the function given, and returns when it is ready or has failed.
func Start(ctx context.Context, config string, sink Sink) (*Pipeline, error) {
	collector, err := otelcol.NewCollector(settings(config, sink))
	if err != nil {
		return nil, fmt.Errorf("make the pipeline: %w", err)
	}
	p := &Pipeline{collector: collector, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		// Its end is Stop's business, not the caller's context's.
		p.err = collector.Run(context.WithoutCancel(ctx))
	}()
	return p, p.ready(ctx)
}

// ready waits until every component has started.
func (p *Pipeline) ready(ctx context.Context) error {
	const poll = 2 * time.Millisecond // the collector has no signal for "running"
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for p.collector.GetState() != otelcol.StateRunning {
		select {
		case <-p.done:
			return errors.Join(p.err, errStopped(p.err))
		case <-ctx.Done():
			return errors.Join(ctx.Err(), p.Stop())
		case <-ticker.C:
		}
	}
	return nil
}

func errStopped(err error) error {
	if err != nil {
		return nil
	}
	return errors.New("the pipeline ended before it was ready")
}

// Stop shuts the collector down and returns how its run ended. Calling it again
// is fine.
func (p *Pipeline) Stop() error {
	p.collector.Shutdown()
	<-p.done
	return p.err
}

func settings(config string, sink Sink) otelcol.CollectorSettings {
	return otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "tracecore", Description: "a pipeline inside a command", Version: "0"},
		Factories: func() (otelcol.Factories, error) {
			factories, err := components.Factories()
			if err != nil {
				return factories, err
			}
			f := sinkFactory(sink)
			factories.Exporters[f.Type()] = f
			return factories, nil
		},
		DisableGracefulShutdown: true, // the command's own signals end it
		SkipSettingGRPCLogger:   true,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs:              []string{"yaml:" + config},
			ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
		}},
	}
}

// sinkExporter hands records to a Sink.
type sinkExporter struct {
	component.StartFunc
	component.ShutdownFunc
	sink Sink
}

func (e sinkExporter) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (e sinkExporter) ConsumeLogs(_ context.Context, records plog.Logs) error {
	e.sink(time.Now(), records)
	return nil
}

func sinkFactory(sink Sink) exporter.Factory {
	return exporter.NewFactory(component.MustNewType("sink"),
		func() component.Config { return &struct{}{} },
		exporter.WithLogs(func(context.Context, exporter.Settings, component.Config) (exporter.Logs, error) {
			return sinkExporter{sink: sink}, nil
		}, component.StabilityLevelDevelopment))
}
