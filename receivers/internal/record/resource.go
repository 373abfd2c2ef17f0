package record

import (
	"io/fs"
	"os"
	"strings"

	"github.com/tracecoreai/tracecore/internal/thishost"
)

// Host is the machine that the kernel's events come from. It is read once, when
// a receiver starts.
type Host struct {
	Name     string // host.name
	ID       string // host.id: the machine id
	NodeName string // k8s.node.name
	Boot     string // host.boot.id: one boot of the machine
}

// ThisHost reads the machine we run on. What cannot be read stays empty.
func ThisHost() Host {
	name, _ := thishost.Name()
	root := os.DirFS("/")
	return Host{Name: name, ID: machineID(root), NodeName: thishost.Node(), Boot: bootID(root)}
}

// machineID returns the machine id in the order of the semantic conventions
// (docs/resource/host.md: /etc/machine-id, then D-Bus), asking first for the
// file that process 1 sees: with hostPID that is the node's and not the
// container image's, without it the two are the same file.
func machineID(root fs.FS) string {
	for _, name := range []string{
		"proc/1/root/etc/machine-id",
		"etc/machine-id",
		"var/lib/dbus/machine-id",
	} {
		text, err := fs.ReadFile(root, name)
		if id := strings.TrimSpace(string(text)); err == nil && isMachineID(id) {
			return id
		}
	}
	return ""
}

// bootID returns what the kernel calls this boot (drivers/char/random.c: a random UUID,
// made when it is first read). Containers see that of their machine.
func bootID(root fs.FS) string {
	text, err := fs.ReadFile(root, "proc/sys/kernel/random/boot_id")
	if id := strings.TrimSpace(string(text)); err == nil && len(id) == 36 && strings.Trim(id, "0123456789abcdef-") == "" {
		return id
	}
	return ""
}

// isMachineID refuses what is no machine id (machine-id(5): 32 lower-case hex
// digits), such as "uninitialized" during the first boot.
func isMachineID(id string) bool {
	return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == ""
}

// Set hands what is known of the host to a resource's setters, which mdatagen
// makes for each receiver: host.name, host.id, k8s.node.name and host.boot.id.
func (h Host) Set(name, id, node, boot func(string)) {
	for _, one := range []struct {
		set   func(string)
		value string
	}{{name, h.Name}, {id, h.ID}, {node, h.NodeName}, {boot, h.Boot}} {
		if one.value != "" {
			one.set(one.value)
		}
	}
}
