package nvmlreceiver

import (
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/metadata"
)

// helperName is the file that `make build` puts beside the collector.
const helperName = "tracecore-nvml"

// NewFactory makes the factory of the nvml receiver.
func NewFactory() receiver.Factory { return newFactory(startHelper) }

// starter starts a helper that listens for events of these types.
type starter func(config *Config, events uint64) (gpu.Session, error)

// newFactory lets a test bring its own helper.
func newFactory(start starter) receiver.Factory {
	registry := gpu.NewRegistry(func(settings receiver.Settings, config component.Config) (gpu.Parts, error) {
		return parts(settings, config.(*Config), start)
	})
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithLogs(registry.CreateLogs, metadata.LogsStability),
		receiver.WithMetrics(registry.CreateMetrics, metadata.MetricsStability),
	)
}

func startHelper(config *Config, events uint64) (gpu.Session, error) {
	return gpu.StartHelper(helperName, config.Helper, []string{
		"-library=" + config.Library, fmt.Sprintf("-events=%d", events), "-call-timeout=" + config.CallTimeout.String(),
	}, nil)
}

// parts is what NVML brings to the monitor.
func parts(settings receiver.Settings, config *Config, start starter) (gpu.Parts, error) {
	builder, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return gpu.Parts{}, err
	}
	meanings, err := catalogue.Load()
	if err != nil {
		return gpu.Parts{}, err
	}
	return gpu.Parts{
		Config: &config.Config, Identity: config.Identity, States: states(), Telemetry: telemetry(builder),
		Convert: newConverter(config, settings, meanings, record.ThisHost()),
		Start: func(listen bool) (gpu.Session, error) {
			if !listen {
				return start(config, 0)
			}
			return start(config, eventTypes(config.Events))
		},
	}, nil
}

// eventTypes are those that somebody wants to hear of.
func eventTypes(events metadata.EventsConfig) (types uint64) {
	for _, event := range []struct {
		wanted bool
		types  uint64
	}{
		{events.GpuXid.Enabled, nvml.EventXid},
		{events.GpuEcc.Enabled, nvml.EventECCCorrected | nvml.EventECCUncorrected},
		{events.GpuClockChange.Enabled, nvml.EventClock},
	} {
		if event.wanted {
			types |= event.types
		}
	}
	return types
}

func states() []gpu.State {
	return gpu.States(
		gpu.State{Name: gpu.Absent, Quiet: true, Advice: "libnvidia-ml.so.1 cannot be loaded: install the driver's libraries, in a container let NVIDIA's runtime add them, or set library"},
		gpu.State{Name: wire.DriverNotLoaded, Quiet: true, Advice: "the library is there, the kernel driver is not: load the nvidia module"},
	)
}

func telemetry(b *metadata.TelemetryBuilder) *gpu.Telemetry {
	return &gpu.Telemetry{
		CallFailures: b.ReceiverNvmlCallFailures, EventsLost: b.ReceiverNvmlEventsLost, Hangs: b.ReceiverNvmlHangs,
		HelperExits: b.ReceiverNvmlHelperExits, ProcessesSkipped: b.ReceiverNvmlProcessesSkipped,
		RecordsDropped: b.ReceiverNvmlRecordsDropped, PollTime: b.ReceiverNvmlPollTime,
		ObserveState: b.RegisterReceiverNvmlStateCallback, ObserveGPUs: b.RegisterReceiverNvmlGpusCallback, Shutdown: b.Shutdown,
	}
}
