package dcgm

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// reading is the values of one GPU by field; those that it does not have are
// left out.
type reading map[uint16]*Value

// take keeps what is a value, and notes what is a failure.
func (r reading) take(values []Value, gpu *protocol.GPU) {
	for i := range values {
		v := &values[i]
		switch {
		case v.Code == GPULost || v.Code == GPUsDetached:
			gpu.Lost = true
		case v.Code == ResetRequired:
			gpu.ResetRequired = true
		case v.Code != OK && !v.Code.absent():
			fail(gpu, "field_"+strconv.Itoa(int(v.Field)), v.Code)
		case v.Code == OK && v.Kind != Blank:
			r[v.Field] = v
		}
	}
}

// fail notes a call that failed, each once.
func fail(gpu *protocol.GPU, call string, code Code) {
	failure := protocol.Failure{Call: call, Code: code.Error()}
	if !slices.Contains(gpu.Failures, failure) {
		gpu.Failures = append(gpu.Failures, failure)
	}
}

func (r reading) number(id uint16) (float64, bool) {
	if v := r[id]; v != nil {
		return v.number()
	}
	return 0, false
}

func (r reading) text(id uint16) string {
	if v := r[id]; v != nil && v.Kind == Text {
		return v.Text
	}
	return ""
}

// identity is who the GPU is.
func (r reading) identity(id uint) device.Identity {
	who := device.Identity{
		Index: int(id), PCI: pciAddress(r.text(fieldBusID)), UUID: r.text(fieldUUID), Model: r.text(fieldModel),
		Serial: r.text(fieldSerial), VBIOS: r.text(fieldVBIOS),
	}
	if index, there := r.number(fieldIndex); there {
		who.Index = int(index)
	}
	if mode, there := r.number(fieldMIG); there {
		who.MIGMode = mode == 1
	}
	if v := r[fieldCompute]; v != nil && v.Kind == Int && v.Int > 0 { // major in the upper half
		who.Computed = strconv.FormatInt(v.Int>>16, 10) + "." + strconv.FormatInt(v.Int&0xffff, 10)
	}
	return who
}

// busID is a PCI address with a domain of four or eight digits.
var busID = regexp.MustCompile(`^([0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$`)

// pciAddress is the address as the kernel writes it; "" for what is none.
func pciAddress(text string) string {
	parts := busID.FindStringSubmatch(strings.ToLower(text))
	if parts == nil || strings.Trim(parts[1], "0") != "" {
		return ""
	}
	return parts[2]
}

// fill turns the values into the words that all GPU receivers share.
func (r reading) fill(gpu *protocol.GPU) {
	gpu.Values, gpu.Throttled, gpu.Ratios = map[device.Quantity]uint64{}, map[string]uint64{}, map[string]float64{}
	for _, q := range append(quantities(), profiled()...) {
		if n, there := r.number(q.id); there {
			gpu.Values[q.is] = uint64(n * q.factor)
		}
	}
	for _, share := range ratios() {
		if n, there := r.number(share.id); there && n <= 1 {
			gpu.Ratios[share.is] = n
		}
	}
	for _, reason := range throttles() {
		if n, there := r.number(reason.id); there {
			gpu.Throttled[reason.is] = uint64(n)
		}
	}
	_, software := gpu.Throttled[device.ThermalSoftware]
	_, hardware := gpu.Throttled[device.ThermalHardware]
	if software && hardware { // the same nanosecond must not count twice
		delete(gpu.Throttled, device.ThermalBoth)
	}
	for _, counter := range ecc() {
		if n, there := r.number(counter.id); there {
			gpu.ECC = append(gpu.ECC, protocol.ECC{ECCCounter: counter.is, Count: uint64(n)})
		}
	}
}

// fillLinks adds the NVLinks: those with a state, and the numbers of each.
func (r reading) fillLinks(gpu *protocol.GPU, states []Link) {
	byNumber := map[int]*protocol.Link{}
	for _, s := range states {
		up := uint64(0)
		if s.Up {
			up = 1
		}
		byNumber[s.Number] = &protocol.Link{Number: s.Number, Values: map[device.LinkQuantity]uint64{device.LinkState: up}}
	}
	for _, l := range links() {
		if link := byNumber[l.link]; link != nil {
			if n, there := r.number(l.id); there {
				link.Values[l.is] = uint64(n * l.factor)
			}
		}
	}
	for number := range device.MaxLinks {
		if link := byNumber[number]; link != nil {
			gpu.Links = append(gpu.Links, *link)
		}
	}
}
