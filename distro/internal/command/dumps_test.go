package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

const dumpConfig = `
extensions: {health_check: }
receivers: {ncclfr: {include: ["%s"], poll_interval: 10ms}}
exporters: {debug: {verbosity: detailed}}
service:
  extensions: [health_check]
  pipelines: {logs: {receivers: [ncclfr], exporters: [debug]}}
  telemetry: {metrics: {level: none}}
`

// TestHostileDumpsCostTheAgentNothing puts files beside a real dump that took an agent
// its memory, or a processor.
func TestHostileDumpsCostTheAgentNothing(t *testing.T) {
	dir, folder := t.TempDir(), t.TempDir()
	config := filepath.Join(dir, "agent.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, dumpConfig, folder), 0o600))
	put := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	put("a_rank_0", "\x80\x02"+strings.Repeat("]", 4_000_000)+".")
	put("a_rank_1", "\x80\x02"+strings.Repeat("](e]e", 6<<20)+".")
	put("a_rank_2", `{"version": "2.0", "entries": `+strings.Repeat("[", 16<<20))
	agent := commandtest.Start(t, commandtest.New(t, "--config="+config, "--set=extensions.health_check.endpoint="+hosttest.FreeAddress(t)))
	said := func(what string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(agent.Stderr.String(), what) }, hosttest.Patience, 10*time.Millisecond, "%s: %s", what, agent.Stderr)
	}
	for rank := range 3 {
		said(fmt.Sprintf("a_rank_%d", rank))
	}
	dump, err := os.ReadFile("../../../receivers/ncclfrreceiver/internal/flightrecorder/testdata/missing/rank_0.pickle")
	require.NoError(t, err)
	put("rank_0", string(dump))
	said("rank 0 waits in gloo:all_reduce #6 of default_pg")
	status, err := os.ReadFile("/proc/" + strconv.Itoa(agent.Cmd.Process.Pid) + "/status")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(t, err)
	require.Less(t, kib>>10, 300, "MiB that the agent ever took")
	require.Equal(t, exitOK, agent.Stop(t, syscall.SIGTERM), agent.Stderr.String())
}
