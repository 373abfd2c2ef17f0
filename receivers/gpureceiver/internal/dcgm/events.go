package dcgm

import (
	"time"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/helper"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// The conditions of policies.
const (
	PolicyECC     = "double_bit_ecc"
	PolicyPCIe    = "pcie_replay"
	PolicyPages   = "retired_pages"
	PolicyThermal = "thermal"
	PolicyPower   = "power"
	PolicyNVLink  = "nvlink"
)

// Policies lists the conditions. An Xid is no policy here: its field tells it,
// once.
func Policies() []string {
	return []string{PolicyECC, PolicyPCIe, PolicyPages, PolicyThermal, PolicyPower, PolicyNVLink}
}

// Systems lists the health watches (dcgmHealthSystems_t), in the order of their
// bits; what is none of them is "other".
func Systems() []string {
	return []string{
		"pcie", "nvlink", "pmu", "mcu", "memory", "sm", "inforom", "thermal", "power", "driver",
		"nvswitch_nonfatal", "nvswitch_fatal", "connectx", "imex", "other",
	}
}

// Wait returns the violations as they come, and once in so long the Xids. The
// wait itself is no call of the library.
func (s *source) Wait(tracker helper.Tracker, atMost time.Duration) []protocol.Event {
	var events []protocol.Event
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case v := <-s.violations: // nil where policies cannot be heard: never
		return append(events, s.violation(v))
	case <-timer.C:
	}
	tracker.Begin("xids", "")
	xids, next, err := s.engine.Xids(s.since)
	tracker.End()
	if err != nil { // what becomes of the connection the snapshots tell
		return nil
	}
	s.since = next
	for _, xid := range xids[:min(len(xids), maxEvents)] {
		if e := s.event(xid.GPU, device.EventXid); xid.Code != 0 {
			e.Data = xid.Code
			events = append(events, e)
		}
	}
	return events
}

func (s *source) event(gpu uint, kind uint64) protocol.Event {
	return protocol.Event{Event: device.Event{PCI: s.address(gpu), Type: kind, GPUInstance: device.NoInstance, ComputeInstance: device.NoInstance}}
}

// violation is a memory error where it is one: the same record as NVML's.
func (s *source) violation(v Violation) protocol.Event {
	if v.Condition == PolicyECC {
		return s.event(v.GPU, device.EventECCUncorrected)
	}
	e := s.event(v.GPU, protocol.EventPolicy)
	e.Kind, e.Text = v.Condition, v.Text
	return e
}

// ids lists the fields of several tables.
func ids(identity []field, numbers []quantity, names []named, errors []memoryErrors) []uint16 {
	list := idsOf(identity)
	list = append(list, idsOf(numbers)...)
	list = append(list, idsOf(names)...)
	return append(list, idsOf(errors)...)
}

// idsOf lists the fields of a table.
func idsOf[F interface{ number() uint16 }](table []F) []uint16 {
	var list []uint16
	for _, f := range table {
		list = append(list, f.number())
	}
	return list
}

func (f field) number() uint16 { return f.id }
