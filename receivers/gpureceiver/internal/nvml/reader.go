package nvml

import (
	"slices"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/helper"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// reader reads one device into gpu.
type reader struct {
	device  Device
	tracker helper.Tracker
	gpu     *protocol.GPU
}

// try makes a call and reports whether it succeeded. What the GPU does not have
// is left out, another failure is noted.
func (r *reader) try(call string, do func() Code) bool {
	if r.gpu.Lost {
		return false
	}
	r.tracker.Begin(call, r.gpu.PCI)
	code := do()
	r.tracker.End()
	r.judge(call, code)
	return code == OK
}

func (r *reader) judge(call string, code Code) {
	switch {
	case code == OK || code.Absent():
		return
	case code == GPULost:
		r.gpu.Lost = true
	case code == ResetRequired:
		r.gpu.ResetRequired = true
	}
	failure := protocol.Failure{Call: call, Code: code.Error()}
	if !slices.Contains(r.gpu.Failures, failure) {
		r.gpu.Failures = append(r.gpu.Failures, failure)
	}
}

func (r *reader) quantities() {
	r.gpu.Values = map[device.Quantity]uint64{}
	for _, quantity := range Called() {
		var value uint64
		if r.try(string(quantity), func() (code Code) {
			value, code = r.device.Read(quantity)
			return code
		}) {
			r.gpu.Values[quantity] = value
		}
	}
}

// ask asks for fields and returns those that there are.
func (r *reader) ask(call string, fields []Field) []Field {
	if !r.try(call, func() Code { return r.device.Fields(fields) }) {
		return nil
	}
	return slices.DeleteFunc(fields, func(f Field) bool {
		r.judge(call, f.Code)
		return f.Code != OK
	})
}

func (r *reader) fields() {
	names := GPUFields()
	var fields []Field
	for id := range names {
		fields = append(fields, Field{ID: id})
	}
	for _, field := range r.ask("fields", fields) {
		r.gpu.Values[names[field.ID]] = field.Value
	}
}

// throttled leaves out the counter of both kinds of heat where they are counted
// apart: the same nanosecond must not count twice.
func (r *reader) throttled() {
	names := map[uint32]string{}
	var fields []Field
	for _, reason := range device.ThrottleReasons() {
		names[reason.Field] = reason.Name
		fields = append(fields, Field{ID: reason.Field})
	}
	r.gpu.Throttled = map[string]uint64{}
	for _, field := range r.ask("throttle_fields", fields) {
		r.gpu.Throttled[names[field.ID]] = field.Value
	}
	_, software := r.gpu.Throttled[device.ThermalSoftware]
	_, hardware := r.gpu.Throttled[device.ThermalHardware]
	if software && hardware {
		delete(r.gpu.Throttled, device.ThermalBoth)
	}
}

func (r *reader) ecc() {
	for _, counter := range device.ECCCounters() {
		var count uint64
		if r.try("ecc_errors", func() (code Code) {
			count, code = r.device.ECC(counter)
			return code
		}) {
			r.gpu.ECC = append(r.gpu.ECC, protocol.ECC{ECCCounter: counter, Count: count})
		}
	}
}

// links reads the NVLinks that the GPU has. Where it does not say how many, the
// first that has no state ends them.
func (r *reader) links() {
	count, known := r.gpu.Values[device.LinkCount]
	if !known || count > device.MaxLinks {
		count = device.MaxLinks
	}
	for number := range int(count) {
		link := protocol.Link{Number: number, Values: map[device.LinkQuantity]uint64{}}
		if !r.number(&link, device.LinkState) && !known {
			break
		}
		for _, counter := range device.LinkCounters() {
			r.number(&link, counter)
		}
		r.gpu.Links = append(r.gpu.Links, link)
	}
	r.linkFields()
}

func (r *reader) number(link *protocol.Link, quantity device.LinkQuantity) bool {
	var value uint64
	there := r.try("nvlink_"+string(quantity), func() (code Code) {
		value, code = r.device.Link(link.Number, quantity)
		return code
	})
	if there {
		link.Values[quantity] = value
	}
	return there
}

// linkFields asks for the fields of each link in one call a link.
func (r *reader) linkFields() {
	names := LinkFields()
	for i := range r.gpu.Links {
		link := &r.gpu.Links[i]
		var fields []Field
		for id := range names {
			fields = append(fields, Field{ID: id, Scope: uint32(link.Number)})
		}
		for _, field := range r.ask("nvlink_fields", fields) {
			link.Values[names[field.ID]] = field.Value
		}
	}
}

func (r *reader) mig() {
	if r.gpu.MIGMode {
		r.try("mig_devices", func() (code Code) {
			r.gpu.MIG, code = r.device.MIG()
			return code
		})
	}
}

func (r *reader) processes() {
	r.try("processes", func() (code Code) {
		r.gpu.Processes, code = r.device.Processes()
		return code
	})
	if over := len(r.gpu.Processes) - maxProcesses; over > 0 {
		r.gpu.Processes, r.gpu.Skipped = r.gpu.Processes[:maxProcesses], over
	}
}
