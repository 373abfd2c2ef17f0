// Package topology knows what hangs below a PCIe port and what an adapter is
// called as an RDMA device. A kernel-log line names the address of the port that
// saw an error, never the GPU behind it; sysfs has the tree.
package topology

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Tree is the PCIe tree of a host at one moment. The zero Tree knows nothing.
type Tree struct {
	gpus map[string][]string // address of a port or GPU → GPUs at or below it, sorted
	rdma map[string]string   // address of an adapter → its first RDMA device
}

// mostDevices bounds the tree: more PCI functions than any host has.
const mostDevices = 16384

// Read reads the tree from the sysfs mounted at root ("/sys"). No register of a
// device is read: the kernel keeps class and links in memory, so that a device
// that no longer answers makes nobody wait. What cannot be read is left out.
func Read(root string) Tree {
	t := Tree{gpus: map[string][]string{}, rdma: map[string]string{}}
	devices := filepath.Join(root, "bus/pci/devices")
	entries, err := os.ReadDir(devices)
	if err != nil {
		return t
	}
	for _, entry := range entries[:min(len(entries), mostDevices)] {
		address, path := entry.Name(), filepath.Join(devices, entry.Name())
		if isGPU(path) {
			t.addGPU(address, path)
		}
		if names, err := os.ReadDir(filepath.Join(path, "infiniband")); err == nil && len(names) > 0 {
			t.rdma[address] = names[0].Name()
		}
	}
	for _, below := range t.gpus {
		slices.Sort(below)
	}
	return t
}

// addGPU notes a GPU at every address on its path: its link leads to
// ../../../devices/pci0000:64/0000:64:01.0/0000:65:00.0.
func (t Tree) addGPU(address, path string) {
	target, err := os.Readlink(path)
	if err != nil {
		t.gpus[address] = append(t.gpus[address], address)
		return
	}
	for part := range strings.SplitSeq(target, "/") {
		if strings.Count(part, ":") == 2 {
			t.gpus[part] = append(t.gpus[part], address)
		}
	}
}

// GPU makers, as PCI vendor ids (https://pci-ids.ucw.cz): NVIDIA, AMD, Intel, Habana.
var gpuVendors = []string{"0x10de", "0x1002", "0x8086", "0x1da3"}

// isGPU tells a compute GPU by class (PCI Code and ID Assignment Specification,
// 1.4: 03 display controller, 12 processing accelerator) and maker: the console
// adapter of a server's management controller is a display of another maker.
func isGPU(path string) bool {
	class := read(path, "class")
	if !strings.HasPrefix(class, "0x03") && !strings.HasPrefix(class, "0x12") {
		return false
	}
	return slices.Contains(gpuVendors, read(path, "vendor"))
}

func read(path, name string) string {
	text, err := os.ReadFile(filepath.Join(path, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// GPUs returns the GPUs at or below an address, none when it is not known.
func (t Tree) GPUs(address string) []string { return t.gpus[address] }

// RDMADevice returns the name of an adapter as an RDMA device (mlx5_0), "" when
// it is none.
func (t Tree) RDMADevice(address string) string { return t.rdma[address] }
