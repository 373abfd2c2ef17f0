//go:build linux

// Package acceptance runs the distribution as an operator does, makes real
// faults, and reads what it says.
package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/command"
	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/distro/internal/drill"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/stranger"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

func TestMain(m *testing.M) {
	playCUDAJob()
	playRank()
	playFlood()
	playQuoted()
	stranger.Main()
	if drill.IsChild() {
		os.Exit(drill.Child())
	}
	if commandtest.IsCommand() {
		os.Exit(command.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// agent is a tracecore with its embedded default, whose verdicts come as JSON.
type agent struct {
	*commandtest.Running
	metrics string // the address of its own metrics
}

// startAgent starts it on a state folder.
func startAgent(t testing.TB, state string, flags ...string) agent {
	t.Helper()
	return startAgentBy(t, (*exec.Cmd).Start, state, flags...)
}

// startAgentBy is startAgent for a process that somebody else starts.
func startAgentBy(t testing.TB, start func(*exec.Cmd) error, state string, flags ...string) agent {
	t.Helper()
	metrics := hosttest.FreeAddress(t)
	host, port, err := net.SplitHostPort(metrics)
	require.NoError(t, err)
	args := append(commandtest.Ports(t), "--set=exporters.terminal.format=json", "--set=service.telemetry.metrics.level=normal",
		fmt.Sprintf("--set=service.telemetry.metrics.readers=[{pull: {exporter: {prometheus: {host: %s, port: %s}}}}]", host, port))
	cmd := commandtest.New(t, append(args, flags...)...)
	cmd.Env = append(cmd.Env, "TRACECORE_STATE_DIR="+state)
	return agent{commandtest.StartBy(t, cmd, start), metrics}
}

// verdicts are all that were printed so far, in order, every revision.
func (a agent) verdicts(t testing.TB) []verdict.Verdict {
	t.Helper()
	var all []verdict.Verdict
	for line := range strings.Lines(a.Stdout.String()) {
		if !strings.HasSuffix(line, "\n") {
			break // the rest of it is on its way
		}
		v, err := verdict.FromJSON([]byte(line))
		require.NoError(t, err, line)
		all = append(all, v)
	}
	return all
}

// await returns the first verdict that matches, whenever it was printed.
func (a agent) await(t testing.TB, what string, match func(verdict.Verdict) bool) verdict.Verdict {
	t.Helper()
	deadline := time.Now().Add(hosttest.Patience)
	for {
		all := a.verdicts(t)
		if i := slices.IndexFunc(all, match); i >= 0 {
			return all[i]
		}
		if time.Now().After(deadline) {
			var said strings.Builder // last, where who cuts a long output has it still; a line each
			for i := range all {
				one, _ := json.Marshal(all[i])
				fmt.Fprintf(&said, "%s\n", one)
			}
			require.FailNow(t, "no verdict: "+what, "metrics:\n%s\nlog:\n%s\nverdicts:\n%s", fetch(a.metrics), a.Stderr, &said)
		}
		time.Sleep(20 * time.Millisecond) // looking takes CPU from what is looked for
	}
}

// about matches verdicts of one pattern that name this value of a culprit.
func about(pattern, key, value string) func(verdict.Verdict) bool {
	return func(v verdict.Verdict) bool { return v.Pattern == pattern && v.Culprit[key] == value }
}

// incidents are the ids of the incidents that the verdicts of interest belong to.
// Other tests may write to the same kernel log at the same time.
func incidents(all []verdict.Verdict, ofInterest func(verdict.Verdict) bool) []string {
	var ids []string
	for _, v := range all {
		if ofInterest(v) {
			ids = append(ids, v.IncidentID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// writeKmsg writes records to the kernel log as a driver's would look. Each has
// a descriptor of its own: the rate limit counts by descriptor.
func writeKmsg(t testing.TB, lines ...string) {
	t.Helper()
	for _, line := range lines {
		f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteString("<15>" + line + "\n")
		require.NoError(t, errors.Join(err, f.Close()))
	}
}

// writeStorm writes one line many times, as fast as the kernel takes it.
func writeStorm(t testing.TB, line string, times int) {
	t.Helper()
	f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	record := []byte("<15>" + line + "\n")
	for range times {
		_, err := f.Write(record)
		require.NoError(t, err)
	}
}

// startRank starts a process that says it is this rank of eight.
func startRank(t *testing.T, rank string) *drill.Rank {
	t.Helper()
	r, err := drill.StartRank("RANK="+rank, "LOCAL_RANK="+rank, "WORLD_SIZE=8", "JOB_ID=acceptance")
	require.NoError(t, err)
	t.Cleanup(r.Stop)
	return r
}
