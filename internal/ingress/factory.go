package ingress

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/xreceiver"

	"github.com/tracecoreai/tracecore/internal/peer"
	"github.com/tracecoreai/tracecore/internal/thishost"
)

// Source says where a receiver has its data from.
type Source int

const (
	// Network: others send to it.
	Network Source = iota
	// Node: it reads what its configuration names, on its node.
	Node
)

// Wrap returns the factory of a receiver that is not ours, whose receivers mark all that
// they hand on. A signal that this package does not know has no way in.
func Wrap(f receiver.Factory, source Source) receiver.Factory {
	w := wrapped{f, source}
	options := []xreceiver.FactoryOption{
		xreceiver.WithLogs(w.logs, f.LogsStability()),
		xreceiver.WithMetrics(w.metrics, f.MetricsStability()),
		xreceiver.WithTraces(w.traces, f.TracesStability()),
	}
	if a, ok := f.(interface{ DeprecatedAlias() component.Type }); ok && a.DeprecatedAlias().String() != "" {
		options = append(options, xreceiver.WithDeprecatedTypeAlias(a.DeprecatedAlias()))
	}
	return xreceiver.NewFactory(f.Type(), w.config, options...)
}

type wrapped struct {
	receiver.Factory
	source Source
}

// config is the receiver's own, with our key where others send.
func (w wrapped) config() component.Config {
	if w.source == Node {
		return w.CreateDefaultConfig()
	}
	return &config{inner: w.CreateDefaultConfig()}
}

func (w wrapped) logs(ctx context.Context, settings receiver.Settings, cfg component.Config, next consumer.Logs) (receiver.Logs, error) {
	s, inner, err := w.stage(settings, cfg)
	if err != nil {
		return nil, err
	}
	marked, err := consumer.NewLogs(func(ctx context.Context, ld plog.Logs) error {
		s.batch(ctx).logs(ld)
		return next.ConsumeLogs(ctx, ld)
	}, mutates)
	if err != nil {
		return nil, err
	}
	r, err := w.CreateLogs(ctx, settings, inner, marked)
	return starting(s, r), err
}

func (w wrapped) metrics(ctx context.Context, settings receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	s, inner, err := w.stage(settings, cfg)
	if err != nil {
		return nil, err
	}
	marked, err := consumer.NewMetrics(func(ctx context.Context, md pmetric.Metrics) error {
		s.batch(ctx).metrics(md)
		return next.ConsumeMetrics(ctx, md)
	}, mutates)
	if err != nil {
		return nil, err
	}
	r, err := w.CreateMetrics(ctx, settings, inner, marked)
	return starting(s, r), err
}

func (w wrapped) traces(ctx context.Context, settings receiver.Settings, cfg component.Config, next consumer.Traces) (receiver.Traces, error) {
	s, inner, err := w.stage(settings, cfg)
	if err != nil {
		return nil, err
	}
	marked, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
		s.batch(ctx).traces(td)
		return next.ConsumeTraces(ctx, td)
	}, mutates)
	if err != nil {
		return nil, err
	}
	r, err := w.CreateTraces(ctx, settings, inner, marked)
	return starting(s, r), err
}

// started is a receiver whose stage learns at its start who knows the jobs of this machine.
type started struct {
	component.Component
	stage *stage
}

func starting(s *stage, r component.Component) component.Component {
	if r == nil {
		return nil
	}
	return started{r, s}
}

// Start implements component.Component.
func (r started) Start(ctx context.Context, host component.Host) error {
	for _, x := range host.GetExtensions() {
		if d, ok := x.(peer.Domains); ok {
			r.stage.domains.Store(&d)
		}
	}
	return r.Component.Start(ctx, host)
}

var mutates = consumer.WithCapabilities(consumer.Capabilities{MutatesData: true})

// stage is what marks the data of one receiver; with it comes the receiver's own
// configuration.
func (w wrapped) stage(settings receiver.Settings, cfg component.Config) (*stage, component.Config, error) {
	name, err := thishost.Name()
	if err != nil {
		return nil, nil, err
	}
	s := &stage{source: w.source, here: machine{host: name, node: thishost.Node()}, makers: readEvents()}
	if own, ok := cfg.(*config); ok {
		s.senders, cfg = own.senders, own.inner
	}
	s.told, err = newTold(settings)
	return s, cfg, err
}
