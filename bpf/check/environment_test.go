package check

import (
	"io/fs"
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func link(target string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
}

// host is a machine on which nothing limits a probe.
func host() fstest.MapFS {
	return fstest.MapFS{
		"proc/sys/kernel/osrelease":                 file("6.12.9-cloud-amd64\n"),
		"sys/kernel/btf/vmlinux":                    file("\x9f\xeb"),
		"sys/kernel/security/lockdown":              file("none [integrity] confidentiality\n"),
		"sys/bus/event_source/devices/kprobe/type":  file("8\n"),
		"proc/sys/net/core/bpf_jit_enable":          file("1\n"),
		"proc/sys/kernel/kptr_restrict":             file("1\n"),
		"proc/sys/kernel/unprivileged_bpf_disabled": file("2\n"),
		"proc/sys/kernel/printk_devkmsg":            file("ratelimit\n"),
		"proc/self/status":                          file("Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n"),
		"proc/self/ns/pid":                          link(initPIDNamespace),
		"proc/self/ns/user":                         link(initUserNamespace),
		"proc/self/mounts":                          file("t /sys/kernel/tracing tracefs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"),
		"sys/fs/cgroup/cgroup.controllers":          file("cpu memory pids\n"),
		"sys/module/nvidia/version":                 file("570.1\n"),
	}
}

func factsByID(root fs.FS) map[string]Fact {
	byID := map[string]Fact{}
	for _, f := range Environment(root) {
		byID[f.ID] = f
	}
	return byID
}

func TestAMachineThatLimitsNothing(t *testing.T) {
	for id, f := range factsByID(host()) {
		require.Equal(t, Fine, f.State, "%s: %+v", id, f)
		require.Empty(t, f.Hint, id)
		require.NotEmpty(t, f.Value, id)
	}
}

// TestAMachineWithoutAGPUIsNoFault, and says so.
func TestAMachineWithoutAGPUIsNoFault(t *testing.T) {
	require.Equal(t, "nvidia", factsByID(host())[GPUDriver].Value)
	without := host()
	delete(without, "sys/module/nvidia/version")
	without["sys/module/ext4/refcnt"] = file("1\n")
	require.Equal(t, Fact{ID: GPUDriver, Value: NoGPU, State: Fine}, factsByID(without)[GPUDriver])
}

func TestEachLimitIsNamedWithWhatToDo(t *testing.T) {
	for name, tt := range map[string]struct {
		path, text, id, value string
	}{
		"old kernel":            {"proc/sys/kernel/osrelease", "4.18.0-553.el8", "kernel.release", "4.18.0-553.el8"},
		"confidentiality":       {"sys/kernel/security/lockdown", "none integrity [confidentiality]", "kernel.lockdown", "confidentiality"},
		"no JIT":                {"proc/sys/net/core/bpf_jit_enable", "0", "kernel.bpf_jit", "0"},
		"hidden symbols":        {"proc/sys/kernel/kptr_restrict", "2", "kernel.kptr_restrict", "2"},
		"no writes to kmsg":     {"proc/sys/kernel/printk_devkmsg", "off", "kernel.printk_devkmsg", "off"},
		"not root":              {"proc/self/status", "Uid:\t1000\t1000\t1000\t1000", "process.uid", "1000"},
		"no capabilities":       {"proc/self/status", "CapEff:\t0000000000000000", "process.capabilities", "0000000000000000, without CAP_BPF CAP_PERFMON CAP_SYS_PTRACE"},
		"admin without ptrace":  {"proc/self/status", "CapEff:\t0000000001200000", "process.capabilities", "0000000001200000, without CAP_SYS_PTRACE"},
		"a seccomp profile":     {"proc/self/status", "Seccomp:\t2", "process.seccomp", "filter"},
		"a pod's pid namespace": {"proc/self/ns/pid", "pid:[4026532281]", "process.host_pid_namespace", "no"},
		"a user namespace":      {"proc/self/ns/user", "user:[4026532281]", "process.host_user_namespace", "no"},
		"no tracefs":            {"proc/self/mounts", "", "mount.tracefs", "not mounted"},
		"no cgroups":            {"proc/self/mounts", "", "mount.cgroup", "no memory controller mounted"},
		"no memory controller":  {"sys/fs/cgroup/cgroup.controllers", "cpu", "mount.cgroup", "v2 at /sys/fs/cgroup, no memory controller"},
	} {
		t.Run(name, func(t *testing.T) {
			root := host()
			root[tt.path] = &fstest.MapFile{Data: []byte(tt.text), Mode: root[tt.path].Mode}
			got := factsByID(root)[tt.id]
			require.Equal(t, Limits, got.State)
			require.Equal(t, tt.value, got.Value)
			require.NotEmpty(t, got.Hint)
		})
	}
}

func TestOldKernelsCountBPFAsLockedMemory(t *testing.T) {
	root := host()
	root["proc/self/status"] = file("CapEff:\t0000000000280000")
	require.Equal(t, Fine, factsByID(root)["process.capabilities"].State)
	root["proc/sys/kernel/osrelease"] = file("5.10.0-39-amd64")
	require.Contains(t, factsByID(root)["process.capabilities"].Value, "without CAP_SYS_RESOURCE")
}

func TestMissingBTFAndKprobesLimit(t *testing.T) {
	root := host()
	delete(root, "sys/kernel/btf/vmlinux")
	delete(root, "sys/bus/event_source/devices/kprobe/type")
	root["sys/bus/event_source/devices/software/type"] = file("1")
	require.Equal(t, Limits, factsByID(root)["kernel.btf"].State)
	require.Equal(t, Limits, factsByID(root)["kernel.kprobes"].State)
}

func TestMemoryControllerOfTheOldHierarchyWins(t *testing.T) {
	root := host()
	root["proc/self/mounts"] = file("c /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\nd /sys/fs/cgroup/unified cgroup2 rw 0 0\n")
	require.Equal(t, "v1, memory at /sys/fs/cgroup/memory", factsByID(root)["mount.cgroup"].Value)
}

// TestUnreadableProcIsUnknownNotFine holds the three answers apart: yes, no,
// could not tell.
func TestUnreadableProcIsUnknownNotFine(t *testing.T) {
	for id, f := range factsByID(fstest.MapFS{}) {
		switch id {
		case "kernel.arch", "kernel.btf": // needs no file; its file's absence is the answer
		default:
			require.Equal(t, Unknown, f.State, "%s: %+v", id, f)
		}
	}
}

func TestGarbageIsNotBelieved(t *testing.T) {
	root := host()
	root["proc/self/status"] = file("Uid:\nCapEff: zz\nSeccomp")
	root["proc/sys/kernel/osrelease"] = file("\xff\xfe")
	byID := factsByID(root)
	for _, id := range []string{"process.uid", "process.capabilities", "process.seccomp", "kernel.release"} {
		require.Equal(t, Unknown, byID[id].State, id)
	}
}

func TestThisMachineHasEveryFact(t *testing.T) {
	ids := map[string]bool{}
	for _, f := range Environment(os.DirFS("/")) {
		require.False(t, ids[f.ID], "%s twice", f.ID)
		ids[f.ID] = true
		require.NotEmpty(t, f.State, f.ID)
	}
	require.Len(t, ids, len(facts()))
}
