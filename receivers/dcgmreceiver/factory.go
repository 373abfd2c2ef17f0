package dcgmreceiver

import (
	"fmt"
	"os"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tracecoreai/tracecore/receivers/dcgmreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// helperName is the file that `make build` puts beside the collector.
const helperName = "tracecore-dcgm"

// NewFactory makes the factory of the dcgm receiver.
func NewFactory() receiver.Factory { return newFactory(startHelper) }

// starter starts a helper, that listens for events.
type starter func(config *Config, listen bool) (gpu.Session, error)

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

func startHelper(config *Config, listen bool) (gpu.Session, error) {
	return gpu.StartHelper(helperName, config.Helper, []string{
		"-endpoint=" + config.Endpoint, "-every=" + config.CollectionInterval.String(), fmt.Sprintf("-profiling=%t", config.Profiling),
		fmt.Sprintf("-health=%t", config.Health), fmt.Sprintf("-listen=%t", listen), "-policies=" + strings.Join(config.Policies, ","),
		"-call-timeout=" + config.CallTimeout.String(),
	}, environment(config.LibraryFolder))
}

// environment lets the dynamic linker find the library: go-dcgm asks for it by
// its name alone.
func environment(folder string) []string {
	if folder == "" {
		return nil
	}
	if others := os.Getenv("LD_LIBRARY_PATH"); others != "" {
		folder += ":" + others
	}
	return []string{"LD_LIBRARY_PATH=" + folder}
}

// parts is what DCGM brings to the monitor.
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
		Config: &config.Config, States: states(), Telemetry: telemetry(builder),
		Convert: newConverter(config, settings, meanings, record.ThisHost()),
		Start:   func(listen bool) (gpu.Session, error) { return start(config, listen) },
	}, nil
}

// states has those that a host engine can be in beside the library's. A node
// without DCGM is healthy; one whose engine cannot be reached is not, since this
// receiver was configured to read it.
func states() []gpu.State {
	return gpu.States(
		gpu.State{Name: gpu.Absent, Quiet: true, Advice: "libdcgm.so.4 cannot be loaded: install DCGM 4 (datacenter-gpu-manager-4-core), or set library_folder"},
		gpu.State{Name: wire.EngineAbsent, Advice: "the host engine cannot be reached (%s): start nvidia-dcgm.service (nv-hostengine), or set endpoint"},
		gpu.State{Name: wire.ConnectionLost, Advice: "the connection to the host engine broke (%s): look whether nv-hostengine still runs (journalctl -u nvidia-dcgm)"},
	)
}

func telemetry(b *metadata.TelemetryBuilder) *gpu.Telemetry {
	return &gpu.Telemetry{
		CallFailures: b.ReceiverDcgmCallFailures, EventsLost: b.ReceiverDcgmEventsLost, Hangs: b.ReceiverDcgmHangs,
		HelperExits: b.ReceiverDcgmHelperExits, ProcessesSkipped: noop.Int64Counter{}, // DCGM lists no processes
		RecordsDropped: b.ReceiverDcgmRecordsDropped, PollTime: b.ReceiverDcgmPollTime,
		ObserveState: b.RegisterReceiverDcgmStateCallback, ObserveGPUs: b.RegisterReceiverDcgmGpusCallback, Shutdown: b.Shutdown,
	}
}
