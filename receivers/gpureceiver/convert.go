package gpureceiver

import (
	"time"

	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/inventory"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/storm"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// vendor of all GPUs that NVML and DCGM know, as attributes have it.
const vendor = "nvidia"

// converter turns faults and readings into records. It is pure but for the
// builders' buffers, and not safe for concurrent use.
type converter struct {
	logs     *metadata.LogsBuilder
	metrics  *metadata.MetricsBuilder
	meanings *catalogue.Catalogue
	resolver identity.Resolver // nil: nobody knows processes
}

func newConverter(config *Config, settings receiver.Settings, meanings *catalogue.Catalogue, host record.Host) *converter {
	c := &converter{
		logs: metadata.NewLogsBuilder(config.LogsBuilderConfig, settings), metrics: metadata.NewMetricsBuilder(config.MetricsBuilderConfig, settings),
		meanings: meanings,
	}
	c.logs.SetHost(host)
	return c
}

// fault reads an event. One without its GPU is of no use. An Xid of an application
// whose process is not known would blame the next process that dies: the kernel's
// line has the pid.
func (c *converter) fault(e *protocol.Event, gpus *inventory.Inventory) (storm.Fault, bool) {
	gpu := gpus.Find(e.PCI)
	if gpu == nil {
		return storm.Fault{}, false
	}
	f := storm.Fault{PCI: gpu.PCI, GPUInstance: e.GPUInstance + 1, ComputeInstance: e.ComputeInstance + 1}
	switch e.Type {
	case device.EventXid:
		f.Event, f.XID = storm.Xid, e.Data
		f.PID, _ = gpu.Owner(e.GPUInstance, e.ComputeInstance)
		return f, f.PID != 0 || e.Data > 1<<16 || !c.meanings.Xid(uint32(e.Data)).Application
	case device.EventECCCorrected:
		f.Event, f.Kind = storm.ECC, device.ECCCorrected
	case device.EventECCUncorrected:
		f.Event, f.Kind = storm.ECC, device.ECCUncorrected
	case device.EventClock:
		f.Event = storm.Clock
	case protocol.EventPolicy:
		f.Event, f.Kind, f.Text = storm.Policy, e.Kind, e.Text
	default:
		return storm.Fault{}, false
	}
	return f, true
}

// process is who a pid is, or the pid alone.
func (c *converter) process(pid uint32, at time.Time) identity.Process {
	if c.resolver != nil {
		if p, known := c.resolver.Lookup(pid, 0, at); known {
			return p
		}
	}
	return identity.Process{PID: pid, Rank: identity.Unknown, LocalRank: identity.Unknown, WorldSize: identity.Unknown}
}
