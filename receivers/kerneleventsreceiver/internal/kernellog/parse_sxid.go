package kernellog

import (
	"strings"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// sxidKey names an SXid whose details may follow.
type sxidKey struct {
	device string
	code   uint32
}

// parseSXid reads "nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link
// 48 LTSSM Fault Up". The driver adds "20034, Severity 1 Engine instance 48
// Sub-engine instance 00" and "20034, Data {0x…}": one event, not three.
func (p *assembler) parseSXid(faults []Fault, l line) ([]Fault, Outcome) {
	rest, found := strings.CutPrefix(l.text, "nvidia-nvswitch")
	instance, rest, isSXid := strings.Cut(rest, ": SXid (")
	if _, left, ok := number(instance); !found || !isSXid || !ok || left != "" {
		return faults, Unrecognized
	}
	place, rest, found := strings.Cut(rest, "):")
	code, rest, ok := number(strings.TrimLeft(rest, " "))
	if !found || !ok {
		return faults, Unrecognized
	}
	device, _ := pciAddress(place)
	message := strings.TrimLeft(rest, ", ")
	key := sxidKey{device, code}
	detail := strings.HasPrefix(message, "Severity ") || strings.HasPrefix(message, "Data {")
	if _, known := p.sxids.recent(key, l.Time); known && detail {
		return faults, Benign
	}
	p.sxids.set(key, struct{}{}, l.Time)
	a := metadata.NvswitchSxidOn(record.Early())
	f := p.fault(l, a, device)
	f.Key.Code = code
	a.NvswitchID(device)
	a.GpuVendor(vendorNVIDIA)
	a.KerneleventsSxid(int64(code))
	p.sxidDetail(&f, a, message)
	return append(faults, f), Reported
}

// sxidDetail judges by the severity word, and by the number of a detail record
// whose first record was not seen (0 non-fatal, 1 fatal).
func (p *assembler) sxidDetail(f *Fault, a metadata.NvswitchSxid, message string) {
	word, rest, _ := strings.Cut(message, ", ")
	if digits, found := strings.CutPrefix(message, "Severity "); found {
		word = map[bool]string{true: "Fatal", false: "Non-fatal"}[strings.HasPrefix(digits, "1")]
	}
	switch word {
	case "Fatal":
		f.judge(p.catalogue.Fault("sxid_fatal"))
	case "Non-fatal":
		f.judge(p.catalogue.Fault("sxid_nonfatal"))
	default:
		f.judge(p.catalogue.Fault("sxid"))
		word = ""
	}
	a.KerneleventsReportedSeverity(strings.ReplaceAll(strings.ToLower(word), "-", ""))
	digits, found := strings.CutPrefix(rest, "Link ")
	if !found {
		return
	}
	if link, _, ok := number(digits); ok {
		f.Key.SubCode = link + 1
		a.KerneleventsNvlinkLink(int64(link))
	}
}
