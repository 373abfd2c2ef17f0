package kernellog

import (
	"strconv"
	"strings"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// MIG is a part of a GPU, as "GPU-I:05 GPU-CI:01" in an Xid line. An instance
// is stored plus one, so that the zero value means the whole GPU.
type MIG struct{ gpu, compute uint32 }

const vendorNVIDIA = "nvidia"

// parseXid reads "NVRM: Xid (PCI:dddd:bb:dd GPU-I:nn): N, pid=…, name=…, message".
// pid and name are left out by newer drivers when unknown; older ones print
// "pid='<unknown>', name=<unknown>".
func (p *assembler) parseXid(faults []Fault, l line) ([]Fault, Outcome) {
	_, rest, found := nvidiaLine(l.text)
	rest, isXid := strings.CutPrefix(rest, "Xid (")
	if !found || !isXid {
		return faults, Unrecognized
	}
	place, rest, found := strings.Cut(rest, "):")
	if !found {
		return faults, Unrecognized
	}
	code, rest, ok := number(strings.TrimLeft(rest, " "))
	if !ok || strings.TrimLeft(rest, ", ") == rest && rest != "" {
		return faults, Unrecognized
	}
	device, instance := xidPlace(place)
	a := metadata.GpuXidOn(record.Early())
	f := p.fault(l, a, device)
	f.Key.Code, f.Key.Instance = code, instance
	if p.trust == record.Proven && l.more != "" { // a name can hold a newline: the driver's words go on behind it
		rest += " " + strings.ReplaceAll(l.more, "\n", " ")
	}
	var message string
	f.OwnerPID, f.OwnerName, message = xidOwner(strings.TrimLeft(rest, ", "))
	f.Key.PID = f.OwnerPID
	xid := p.catalogue.Xid(code)
	f.judge(xid.Judgement)
	f.ApplicationCaused = xid.Application
	p.putGPU(a.Gpu(), device, vendorNVIDIA)
	a.KerneleventsXid(int64(code))
	a.KerneleventsXidName(xid.Name)
	putInstance(a, instance)
	p.xidDetail(&f, a, code, message)
	return append(faults, f), Reported
}

// xidPlace splits "PCI:0000:65:00 GPU-I:05 GPU-CI:01". An address that is none
// leaves the device empty: the fault is still reported.
func xidPlace(place string) (device string, instance MIG) {
	for word := range strings.FieldsSeq(place) {
		if digits, found := strings.CutPrefix(word, "GPU-I:"); found {
			instance.gpu = instanceNumber(digits)
		} else if digits, found := strings.CutPrefix(word, "GPU-CI:"); found {
			instance.compute = instanceNumber(digits)
		} else if address, ok := pciAddress(word); ok {
			device = address
		}
	}
	return device, instance
}

func instanceNumber(digits string) uint32 {
	n, rest, ok := number(digits)
	if !ok || rest != "" || n > 1<<16 {
		return 0
	}
	return n + 1
}

// xidOwner reads "pid=1234, name=python, message". The pid is that of the
// channel's creator, not of the faulting task.
func xidOwner(rest string) (pid uint32, name, message string) {
	if value, found := strings.CutPrefix(rest, "pid="); found {
		value, rest, _ = strings.Cut(value, ", ")
		pid, _, _ = number(strings.Trim(value, "'"))
	}
	if value, found := strings.CutPrefix(rest, "name="); found {
		name, rest, _ = strings.Cut(value, ", ")
		if name = strings.Trim(name, "'"); name == "<unknown>" {
			name = ""
		}
	}
	return pid, name, rest
}

// putGPU writes the GPU and, if the driver told it before, its UUID.
func (p *assembler) putGPU(a record.GpuAttributes, device, vendor string) {
	a.GpuID(device)
	a.GpuVendor(vendor)
	if uuid, known := p.uuids.get(device); known && device != "" {
		a.GpuUUID(uuid)
	}
}

func putInstance(a metadata.GpuXid, instance MIG) {
	if instance.gpu > 0 {
		a.GpuMigGpuInstanceID(int64(instance.gpu - 1))
	}
	if instance.compute > 0 {
		a.GpuMigComputeInstanceID(int64(instance.compute - 1))
	}
}

// xidDetail reads what only some codes say.
func (p *assembler) xidDetail(f *Fault, a metadata.GpuXid, code uint32, message string) {
	switch {
	case code == 154:
		p.recoveryAction(f, a, message)
	case code >= 144 && code <= 150:
		nvlink5(f, a, message)
	case code == 74:
		nvlink4(f, a, message)
	case code == 45:
		if digits, found := between(message, "caused by previous Xid ", ","); found {
			if cause, _, ok := number(digits); ok {
				a.KerneleventsCausedByXid(int64(cause))
			}
		}
	}
}

// recoveryAction reads "GPU recovery action changed from 0x0 (None) to 0x1 (GPU
// Reset Required)": the driver's own word on what to do, and, back to None, the
// signal that it is done.
func (p *assembler) recoveryAction(f *Fault, a metadata.GpuXid, message string) {
	// The name of a process can stand before the driver's words, and is too short to hold them.
	_, change, found := strings.Cut(message, "GPU recovery action changed from ")
	before, after, changed := strings.Cut(change, " to ")
	if !found || !changed {
		return
	}
	action := p.catalogue.Action(after)
	f.judge(action.Judgement)
	f.State = action.Name
	a.KerneleventsRecoveryAction(action.Name)
	a.KerneleventsPreviousRecoveryAction(p.catalogue.Action(before).Name)
}

// nvlink5 reads "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x… 0x… …)": unit, the
// severity, domain, i1 when injected for a test, link (-1: none), then intrinfo,
// whose bits 20-25 are the sub-code, and the error status. The severity word is
// believed: a Nonfatal 145 is not fatal.
func nvlink5(f *Fault, a metadata.GpuXid, message string) {
	words := strings.Fields(message)
	if len(words) < 6 || words[4] != "Link" {
		return
	}
	a.KerneleventsNvlinkUnit(words[0])
	a.KerneleventsReportedSeverity(f.believe(words[1]))
	a.KerneleventsNvlinkDomain(words[2])
	f.Key.Injected = words[3] == "i1"
	f.Key.Part = words[0] + " " + words[5]
	if link, rest, ok := number(words[5]); ok && rest == "" {
		a.KerneleventsNvlinkLink(int64(link))
	}
	if len(words) < 8 {
		return
	}
	if info, ok := hexNumber(strings.Trim(words[6], "()")); ok {
		f.Key.SubCode = info >> 20 & 0x3f
		a.KerneleventsSubCode(int64(f.Key.SubCode))
	}
	a.KerneleventsErrorStatus(strings.Trim(words[7], "()"))
}

// nvlink4 reads the link of "NVLink: fatal error detected on link 14(0x…)". The name of a
// process can stand before it, and hold the same words.
func nvlink4(f *Fault, a metadata.GpuXid, message string) {
	const words = "on link "
	at := strings.LastIndex(message, words)
	if at < 0 {
		return
	}
	if link, _, ok := number(message[at+len(words):]); ok {
		f.Key.Part = strconv.Itoa(int(link))
		a.KerneleventsNvlinkLink(int64(link))
	}
}
