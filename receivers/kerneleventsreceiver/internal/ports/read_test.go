package ports

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// put writes files of a sysfs.
func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
}

const (
	port = "class/infiniband/mlx5_0/ports/1/"
	net  = "class/infiniband/mlx5_0/device/net/"
)

func TestReadSaysWhyAPortIsNotActive(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  Port
	}{
		"active": {
			map[string]string{port + "state": "4: ACTIVE\n", port + "phys_state": "5: LinkUp\n", port + "link_layer": "InfiniBand\n", net + "ibs3/flags": "0x1003\n"},
			Port{Interface: "ibs3", State: "active"},
		},
		"no cable, or the switch is off": {
			map[string]string{port + "state": "1: DOWN\n", port + "phys_state": "2: Polling\n", port + "link_layer": "InfiniBand\n"},
			Port{State: "down", Physical: "polling", Reason: NoLink},
		},
		"the link does not come back": {
			map[string]string{port + "state": "1: DOWN\n", port + "phys_state": "6: LinkErrorRecovery\n", port + "link_layer": "InfiniBand\n"},
			Port{State: "down", Physical: "link_error_recovery", Reason: NoLink},
		},
		"switched off": {
			map[string]string{port + "state": "1: DOWN\n", port + "phys_state": "3: Disabled\n", port + "link_layer": "InfiniBand\n"},
			Port{State: "down", Physical: "disabled", Reason: SwitchedOff},
		},
		"no subnet manager": {
			map[string]string{port + "state": "2: INIT\n", port + "phys_state": "5: LinkUp\n", port + "link_layer": "InfiniBand\n"},
			Port{State: "init", Physical: "link_up", Reason: NotConfigured},
		},
		"Ethernet: disabled is no word of anybody": {
			map[string]string{port + "state": "1: DOWN\n", port + "phys_state": "3: Disabled\n", port + "link_layer": "Ethernet\n", net + "eth4/flags": "0x1003\n"},
			Port{Interface: "eth4", Ethernet: true, State: "down", Physical: "disabled", Reason: NoLink},
		},
		"Ethernet: the interface is down": {
			map[string]string{port + "state": "1: DOWN\n", port + "phys_state": "3: Disabled\n", port + "link_layer": "Ethernet\n", net + "eth4/flags": "0x1002\n"},
			Port{Interface: "eth4", Ethernet: true, State: "down", Physical: "disabled", Reason: SwitchedOff},
		},
		"Ethernet: the interface is of a bond": {
			map[string]string{port + "state": "1: DOWN\n", port + "phys_state": "3: Disabled\n", port + "link_layer": "Ethernet\n", net + "eth4/flags": "0x1002\n", net + "eth4/master/flags": "0x1002\n"},
			Port{Interface: "eth4", Ethernet: true, State: "down", Physical: "disabled"},
		},
		"Ethernet: no interface can be seen": {
			map[string]string{port + "state": "1: DOWN\n", port + "phys_state": "3: Disabled\n", port + "link_layer": "Ethernet\n"},
			Port{Ethernet: true, State: "down", Physical: "disabled"},
		},
		"Ethernet: two interfaces": {
			map[string]string{port + "state": "1: DOWN\n", port + "link_layer": "Ethernet\n", net + "eth4/flags": "0x1002\n", net + "eth5/flags": "0x1002\n"},
			Port{Ethernet: true, State: "down"},
		},
		"a state that nobody knows":     {map[string]string{port + "state": "9: <unknown>\n"}, Port{}},
		"a physical state likewise":     {map[string]string{port + "state": "1: DOWN\n", port + "phys_state": "0: <unknown>\n"}, Port{State: "down"}},
		"the state cannot be read":      {map[string]string{port + "lid": "0x0\n"}, Port{}},
		"a port that is kept for peers": {map[string]string{port + "state": "5: ACTIVE_DEFER\n", port + "phys_state": "7: Phy Test\n"}, Port{State: "active_defer", Physical: "phy_test"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			put(t, root, tc.files)
			tc.want.Device, tc.want.Number = "mlx5_0", 1
			require.Equal(t, []Port{tc.want}, read(t, root))
		})
	}
}

func read(t *testing.T, root string) []Port {
	t.Helper()
	all, err := Read(root)
	require.NoError(t, err)
	return all
}

// A pod has a virtual function of a RoCE adapter: the interface is in the pod's network namespace, and
// the host sees none. When the pod ends, the kernel closes the interface and gives it back
// (dev_change_net_namespace, net/core/dev.c).
func TestAPodGivesItsVirtualFunctionBack(t *testing.T) {
	root := t.TempDir()
	var b Book
	look := func(at time.Duration) []Seen { return b.Look(read(t, root), start.Add(at)) }
	put(t, root, map[string]string{port + "state": "4: ACTIVE\n", port + "phys_state": "5: LinkUp\n", port + "link_layer": "Ethernet\n"})
	require.NoError(t, os.MkdirAll(filepath.Join(root, net), 0o755))
	require.Len(t, look(0), 1)
	put(t, root, map[string]string{port + "state": "1: DOWN\n", port + "phys_state": "3: Disabled\n", net + "eth5/flags": "0x1002\n"})
	require.Empty(t, look(time.Minute))
	require.Empty(t, look(2*time.Minute))
}

func TestAFolderThatCannotBeReadIsNoMachineWithoutPorts(t *testing.T) {
	for name, file := range map[string]string{
		"adapters":            "class/infiniband",
		"ports of an adapter": "class/infiniband/mlx5_0/ports",
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			put(t, root, map[string]string{file: "no folder"})
			_, err := Read(root)
			require.Error(t, err)
		})
	}
}

func TestReadFindsAllPortsUpToABound(t *testing.T) {
	root := t.TempDir()
	require.Empty(t, read(t, root), "a machine without adapters")
	put(t, root, map[string]string{
		"class/infiniband/bnxt_re0/ports/1/state": "4: ACTIVE\n", "class/infiniband/mlx4_0/ports/1/state": "4: ACTIVE\n", "class/infiniband/mlx4_0/ports/2/state": "4: ACTIVE\n",
		"class/infiniband/none/node_desc": "no ports\n", "class/infiniband/odd/ports/x/state": "4: ACTIVE\n",
	})
	require.Equal(t, []Port{{Device: "bnxt_re0", Number: 1, State: "active"}, {Device: "mlx4_0", Number: 1, State: "active"}, {Device: "mlx4_0", Number: 2, State: "active"}}, read(t, root))
	for number := range most {
		require.NoError(t, os.MkdirAll(filepath.Join(root, "class/infiniband/vf/ports", strconv.Itoa(number)), 0o755))
	}
	require.Len(t, read(t, root), most)
}
