package charts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// spec is what a runtime such as containerd makes of a pod and its container: a
// config.json (OCI runtime spec, config.md). The pod's network is one of its own
// with loopback alone; its state folder is a temporary one.
func (n node) spec(t *testing.T, pod, container any) map[string]any {
	t.Helper()
	security := at(t, container, "securityContext")
	privileged := at(t, security, "privileged") == true
	namespaces := []map[string]any{{"type": "mount"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}}
	if at(t, pod, "hostPID") != true {
		namespaces = append(namespaces, map[string]any{"type": "pid"})
	}
	devices := []map[string]any{{"allow": privileged, "access": "rwm"}}
	linux := map[string]any{"namespaces": namespaces, "resources": map[string]any{"devices": devices}}
	if !privileged { // what containerd hides from containers
		linux["maskedPaths"] = []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/sys/firmware", "/proc/scsi"}
		linux["readonlyPaths"] = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	}
	args := append([]string{}, n.image.config.Config.Entrypoint...)
	if command, own := at(t, container, "command").([]any); own {
		args = texts(command)
	}
	if more, has := at(t, container, "args").([]any); has {
		args = append(args, texts(more)...)
	}
	capabilities := capabilitiesOf(t, security)
	spec := map[string]any{
		"ociVersion": "1.0.2", "hostname": "node-1", "linux": linux,
		"root":   map[string]any{"path": n.root, "readonly": at(t, security, "readOnlyRootFilesystem") == true},
		"mounts": append(systemMounts(privileged), n.volumes(t, pod, container)...),
		"process": map[string]any{
			"args": args, "cwd": "/", "env": append(n.image.config.Config.Env, environment(t, container)...),
			"user":            map[string]any{"uid": at(t, security, "runAsUser"), "gid": 0},
			"noNewPrivileges": at(t, security, "allowPrivilegeEscalation") == false,
			"capabilities":    map[string]any{"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
		},
	}
	n.bring(spec)
	return spec
}

func texts(list []any) []string {
	var all []string
	for _, word := range list {
		all = append(all, word.(string))
	}
	return all
}

// environment is what a container's variables are on this node.
func environment(t *testing.T, container any) []string {
	t.Helper()
	fields := map[string]string{"spec.nodeName": "node-1", "status.hostIP": "192.0.2.1"}
	var all []string
	variables, _ := at(t, container, "env").([]any)
	for _, variable := range variables {
		value, plain := at(t, variable, "value").(string)
		if !plain {
			value = fields[at(t, variable, "valueFrom", "fieldRef", "fieldPath").(string)]
		}
		all = append(all, at(t, variable, "name").(string)+"="+value)
	}
	return all
}

// bring adds what the node brings beside the pod's own. NVIDIA's container runtime
// mounts the driver's library under its full name, in the folder of Debian's where
// the container has an /etc/debian_version (libnvidia-container, nvc_container.c),
// and runs the node's ldconfig in the container's root before the container has it
// as its own (nvidia-container-toolkit, internal/ldconfig): that makes the link
// libnvidia-ml.so.1.
func (n node) bring(spec map[string]any) {
	mounts := spec["mounts"].([]map[string]any)
	if n.shared != "" {
		mounts = append(mounts, mountOf(n.shared, n.shared, "bind", "rbind", "rprivate"))
	}
	if n.driver != "" {
		mounts = append(mounts, mountOf(n.driver, "/usr/lib/x86_64-linux-gnu/"+filepath.Base(n.driver), "bind", "bind", "ro", "nosuid", "nodev"))
		spec["hooks"] = map[string]any{"createContainer": []map[string]any{{
			"path": "/sbin/ldconfig", "args": []string{"ldconfig", "-r", n.root, "-f", "/etc/ld.so.conf", "-C", "/etc/ld.so.cache"},
		}}}
	}
	spec["mounts"] = mounts
}

// capabilitiesOf are all of them for a privileged container, else those it adds:
// the chart drops the runtime's own. A runtime cannot give what it does not have.
func capabilitiesOf(t *testing.T, security any) []string {
	t.Helper()
	wanted := everyCapability
	if at(t, security, "privileged") != true {
		require.Equal(t, []any{"ALL"}, at(t, security, "capabilities", "drop"))
		wanted = nil
		if added, some := at(t, security, "capabilities", "add").([]any); some {
			wanted = texts(added)
		}
	}
	mine := ownCapabilities(t)
	var list []string
	for _, name := range wanted {
		if mine&(1<<slices.Index(everyCapability, name)) == 0 {
			t.Logf("this machine's root has no CAP_%s", name)
			continue
		}
		list = append(list, "CAP_"+name)
	}
	return list
}

// ownCapabilities are this process's, one bit each.
func ownCapabilities(t *testing.T) uint64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	found := regexp.MustCompile(`CapEff:\s*([0-9a-f]+)`).FindSubmatch(status)
	require.NotNil(t, found)
	bits, err := strconv.ParseUint(string(found[1]), 16, 64)
	require.NoError(t, err)
	return bits
}

// everyCapability, in the order of their numbers: include/uapi/linux/capability.h, Linux 5.9 and newer.
var everyCapability = []string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE",
	"NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN",
	"SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE",
	"MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
}

func mountOf(from, to, kind string, options ...string) map[string]any {
	return map[string]any{"source": from, "destination": to, "type": kind, "options": options}
}

// systemMounts: a privileged container has the node's devices, and may write to
// /sys.
func systemMounts(privileged bool) []map[string]any {
	mounts := []map[string]any{mountOf("proc", "/proc", "proc", "nosuid", "noexec", "nodev")}
	if privileged {
		return append(mounts, mountOf("/dev", "/dev", "bind", "rbind", "rprivate"), mountOf("sysfs", "/sys", "sysfs", "nosuid", "noexec", "nodev", "rw"))
	}
	return append(mounts, mountOf("tmpfs", "/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"), mountOf("sysfs", "/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"))
}

// volumes are the container's mounts of the pod's volumes.
func (n node) volumes(t *testing.T, pod, container any) []map[string]any {
	t.Helper()
	sources := map[any]string{}
	for _, volume := range at(t, pod, "volumes").([]any) {
		switch name := at(t, volume, "name"); name {
		case "config":
			sources[name] = t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(sources[name], "config.yaml"), []byte(n.config), 0o644))
		case "state":
			sources[name] = n.state
		case "tmp":
			require.Contains(t, volume, "emptyDir")
			sources[name] = t.TempDir()
		case "usr", "libdcgm":
			sources[name] = n.folders[name.(string)]
		default:
			sources[name] = at(t, volume, "hostPath", "path").(string)
		}
	}
	var mounts []map[string]any
	for _, mount := range at(t, container, "volumeMounts").([]any) {
		options := []string{"rbind", "rprivate"}
		if at(t, mount, "mountPropagation") == "HostToContainer" {
			options[1] = "rslave"
		}
		if at(t, mount, "readOnly") == true {
			options = append(options, "ro")
		}
		mounts = append(mounts, mountOf(sources[at(t, mount, "name")], at(t, mount, "mountPath").(string), "bind", options...))
	}
	return mounts
}
