package kmsg

// matchBytes is how far into a text a word may end (MATCH_BYTES in
// kmsg.bpf.c).
const matchBytes = 256

// DefaultWords returns the words that make a kernel-log record worth delivering.
// They are looked for anywhere in the first 256 bytes of a text, not at its
// beginning: a device name, a process name or an earlier fragment can stand
// before them. A word may match too much, never too little: what a line means is
// decided in user space.
func DefaultWords() []string {
	return []string{
		// NVIDIA GPUs. The driver begins each line of its own with NVRM:, newer
		// ones behind "nvidia 0000:bb:dd.f: "; the parts of the message about a
		// lost GPU can come as records of their own.
		"NVRM:",
		"The NVIDIA GPU ",
		"installed in this system has",
		"fallen off the bus",
		// NVSwitches: "nvidia-nvswitch0: SXid (PCI:…", and what follows an SXid.
		"nvidia-nvswitch",
		"SXid",
		// AMD GPUs: "amdgpu 0000:03:00.0: amdgpu: …", "[drm:… [amdgpu]] *ERROR* …".
		"amdgpu",
		// InfiniBand and Ethernet adapters: "mlx5_core 0000:…", "infiniband mlx5_0: …".
		"mlx5",
		// PCIe errors. The port's line, and the line of the device itself:
		// "nvme 0000:…: PCIe Bus Error: severity=…". Linux 7.3 adds the type as
		// "nvme 0000:…: [ 0] RxErr | Receiver | Physical Layer".
		"pcieport",
		"AER:",
		"PCIe Bus Error",
		" Layer",
		// The host's own memory (drivers/edac/edac_mc.c, mm/memory-failure.c,
		// arch/x86/mm/fault.c).
		"EDAC MC",
		"Memory failure: ",
		"MCE: Killing ",
		// NFS (net/sunrpc/clnt.c, fs/nfs, fs/lockd).
		"nfs: server",
		"NFS: ",
		"lockd: server",
		// Watchdogs (kernel/watchdog.c, kernel/hung_task.c).
		"soft lockup",
		"hard LOCKUP",
		"INFO: task ", // "… blocked for more than …", since Linux 7.1 "… blocked in I/O wait for more than …", too
		// A process that died by a fault (arch/x86/mm/fault.c, and
		// arch/arm64/kernel/traps.c). Where it died is a fragment of its own:
		// " in libnccl.so.2[…]".
		"segfault at",
		"general protection fault ip:",
		"trap invalid opcode ip:",
		"unhandled exception: ",
		" in lib",
	}
}
