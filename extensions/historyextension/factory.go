package historyextension

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/tracecoreai/tracecore/extensions/historyextension/internal/metadata"
)

// NewFactory makes the factory of the history extension.
func NewFactory() extension.Factory {
	create := func(_ context.Context, settings extension.Settings, config component.Config) (extension.Extension, error) {
		return newKeeper(settings, config.(*Config), time.Now)
	}
	return extension.NewFactory(metadata.Type, createDefaultConfig, create, metadata.ExtensionStability)
}
