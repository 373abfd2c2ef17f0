package verdicts

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/keeper"
)

// Apply applies the verdicts of ld in their order, until one fails. That one and those
// behind it are the error's, for the next attempt. invalid is called as Read calls it.
func Apply(ld plog.Logs, invalid func(), apply func(*Found) error) error {
	all := Read(ld, invalid)
	for i := range all {
		if err := apply(&all[i]); err != nil {
			return consumererror.NewLogs(err, Write(all[i:]))
		}
	}
	return nil
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
