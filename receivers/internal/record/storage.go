package record

import (
	"context"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"

	"github.com/tracecoreai/tracecore/internal/keeper"
)

// Storage opens the storage of the receiver self; nil without one.
func Storage(ctx context.Context, host component.Host, id *component.ID, self component.ID) (storage.Client, error) {
	extension, err := keeper.Find(host, id)
	if err != nil || extension == nil {
		return nil, err
	}
	client, err := extension.GetClient(ctx, component.KindReceiver, self, "")
	if err != nil {
		return nil, fmt.Errorf("storage %q: %w", id, err)
	}
	return client, nil
}
