package components_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/distro/internal/components"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver"
)

// A storm leaves the receiver late on purpose; the detector must not drop it.
func TestTheDetectorWaitsForTheLongestStorm(t *testing.T) {
	factories, err := components.Factories()
	require.NoError(t, err)
	receiver := factories.Receivers[component.MustNewType("kernelevents")].CreateDefaultConfig().(*kerneleventsreceiver.Config)
	detector := factories.Processors[component.MustNewType("patterndetector")].CreateDefaultConfig().(*patterndetectorprocessor.Config)
	require.Greater(t, detector.Lateness, receiver.Fold.Longest+receiver.Fold.Quiet)
}
