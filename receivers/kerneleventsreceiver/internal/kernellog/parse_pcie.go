package kernellog

import (
	"strings"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// pcieWriters are drivers/pci/pcie, which is never a module.
var pcieWriters = writers{functions: []string{"aer_", "__aer_", "pci_print_aer", "pcie_"}}

// parsePCIe reads "pcieport 0000:b0:02.0: AER: PCIe Bus Error: severity=Uncorrected
// (Fatal), type=Transaction Layer, (Requester ID)" (drivers/pci/pcie/aer.c). The
// address is that of the device or port that found the error, not of the GPU
// behind it. Linux 7.3 ends the line behind the severity, and says the type with each
// error in the lines that follow: "[ 0] RxErr | Receiver | Physical Layer".
func (p *assembler) parsePCIe(faults []Fault, l line) ([]Fault, Outcome) {
	_, address, _, rest := deviceLine(l.text)
	rest, announced := strings.CutPrefix(rest, "AER: ")
	if address == "" {
		return faults, Unrecognized
	}
	rest, found := strings.CutPrefix(rest, "PCIe Bus Error: severity=")
	if !found {
		return p.typePCIe(faults, l, address, strings.TrimLeft(rest, " "), announced)
	}
	severity, rest, typed := strings.Cut(rest, ", ")
	name := aerSeverity(severity)
	a := metadata.PcieErrorOn(record.Early())
	f := p.fault(l, a, address)
	f.Key.Part = name
	f.judge(p.catalogue.Fault("pcie_" + name))
	a.HwPciAddress(address)
	a.KerneleventsReportedSeverity(name)
	kind, _ := between(rest, "type=", ",")
	if strings.HasSuffix(severity, "(Inaccessible)") {
		kind, typed = "Inaccessible", true
	}
	if typed || strings.HasSuffix(severity, "(no details found)") {
		return append(faults, ofType(f, kind)), Reported
	}
	waiting := len(faults)
	if old, open := p.ports.get(address); open {
		faults = append(faults, ofType(old, ""))
		p.ports.remove(address)
	}
	if forgotten, full := p.ports.set(address, f, l.Time); full {
		faults = append(faults, ofType(forgotten, ""))
	}
	if len(faults) > waiting {
		return faults, Reported
	}
	return faults, Benign
}

// typePCIe reads what follows an error: its first type completes it.
func (p *assembler) typePCIe(faults []Fault, l line, address, rest string, announced bool) ([]Fault, Outcome) {
	f, open := p.ports.recent(address, l.Time)
	columns := strings.Split(rest, " | ")
	if open && strings.HasPrefix(rest, "[") && len(columns) == 3 {
		kind, _, _ := strings.Cut(columns[2], " (First)")
		p.ports.remove(address)
		return append(faults, ofType(f, strings.TrimRight(kind, " "))), Reported
	}
	if announced {
		return faults, Benign // announces an error, or adds a register to it
	}
	return faults, Unrecognized
}

// ofType says the type of an error of a port, "" where the driver does not.
func ofType(f Fault, kind string) Fault {
	f.Key.Part += " " + kind
	if a, ok := f.Event.(metadata.PcieError); ok {
		a.KerneleventsPcieErrorType(kind)
	}
	return f
}

// aerSeverity names what kernels print as Corrected, Correctable, "Uncorrected
// (Non-Fatal)" and "Uncorrectable (Fatal)" (aer_error_severity_string).
func aerSeverity(text string) string {
	switch {
	case strings.HasPrefix(text, "Correct"):
		return "corrected"
	case strings.Contains(text, "Non-Fatal"):
		return "nonfatal"
	case strings.Contains(text, "Fatal"):
		return "fatal"
	}
	return "unknown"
}
