package heartbeatreceiver

import (
	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/heartbeatreceiver/internal/metadata"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig `mapstructure:",squash"`

	// Identity is the id of the identity extension. It knows which receivers work, and of
	// which jobs there are ranks here. Without it a heartbeat says neither.
	Identity *component.ID `mapstructure:"identity"`
}

func createDefaultConfig() component.Config {
	return &Config{LogsBuilderConfig: metadata.DefaultLogsBuilderConfig()}
}
