package filestorageextension

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/tracecoreai/tracecore/extensions/filestorageextension/internal/metadata"
)

// NewFactory makes the factory of the file_storage extension.
func NewFactory() extension.Factory {
	create := func(_ context.Context, settings extension.Settings, config component.Config) (extension.Extension, error) {
		return newFileStorage(settings, config.(*Config))
	}
	return extension.NewFactory(metadata.Type, createDefaultConfig, create, metadata.ExtensionStability)
}
