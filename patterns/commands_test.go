package patterns_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// commandEffects are how commands of remedies begin, and whether they change anything. The
// longest that fits counts.
var commandEffects = map[string]string{
	"cat /proc/": verdict.Looks, "coredumpctl info ": verdict.Looks, "ethtool ": verdict.Looks, "fuser -v /dev/fuse": verdict.Looks,
	"grep -e State -e TracerPid /proc/": verdict.Looks, "grep -r --include=": verdict.Looks, "journalctl -k ": verdict.Looks, "journalctl --since=": verdict.Looks,
	"kubectl describe ": verdict.Looks, "kubectl get ": verdict.Looks, "kubectl logs ": verdict.Looks, "lspci -vv": verdict.Looks, "nc -vz ": verdict.Looks,
	"nvidia-smi -q ": verdict.Looks, "nvidia-smi --query-": verdict.Looks, "nvidia-smi nvlink -e": verdict.Looks, "ps -fp ": verdict.Looks,
	"df ": verdict.Looks, "ss -ltn ": verdict.Looks, "ss -ltnp": verdict.Looks, "ss -tnp ": verdict.Looks, "ss -ti ": verdict.Looks, "tracecore stacks ": verdict.Looks, "tracecore status": verdict.Looks,
	"dcgmi diag -r 3": verdict.Changes, "echo 1 > /sys/fs/fuse/connections/": verdict.Changes, "kill -CONT ": verdict.Changes, "kubectl cordon ": verdict.Changes,
	"kubectl drain ": verdict.Changes, "nvidia-smi --gpu-reset -i ": verdict.Changes, "systemctl reboot": verdict.Changes, "umount -l ": verdict.Changes,
	"ip link show ": verdict.Looks, "ip link set ": verdict.Changes,
}

// effectOf is the effect of a command, "" for one that is not known.
func effectOf(command string) (effect string) {
	longest := 0
	for begins, one := range commandEffects {
		if strings.HasPrefix(command, begins) && len(begins) > longest {
			effect, longest = one, len(begins)
		}
	}
	return effect
}

// hardware are the patterns whose remedy is done at a machine: each has a command.
var hardware = []string{
	"fabric_fault", "gpu_lost", "hbm_ecc", "host_lockup", "node_memory_error", "nvlink_degradation", "pcie_degradation",
}

// A view numbers the steps, marks those that change something and copies their commands:
// every remedy is a list of them.
func TestEveryRemedyIsSteps(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	known := rule.Known{Field: func(name string) (string, bool) { return name, true }, Holds: func(string) bool { return true }}
	for i := range rules {
		for value, template := range choices(&rules[i].Remedy) {
			if template.Text != "" {
				require.NotEmpty(t, template.Steps(known), "%s %s: write `- text:`, and `command:` where there is one", rules[i].Name, value)
			}
		}
	}
}

// hostileNames are what a job can call itself, its mounts and its hosts; CANARY is a file
// that no command may make.
var hostileNames = []string{
	"-rf '; touch CANARY; $(touch CANARY) `touch CANARY` \\ * ~ \"x\"",
	"a\ntouch CANARY\n", "x && touch CANARY #", "a|touch CANARY", "a'$(touch CANARY)'", "> CANARY", "{a,b} !! $HOME ~root [a-z]* ?", "--help", "=x", "'", "\\", " ",
}

// Each command of each remedy says rightly whether it changes something, has a target, and
// takes a name from outside as one word, whatever that is: its words are those that it has
// with a harmless name.
func TestCommandsOfRemediesAreSafeToPaste(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	dir := t.TempDir()
	canary := filepath.Join(dir, "canary")
	with, has := map[string]bool{}, 0
	for i := range rules {
		for value, template := range choices(&rules[i].Remedy) {
			name := rules[i].Name + " " + value
			harmless := template.Steps(named("NAME"))
			for _, step := range harmless {
				if step.Command != "" {
					with[rules[i].Name], has = true, has+1
					require.Equal(t, effectOf(step.Command), step.Effect, "%s: %s", name, step.Command)
					require.NotEmpty(t, step.Target, name)
				}
			}
			for _, hostile := range hostileNames {
				hostile = strings.ReplaceAll(hostile, "CANARY", canary)
				for n, step := range template.Steps(named(hostile)) {
					if step.Command == "" {
						continue
					}
					word := hostile
					if strings.HasPrefix(hostile, "-") {
						word = "./" + hostile
					}
					want := strings.ReplaceAll(strings.Join(words(t, dir, harmless[n].Command), "\x00"), "NAME", word)
					require.Equal(t, want, strings.Join(words(t, dir, step.Command), "\x00"), "%s: %s", name, step.Command)
				}
				require.NoFileExists(t, canary, name)
			}
		}
	}
	require.Greater(t, has, 80)
	for _, name := range hardware {
		require.True(t, with[name], "%s has no command", name)
	}
}

// named is every field with one value, and all evidence seen.
func named(value string) rule.Known {
	return rule.Known{Field: func(string) (string, bool) { return value, true }, Holds: func(string) bool { return true }}
}

// words are those that a shell makes of a command; what it writes to counts as one.
func words(t *testing.T, dir, command string) []string {
	t.Helper()
	shell := exec.Command("/bin/sh", "-c", `printf '%s\0' `+strings.Replace(command, " > ", " ", 1))
	shell.Dir, shell.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=/nowhere"}
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s: %s", command, out)
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}
