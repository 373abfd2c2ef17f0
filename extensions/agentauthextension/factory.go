package agentauthextension

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/tracecoreai/tracecore/extensions/agentauthextension/internal/metadata"
)

// NewFactory makes the factory of the agent_auth extension.
func NewFactory() extension.Factory {
	create := func(_ context.Context, settings extension.Settings, config component.Config) (extension.Extension, error) {
		return newAgentAuth(settings, config.(*Config))
	}
	return extension.NewFactory(metadata.Type, func() component.Config { return &Config{} }, create, metadata.ExtensionStability)
}
