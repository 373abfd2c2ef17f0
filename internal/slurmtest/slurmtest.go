// Package slurmtest starts a controller of Slurm on loopback, for tests.
package slurmtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// Controller is a slurmctld with nodes that no slurmd is on.
type Controller struct {
	Scontrol string // path of the program; SLURM_CONF of the test's environment leads it here
}

// Start runs slurmctld until the test ends. Its nodes are prefix-1 to prefix-N, and idle. It
// needs root and Debian's slurmctld and slurm-client: without them the test is skipped, with
// CI=true it fails.
func Start(t *testing.T, prefix string, nodes int) Controller {
	t.Helper()
	controller, err := exec.LookPath("slurmctld")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI must run this against Slurm: tools/deps.sh installs slurmctld and slurm-client")
		}
		t.Skip("needs Debian's slurmctld and slurm-client")
	}
	hosttest.Require(t, "it starts a controller of Slurm as root")
	program, err := exec.LookPath("scontrol")
	require.NoError(t, err)
	host, err := os.Hostname()
	require.NoError(t, err)
	dir := t.TempDir()
	config := filepath.Join(dir, "slurm.conf")
	// The ports of the nodes are none that anybody listens on: no slurmd answers.
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `ClusterName=test
SlurmctldHost=%s(127.0.0.1)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
SchedulerType=sched/builtin
StateSaveLocation=%[2]s
SlurmdSpoolDir=%[2]s
SlurmctldPidFile=%[2]s/pid
SlurmctldPort=%[3]d
SlurmdTimeout=0
NodeName=%[4]s-[1-%[5]d] NodeAddr=127.0.0.1 Port=[1-%[5]d] CPUs=1 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
`, host, dir, hosttest.FreePort(t), prefix, nodes), 0o600))
	t.Setenv("SLURM_CONF", config)
	said := &bytes.Buffer{}
	process := exec.Command(controller, "-D", "-f", config)
	process.Stdout, process.Stderr = said, said
	require.NoError(t, process.Start())
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
		if t.Failed() {
			t.Log(said)
		}
	})
	c := Controller{program}
	require.Eventually(t, func() bool {
		text, err := exec.Command(program, "show", "node", "--oneliner").Output()
		return err == nil && strings.Count(string(text), "NodeName=") == nodes
	}, hosttest.Patience, 50*time.Millisecond)
	for n := range nodes { // an unknown node becomes idle by way of down
		name := fmt.Sprintf("nodename=%s-%d", prefix, n+1)
		c.Run(t, "update", name, "state=down", "reason=new")
		c.Run(t, "update", name, "state=resume")
	}
	return c
}

// Run runs scontrol as an administrator, and returns what it prints.
func (c Controller) Run(t require.TestingT, arguments ...string) string {
	text, err := exec.Command(c.Scontrol, arguments...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return string(text)
}

// Node is what Slurm says of a node now, by the names that scontrol gives it.
func (c Controller) Node(t require.TestingT, name string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(c.Run(t, "show", "node", name)) {
		line = strings.TrimSpace(line)
		if key, value, found := strings.Cut(line, "Reason="); found && key == "" {
			all["Reason"] = value // has spaces
			continue
		}
		for field := range strings.FieldsSeq(line) {
			if key, value, found := strings.Cut(field, "="); found {
				all[key] = value
			}
		}
	}
	return all
}
