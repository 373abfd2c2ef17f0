package kernellog

import (
	"strings"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// parseNetwork reads the lines of the mlx5 drivers: "mlx5_core 0000:5e:00.0
// ibs3: Port: 1 Link DOWN", "infiniband mlx5_0: Port: 1 Link ACTIVE", "mlx5_core
// 0000:5e:00.0 enp94s0f0np0: Link up" and "mlx5_core 0000:5c:00.0: Port module
// event[error]: module 0, Cable error, High Temperature" (drivers/net/ethernet/
// mellanox/mlx5/core/events.c).
func (p *Parser) parseNetwork(faults []Fault, l line) ([]Fault, Outcome) {
	if !strings.Contains(l.text, "mlx5") {
		return faults, Unrecognized
	}
	if _, rest, found := strings.Cut(l.text, "Port module event[error]: module "); found {
		return p.moduleFault(faults, l, rest)
	}
	before, word, found := strings.Cut(l.text, "Link ")
	if state := linkState(word); found && state != "" {
		return append(faults, p.linkChange(l, before, state)), Reported
	}
	if strings.Contains(l.text, "Port module event") || strings.Contains(l.text, "power on the PCIe slot") ||
		strings.Contains(l.text, "sufficient power") {
		return faults, Benign
	}
	return faults, Unrecognized
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

func (p *Parser) linkChange(l line, before, state string) Fault {
	address, name := pciIn(before), interfaceName(before)
	a := metadata.NetworkLinkOn(record.Early())
	f := l.fault(a, address)
	f.State, f.Key.Part = state, name
	f.judge(p.catalogue.Fault("link_" + state))
	a.HwPciAddress(address)
	a.NetworkInterfaceName(name)
	a.NetworkLinkState(state)
	if digits, found := between(before, "Port: ", " "); found {
		if port, _, ok := number(digits); ok {
			f.Key.SubCode = port
			a.NetworkPort(int64(port))
		}
	}
	return f
}

// interfaceName returns the last word before the first ": " that follows the
// driver's prefix and is no PCI address.
func interfaceName(before string) string {
	name := ""
	for word := range strings.FieldsSeq(before) {
		bare, ends := strings.CutSuffix(word, ":")
		if ends && bare != "Port" && !strings.Contains(bare, ":") && !strings.HasSuffix(bare, "]") {
			name = bare
		}
	}
	return name
}

func (p *Parser) moduleFault(faults []Fault, l line, rest string) ([]Fault, Outcome) {
	module, rest, ok := number(rest)
	if !ok {
		return faults, Unrecognized
	}
	address := pciIn(l.text)
	reason := strings.TrimPrefix(strings.TrimLeft(rest, ", "), "Cable error, ")
	a := metadata.NetworkModuleFaultOn(record.Early())
	f := l.fault(a, address)
	f.Key.Code, f.Key.Part = module, reason
	f.judge(p.catalogue.Fault(metadata.EventNetworkModuleFault))
	a.HwPciAddress(address)
	a.NetworkModule(int64(module))
	a.NetworkModuleError(reason)
	return append(faults, f), Reported
}
