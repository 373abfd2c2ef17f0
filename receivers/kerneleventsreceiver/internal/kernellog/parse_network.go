package kernellog

import (
	"strings"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// networkWriters are the mlx5 drivers, and the core that tells of ports.
var networkWriters = writers{modules: []string{"mlx5_core", "mlx5_ib", "ib_core"}, functions: []string{"mlx5", "ib_"}}

// parseNetwork reads the lines of the mlx5 drivers: "mlx5_core 0000:5e:00.0
// ibs3: Port: 1 Link DOWN", "infiniband mlx5_0: Port: 1 Link ACTIVE", "mlx5_core
// 0000:5e:00.0 enp94s0f0np0: Link up" and "mlx5_core 0000:5c:00.0: Port module
// event[error]: module 0, Cable error, High Temperature" (drivers/net/ethernet/
// mellanox/mlx5/core/events.c).
func (p *assembler) parseNetwork(faults []Fault, l line) ([]Fault, Outcome) {
	d, rest, found := networkDevice(l.text)
	if !found {
		return faults, Unrecognized
	}
	if module, found := strings.CutPrefix(rest, "Port module event[error]: module "); found {
		return p.moduleFault(faults, l, d, module)
	}
	before, word, found := strings.Cut(rest, "Link ")
	if state := linkState(word); found && state != "" && (before == "" || strings.HasPrefix(before, "Port: ")) {
		return append(faults, p.linkChange(l, d, before, state)), Reported
	}
	if strings.HasPrefix(rest, "Port module event") || strings.Contains(rest, "power on the PCIe slot") ||
		strings.Contains(rest, "sufficient power") {
		return faults, Benign
	}
	return faults, Unrecognized
}

// networkPort is what a line is about.
type networkPort struct{ address, name string }

// networkDevice takes off the name of the device, and of the function that prints:
// "port_module:251:(pid 0): ".
func networkDevice(text string) (d networkPort, rest string, found bool) {
	if after, infiniband := strings.CutPrefix(text, "infiniband mlx5_"); infiniband {
		number, rest, found := strings.Cut(after, ": ")
		return networkPort{name: "mlx5_" + number}, rest, found && !strings.Contains(number, " ")
	}
	driver, address, name, rest := deviceLine(text)
	if driver != "mlx5_core" && driver != "mlx5_ib" {
		return networkPort{}, "", false
	}
	if function, after, numbered := strings.Cut(rest, ":(pid "); numbered && !strings.Contains(function, " ") {
		_, rest, _ = strings.Cut(after, "): ")
	}
	return networkPort{address, name}, rest, true
}

func linkState(word string) string {
	word, _, _ = strings.Cut(strings.ToLower(word), " ")
	switch strings.TrimRight(word, ".,!") {
	case "down":
		return "down"
	case "up", "active":
		return "up"
	}
	return ""
}

func (p *assembler) linkChange(l line, d networkPort, before, state string) Fault {
	a := metadata.NetworkLinkOn(record.Early())
	f := p.fault(l, a, d.address)
	f.State, f.Key.Part = state, d.name
	f.judge(p.catalogue.Fault("link_" + state))
	a.HwPciAddress(d.address)
	a.NetworkInterfaceName(d.name)
	a.NetworkLinkState(state)
	if port, _, ok := number(strings.TrimPrefix(before, "Port: ")); ok {
		f.Key.SubCode = port
		a.NetworkPort(int64(port))
	}
	return f
}

func (p *assembler) moduleFault(faults []Fault, l line, d networkPort, rest string) ([]Fault, Outcome) {
	module, rest, ok := number(rest)
	if !ok {
		return faults, Unrecognized
	}
	reason := strings.TrimPrefix(strings.TrimLeft(rest, ", "), "Cable error, ")
	a := metadata.NetworkModuleFaultOn(record.Early())
	f := p.fault(l, a, d.address)
	f.Key.Code, f.Key.Part = module, reason
	f.judge(p.catalogue.Fault(metadata.EventNetworkModuleFault))
	a.HwPciAddress(d.address)
	a.NetworkModule(int64(module))
	a.NetworkModuleError(reason)
	return append(faults, f), Reported
}
