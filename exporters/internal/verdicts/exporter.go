package verdicts

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/extension/xextension/storage"

	"github.com/tracecoreai/tracecore/internal/keeper"
)

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
