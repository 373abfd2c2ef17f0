package nvml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
)

// script is a library that does what a test says.
type script struct {
	devices []*scripted
	count   Code
}

func (s *script) Init() Code                       { return OK }
func (s *script) Shutdown()                        {}
func (s *script) Versions() (string, string, Code) { return "580", "13", OK }
func (s *script) Count() (int, Code)               { return len(s.devices), s.count }

func (s *script) Device(i int) (Device, Code) {
	return s.devices[i], s.devices[i].handle
}

func (s *script) Listen(devices []Device, _ uint64) (Events, Code) {
	return nil, Code(100 + len(devices))
}

// scripted is a GPU: what is not written in it is not supported.
type scripted struct {
	handle    Code
	pci       string
	values    map[device.Quantity]uint64
	codes     map[device.Quantity]Code
	fields    map[uint32]uint64
	links     int
	processes int
	migMode   bool
	calls     int
}

func (s *scripted) Identity() (device.Identity, Code) {
	return device.Identity{PCI: s.pci, MIGMode: s.migMode}, OK
}

func (s *scripted) Read(q device.Quantity) (uint64, Code) {
	s.calls++
	if code, there := s.codes[q]; there {
		return 0, code
	}
	value, there := s.values[q]
	if !there {
		return 0, NotSupported
	}
	return value, OK
}

func (s *scripted) Fields(fields []Field) Code {
	for i := range fields {
		value, there := s.fields[fields[i].ID]
		fields[i].Value = value
		if !there {
			fields[i].Code = NotSupported
		}
	}
	return OK
}

func (s *scripted) Link(link int, q device.LinkQuantity) (uint64, Code) {
	if link >= s.links {
		return 0, NotSupported
	}
	if q == device.LinkState {
		return 1, OK
	}
	return uint64(link), OK
}

func (s *scripted) ECC(device.ECCCounter) (uint64, Code) { return 7, OK }

func (s *scripted) Processes() ([]device.Process, Code) {
	return make([]device.Process, s.processes), OK
}

func (s *scripted) MIG() ([]device.MIG, Code) { return []device.MIG{{UUID: "MIG-1"}}, OK }

// named remembers the calls, and that each has an end.
type named struct {
	calls []string
	open  int
}

func (n *named) Begin(call, gpu string) {
	n.calls, n.open = append(n.calls, call+" "+gpu), n.open+1
}

func (n *named) End() { n.open-- }

func open(t *testing.T, devices ...*scripted) (*GPUs, *named) {
	tracker := &named{}
	gpus, code := Open(&script{devices: devices}, tracker)
	require.Equal(t, OK, code)
	return gpus, tracker
}

func TestWhatAGPUDoesNotHaveIsLeftOut(t *testing.T) {
	gpus, tracker := open(t, &scripted{pci: "p", values: map[device.Quantity]uint64{device.PowerUsage: 5}, fields: map[uint32]uint64{230: 2}})
	got := gpus.Snapshot().GPUs[0]
	require.Equal(t, map[device.Quantity]uint64{device.PowerUsage: 5, device.RecoveryAction: 2}, got.Values)
	require.Empty(t, got.Failures)
	require.Empty(t, got.Links)
	require.Empty(t, got.MIG)
	require.Len(t, got.ECC, len(device.ECCCounters()))
	require.Contains(t, tracker.calls, "power_usage p")
	require.Zero(t, tracker.open)
}

func TestACallThatFailsIsNotedOnce(t *testing.T) {
	gpus, _ := open(t, &scripted{pci: "p", codes: map[device.Quantity]Code{device.PowerUsage: Unknown, device.Energy: ResetRequired}})
	got := gpus.Snapshot().GPUs[0]
	require.True(t, got.ResetRequired)
	require.Len(t, got.Failures, 2)
	require.Equal(t, "power_usage", got.Failures[0].Call)
	require.Equal(t, "unknown", got.Failures[0].Code)
}

func TestALostGPUIsNotAskedAgain(t *testing.T) {
	lost := &scripted{pci: "p", codes: map[device.Quantity]Code{device.UtilizationMemory: GPULost}}
	gpus, _ := open(t, lost, &scripted{pci: "q", values: map[device.Quantity]uint64{device.PowerUsage: 5}})
	got := gpus.Snapshot().GPUs
	require.True(t, got[0].Lost)
	require.Equal(t, "p", got[0].PCI)
	require.Empty(t, got[0].Values)
	require.EqualValues(t, 5, got[1].Values[device.PowerUsage])
	asked := lost.calls
	require.Equal(t, 2, asked, "the call that said so is the last")
	require.True(t, gpus.Snapshot().GPUs[0].Lost)
	require.Equal(t, asked, lost.calls)
}

func TestAGPUThatIsLostAtTheStartHasNoAddress(t *testing.T) {
	gpus, _ := open(t, &scripted{pci: "p", handle: GPULost}, &scripted{pci: "q"})
	got := gpus.Snapshot().GPUs
	require.True(t, got[0].Lost)
	require.Empty(t, got[0].PCI)
	_, code := gpus.Listen(1)
	require.EqualValues(t, 101, code, "only the other can be listened to")
}

func TestHeatIsNotCountedTwice(t *testing.T) {
	for name, tc := range map[string]struct {
		fields map[uint32]uint64
		want   map[string]uint64
	}{
		"both kinds":  {map[uint32]uint64{75: 9, 269: 4, 270: 5}, map[string]uint64{"sw_thermal_slowdown": 4, "hw_thermal_slowdown": 5}},
		"together":    {map[uint32]uint64{75: 9}, map[string]uint64{"thermal": 9}},
		"not counted": {map[uint32]uint64{74: 1}, map[string]uint64{"sw_power_cap": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			gpus, _ := open(t, &scripted{pci: "p", fields: tc.fields})
			require.Equal(t, tc.want, gpus.Snapshot().GPUs[0].Throttled)
		})
	}
}

func TestLinksAreThoseThatThereAre(t *testing.T) {
	for name, tc := range map[string]struct {
		gpu  scripted
		want int
	}{
		"none":               {scripted{}, 0},
		"a number that lies": {scripted{links: 3, fields: map[uint32]uint64{91: 1 << 40}}, device.MaxLinks},
		"told":               {scripted{links: 4, fields: map[uint32]uint64{91: 4, 138: 8}}, 4},
		"not told":           {scripted{links: 3}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			gpus, _ := open(t, &tc.gpu)
			links := gpus.Snapshot().GPUs[0].Links
			require.Len(t, links, tc.want)
			if tc.want == 4 {
				require.EqualValues(t, 3, links[3].Values[device.LinkCRCFlit])
				require.EqualValues(t, 8, links[3].Values[device.LinkTransmitKiB])
			}
		})
	}
}

func TestProcessesAreCappedAndCounted(t *testing.T) {
	gpus, _ := open(t, &scripted{pci: "p", processes: maxProcesses + 5, migMode: true})
	got := gpus.Snapshot().GPUs[0]
	require.Len(t, got.Processes, maxProcesses)
	require.Equal(t, 5, got.Skipped)
	require.Len(t, got.MIG, 1)
}

func TestALibraryThatCannotCountIsNotReady(t *testing.T) {
	_, code := Open(&script{count: Unknown}, &named{})
	require.Equal(t, Unknown, code)
	require.EqualError(t, Code(77), "nvml_error_77")
}
