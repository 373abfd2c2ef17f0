package kerneleventsreceiver

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/kernellog"
)

// putDevice makes a device of a sysfs.
func putDevice(t *testing.T, root, path, class, vendor string) {
	folder := filepath.Join(root, "devices", path)
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "class"), []byte(class), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "vendor"), []byte(vendor), 0o600))
	links := filepath.Join(root, "bus/pci/devices")
	require.NoError(t, os.MkdirAll(links, 0o755))
	require.NoError(t, os.Symlink(filepath.Join("../../../devices", path), filepath.Join(links, filepath.Base(path))))
}

func faultsOf(t *testing.T, text string) []kernellog.Fault {
	meanings, err := catalogue.Load()
	require.NoError(t, err)
	faults, outcome := kernellog.NewParser(meanings).Parse(nil, &kmsg.Event{Time: start, Text: text})
	require.Equal(t, kernellog.Reported, outcome)
	return faults
}

// gpusOf returns the GPU that each fault names, "" for none.
func gpusOf(faults []kernellog.Fault) []string {
	var gpus []string
	for _, fault := range faults {
		gpu, _ := fault.Event.Attributes().AsRaw()["gpu.id"].(string)
		gpus = append(gpus, gpu)
	}
	return gpus
}

const aer = "pcieport 0000:64:01.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)"

func TestErrorOfAPortIsOneOfEachGPUBelowIt(t *testing.T) {
	root := t.TempDir()
	t.Setenv("HOST_SYS", root)
	now := start
	trees := newTopologies(now)
	require.Equal(t, []string{""}, gpusOf(trees.locate(nil, faultsOf(t, aer), now)), "an empty tree")

	putDevice(t, root, "pci0000:64/0000:64:01.0/0000:67:00.0", "0x030200", "0x10de")
	putDevice(t, root, "pci0000:64/0000:64:01.0/0000:68:00.0", "0x030200", "0x10de")
	now = now.Add(rereadTopology)
	located := trees.locate(nil, faultsOf(t, aer), now)
	require.Equal(t, []string{"0000:67:00.0", "0000:68:00.0"}, gpusOf(located))
	require.NotEqual(t, located[0].Key, located[1].Key, "each folds by itself")

	require.NoError(t, os.RemoveAll(filepath.Join(root, "bus")))
	now = now.Add(rereadTopology)
	require.Len(t, trees.locate(nil, faultsOf(t, aer), now), 2, "the GPUs left the bus with the fault")
}

func TestLinkGetsTheNameOfItsRDMADevice(t *testing.T) {
	root := t.TempDir()
	t.Setenv("HOST_SYS", root)
	putDevice(t, root, "pci0000:5d/0000:5d:01.0/0000:5e:00.0", "0x020700", "0x15b3")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "devices/pci0000:5d/0000:5d:01.0/0000:5e:00.0/infiniband/mlx5_0"), 0o755))
	faults := newTopologies(start).locate(nil, faultsOf(t, "mlx5_core 0000:5e:00.0 ibs3: Port: 1 Link DOWN"), start.Add(time.Second))
	require.Equal(t, "mlx5_0", faults[0].Event.Attributes().AsRaw()["network.rdma.device"])
}
