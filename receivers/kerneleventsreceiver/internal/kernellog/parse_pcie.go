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
// behind it.
func (p *assembler) parsePCIe(faults []Fault, l line) ([]Fault, Outcome) {
	_, address, _, rest := deviceLine(l.text)
	rest, announced := strings.CutPrefix(rest, "AER: ")
	if address == "" {
		return faults, Unrecognized
	}
	rest, found := strings.CutPrefix(rest, "PCIe Bus Error: severity=")
	if !found {
		if announced {
			return faults, Benign // announces the record above, or adds a register to it
		}
		return faults, Unrecognized
	}
	severity, rest, _ := strings.Cut(rest, ", ")
	kind, _ := between(rest, "type=", ",")
	name := aerSeverity(severity)
	a := metadata.PcieErrorOn(record.Early())
	f := p.fault(l, a, address)
	f.Key.Part = name + " " + kind
	f.judge(p.catalogue.Fault("pcie_" + name))
	a.HwPciAddress(address)
	a.KerneleventsReportedSeverity(name)
	a.KerneleventsPcieErrorType(kind)
	return append(faults, f), Reported
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
