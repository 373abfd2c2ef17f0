// Package kernellog understands what accelerator, network, PCIe and storage
// drivers write to the kernel log: one line in, the faults it reports out. It is
// pure: no I/O, no clock, no goroutine. Every line is hostile until parsed.
package kernellog

import (
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// The events that lines become.
const (
	EventGPUXid               = "gpu.xid"
	EventGPULost              = "gpu.lost"
	EventGPUFault             = "gpu.fault"
	EventGPURecovered         = "gpu.recovered"
	EventNVSwitchSXid         = "nvswitch.sxid"
	EventNetworkLink          = "network.link"
	EventNetworkModuleFault   = "network.module_fault"
	EventPCIeError            = "pcie.error"
	EventStorageNotResponding = "storage.not_responding"
	EventStorageRecovered     = "storage.recovered"
	EventHostLockup           = "host.lockup"
	EventHostMemoryError      = "host.memory_error"
	EventProcessSegfault      = "process.segfault"
)

// Fault is one thing a line says happened.
type Fault struct {
	Key      Key
	State    string // of a thing that has states (a link, a recovery action): a change is never a repetition
	Time     time.Time
	Severity record.Severity
	Class    catalogue.Class
	Remedy   string // in plain words, "" when nothing is to be done

	ApplicationCaused bool // the application's doing, not the hardware's: pages nobody by itself

	OwnerPID  uint32 // process the fault belongs to, 0 when not known
	OwnerName string
	Owner     *identity.Process // who that is; the receiver looks it up

	Writer     kmsg.Writer // who wrote the line
	WriterPID  uint32
	WriterComm string

	Text       string // the line
	Truncated  bool   // it was longer than what is copied
	Attributes []Attribute
}

// Key is equal for two lines that report the same fault.
type Key struct {
	Event    string
	Subject  string // GPU, port, server
	Part     string // link, unit, ring, module
	Instance MIG
	Code     uint32
	SubCode  uint32
	PID      uint32
	Injected bool        // a test made it; never joins a true one
	Writer   kmsg.Writer // nor does a forged line
}

// Waits reports whether f can wait for its fold to close: nothing about it
// calls for action at once. A change of state never waits.
func (f *Fault) Waits() bool {
	if f.State != "" {
		return false
	}
	return f.ApplicationCaused || f.Class == catalogue.ClassRestartApplication || f.Class == catalogue.ClassInformational
}

// Attribute is one attribute of a fault: a text or a whole number.
type Attribute struct {
	Key   string
	Text  string
	Int   int64
	IsInt bool
}

// The attributes that faults carry besides those that every record has.
const (
	AttributeGPUID           = "gpu.id"
	AttributeGPUUUID         = "gpu.uuid"
	AttributeGPUVendor       = "gpu.vendor"
	AttributeGPUInstance     = "gpu.mig.gpu_instance_id"
	AttributeComputeInstance = "gpu.mig.compute_instance_id"
	AttributeNVSwitchID      = "nvswitch.id"
	AttributePCIAddress      = "hw.pci.address"
	AttributeInterface       = "network.interface.name"
	AttributeLinkState       = "network.link.state"
	AttributePort            = "network.port"
	AttributeModule          = "network.module"
	AttributeModuleError     = "network.module_error"
	AttributeServer          = "server.address"
	AttributeXid             = "kernelevents.xid"
	AttributeXidName         = "kernelevents.xid_name"
	AttributeSXid            = "kernelevents.sxid"
	AttributeFault           = "kernelevents.fault"
	AttributeCausedByXid     = "kernelevents.caused_by_xid"
	AttributeAction          = "kernelevents.recovery_action"
	AttributePreviousAction  = "kernelevents.previous_recovery_action"
	AttributeNVLinkUnit      = "kernelevents.nvlink.unit"
	AttributeNVLinkDomain    = "kernelevents.nvlink.domain"
	AttributeNVLinkLink      = "kernelevents.nvlink.link"
	AttributeReported        = "kernelevents.reported_severity"
	AttributeSubCode         = "kernelevents.sub_code"
	AttributeErrorStatus     = "kernelevents.error_status"
	AttributePCIeErrorType   = "kernelevents.pcie_error_type"
	AttributeBlock           = "kernelevents.block"
	AttributeErrorCount      = "kernelevents.error_count"
	AttributeCPU             = "kernelevents.cpu"
	AttributeBlockedSeconds  = "kernelevents.blocked_seconds"
	AttributeLibrary         = "kernelevents.library"
	AttributeDIMM            = "kernelevents.dimm"
	AttributeRDMADevice      = "network.rdma.device"
)

// put adds a text, unless it is empty.
func (f *Fault) put(key, text string) {
	if text != "" {
		f.Attributes = append(f.Attributes, Attribute{Key: key, Text: text})
	}
}

// PutText adds an attribute to a copy of a fault, and leaves the original's alone.
func (f *Fault) PutText(key, text string) {
	f.Attributes = append(slices.Clip(f.Attributes), Attribute{Key: key, Text: text})
}

func (f *Fault) putInt(key string, value int64) {
	f.Attributes = append(f.Attributes, Attribute{Key: key, Int: value, IsInt: true})
}

// judge takes over what the catalogue says about a fault.
func (f *Fault) judge(j catalogue.Judgement) {
	f.Class, f.Severity, f.Remedy = j.Class, j.Severity, j.Remedy
}
