//go:build linux && (amd64 || arm64)

package kernellog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// awaitProven reads the log from here on until it has a proven fault that is wanted.
func awaitProven(t *testing.T, probe *kmsg.Probe, about string, wanted func(Fault) bool) Fault {
	t.Helper()
	late := time.AfterFunc(hosttest.Patience, func() { probe.Close() })
	defer late.Stop()
	p := newTestParser(t)
	var said []string
	for e := (kmsg.Event{}); ; {
		if err := probe.Read(&e); err != nil {
			require.Failf(t, "nothing is proven", "%s: %v: %s", about, err, said)
		}
		faults, _ := p.Parse(nil, &e)
		for _, f := range faults {
			if f.Key.Trust == record.Proven && wanted(f) {
				t.Logf("%s wrote %q", f.Origin, f.Text)
				return f
			}
		}
		said = append(said, fmt.Sprintf("%s: %q\n", e.Origin, e.Text))
	}
}

// The word of the kernel's driver of PCIe ports: errors in the registers of a port, which
// the module aer_inject puts there.
func TestErrorsOfAPCIePortAreProven(t *testing.T) {
	if !inMachine(t) {
		return
	}
	inject, err := os.OpenFile("/dev/aer_inject", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this kernel has no module aer_inject: ", err)
	}
	defer inject.Close()
	probe, err := kmsg.Open(kmsg.Options{})
	require.NoError(t, err)
	defer probe.Close()
	address := rootPort(t)
	// Bits of the registers of errors (PCI Express Base Specification, 7.8.4).
	for _, tc := range []struct {
		corrected, uncorrected uint32
		severity, kind         string
	}{
		{1 << 0, 0, "corrected", "Physical Layer"},
		{1 << 6, 0, "corrected", "Data Link Layer"},
		{0, 1 << 12, "nonfatal", "Transaction Layer"},
		{0, 1 << 18, "fatal", "Transaction Layer"},
	} {
		about := tc.severity + " " + tc.kind
		_, err := inject.Write(aerError(t, address, tc.corrected, tc.uncorrected))
		require.NoError(t, err, about)
		f := awaitProven(t, probe, about, func(f Fault) bool {
			return f.Key.Event == metadata.EventPcieError && attributesOf(f)["kernelevents.reported_severity"] == tc.severity
		})
		require.Equal(t, address, f.Key.Subject, about)
		require.Equal(t, tc.kind, attributesOf(f)["kernelevents.pcie_error_type"], about)
		require.Empty(t, f.Origin.Module, "the driver is never a module")
	}
}

// rootPort is the address of the machine's PCIe port.
func rootPort(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/sys/bus/pci/drivers/pcieport/0000:*")
	require.NoError(t, err)
	require.Len(t, found, 1, "the machine has one port")
	return filepath.Base(found[0])
}

// aerError is a struct aer_error_inj (drivers/pci/pcie/aer_inject.c).
func aerError(t *testing.T, address string, corrected, uncorrected uint32) []byte {
	t.Helper()
	var e struct {
		Bus, Device, Function, _ uint8
		Uncorrected, Corrected   uint32
		_                        [4]uint32
		Domain                   uint32
	}
	_, err := fmt.Sscanf(address, "%x:%x:%x.%x", &e.Domain, &e.Bus, &e.Device, &e.Function)
	require.NoError(t, err)
	e.Uncorrected, e.Corrected = uncorrected, corrected
	var b bytes.Buffer
	require.NoError(t, binary.Write(&b, binary.NativeEndian, e))
	return b.Bytes()
}

// The word of a driver of memory controllers. It is i3200_edac, which reads registers that
// the machine has as memory: an ivshmem device.
func TestErrorsOfAMemoryControllerAreProven(t *testing.T) {
	if !inMachine(t) {
		return
	}
	const driver, bridge = "i3200_edac", "/sys/bus/pci/devices/0000:00:00.0/"
	module, err := filepath.Glob("/lib/modules/*-" + driver + ".ko")
	require.NoError(t, err)
	if len(module) == 0 {
		t.Skip("this kernel has no module " + driver)
	}
	probe, err := kmsg.Open(kmsg.Options{})
	require.NoError(t, err)
	defer probe.Close()
	registers, at := memoryDevice(t)

	// Places and bits of drivers/edac/i3200_edac.c.
	const (
		windowAt, statusAt           = 0x48, 0xc8   // in the configuration of the bridge
		boundariesAt, logAt          = 0x200, 0x280 // in the window
		corrected, uncorrected, rank = 1, 2, 27
	)
	for i := range 4 { // one rank of 256 MiB, and three without memory
		binary.LittleEndian.PutUint16(registers[boundariesAt+2*i:], 4)
	}
	config, err := os.OpenFile(bridge+"config", os.O_RDWR, 0)
	require.NoError(t, err)
	defer config.Close()
	set := func(offset int64, value []byte) {
		_, err := config.WriteAt(value, offset)
		require.NoError(t, err)
	}
	set(windowAt, binary.LittleEndian.AppendUint64(nil, at))
	set(statusAt, []byte{0, 0})
	require.NoError(t, os.WriteFile(bridge+"driver_override", []byte(driver), 0))
	file, err := os.Open(module[0])
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, unix.FinitModule(int(file.Fd()), "", 0))
	defer func() {
		require.NoError(t, unix.DeleteModule(driver, 0))
		require.NoError(t, os.WriteFile(bridge+"driver_override", []byte("\n"), 0))
	}()
	for _, tc := range []struct {
		log      uint64
		severity string
	}{{corrected, "corrected"}, {uncorrected, "uncorrected"}} {
		binary.LittleEndian.PutUint64(registers[logAt:], tc.log)
		set(statusAt, []byte{byte(tc.log), 0})
		f := awaitProven(t, probe, tc.severity, func(f Fault) bool {
			return f.Key.Event == metadata.EventHostMemoryError && attributesOf(f)["kernelevents.reported_severity"] == tc.severity
		})
		require.Equal(t, "memory_error", attributesOf(f)["kernelevents.fault"])
		require.Contains(t, attributesOf(f)["kernelevents.dimm"], "mc#0csrow#0channel#0")
		require.EqualValues(t, 1, attributesOf(f)["kernelevents.error_count"])
		require.Contains(t, []string{"", "edac_core"}, f.Origin.Module)
	}
}

// memoryDevice maps the memory of the machine's ivshmem device, and says where the kernel
// has it.
func memoryDevice(t *testing.T) (memory []byte, at uint64) {
	t.Helper()
	const id = "0x1af4 0x1110"
	found, err := filepath.Glob("/sys/bus/pci/devices/*")
	require.NoError(t, err)
	for _, device := range found {
		vendor, err := os.ReadFile(device + "/vendor")
		require.NoError(t, err)
		model, err := os.ReadFile(device + "/device")
		require.NoError(t, err)
		if strings.TrimSpace(string(vendor))+" "+strings.TrimSpace(string(model)) != id {
			continue
		}
		require.NoError(t, os.WriteFile(device+"/enable", []byte("1"), 0))
		resources, err := os.ReadFile(device + "/resource")
		require.NoError(t, err)
		start := strings.Fields(strings.Split(string(resources), "\n")[2])[0]
		at, err = strconv.ParseUint(start, 0, 64)
		require.NoError(t, err)
		bar, err := os.OpenFile(device+"/resource2", os.O_RDWR, 0)
		require.NoError(t, err)
		defer bar.Close()
		memory, err = unix.Mmap(int(bar.Fd()), 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, unix.Munmap(memory)) })
		return memory, at
	}
	require.Fail(t, "the machine has no ivshmem device")
	return nil, 0
}
