package ingress

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
)

// told counts what senders may not say, and logs the first of each kind.
type told struct {
	logger   *zap.Logger
	receiver metric.MeasurementOption

	names, records           metric.Int64Counter
	firstRename, firstRefuse *sync.Once
}

func newTold(settings receiver.Settings) (told, error) {
	meter := settings.MeterProvider.Meter("github.com/tracecoreai/tracecore/internal/ingress")
	names, err := meter.Int64Counter("otelcol_ingress_renamed",
		metric.WithUnit("{name}"), metric.WithDescription("Names of tracecore's own that a sender may not use, and got the prefix foreign."))
	if err != nil {
		return told{}, err
	}
	records, err := meter.Int64Counter("otelcol_ingress_refused",
		metric.WithUnit("{record}"), metric.WithDescription("Records of an agent about a machine that is not its own."))
	return told{
		logger: settings.Logger, receiver: metric.WithAttributeSet(attribute.NewSet(attribute.String("receiver", settings.ID.String()))),
		names: names, records: records, firstRename: &sync.Once{}, firstRefuse: &sync.Once{},
	}, err
}

// renamed tells of a name that got the prefix.
func (t *told) renamed(ctx context.Context, kind, name string) {
	t.names.Add(ctx, 1, t.receiver)
	t.firstRename.Do(func() {
		const most = 100
		t.logger.Warn("a sender that has not proved to be an agent used a name of tracecore's own; all such names get the prefix foreign. "+
			"If it is an agent, let it authenticate: see the README of the agent_auth extension",
			zap.String("kind", kind), zap.String("name", name[:min(len(name), most)]))
	})
}

// refused tells of records about another machine than the sender's.
func (t *told) refused(ctx context.Context, records int, machine string) {
	t.records.Add(ctx, int64(records), t.receiver)
	t.firstRefuse.Do(func() {
		t.logger.Warn("an agent sent records about a machine that is not its own; all such records are left out",
			zap.String("agent", machine))
	})
}
