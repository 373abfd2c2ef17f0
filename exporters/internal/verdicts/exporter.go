package verdicts

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/keeper"
)

// Exporter makes an exporter of verdicts whose queue hands them to consume. The options say its
// queue, its attempts, its start and its shutdown.
func (t *Turns) Exporter(ctx context.Context, set exporter.Settings, config component.Config, consume consumer.ConsumeLogsFunc, options ...exporterhelper.Option) (exporter.Logs, error) {
	options = append(options, exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: false}))
	queued, err := exporterhelper.NewLogs(ctx, set, config, consume, options...)
	if err != nil {
		return nil, err
	}
	return &only{queued, t}, nil
}

// only lets nothing but verdicts into the queue of an exporter, and while its receiver is away
// none that is told again: they would fill the queue, and are told again when it is back.
type only struct {
	exporter.Logs
	turns *Turns
}

// ConsumeLogs implements consumer.Logs.
func (o *only) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	all := o.turns.read(ctx, ld)
	if o.turns.Waits() {
		all = slices.DeleteFunc(all, func(f Found) bool { return f.Repeated })
	}
	if len(all) == 0 {
		return nil
	}
	return o.Logs.ConsumeLogs(ctx, Write(all))
}

// QueueProblems are the settings of a queue with which an exporter whose receiver is away
// holds up all others, or takes verdicts out of their order.
func QueueProblems(of configoptional.Optional[exporterhelper.QueueBatchConfig]) (problems []error) {
	queue := of.Get()
	if queue == nil {
		return []error{errors.New("sending_queue: enabled: must be true, or a receiver that is away holds up all other exporters")}
	}
	if queue.NumConsumers != 1 {
		problems = append(problems, errors.New("sending_queue: num_consumers: must be 1, or an old revision of a verdict could come after a new one"))
	}
	if queue.BlockOnOverflow || queue.WaitForResult {
		problems = append(problems, errors.New("sending_queue: block_on_overflow and wait_for_result: must be false, or a receiver that is away holds up all other exporters"))
	}
	return problems
}

// Storage is where an exporter with that queue keeps something under a name: where the queue
// is kept, too; nil where that is nowhere.
func Storage(ctx context.Context, host component.Host, id component.ID, of configoptional.Optional[exporterhelper.QueueBatchConfig], name string) (storage.Client, error) {
	queue := of.Get()
	if queue == nil || queue.StorageID == nil {
		return nil, nil
	}
	extension, err := keeper.Find(host, queue.StorageID)
	if err != nil {
		return nil, err
	}
	return extension.GetClient(ctx, component.KindExporter, id, name)
}
