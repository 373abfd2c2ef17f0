package gpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/goleak"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stuckHelper hangs, and cannot be killed before it is gone.
type stuckHelper struct {
	messages chan wire.Message
	gone     chan struct{}
}

func (h *stuckHelper) Messages() <-chan wire.Message { return h.messages }
func (h *stuckHelper) Gone() <-chan struct{}         { return h.gone }
func (h *stuckHelper) Poll() error                   { return nil }
func (h *stuckHelper) Close() string                 { return "stuck" }

func quietTelemetry() *Telemetry {
	none := func(metric.Int64Callback) error { return nil }
	return &Telemetry{
		CallFailures: noop.Int64Counter{}, EventsLost: noop.Int64Counter{}, Hangs: noop.Int64Counter{}, HelperExits: noop.Int64Counter{},
		ProcessesSkipped: noop.Int64Counter{}, RecordsDropped: noop.Int64Counter{}, PollTime: noop.Float64Counter{},
		ObserveState: none, ObserveGPUs: none, Shutdown: func() {},
	}
}

func TestHelperThatCannotBeKilledIsTheOnlyOne(t *testing.T) {
	started := 0
	helper := func() (Session, error) {
		started++
		h := &stuckHelper{messages: make(chan wire.Message, 2), gone: make(chan struct{})}
		h.messages <- wire.Message{State: &wire.State{Name: Ready}}
		h.messages <- wire.Message{Hung: &wire.Hung{Call: "energy"}}
		return h, nil
	}
	config := DefaultConfig()
	m, err := newMonitor(receivertest.NewNopSettings(component.MustNewType("nvml")), Parts{
		Config: &config, States: States(), Telemetry: quietTelemetry(), Convert: &Converter{},
		Start: func(bool) (Session, error) { return helper() },
	})
	require.NoError(t, err)
	m.host = componenttest.NewNopHost()
	require.False(t, m.one())
	for range 10 {
		require.False(t, m.one())
	}
	require.Equal(t, 1, started)
	require.Equal(t, Hung, m.Condition().Name)
	require.Contains(t, m.Condition().Says(), "energy")

	gone := make(chan struct{})
	close(gone)
	m.stuck = []<-chan struct{}{gone} // the driver let go of it
	require.False(t, m.one())
	require.Equal(t, 2, started)
}

func TestAHealthWatchIsToldWhenItChanges(t *testing.T) {
	c := NewCards(time.Second)
	ill := func(incidents ...wire.Incident) []Fault {
		c.Update(snapshot(gpu("a", func(g *wire.GPU) { g.Health = incidents }), gpu("b")), start)
		return c.incidents()
	}
	warning, failure := wire.Incident{System: "memory", Text: "1 page"}, wire.Incident{System: "memory", Failed: true}
	require.Empty(t, ill())
	require.Equal(t, []Fault{{PCI: "a", Event: EventHealth, Kind: "memory", Text: "1 page"}}, ill(warning))
	warning.Text = "2 pages"
	require.Empty(t, ill(warning), "the same, said with other numbers")
	require.Equal(t, []Fault{{PCI: "a", Event: EventHealth, Kind: "memory", Failed: true}}, ill(warning, failure, failure))
	require.Empty(t, ill())
	require.Len(t, ill(warning), 1, "it came back")
}

func TestRatesOfLinksAreSummedUp(t *testing.T) {
	busy := gpu("a", func(g *wire.GPU) {
		g.Links = []wire.Link{{Number: 3, Values: map[nvml.LinkQuantity]uint64{nvml.LinkTransmitRate: 100}}}
	})
	c := NewCards(10 * time.Second)
	c.Update(snapshot(busy), start)
	_, any := c.Find("a").Summed(3, Transmit)
	require.False(t, any, "the first reading has no time behind it")
	c.Update(snapshot(busy), start.Add(10*time.Second))
	sum, _ := c.Find("a").Summed(3, Transmit)
	require.EqualValues(t, 1000, sum)
}
