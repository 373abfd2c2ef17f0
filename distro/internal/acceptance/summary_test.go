//go:build linux

package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/distro/internal/drill"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// TestARunThatEndedIsSummedUp: the ranks of a job are real processes, of which one aborts. Half a
// minute after the last of them the run is a line on the terminal, a record at a backend, a
// metric, and a line of `tracecore jobs`.
func TestARunThatEndedIsSummedUp(t *testing.T) {
	privtest.Require(t)
	t.Parallel()
	address, kept := hosttest.FreeAddress(t), filepath.Join(t.TempDir(), "records.json")
	config := filepath.Join(t.TempDir(), "backend.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
extensions: {health_check: }
receivers: {otlp: {senders: agents, protocols: {http: {endpoint: %q}}}}
exporters: {file: {path: %q}}
service:
  extensions: [health_check]
  telemetry: {metrics: {level: none}}
  pipelines: {logs: {receivers: [otlp], exporters: [file]}}
`, address, kept), 0o600))
	commandtest.Start(t, commandtest.New(t, "--config="+config, "--set=extensions.health_check.endpoint="+hosttest.FreeAddress(t)))
	u := user{state: t.TempDir(), address: hosttest.FreeAddress(t)}
	a := startAgent(t, u.state, "--to=http://"+address, "--set=exporters.terminal.format=text", "--set=extensions.history.http.endpoint="+u.address)

	const job = "summed-up"
	var ranks []*drill.Rank
	for number := range 2 {
		r, err := drill.StartRank(fmt.Sprint("RANK=", number), fmt.Sprint("LOCAL_RANK=", number), "WORLD_SIZE=2", "JOB_ID="+job)
		require.NoError(t, err)
		t.Cleanup(r.Stop)
		ranks = append(ranks, r)
	}
	u.sees(t, well, []string{"2 of 2"}, "jobs", "--job="+job)
	_, err := ranks[1].Abort()
	require.NoError(t, err)
	ranks[0].Stop()

	summed := func() (runs []history.Run) {
		text, _ := os.ReadFile(kept)
		for line := range strings.Lines(string(text)) {
			ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs([]byte(line))
			if err != nil {
				continue // the rest of it is on its way
			}
			for _, resource := range ld.ResourceLogs().All() {
				for _, scope := range resource.ScopeLogs().All() {
					for _, record := range scope.LogRecords().All() {
						if run, err := history.FromRecord(record); err == nil && run.Job == job { // other tests have jobs, too
							runs = append(runs, run)
						}
					}
				}
			}
		}
		return runs
	}
	require.Eventually(t, func() bool { return len(summed()) > 0 }, hosttest.Patience, 100*time.Millisecond, "%s", a.Stderr)
	run := summed()[0]
	require.Equal(t, history.RunFailed, run.Outcome)
	require.Equal(t, []any{2, "0-1", "0-1"}, []any{run.WorldSize, run.Ranks, run.EndedRanks})
	require.NotNil(t, run.First)
	require.Equal(t, 1, run.First.Rank)
	require.NotNil(t, run.Summary.Wall)
	require.Positive(t, *run.Summary.Wall)
	require.Eventually(t, func() bool {
		return strings.Contains(strings.Join(strings.Fields(a.Stdout.String()), " "), "Job "+job+" failed after ")
	}, hosttest.Patience, 100*time.Millisecond, "%s", a.Stdout)
	counted := regexp.MustCompile(`otelcol_processor_patterndetector_runs_ended(_total)?\{[^}]*outcome="failed"[^}]*\} [1-9]`)
	require.Eventually(t, func() bool { return counted.MatchString(fetch(a.metrics)) }, hosttest.Patience, 100*time.Millisecond, "it is counted once it has left")
	u.sees(t, well, []string{"failed"}, "jobs", "--job="+job)
	require.Len(t, summed(), 1, "once")
}
