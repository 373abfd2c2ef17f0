//go:build cgo

package nvmlcgo

import (
	"fmt"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	own "github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/nvml"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// untracked watches no call.
type untracked struct{}

func (untracked) Begin(string, string) {}
func (untracked) End()                 {}

// mockedSymbols are what go-nvml's DGX A100 can answer of what is asked here; the others
// are missing in its library.
var mockedSymbols = map[string]bool{
	"nvmlSystemGetDriverVersion": true, "nvmlSystemGetNVMLVersion": true, "nvmlDeviceGetUUID": true, "nvmlDeviceGetName": true,
	"nvmlDeviceGetCudaComputeCapability": true, "nvmlDeviceGetMigMode": true, "nvmlDeviceGetMemoryInfo": true,
	"nvmlDeviceGetMaxMigDeviceCount": true, "nvmlDeviceGetMigDeviceHandleByIndex": true,
	"nvmlDeviceGetGpuInstanceId": true, "nvmlDeviceGetComputeInstanceId": true,
}

// dgx is go-nvml's server of eight A100, in an older library.
func dgx() (*library, []*dgxa100.Device) {
	server := dgxa100.New()
	server.LookupSymbolFunc = func(symbol string) error {
		if mockedSymbols[symbol] {
			return nil
		}
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	devices := make([]*dgxa100.Device, len(server.Devices))
	for i := range server.Devices {
		d := server.Devices[i].(*dgxa100.Device)
		d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
			return nvml.PciInfo{Bus: uint32(0x10 + i)}, nvml.SUCCESS
		}
		d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
		devices[i] = d
	}
	return &library{Interface: server, known: map[string]bool{}, addresses: map[nvml.Device]string{}}, devices
}

func TestServerOfEightGPUsIsRead(t *testing.T) {
	l, devices := dgx()
	source := own.NewSource(l, device.EventXid)
	state := source.Open(untracked{})
	require.Equal(t, protocol.State{Name: protocol.Ready, Driver: "550.54.15", Library: "12.550.54.15", GPUs: 8}, state)

	snapshot, news := source.Snapshot()
	require.Nil(t, news)
	require.Len(t, snapshot.GPUs, 8)
	for i, gpu := range snapshot.GPUs {
		require.Equal(t, device.Identity{
			Index: i, PCI: fmt.Sprintf("0000:%02x:00.0", 0x10+i), UUID: devices[i].UUID, Model: "Mock NVIDIA A100-SXM4-40GB", Computed: "8.0",
		}, gpu.Identity)
		require.EqualValues(t, 40<<30, gpu.Values[device.MemoryTotal])
		require.Empty(t, gpu.Failures)
		require.False(t, gpu.Lost)
	}
}

func TestGPUThatFallsOffTheBusIsLostAndTheOthersAreRead(t *testing.T) {
	l, devices := dgx()
	source := own.NewSource(l, 0)
	require.Equal(t, protocol.Ready, source.Open(untracked{}).Name)
	devices[3].GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST }
	snapshot, _ := source.Snapshot()
	for i, gpu := range snapshot.GPUs {
		require.Equal(t, i == 3, gpu.Lost)
		require.Equal(t, devices[i].UUID, gpu.UUID)
	}
}

func TestPartsOfAGPUAreTold(t *testing.T) {
	l, devices := dgx()
	source := own.NewSource(l, 0)
	devices[0].MigMode = nvml.DEVICE_MIG_ENABLE
	devices[0].GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	devices[0].GetMigDeviceHandleByIndexFunc = func(index int) (nvml.Device, nvml.Return) {
		if index != 2 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return &mock.Device{
			GetUUIDFunc:              func() (string, nvml.Return) { return "MIG-2", nvml.SUCCESS },
			GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return 5, nvml.SUCCESS },
			GetComputeInstanceIdFunc: func() (int, nvml.Return) { return 0, nvml.SUCCESS },
			GetMemoryInfoFunc:        func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 5 << 30, Used: 1 << 30}, nvml.SUCCESS },
		}, nvml.SUCCESS
	}
	require.Equal(t, protocol.Ready, source.Open(untracked{}).Name)
	snapshot, _ := source.Snapshot()
	require.True(t, snapshot.GPUs[0].MIGMode)
	require.Equal(t, []device.MIG{{UUID: "MIG-2", GPUInstance: 5, MemoryTotal: 5 << 30, MemoryUsed: 1 << 30}}, snapshot.GPUs[0].MIG)
	require.Empty(t, snapshot.GPUs[1].MIG)
}
