package command

import (
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/check"
	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// TestWithoutSysAdminBPFCheckSaysWhatTheAgentThenDoes: newer kernels keep uprobes to
// CAP_SYS_ADMIN. There the agent goes on without the probe that needs them and says
// what it lacks, and bpf-check has told.
func TestWithoutSysAdminBPFCheckSaysWhatTheAgentThenDoes(t *testing.T) {
	hosttest.Require(t, "it loads probes")
	checked := commandtest.Finish(t, without(t, capSysAdmin, commandtest.New(t, "bpf-check", "-o", "json", "--require", "cuda_oom")))
	run := commandtest.Start(t, without(t, capSysAdmin, commandtest.New(t, commandtest.Ports(t)...)))
	says, works := run.Stderr.String(), map[string]bool{}
	for _, p := range requireValid(t, checked.Stdout).Probes {
		works[p.Probe] = p.Works()
		if p.Works() {
			require.NotContains(t, says, "open "+p.Probe+": no hook works")
			continue
		}
		require.Contains(t, []string{"cudaoom", "ncclcall", "pyexception"}, p.Probe, "the others need other capabilities: %+v", p)
		missing := map[string]string{"cudaoom": "refusals of GPU memory", "ncclcall": "calls of NCCL", "pyexception": "exceptions of ranks"}[p.Probe]
		require.Contains(t, says, "no "+missing+": the receiver goes on without its probe")
		require.Contains(t, says, p.Error)
		require.Contains(t, p.Error, "give it CAP_SYS_ADMIN")
	}
	if works["cudaoom"] {
		require.Equal(t, exitOK, checked.Code, checked.Stderr)
	} else {
		require.Equal(t, exitDegraded, checked.Code, checked.Stderr)
		require.Contains(t, checked.Stderr, "gpu_memory comes from the probe cudaoom: give it CAP_SYS_ADMIN")
	}
	require.Equal(t, exitOK, run.Stop(t, syscall.SIGTERM), run.Stderr.String())
}

// TestWithoutSyslogBPFCheckSaysWhetherWritersAreKnown: since Linux 5.13 the kernel itself
// names who wrote a line. Before, who may not see its addresses hears that lines are claims.
func TestWithoutSyslogBPFCheckSaysWhetherWritersAreKnown(t *testing.T) {
	hosttest.Require(t, "it loads probes")
	checked := commandtest.Finish(t, without(t, capSyslog, commandtest.New(t, "bpf-check", "-o", "json", "--require", "gpu_lost")))
	report := requireValid(t, checked.Stdout)
	var major, minor int
	_, err := fmt.Sscanf(machine(report.Environment), "Linux %d.%d", &major, &minor)
	require.NoError(t, err)
	log := report.Probes[slices.IndexFunc(report.Probes, func(p check.Probe) bool { return p.Probe == "kmsg" })]
	require.True(t, log.Works(), "%+v", log)
	if major > 5 || major == 5 && minor >= 13 {
		require.Empty(t, log.Unproven)
		require.Contains(t, log.Delivers, check.Origins)
		require.Equal(t, exitOK, checked.Code, checked.Stderr)
		return
	}
	require.Contains(t, log.Unproven, "CAP_SYSLOG")
	require.NotContains(t, log.Delivers, check.Origins)
	require.Equal(t, exitDegraded, checked.Code, checked.Stderr)
	require.Contains(t, checked.Stderr, "needs kernel_origins")
}

// include/uapi/linux/capability.h.
const (
	capSysAdmin = 21
	capSyslog   = 34
)

// without has a command run as another user with every capability of ours but one. As
// root it would get that back when it starts. These capabilities count once it has
// started: till then this user may not enter the folder of its binary.
func without(t *testing.T, lacks uintptr, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	const nobody = 65534
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	require.NoError(t, unix.Capget(header, &have[0]))
	cmd.Path = "/proc/self/exe"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	for capability := range uintptr(64) {
		if capability != lacks && have[capability/32].Permitted&(1<<(capability%32)) != 0 {
			cmd.SysProcAttr.AmbientCaps = append(cmd.SysProcAttr.AmbientCaps, capability)
		}
	}
	return cmd
}
