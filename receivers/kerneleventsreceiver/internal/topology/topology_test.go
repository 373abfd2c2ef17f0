package topology

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// host builds a sysfs: a root port with a switch, two GPUs and an adapter below
// it, another root port with one GPU, and the server's console adapter.
func host(t *testing.T) string {
	root := t.TempDir()
	for path, device := range map[string]struct{ class, vendor, rdma string }{
		"pci0000:64/0000:64:01.0":                                        {class: "0x060400", vendor: "0x8086"},
		"pci0000:64/0000:64:01.0/0000:65:00.0":                           {class: "0x060400", vendor: "0x1000"},
		"pci0000:64/0000:64:01.0/0000:65:00.0/0000:66:01.0/0000:67:00.0": {class: "0x030200", vendor: "0x10de"},
		"pci0000:64/0000:64:01.0/0000:65:00.0/0000:66:00.0/0000:68:00.0": {class: "0x030200", vendor: "0x10de"},
		"pci0000:64/0000:64:01.0/0000:65:00.0/0000:66:02.0/0000:69:00.0": {class: "0x020700", vendor: "0x15b3", rdma: "mlx5_3"},
		"pci0000:b0/0000:b0:02.0/0000:b1:00.0":                           {class: "0x120000", vendor: "0x1002"},
		"pci0000:00/0000:00:1c.0/0000:03:00.0":                           {class: "0x030000", vendor: "0x1a03"},
	} {
		folder := filepath.Join(root, "devices", path)
		require.NoError(t, os.MkdirAll(folder, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "class"), []byte(device.class+"\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "vendor"), []byte(device.vendor+"\n"), 0o600))
		if device.rdma != "" {
			require.NoError(t, os.MkdirAll(filepath.Join(folder, "infiniband", device.rdma), 0o755))
		}
		devices := filepath.Join(root, "bus/pci/devices")
		require.NoError(t, os.MkdirAll(devices, 0o755))
		require.NoError(t, os.Symlink(filepath.Join("../../../devices", path), filepath.Join(devices, filepath.Base(path))))
	}
	return root
}

func TestPortLeadsToTheGPUsBelowIt(t *testing.T) {
	tree := Read(host(t))
	for address, gpus := range map[string][]string{
		"0000:64:01.0": {"0000:67:00.0", "0000:68:00.0"},
		"0000:65:00.0": {"0000:67:00.0", "0000:68:00.0"},
		"0000:66:01.0": {"0000:67:00.0"},
		"0000:67:00.0": {"0000:67:00.0"},
		"0000:b0:02.0": {"0000:b1:00.0"},
		"0000:00:1c.0": nil, // the console adapter is no GPU
		"0000:69:00.0": nil,
		"nonsense":     nil,
		"":             nil,
	} {
		require.Equal(t, gpus, tree.GPUs(address), address)
	}
}

func TestAdapterHasItsRDMAName(t *testing.T) {
	tree := Read(host(t))
	require.Equal(t, "mlx5_3", tree.RDMADevice("0000:69:00.0"))
	require.Empty(t, tree.RDMADevice("0000:67:00.0"))
}

func TestHostWithoutSysfsKnowsNothing(t *testing.T) {
	require.Empty(t, Read("/nowhere").GPUs("0000:64:01.0"))
	require.Empty(t, Tree{}.GPUs("0000:64:01.0"))
	require.Empty(t, Tree{}.RDMADevice("0000:64:01.0"))
}
