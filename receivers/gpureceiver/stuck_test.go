package gpureceiver

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/process"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// immortal is a helper that hangs and cannot be killed before it is gone.
type immortal struct {
	messages chan protocol.Message
	gone     chan struct{}
}

func (h *immortal) Messages() <-chan protocol.Message { return h.messages }
func (h *immortal) Gone() <-chan struct{}             { return h.gone }
func (h *immortal) Poll() error                       { return nil }
func (h *immortal) Close() string                     { return "stuck" }

func TestHelperThatCannotBeKilledIsTheOnlyOne(t *testing.T) {
	for _, source := range []Source{NVML, Auto} {
		t.Run(string(source), func(t *testing.T) {
			var helpers []*immortal
			m, _ := makeMonitor(t, func(*Config, task) (process.Session, error) {
				h := &immortal{messages: make(chan protocol.Message, 2), gone: make(chan struct{})}
				h.messages <- protocol.Message{State: &protocol.State{Name: protocol.Ready}}
				h.messages <- protocol.Message{Hung: &protocol.Hung{Call: "energy"}}
				helpers = append(helpers, h)
				return h, nil
			}, receivertest.NewNopSettings(metadata.Type), func(c *Config) { c.Source = source })
			m.host = componenttest.NewNopHost()
			for range 10 {
				require.False(t, m.round())
			}
			require.Len(t, helpers, 1, "not of the other source either")
			require.Equal(t, hung, m.condition.Load().name)
			require.Contains(t, m.condition.Load().says(), "energy")

			close(helpers[0].gone) // the driver let go of it
			require.False(t, m.round())
			require.Len(t, helpers, 2)
		})
	}
}
