package reading

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"
)

// script is a library that does what a test says.
type script struct {
	devices []*scripted
	count   nvml.Code
}

func (s *script) Init() nvml.Code                       { return nvml.OK }
func (s *script) Shutdown()                             {}
func (s *script) Versions() (string, string, nvml.Code) { return "580", "13", nvml.OK }
func (s *script) Count() (int, nvml.Code)               { return len(s.devices), s.count }

func (s *script) Device(i int) (nvml.Device, nvml.Code) {
	return s.devices[i], s.devices[i].handle
}

func (s *script) Listen(devices []nvml.Device, _ uint64) (nvml.Events, nvml.Code) {
	return nil, nvml.Code(100 + len(devices))
}

// scripted is a GPU: what is not written in it is not supported.
type scripted struct {
	handle    nvml.Code
	pci       string
	values    map[nvml.Quantity]uint64
	codes     map[nvml.Quantity]nvml.Code
	fields    map[uint32]uint64
	links     int
	processes int
	migMode   bool
	calls     int
}

func (s *scripted) Identity() (nvml.Identity, nvml.Code) {
	return nvml.Identity{PCI: s.pci, MIGMode: s.migMode}, nvml.OK
}

func (s *scripted) Read(q nvml.Quantity) (uint64, nvml.Code) {
	s.calls++
	if code, there := s.codes[q]; there {
		return 0, code
	}
	value, there := s.values[q]
	if !there {
		return 0, nvml.NotSupported
	}
	return value, nvml.OK
}

func (s *scripted) Fields(fields []nvml.Field) nvml.Code {
	for i := range fields {
		value, there := s.fields[fields[i].ID]
		fields[i].Value = value
		if !there {
			fields[i].Code = nvml.NotSupported
		}
	}
	return nvml.OK
}

func (s *scripted) Link(link int, q nvml.LinkQuantity) (uint64, nvml.Code) {
	if link >= s.links {
		return 0, nvml.NotSupported
	}
	if q == nvml.LinkState {
		return 1, nvml.OK
	}
	return uint64(link), nvml.OK
}

func (s *scripted) ECC(nvml.ECCCounter) (uint64, nvml.Code) { return 7, nvml.OK }

func (s *scripted) Processes() ([]nvml.Process, nvml.Code) {
	return make([]nvml.Process, s.processes), nvml.OK
}

func (s *scripted) MIG() ([]nvml.MIG, nvml.Code) { return []nvml.MIG{{UUID: "MIG-1"}}, nvml.OK }

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
	require.Equal(t, nvml.OK, code)
	return gpus, tracker
}

func TestWhatAGPUDoesNotHaveIsLeftOut(t *testing.T) {
	gpus, tracker := open(t, &scripted{pci: "p", values: map[nvml.Quantity]uint64{nvml.PowerUsage: 5}, fields: map[uint32]uint64{230: 2}})
	got := gpus.Snapshot().GPUs[0]
	require.Equal(t, map[nvml.Quantity]uint64{nvml.PowerUsage: 5, nvml.RecoveryAction: 2}, got.Values)
	require.Empty(t, got.Failures)
	require.Empty(t, got.Links)
	require.Empty(t, got.MIG)
	require.Len(t, got.ECC, len(nvml.ECCCounters()))
	require.Contains(t, tracker.calls, "power_usage p")
	require.Zero(t, tracker.open)
}

func TestACallThatFailsIsNotedOnce(t *testing.T) {
	gpus, _ := open(t, &scripted{pci: "p", codes: map[nvml.Quantity]nvml.Code{nvml.PowerUsage: nvml.Unknown, nvml.Energy: nvml.ResetRequired}})
	got := gpus.Snapshot().GPUs[0]
	require.True(t, got.ResetRequired)
	require.Len(t, got.Failures, 2)
	require.Equal(t, "power_usage", got.Failures[0].Call)
	require.Equal(t, "unknown", got.Failures[0].Code)
}

func TestALostGPUIsNotAskedAgain(t *testing.T) {
	lost := &scripted{pci: "p", codes: map[nvml.Quantity]nvml.Code{nvml.UtilizationMemory: nvml.GPULost}}
	gpus, _ := open(t, lost, &scripted{pci: "q", values: map[nvml.Quantity]uint64{nvml.PowerUsage: 5}})
	got := gpus.Snapshot().GPUs
	require.True(t, got[0].Lost)
	require.Equal(t, "p", got[0].PCI)
	require.Empty(t, got[0].Values)
	require.EqualValues(t, 5, got[1].Values[nvml.PowerUsage])
	asked := lost.calls
	require.Equal(t, 2, asked, "the call that said so is the last")
	require.True(t, gpus.Snapshot().GPUs[0].Lost)
	require.Equal(t, asked, lost.calls)
}

func TestAGPUThatIsLostAtTheStartHasNoAddress(t *testing.T) {
	gpus, _ := open(t, &scripted{pci: "p", handle: nvml.GPULost}, &scripted{pci: "q"})
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
		"a number that lies": {scripted{links: 3, fields: map[uint32]uint64{91: 1 << 40}}, nvml.MaxLinks},
		"told":               {scripted{links: 4, fields: map[uint32]uint64{91: 4, 138: 8}}, 4},
		"not told":           {scripted{links: 3}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			gpus, _ := open(t, &tc.gpu)
			links := gpus.Snapshot().GPUs[0].Links
			require.Len(t, links, tc.want)
			if tc.want == 4 {
				require.EqualValues(t, 3, links[3].Values[nvml.LinkCRCFlit])
				require.EqualValues(t, 8, links[3].Values[nvml.LinkTransmitKiB])
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
	_, code := Open(&script{count: nvml.Unknown}, &named{})
	require.Equal(t, nvml.Unknown, code)
	require.EqualError(t, nvml.Code(77), "nvml_error_77")
}
