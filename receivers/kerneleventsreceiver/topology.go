package kerneleventsreceiver

import (
	"cmp"
	"os"
	"time"

	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/kernellog"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/topology"
)

// rereadTopology is how old the tree may be when a fault on it is looked up:
// devices come and go with resets, and reading it takes milliseconds.
const rereadTopology = time.Minute

// topologies gives the PCIe tree, read at the start and again when a fault needs
// it and it is old. A device that has left the tree since stays known: it is the
// one that the fault is about.
type topologies struct {
	root    string
	tree    topology.Tree
	read    time.Time
	earlier topology.Tree
}

// sysRoot is where the sysfs of the host is.
func sysRoot() string { return cmp.Or(os.Getenv("HOST_SYS"), "/sys") }

func newTopologies(now time.Time) *topologies {
	root := sysRoot()
	return &topologies{root: root, tree: topology.Read(root), read: now}
}

func (t *topologies) refresh(now time.Time) {
	if now.Sub(t.read) >= rereadTopology {
		t.earlier, t.tree, t.read = t.tree, topology.Read(t.root), now
	}
}

func (t *topologies) gpus(address string) []string {
	if gpus := t.tree.GPUs(address); len(gpus) > 0 {
		return gpus
	}
	return t.earlier.GPUs(address)
}

func (t *topologies) rdmaDevice(address string) string {
	if name := t.tree.RDMADevice(address); name != "" {
		return name
	}
	return t.earlier.RDMADevice(address)
}

// locate appends to located what faults say once the tree was asked: an error of
// a PCIe port becomes one of each GPU below it, a link gets the RDMA name that
// other telemetry calls it by.
func (t *topologies) locate(located, faults []kernellog.Fault, now time.Time) []kernellog.Fault {
	for _, fault := range faults {
		switch a := fault.Event.(type) {
		case metadata.PcieError:
			t.refresh(now)
			located = appendPerGPU(located, fault, a, t.gpus(fault.Key.Subject))
		case metadata.NetworkLink:
			t.refresh(now)
			a.NetworkRdmaDevice(t.rdmaDevice(fault.Key.Subject))
			located = append(located, fault)
		case metadata.NetworkModuleFault:
			t.refresh(now)
			a.NetworkRdmaDevice(t.rdmaDevice(fault.Key.Subject))
			located = append(located, fault)
		default:
			located = append(located, fault)
		}
	}
	return located
}

// appendPerGPU appends fault once for each GPU, or as it is where none is below.
func appendPerGPU(faults []kernellog.Fault, fault kernellog.Fault, a metadata.PcieError, gpus []string) []kernellog.Fault {
	if len(gpus) == 0 {
		return append(faults, fault)
	}
	for _, gpu := range gpus {
		one := fault
		one.Key.Part += " " + gpu
		below := metadata.PcieErrorOn(a.Attributes().Copy())
		below.GpuID(gpu)
		one.Event = below
		faults = append(faults, one)
	}
	return faults
}
