package kernellog

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// shapes are a line of each parser, with a function that writes it.
var shapes = map[string]struct {
	line   string
	writer kmsg.Function
}{
	"xid":            {"NVRM: Xid (PCI:0000:65:00): 79, pid=1, name=a, GPU has fallen off the bus.", kmsg.Function{Name: "nv_printf", Module: "nvidia"}},
	"xid of device":  {"nvidia 0000:65:00.0: NVRM: Xid (PCI:0000:65:00): 79", kmsg.Function{Name: "nv_printf", Module: "nvidia"}},
	"sxid":           {"nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up", kmsg.Function{Name: "nvswitch_os_print", Module: "nvidia"}},
	"lost":           {"NVRM: GPU 0000:65:00.0: GPU has fallen off the bus.", kmsg.Function{Name: "nv_printf", Module: "nvidia"}},
	"hardware error": {"nvidia 0000:65:00.0: NVRM: {7}[Hardware Error]: event severity: fatal", kmsg.Function{Name: "nv_printf", Module: "nvidia"}},
	"amd lost":       {"amdgpu 0000:03:00.0: amdgpu: device lost from bus!", kmsg.Function{Name: "amdgpu_device_gpu_recover", Module: "amdgpu"}},
	"amd reset":      {"amdgpu 0000:c3:00.0: amdgpu: GPU reset(5) succeeded!", kmsg.Function{Name: "amdgpu_device_gpu_recover", Module: "amdgpu"}},
	"amd ring":       {"[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1, emitted seq=2", kmsg.Function{Name: "amdgpu_job_timedout", Module: "amdgpu"}},
	"amd errors":     {"amdgpu 0000:01:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block", kmsg.Function{Name: "amdgpu_ras_query_error_count"}},
	"amd page fault": {"amdgpu 0000:0a:00.0: amdgpu: [mmhub0] page fault (src_id:0 ring:0 vmid:0 pasid:0)", kmsg.Function{Name: "gmc_v9_0_process_interrupt", Module: "amdgpu"}},
	"link":           {"mlx5_core 0000:5e:00.1 enp94s0f1np1: Link down", kmsg.Function{Name: "mlx5e_update_carrier", Module: "mlx5_core"}},
	"port":           {"infiniband mlx5_0: Port: 1 Link DOWN", kmsg.Function{Name: "ib_dispatch_event", Module: "ib_core"}},
	"module":         {"mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature", kmsg.Function{Name: "mlx5_port_module_event", Module: "mlx5_core"}},
	"aer":            {"pcieport 0000:b0:02.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)", kmsg.Function{Name: "aer_print_error"}},
	"edac":           {"EDAC MC0: 1 UE memory read error on DIMM#0 (channel:0 slot:0)", kmsg.Function{Name: "edac_mc_handle_error", Module: "edac_core"}},
	"edac built in":  {"EDAC MC0: 1 UE memory read error on DIMM#0 (channel:0 slot:0)", kmsg.Function{Name: "edac_raw_mc_handle_error"}},
	"page":           {"Memory failure: 0x1d3f5a: Sending SIGBUS to python:4242 due to hardware memory corruption", kmsg.Function{Name: "kill_proc"}},
	"mce":            {"MCE: Killing python:77 due to hardware memory corruption fault at 7f1c2e400000", kmsg.Function{Name: "do_sigbus"}},
	"nfs":            {"nfs: server 10.0.0.9 not responding, still trying", kmsg.Function{Name: "rpc_check_timeout", Module: "sunrpc"}},
	"lockd":          {"lockd: server 10.0.0.9 OK", kmsg.Function{Name: "rpc_check_connected"}},
	"soft lockup":    {"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:1234]", kmsg.Function{Name: "watchdog_timer_fn"}},
	"hard lockup":    {"NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", kmsg.Function{Name: "watchdog_hardlockup_check"}},
	"hung task":      {"INFO: task python:1234 blocked for more than 120 seconds.", kmsg.Function{Name: "check_hung_uninterruptible_tasks"}},
	"crash":          {"python[99]: segfault at 10 ip 00007f sp 00007f error 4 in libnccl.so.2[7f5d+1200]", kmsg.Function{Name: "__bad_area_nosemaphore"}},
	"crash, opcode":  {"traps: python[99] trap invalid opcode ip:7f11 sp:7ffc error:0 in libnccl.so.2[7f00+100]", kmsg.Function{Name: "do_trap"}},
	"crash of traps": {"traps: python[99] general protection fault ip:7f11 sp:7ffc error:0 in libcuda.so.570.1[7f00+100]", kmsg.Function{Name: "exc_general_protection"}},
}

func parse(t *testing.T, writer kmsg.Writer, origin kmsg.Function, text string) []Fault {
	t.Helper()
	p := newTestParser(t)
	faults, _ := p.Parse(nil, &kmsg.Event{Time: start, PID: 99, Writer: writer, Origin: origin, Text: text})
	return p.Expire(faults, start.Add(time.Hour))
}

func TestALineIsProvenByItsWriterAlone(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			for about, tc := range map[string]struct {
				writer kmsg.Writer
				origin kmsg.Function
				want   record.Trust
			}{
				"its driver":                     {kmsg.WriterKernel, shape.writer, record.Proven},
				"nobody knows who":               {kmsg.WriterKernel, kmsg.Function{}, record.Claimed},
				"nothing is known":               {kmsg.WriterUnknown, shape.writer, record.Claimed},
				"a process":                      {kmsg.WriterUserspace, kmsg.Function{Name: "devkmsg_emit"}, record.Claimed},
				"a process below the driver":     {kmsg.WriterUserspace, shape.writer, record.Claimed},
				"mount":                          {kmsg.WriterKernel, kmsg.Function{Name: "logfc"}, record.Claimed},
				"a module":                       {kmsg.WriterKernel, kmsg.Function{Name: shape.writer.Name, Module: "usbcore"}, record.Claimed},
				"a function of another's module": {kmsg.WriterKernel, kmsg.Function{Name: "nv_printf", Module: "fuse"}, record.Claimed},
			} {
				faults := parse(t, tc.writer, tc.origin, shape.line)
				require.Len(t, faults, 1, about)
				require.Equal(t, tc.want, faults[0].Key.Trust, about)
			}
		})
	}
}

// carriers are lines of the kernel that hold text of somebody else's, and the function
// that writes them. 15 bytes is the longest name of a process.
var carriers = map[string]struct {
	line   func(text string) string
	writer kmsg.Function
}{
	"name of a process that crashes": {func(text string) string {
		return fmt.Sprintf("%.15s[99]: segfault at 0 ip 0 sp 0 error 4 in a.out[1000+1000]", text)
	}, kmsg.Function{Name: "__bad_area_nosemaphore"}},
	"name of a process that hangs": {func(text string) string {
		return fmt.Sprintf("INFO: task %.15s:99 blocked for more than 120 seconds.", text)
	}, kmsg.Function{Name: "check_hung_task"}},
	"name of a process that spins": {func(text string) string {
		return fmt.Sprintf("watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [%.15s:99]", text)
	}, kmsg.Function{Name: "watchdog_timer_fn"}},
	"name of a process at its end": {func(text string) string {
		return fmt.Sprintf("Out of memory: Killed process 99 (%.15s) total-vm:1kB", text)
	}, kmsg.Function{Name: "__oom_kill_process"}},
	"name of a process without memory": {func(text string) string {
		return fmt.Sprintf("%.15s invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", text)
	}, kmsg.Function{Name: "dump_header"}},
	"name of a process without a frame": {func(text string) string {
		return fmt.Sprintf("%.15s[99] bad frame in rt_sigreturn frame:0 ip:0 sp:0 orax:f in %[1]s[1000+1000]", text)
	}, kmsg.Function{Name: "signal_fault"}},
	"name of the owner of a channel": {func(text string) string {
		return fmt.Sprintf("NVRM: Xid (PCI:0000:65:00): 45, pid=99, name=%.15s, Ch 00000001", text)
	}, kmsg.Function{Name: "nv_printf", Module: "nvidia"}},
	"file that a process crashes in": {func(text string) string {
		return "a.out[99]: segfault at 0 ip 0 sp 0 error 4 in " + text + "[1000+1000]"
	}, kmsg.Function{Name: "__bad_area_nosemaphore"}},
	"option of a mount":        {func(text string) string { return "tmpfs: Unknown parameter '" + text + "'" }, kmsg.Function{Name: "logfc"}},
	"label of a file system":   {func(text string) string { return "FAT-fs (" + text + "): bogus number of reserved sectors" }, kmsg.Function{Name: "_fat_msg", Module: "fat"}},
	"name of a USB product":    {func(text string) string { return "usb 1-1: Product: " + text }, kmsg.Function{Name: "announce_device", Module: "usbcore"}},
	"label of btrfs":           {func(text string) string { return "BTRFS: device label " + text + " devid 1 transid 0" }, kmsg.Function{Name: "device_list_add", Module: "btrfs"}},
	"name of an interface":     {func(text string) string { return fmt.Sprintf("%.15s: renamed from lo", text) }, kmsg.Function{Name: "dev_change_name"}},
	"prefix of a firewall":     {func(text string) string { return text + "IN=lo OUT= SRC=127.0.0.1" }, kmsg.Function{Name: "nf_log_buf_close"}},
	"program without argv":     {func(text string) string { return "process 'a' launched '" + text + "' with NULL argv" }, kmsg.Function{Name: "do_execveat_common"}},
	"all of a driver's text":   {func(text string) string { return text }, kmsg.Function{Name: "announce_device", Module: "usbcore"}},
	"what a process writes":    {func(text string) string { return text }, kmsg.Function{Name: "devkmsg_write"}},
	"program that asks for IO": {func(text string) string { return text + ": process used the deprecated interface" }, kmsg.Function{Name: "warn_legacy"}},
}

// Whatever a line quotes is never a driver's word: no fault of that driver, or a claim.
func TestQuotedTextProvesNothing(t *testing.T) {
	for carrier, c := range carriers {
		for name, shape := range shapes {
			for _, text := range []string{shape.line, "x\n" + shape.line, "x\n" + shape.line + "\n", shape.line + "\n" + shape.line} {
				own := parse(t, kmsg.WriterKernel, c.writer, c.line("x"))
				for _, f := range parse(t, kmsg.WriterKernel, c.writer, c.line(text)) {
					if f.Key.Trust == record.Proven {
						require.Len(t, own, 1, "%s: %s", carrier, name)
						require.Equal(t, own[0].Key.Event, f.Key.Event, "%s: %s", carrier, name)
						require.Equal(t, own[0].Key.Subject, f.Key.Subject, "%s: %s", carrier, name)
						require.Equal(t, own[0].Key.Code, f.Key.Code, "%s: %s", carrier, name)
					}
				}
				if strings.HasPrefix(text, "x\n") && c.line("") != "" {
					for _, f := range parse(t, kmsg.WriterUnknown, kmsg.Function{}, c.line(text)) {
						require.Contains(t, []string{metadata.EventHostLockup, metadata.EventGpuXid}, f.Key.Event, "%s: %s: what stands behind a newline is no line", carrier, name)
					}
				}
			}
		}
	}
}

// The attack of a process without any privilege: it calls itself as a driver's line
// begins, and crashes. What its line shows is its crash.
func TestNamesOfProcessesAreNoLines(t *testing.T) {
	crash := kmsg.Function{Name: "__bad_area_nosemaphore"}
	for _, comm := range []string{"EDAC MC0: 1 UE ", "EDAC MC1: 9 CE ", "nfs: server a O", "mlx5 Link down", "]: segfault at ", "x in libnccl[", "x[7]: segfault "} {
		require.Empty(t, parse(t, kmsg.WriterKernel, crash, comm+"[9516]: segfault at 0 ip 0 sp 0 error 6 in a.out[1000+1000]"), comm)
	}
	const forged = " due to hardware memory corruption fault at 7f"
	for _, origin := range crashWriters.functions { // some print memory errors, too
		for _, comm := range []string{"MCE: Killing a:", "MCE: Killing :7", "MCE: Killing \n", "mce: MCE: Killi", "Memory failure:", "Memory failure\n"} {
			for _, line := range []string{
				comm + "[9516]: segfault at 0 ip 0 sp 0 error 6", comm + "[9516]: segfault at 0 ip 0000000000400078 sp 00007ffcb6d3a960 error 6 in x:77" + forged + "[1+1]",
				"traps: " + comm + "[9516] general protection fault ip:400078 sp:7ffcb6d3a960 error:0 in x:77" + forged + "[1+1]",
			} {
				require.Empty(t, parse(t, kmsg.WriterKernel, kmsg.Function{Name: origin}, line), "%s: %q", origin, line)
			}
		}
	}
	faults := parse(t, kmsg.WriterKernel, crash, "EDAC MC0: 1 UE [9516]: segfault at 0 ip 0 sp 0 error 6 in libnccl.so.2[1000+1000]")
	require.Len(t, faults, 1)
	require.Equal(t, metadata.EventProcessSegfault, faults[0].Key.Event)
	require.Equal(t, "EDAC MC0: 1 UE ", faults[0].OwnerName)
}

// No name of a process, which older drivers print behind the number of an Xid, says what the
// driver asks for, or that it asks for nothing any more.
func TestANameAsksForNoActionAndEndsNone(t *testing.T) {
	for _, comm := range []string{"a", "a, from b to c", "a, from 0x1 to ", ", from (None) to", "x (None) to 0x0", "a\nb", "\n", "a, \nNVRM: Xid ("} {
		faults := parse(t, kmsg.WriterKernel, shapes["xid"].writer, "NVRM: Xid (PCI:0000:65:00): 154, pid=99, name="+comm+", GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
		require.Len(t, faults, 1, comm)
		require.Equal(t, "node_reboot", faults[0].State, comm)
	}
}

// Nor does one name another link of NVLink, or none.
func TestANameNamesNoLink(t *testing.T) {
	for _, comm := range []string{"a", "x, on link 3(", ", on link 3(0x1", "a\nb", "x\n, on link 3("} {
		faults := parse(t, kmsg.WriterKernel, shapes["xid"].writer, "NVRM: Xid (PCI:0000:65:00): 74, pid=99, name="+comm+", NVLink: fatal error detected on link 14(0x100000, 0x0)")
		require.Len(t, faults, 1, comm)
		require.Equal(t, "14", faults[0].Key.Part, comm)
		require.EqualValues(t, 99, faults[0].OwnerPID, comm)
	}
}

// Words of a lost GPU stand behind its address, and nowhere else in a line of the driver.
func TestALostGPUIsNamedByItsAddress(t *testing.T) {
	for _, text := range []string{"NVRM: GPU at x: GPU has fallen off the bus", "NVRM: GPU 0000:65:00.0: a program says: GPU has fallen off the bus", "NVRM: GPU : GPU has fallen off the bus"} {
		for _, f := range parse(t, kmsg.WriterKernel, shapes["lost"].writer, text) {
			require.NotEqual(t, metadata.EventGpuLost, f.Key.Event, text)
		}
	}
}

// No name of a process makes a driver's line accuse another process.
func TestANameAccusesNobodyElse(t *testing.T) {
	for about, c := range map[string]struct {
		line   string
		writer kmsg.Function
	}{
		"xid":         {"NVRM: Xid (PCI:0000:65:00): 45, pid=99, name=%s, Ch 00000001", shapes["xid"].writer},
		"amd":         {"amdgpu 0000:0a:00.0: amdgpu: [gfxhub0] page fault (src_id:0 ring:24 vmid:3 pasid:1, for process %s pid 99 thread %[1]s pid 99)", shapes["amd page fault"].writer},
		"amd, in":     {"amdgpu 0000:0a:00.0: amdgpu: [gfxhub0] page fault (src_id:0 ring:24 vmid:3 pasid:1) in process %s pid 99 thread %[1]s pid 99", shapes["amd page fault"].writer},
		"soft lockup": {"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [%s:99]", shapes["soft lockup"].writer},
		"hung task":   {"INFO: task %s:99 blocked for more than 120 seconds.", shapes["hung task"].writer},
		"hung in I/O": {"INFO: task %s:99 blocked in I/O wait for more than 120 seconds.", shapes["hung task"].writer},
		"page":        {"Memory failure: 0x1d3f5a: Sending SIGBUS to %s:99 due to hardware memory corruption", shapes["page"].writer},
		"page, kill":  {"Memory failure: 0x1d3f5a: forcibly killing %s:99 because of failure to unmap corrupted page", shapes["page"].writer},
		"mce":         {"MCE: Killing %s:99 due to hardware memory corruption fault at 7f1c2e400000", shapes["mce"].writer},
		"crash":       {"%s[99]: segfault at 10 ip 00 sp 00 error 4 in libnccl.so.2[7f5d+1200]", shapes["crash"].writer},
	} {
		proven := 0
		for _, name := range []string{
			"python", "a:77", "a:77\n", "a:77]\n", "a:77]", "a[77]: segfault", "a[77\n", "a pid 77\n", "a pid 77)\n", "a pid 77 thread", "process a pid 7",
			"a pid 7\nprocess", "a:77 due to \n", "a:77 due to", "a:77 because of", "a:7\n:99 due to", "a:7 blocked for", "\n:77", ", pid=77, name=", "a, pid=77\n",
		} {
			for _, f := range parse(t, kmsg.WriterKernel, c.writer, fmt.Sprintf(c.line, name)) {
				require.Contains(t, []uint32{0, 99}, f.OwnerPID, "%s: %q", about, name)
				if f.Key.Trust == record.Proven && f.OwnerPID == 99 {
					proven++
				}
			}
		}
		require.Positive(t, proven, about)
	}
}

// Nor does one in the line that follows a fault of an AMD GPU, or a line that is not the driver's, or of another writer.
func TestTheNextLineAccusesNobodyElse(t *testing.T) {
	const fault = "amdgpu 0000:0a:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32770)"
	driver := shapes["amd page fault"].writer
	owner := func(pid uint32, writer kmsg.Writer, origin kmsg.Function, text string) uint32 {
		p := newTestParser(t)
		faults, _ := p.Parse(nil, &kmsg.Event{Time: start, PID: 5, Writer: kmsg.WriterKernel, Origin: driver, Text: fault})
		faults, _ = p.Parse(faults, &kmsg.Event{Time: start, PID: pid, Writer: writer, Origin: origin, Text: text})
		faults = p.Expire(faults, start.Add(time.Hour))
		require.Len(t, faults, 1)
		require.Equal(t, record.Proven, faults[0].Key.Trust)
		return faults[0].OwnerPID
	}
	for _, shape := range []string{" in process %s pid 99 thread %[1]s pid 99)", " Process %s pid 99 thread %[1]s pid 99"} {
		line := "amdgpu 0000:0a:00.0: amdgpu: " + shape
		for _, name := range []string{"a pid 77\n", "a pid 77)\n", "a pid 77 thread", "process a pid 7", "a pid 7\nprocess", "Process a pid 7"} {
			require.Contains(t, []uint32{0, 99}, owner(5, kmsg.WriterKernel, driver, fmt.Sprintf(line, name)), name)
		}
		said := fmt.Sprintf(line, "python")
		require.EqualValues(t, 99, owner(5, kmsg.WriterKernel, driver, said))
		require.Zero(t, owner(6, kmsg.WriterKernel, driver, said), "of another writer")
		require.Zero(t, owner(5, kmsg.WriterUserspace, kmsg.Function{}, said), "a claim")
		require.Zero(t, owner(5, kmsg.WriterKernel, shapes["xid"].writer, said), "of another driver")
	}
}

func TestAClaimAddsNothingToAProvenFault(t *testing.T) {
	driver := kmsg.Function{Name: "nv_printf", Module: "nvidia"}
	p := newTestParser(t)
	say := func(writer kmsg.Writer, origin kmsg.Function, text string) []Fault {
		faults, _ := p.Parse(nil, &kmsg.Event{Time: start, PID: 99, Writer: writer, Origin: origin, Text: text})
		return faults
	}
	say(kmsg.WriterUserspace, kmsg.Function{}, "NVRM: GPU at PCI:0000:65:00: GPU-forged")
	say(kmsg.WriterUserspace, kmsg.Function{}, "NVRM: The NVIDIA GPU 0000:b3:00.0")
	say(kmsg.WriterUserspace, kmsg.Function{}, "nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48")
	say(kmsg.WriterUserspace, kmsg.Function{}, "nvidia 0000:65:00.0: NVRM: {7}[Hardware Error]: event severity: corrected")

	faults := say(kmsg.WriterKernel, driver, "NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.")
	require.NotContains(t, faults[0].Event.Attributes().AsRaw(), "gpu.uuid", "a name that a process gave")
	faults = say(kmsg.WriterKernel, driver, "NVRM: fallen off the bus and is not responding to commands.")
	require.Empty(t, faults[0].Key.Subject, "a place that a process gave")
	require.Len(t, say(kmsg.WriterKernel, driver, "nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Data {0x1}"), 1)
	require.Len(t, say(kmsg.WriterKernel, driver, "nvidia 0000:65:00.0: NVRM: {7}[Hardware Error]: event severity: fatal"), 1)
	require.Empty(t, p.Expire(nil, start.Add(time.Hour)))
}

// FuzzTrust: nothing is proven that its writer does not write, and nothing that stands
// behind a newline changes anything but the lines of a driver that prints several. It can
// take the owner away, whose name may have held the newline.
func FuzzTrust(f *testing.F) {
	for _, shape := range shapes {
		f.Add(shape.line, "x", shape.writer.Name, shape.writer.Module)
	}
	lines, err := os.ReadFile("testdata/lines.txt")
	require.NoError(f, err)
	for line := range strings.Lines(string(lines)) {
		f.Add(strings.TrimSpace(line), "NVRM: fallen off the bus", "show_signal_msg", "")
	}
	writes := map[string]writers{
		metadata.EventGpuXid: nvidiaWriters, metadata.EventNvswitchSxid: nvidiaWriters, metadata.EventNetworkLink: networkWriters,
		metadata.EventNetworkModuleFault: networkWriters, metadata.EventPcieError: pcieWriters, metadata.EventStorageNotResponding: nfsWriters, metadata.EventStorageRecovered: nfsWriters,
		metadata.EventHostLockup: watchdogWriters, metadata.EventProcessSegfault: crashWriters, metadata.EventGpuRecovered: amdWriters,
	}
	f.Fuzz(func(t *testing.T, first, behind, name, module string) {
		origin := kmsg.Function{Name: name, Module: module}
		whole := parse(t, kmsg.WriterKernel, origin, first+"\n"+behind)
		for _, fault := range whole {
			either := writes[fault.Key.Event].include(origin)
			switch fault.Key.Event {
			case metadata.EventGpuFault, metadata.EventGpuLost:
				either = nvidiaWriters.include(origin) || amdWriters.include(origin)
			case metadata.EventHostMemoryError:
				either = edacWriters.include(origin) || memoryFailureWriters.include(origin)
			}
			require.Equal(t, either, fault.Key.Trust == record.Proven, fault.Key.Event)
		}
		line, _, _ := strings.Cut(first, "\n")
		// All of a record of NVIDIA's driver is the driver's, but for a name in it.
		if !strings.Contains(line, "The NVIDIA GPU ") && !(nvidiaWriters.include(origin) && strings.Contains(line, "Xid (")) {
			alone := parse(t, kmsg.WriterKernel, origin, line)
			for i := range alone {
				if len(whole) == len(alone) && whole[i].OwnerPID == 0 && whole[i].OwnerName == "" {
					alone[i].own("", 0)
				}
			}
			require.Equal(t, alone, whole)
		}
	})
}
