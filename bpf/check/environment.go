package check

import (
	"fmt"
	"io/fs"
	"runtime"
	"strconv"
	"strings"
)

// State says what a fact means for the probes.
type State string

// The states of a fact.
const (
	Fine    State = "ok"
	Limits  State = "limits"  // it takes something away; Hint says what to do
	Unknown State = "unknown" // it could not be told
)

// Fact is one thing about this machine or process that decides what a probe can
// do here.
type Fact struct {
	ID    string `json:"id"` // stable: "kernel.btf"
	Value string `json:"value"`
	State State  `json:"state"`
	Hint  string `json:"hint,omitempty"`
}

// fact is how one Fact is found in a file system rooted at "/".
type fact struct {
	id   string
	find func(root fs.FS) (value string, state State, hint string)
}

// facts lists what Environment looks at, in the order it is shown.
func facts() []fact {
	return []fact{
		{"kernel.release", kernelRelease},
		{"kernel.arch", func(fs.FS) (string, State, string) { return runtime.GOARCH, Fine, "" }},
		{"kernel.btf", kernelBTF},
		{"kernel.lockdown", lockdown},
		{"kernel.kprobes", kprobes},
		{"kernel.bpf_jit", bpfJIT},
		{"kernel.kptr_restrict", kptrRestrict},
		{"kernel.unprivileged_bpf_disabled", setting("proc/sys/kernel/unprivileged_bpf_disabled")},
		{"kernel.printk_devkmsg", devKmsg},
		{"process.uid", uid},
		{"process.capabilities", capabilities},
		{"process.seccomp", seccomp},
		{"process.host_pid_namespace", pidNamespace},
		{"process.host_user_namespace", userNamespace},
		{"mount.tracefs", tracefs},
		{"mount.cgroup", cgroup},
		{GPUDriver, gpuDriver},
	}
}

// GPUDriver is the fact of the drivers of GPUs that are loaded, NoGPU its value where none
// is.
const (
	GPUDriver = "gpu.driver"
	NoGPU     = "none"
)

// gpuDriver lists the drivers of GPUs that this kernel has loaded. None is no fault.
func gpuDriver(root fs.FS) (string, State, string) {
	if _, err := fs.Stat(root, "sys/module"); err != nil {
		return unknown(err)
	}
	var loaded []string
	for _, driver := range []string{"nvidia", "amdgpu", "xe", "i915", "habanalabs"} {
		if _, err := fs.Stat(root, "sys/module/"+driver); err == nil {
			loaded = append(loaded, driver)
		}
	}
	if loaded == nil {
		return NoGPU, Fine, ""
	}
	return strings.Join(loaded, ", "), Fine, ""
}

// Environment returns the facts of the machine whose root is given, in a fixed
// order. It reads a dozen small files and changes nothing.
func Environment(root fs.FS) []Fact {
	list := facts()
	out := make([]Fact, len(list))
	for i, f := range list {
		out[i].ID = f.id
		out[i].Value, out[i].State, out[i].Hint = f.find(root)
	}
	return out
}

func unknown(err error) (string, State, string) { return err.Error(), Unknown, "" }

func read(root fs.FS, path string) (string, error) {
	raw, err := fs.ReadFile(root, path)
	return strings.ToValidUTF8(strings.TrimSpace(string(raw)), "�"), err
}

// setting shows a sysctl that limits nothing by itself.
func setting(path string) func(fs.FS) (string, State, string) {
	return func(root fs.FS) (string, State, string) {
		value, err := read(root, path)
		if err != nil {
			return unknown(err)
		}
		return value, Fine, ""
	}
}

// kernelRelease: BPF ring buffers exist since Linux 5.8 (commit 457f44363a88);
// 5.10 is the oldest kernel tracecore is tested on.
func kernelRelease(root fs.FS) (string, State, string) {
	release, err := read(root, "proc/sys/kernel/osrelease")
	if err != nil {
		return unknown(err)
	}
	old, err := before(release, 5, 8)
	if err != nil {
		return release, Unknown, ""
	}
	if old {
		return release, Limits, "BPF ring buffers need Linux 5.8: run a kernel of 5.10 or newer"
	}
	return release, Fine, ""
}

// before compares the first two numbers of a kernel release.
func before(release string, major, minor int) (bool, error) {
	var a, b int
	_, err := fmt.Sscanf(release, "%d.%d", &a, &b)
	return a < major || a == major && b < minor, err
}

func kernelBTF(root fs.FS) (string, State, string) {
	const path = "sys/kernel/btf/vmlinux"
	if _, err := fs.Stat(root, path); err != nil {
		return "absent", Limits, "use a kernel built with CONFIG_DEBUG_INFO_BTF: without its type information no probe loads"
	}
	f, err := root.Open(path)
	if err != nil {
		return unknown(err)
	}
	f.Close()
	return "present", Fine, ""
}

// lockdown reads the mode in brackets: "none [integrity] confidentiality"
// (security/lockdown/lockdown.c).
func lockdown(root fs.FS) (string, State, string) {
	modes, err := read(root, "sys/kernel/security/lockdown")
	if err != nil {
		return "not shown: securityfs is not mounted or the module not built in", Unknown, ""
	}
	_, rest, _ := strings.Cut(modes, "[")
	mode, _, _ := strings.Cut(rest, "]")
	if mode == "confidentiality" {
		return mode, Limits, "it forbids programs that read kernel memory: boot with lockdown=integrity or none"
	}
	return mode, Fine, ""
}

// kprobes: the kprobe PMU exists where the kernel has kprobe events (4.17,
// commit e12f03d7031a).
func kprobes(root fs.FS) (string, State, string) {
	if _, err := fs.Stat(root, "sys/bus/event_source/devices"); err != nil {
		return unknown(err)
	}
	if _, err := fs.Stat(root, "sys/bus/event_source/devices/kprobe/type"); err != nil {
		return "absent", Limits, "the rungs that use kprobes are closed: harmless where a better rung works"
	}
	return "present", Fine, ""
}

func bpfJIT(root fs.FS) (string, State, string) {
	value, err := read(root, "proc/sys/net/core/bpf_jit_enable")
	if err != nil {
		return unknown(err)
	}
	if value == "0" {
		return value, Limits, "programs are interpreted, each event costs more: sysctl net.core.bpf_jit_enable=1"
	}
	return value, Fine, ""
}

// kptrRestrict: 2 hides symbol addresses from everybody, and with them the
// kernel functions that kprobe rungs look up (Documentation/admin-guide/sysctl/kernel.rst).
func kptrRestrict(root fs.FS) (string, State, string) {
	value, err := read(root, "proc/sys/kernel/kptr_restrict")
	if err != nil {
		return unknown(err)
	}
	if value == "2" {
		return value, Limits, "symbol addresses are hidden from root too: sysctl kernel.kptr_restrict=1 if a kprobe rung is needed"
	}
	return value, Fine, ""
}

func devKmsg(root fs.FS) (string, State, string) {
	value, err := read(root, "proc/sys/kernel/printk_devkmsg")
	if err != nil {
		return unknown(err)
	}
	if value == "off" {
		return value, Limits, "writes to /dev/kmsg are dropped, so the kmsg probe cannot test itself: sysctl kernel.printk_devkmsg=ratelimit"
	}
	return value, Fine, ""
}

// status returns one field of /proc/self/status.
func status(root fs.FS, field string) (string, error) {
	text, err := read(root, "proc/self/status")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok && name == field {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("proc/self/status: no field %s", field)
}

// uid is the effective one, the second of four.
func uid(root fs.FS) (string, State, string) {
	ids, err := status(root, "Uid")
	if err != nil {
		return unknown(err)
	}
	fields := strings.Fields(ids)
	if len(fields) < 2 {
		return ids, Unknown, ""
	}
	if fields[1] != "0" {
		return fields[1], Limits, "run as root: /dev/kmsg, tracefs and other users' /proc are root's"
	}
	return fields[1], Fine, ""
}

// needed are the capabilities that probes use, include/uapi/linux/capability.h,
// and what each is for.
var needed = []struct {
	bit  uint
	name string
	why  string
}{
	{39, "CAP_BPF", "load programs"},
	{38, "CAP_PERFMON", "attach them"},
	{19, "CAP_SYS_PTRACE", "read the environment of other users' processes, for ranks"},
	{capSysResource, "CAP_SYS_RESOURCE", "raise the locked-memory limit"},
}

const (
	capSysAdmin    = 21 // what CAP_BPF and CAP_PERFMON were split from in Linux 5.8
	capSysResource = 24 // BPF memory counts as locked until Linux 5.11 (commit d5299b67dd59)
)

// granted adds what a capability set has without saying so.
func granted(caps uint64, release string) uint64 {
	if caps&(1<<capSysAdmin) != 0 {
		caps |= 1<<38 | 1<<39
	}
	if old, err := before(release, 5, 11); err == nil && !old {
		caps |= 1 << capSysResource
	}
	return caps
}

func capabilities(root fs.FS) (string, State, string) {
	text, err := status(root, "CapEff")
	if err != nil {
		return unknown(err)
	}
	caps, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return text, Unknown, ""
	}
	release, _ := read(root, "proc/sys/kernel/osrelease")
	caps = granted(caps, release)
	var missing, why []string
	for _, c := range needed {
		if caps&(1<<c.bit) == 0 {
			missing = append(missing, c.name)
			why = append(why, c.name+" to "+c.why)
		}
	}
	if missing == nil {
		return text, Fine, ""
	}
	return text + ", without " + strings.Join(missing, " "), Limits, "give the process " + strings.Join(why, ", ") + ": in Kubernetes, a privileged container"
}

// seccomp modes: 0 disabled, 1 strict, 2 filter (Documentation of proc(5)).
func seccomp(root fs.FS) (string, State, string) {
	mode, err := status(root, "Seccomp")
	switch {
	case err != nil:
		return unknown(err)
	case mode == "2":
		return "filter", Limits, "a seccomp profile is in force: if bpf(2) is refused, run the container privileged or unconfined"
	case mode == "0":
		return "none", Fine, ""
	}
	return mode, Fine, ""
}
