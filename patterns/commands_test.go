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
	"cat /proc/": verdict.Looks, "grep -e State -e TracerPid /proc/": verdict.Looks, "journalctl -k ": verdict.Looks, "kubectl describe ": verdict.Looks,
	"lspci -vv": verdict.Looks, "nvidia-smi nvlink -e": verdict.Looks, "ps -fp ": verdict.Looks, "ss -ti ": verdict.Looks, "tracecore stacks ": verdict.Looks,
	"dcgmi diag -r 3": verdict.Changes, "echo 1 > /sys/fs/fuse/connections/": verdict.Changes, "kill -CONT ": verdict.Changes, "kubectl drain ": verdict.Changes,
	"nvidia-smi --gpu-reset -i ": verdict.Changes, "systemctl reboot": verdict.Changes, "umount -l ": verdict.Changes,
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

// Each command of each remedy says rightly whether it changes something, has a target, and
// takes a name from outside as one word, whatever that is.
func TestCommandsOfRemediesAreSafeToPaste(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	dir := t.TempDir()
	canary := filepath.Join(dir, "canary")
	hostile := "-rf '; touch " + canary + "; $(touch " + canary + ") `touch " + canary + "` \\ * ~ \"x\""
	known := rule.Known{Field: func(string) (string, bool) { return hostile, true }, Holds: func(string) bool { return true }}
	with, has := map[string]bool{}, 0
	for i := range rules {
		for value, template := range choices(&rules[i].Remedy) {
			for _, step := range template.Steps(known) {
				if step.Command == "" {
					continue
				}
				name := rules[i].Name + " " + value
				with[rules[i].Name], has = true, has+1
				require.Equal(t, effectOf(step.Command), step.Effect, "%s: %s", name, step.Command)
				require.NotEmpty(t, step.Target, name)
				if !strings.Contains(step.Command, canary) {
					continue
				}
				// A shell runs it with a first word that does nothing: the name came as one
				// word, or as part of one, and nothing in it was done.
				_, rest, _ := strings.Cut(step.Command, " ")
				script := `first() { for word; do case $word in *"$name"*) echo whole;; esac; done; }; first ` + strings.Replace(rest, "> ", "", 1)
				shell := exec.Command("/bin/sh", "-c", script)
				shell.Dir, shell.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "name=" + hostile}
				out, err := shell.CombinedOutput()
				require.NoError(t, err, "%s: %s", name, out)
				require.Contains(t, string(out), "whole", "%s: %s", name, step.Command)
				require.NoFileExists(t, canary, step.Command)
			}
		}
	}
	require.Greater(t, has, 40)
	for _, name := range hardware {
		require.True(t, with[name], "%s has no command", name)
	}
}
