package identityextension

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/extensions/identityextension/internal/metadata"
)

// NewFactory makes the factory of the identity extension.
func NewFactory() extension.Factory { return newFactory(openTracker) }

// newFactory lets a test bring its own tracker.
func newFactory(open func(identity.Options) (tracker, error)) extension.Factory {
	create := func(_ context.Context, settings extension.Settings, config component.Config) (extension.Extension, error) {
		return newExtension(settings, config.(*Config), open)
	}
	return extension.NewFactory(metadata.Type, createDefaultConfig, create, metadata.ExtensionStability)
}
