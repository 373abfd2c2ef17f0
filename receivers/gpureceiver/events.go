package gpureceiver

import (
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/inventory"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/storm"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// faults makes one record of each storm.
func (c *converter) faults(storms []*storm.Storm, gpus *inventory.Inventory, observed time.Time) plog.Logs {
	for _, s := range storms {
		e := &event{Storm: s, converter: c, gpu: gpus.Find(s.PCI), observed: observed, repeat: s.Told > 0}
		e.record()
		s.Told = s.Count
	}
	return c.logs.Emit()
}

// event is a storm on its way to a record.
type event struct {
	*storm.Storm
	*converter
	gpu      *inventory.GPU // nil: not known any more
	observed time.Time
	repeat   bool
}

func (e *event) record() {
	switch e.Event {
	case storm.Xid:
		e.xid()
	case storm.Lost:
		e.lost()
	case storm.Recovered:
		e.recovered()
	case storm.ECC:
		e.ecc()
	case storm.Health:
		e.health()
	case storm.Policy:
		e.policy()
	case storm.Clock:
		a := e.logs.GpuClockChange(e.head(record.Info, fmt.Sprintf("the clocks of GPU %s changed", e.PCI)))
		e.stamp(a.Device(), a.Storm())
	}
}

// head says when it happened, how bad it is, and the same in one line.
func (e *event) head(severity record.Severity, text string) record.Head {
	at := e.First
	if e.repeat {
		at = e.Last
	}
	return record.Head{Trust: record.Proven, Time: at, Observed: e.observed, Severity: severity, Text: text}
}

// stamp writes what every record has.
func (e *event) stamp(gpu metadata.DeviceAttributes, of record.StormAttributes) {
	gpu.GpuID(e.PCI)
	gpu.GpuVendor(vendor)
	if e.gpu != nil {
		gpu.GpuUUID(e.gpu.UUID)
	}
	record.NotNegative(gpu.GpuMigGpuInstanceID, e.GPUInstance-1)
	record.NotNegative(gpu.GpuMigComputeInstanceID, e.ComputeInstance-1)
	of.KerneleventsFaultID(e.ID)
	of.KerneleventsRepeat(e.repeat)
	of.KerneleventsCount(int64(e.Count))
	of.KerneleventsFirstTimeUnixNano(e.First.UnixNano())
	of.KerneleventsLastTimeUnixNano(e.Last.UnixNano())
}

func judge(a record.JudgementAttributes, meaning catalogue.Judgement, application bool) {
	a.KerneleventsSeverity(string(meaning.Severity))
	a.KerneleventsClass(string(meaning.Class))
	a.KerneleventsApplicationCaused(application)
	a.KerneleventsRemedy(meaning.Remedy)
}

// blame writes whom it happened to; a pid of 0 is nobody.
func (e *event) blame(a record.IdentityAttributes, pid uint32) {
	if pid != 0 {
		a.Stamp(e.process(pid, e.First))
	}
}

func (e *event) xid() {
	meaning := e.meanings.Xid(uint32(min(e.XID, 1<<16)))
	a := e.logs.GpuXid(e.head(meaning.Severity, strings.TrimSpace(fmt.Sprintf("GPU %s reports Xid %d %s", e.PCI, e.XID, meaning.Name))))
	e.stamp(a.Device(), a.Storm())
	a.KerneleventsXid(int64(e.XID))
	a.KerneleventsXidName(meaning.Name)
	judge(a.Judgement(), meaning.Judgement, meaning.Application)
	e.blame(a.Identity(), e.PID)
}

// lost blames the process of the last reading.
func (e *event) lost() {
	meaning := e.meanings.Fault(e.Event)
	a := e.logs.GpuLost(e.head(meaning.Severity, fmt.Sprintf("GPU %s no longer answers", e.PCI)))
	e.stamp(a.Device(), a.Storm())
	judge(a.Judgement(), meaning, false)
	if e.gpu != nil {
		pid, _ := e.gpu.Owner(device.NoInstance, device.NoInstance)
		e.blame(a.Identity(), pid)
	}
}

func (e *event) recovered() {
	meaning := e.meanings.Fault(e.Event)
	a := e.logs.GpuRecovered(e.head(meaning.Severity, fmt.Sprintf("GPU %s answers again", e.PCI)))
	e.stamp(a.Device(), a.Storm())
	judge(a.Judgement(), meaning, false)
}

func (e *event) ecc() {
	severity, text := record.Error, fmt.Sprintf("GPU %s has a memory error that could not be corrected", e.PCI)
	if e.Kind == device.ECCCorrected {
		severity, text = record.Info, fmt.Sprintf("GPU %s corrected a memory error", e.PCI)
	}
	a := e.logs.GpuEcc(e.head(severity, text))
	e.stamp(a.Device(), a.Storm())
	a.ErrorType(e.Kind)
}

// health is a finding of DCGM's own watches.
func (e *event) health() {
	severity, state, says := record.Warning, stateReduced, "warns"
	if e.Failed {
		severity, state, says = record.Error, stateDown, "fails"
	}
	a := e.logs.GpuHealth(e.head(severity, because(fmt.Sprintf("the health watch %s of GPU %s %s", e.Kind, e.PCI, says), e.Text)))
	e.stamp(a.Device(), a.Storm())
	a.HwGpuHealthSystem(e.Kind)
	a.HwState(state)
}

// policy is of DCGM, and of the operator.
func (e *event) policy() {
	a := e.logs.GpuPolicyViolation(e.head(record.Warning, because(fmt.Sprintf("GPU %s violates the policy %s", e.PCI, e.Kind), e.Text)))
	e.stamp(a.Device(), a.Storm())
	a.HwGpuPolicyCondition(e.Kind)
}

// because adds what the library says.
func because(text, said string) string {
	if said == "" {
		return text
	}
	return text + ": " + said
}
