package patterndetectorprocessor

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/tracecoreai/tracecore/internal/shared"
)

// instance is the detector's place in one pipeline.
type instance struct {
	detector        *detector
	share           *shared.Share[*detector]
	carriesVerdicts bool // of the logs pipeline
	started, left   bool // the service calls Start and Shutdown in turn
}

// Capabilities: records pass through as they are.
func (*instance) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: false}
}

// Start starts the detector with its first instance.
func (i *instance) Start(ctx context.Context, host component.Host) error {
	if i.detector.next == nil {
		return fmt.Errorf("%s is in no logs pipeline, so its verdicts cannot leave: name it in a logs pipeline too", i.detector.id)
	}
	if err := i.detector.start(ctx, host, i.carriesVerdicts); err != nil {
		return err
	}
	i.started = true
	return nil
}

// Shutdown stops the detector with its last instance. It may come before Start,
// and again.
func (i *instance) Shutdown(ctx context.Context) error {
	if i.left {
		return nil
	}
	i.left = true
	var err error
	if i.started {
		err = i.detector.stop(ctx, i.carriesVerdicts)
	}
	return errors.Join(err, i.leave())
}

func (i *instance) leave() error {
	return i.share.Leave(func() error {
		i.detector.telemetry.Shutdown()
		return nil
	})
}

type logsProcessor struct {
	*instance
	next consumer.Logs
}

// ConsumeLogs shows the records to the patterns, sends the verdicts they led to,
// then passes the records on. The patterns see records that the next consumer
// refuses too: a backend that is down must not blind them.
func (p *logsProcessor) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	shown := p.detector.logs(ctx, ld)
	err := p.next.ConsumeLogs(ctx, ld)
	if err != nil && !consumererror.IsPermanent(err) {
		p.detector.refused(shown)
	}
	return err
}

type metricsProcessor struct {
	*instance
	next consumer.Metrics
}

// ConsumeMetrics is ConsumeLogs for data points. Exemplars of stalls leave with the steps of
// their ranks.
func (p *metricsProcessor) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	p.detector.metrics(ctx, md)
	return p.next.ConsumeMetrics(ctx, p.detector.exemplarsInSteps(md))
}

type tracesProcessor struct {
	*instance
	next consumer.Traces
}

// ConsumeTraces notes the steps of ranks, then passes the spans on.
func (p *tracesProcessor) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	p.detector.traces(td)
	return p.next.ConsumeTraces(ctx, td)
}
