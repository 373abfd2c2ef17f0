package recipes

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/alertmanagertest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// scontrolScript is a scontrol with one node, which notes what it is told. The exporter's own
// tests use a controller of Slurm.
const scontrolScript = `#!/bin/sh
dir=${0%/*}
if [ "$1" = show ]; then
	printf 'NodeName=node-7 CoresPerSocket=1 \n   NodeAddr=127.0.0.1 NodeHostName=node-7 \n   State=IDLE'
	[ ! -s "$dir/reason" ] || printf '+DRAIN'
	printf ' ThreadsPerCore=1 \n   BootTime=None SlurmdStartTime=None\n'
	[ ! -s "$dir/reason" ] || printf '   Reason=%s [root@2026-11-23T18:52:01]\n' "$(cat "$dir/reason")"
	echo
	exit 0
fi
case "$*" in
*state=undrain*) : > "$dir/reason" ;;
*reason=*) printf '%s' "${*##*reason=}" > "$dir/reason" ;;
esac
echo "$*" >> "$dir/told"
`

// slurm is that stand-in.
type slurm struct{ dir string }

func newSlurm(t *testing.T) slurm {
	t.Helper()
	s := slurm{t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "scontrol"), []byte(scontrolScript), 0o700)) //nolint:gosec // it is to be run
	t.Setenv("SCONTROL", filepath.Join(s.dir, "scontrol"))
	t.Setenv("SLURM_MODE", "act")
	return s
}

// told are the changes that it was asked for, those that it has noted to the end.
func (s slurm) told(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "told"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if change, whole := strings.CutSuffix(line, "\n"); whole {
			all = append(all, change)
		}
	}
	return all
}

// verdictOf is a lost GPU, for certain.
func verdictOf(id string) verdict.Verdict {
	now := time.Now()
	return verdict.Verdict{
		ID: id, IncidentID: id, PatternID: 1, Pattern: "gpu_lost", Role: verdict.RootCause, Status: verdict.Open, Confidence: verdict.Full, Trust: verdict.Proven, Severity: verdict.Critical,
		Revision: 1, Onset: now, Updated: now, Headline: "GPU " + id + " has fallen off the bus", Remediation: "Drain the node.", Culprit: map[string]string{"host": host, "node": host},
		Evidence: []verdict.Evidence{{Name: "xid", Time: now, Count: 1, Source: "gpu.xid", Shows: "Xid 79", Trust: verdict.Proven}},
	}
}

// tell sends verdicts as another tier of tracecore would.
func tell(t *testing.T, address string, all ...verdict.Verdict) {
	t.Helper()
	logs := plog.NewLogs()
	of := logs.ResourceLogs().AppendEmpty()
	of.Resource().Attributes().PutStr("host.name", host)
	records := of.ScopeLogs().AppendEmpty().LogRecords()
	for _, v := range all {
		verdict.ToRecord(v, records.AppendEmpty())
	}
	body, err := (&plog.JSONMarshaler{}).MarshalLogs(logs)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		response, err := http.Post("http://"+address+"/v1/logs", "application/json", bytes.NewReader(body))
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, patience, 5*time.Millisecond)
}

// TestOnlyRootCausesPage: what is a symptom, likely, or a drill leaves by no way that wakes
// somebody or takes a node away. What is certain leaves by each, once, and ends by each.
func TestOnlyRootCausesPage(t *testing.T) {
	am, slack, webhook, nodes := alertmanagertest.Start(t), newHook(t), newHook(t), newSlurm(t)
	t.Setenv("ALERTMANAGER", am.URL)
	t.Setenv("SLACK_WEBHOOK_URL", slack.URL)
	t.Setenv("WEBHOOK_URL", webhook.URL)
	otlp, state := hosttest.FreeAddress(t), t.TempDir()
	run := func() agent {
		return start(t, "alertmanager.yaml", "--config=slack.yaml", "--config=webhook.yaml", "--config=slurm-drain.yaml", "--set=exporters.alert/alertmanager.resend=1m",
			"--set=receivers.otlp.senders=agents", "--set=receivers.otlp.protocols.http.endpoint="+otlp,
			"--set=extensions.file_storage.directory="+state, "--set=extensions.history.directory="+filepath.Join(state, "history"))
	}
	first := run()
	symptom, likely, drill, info := verdictOf("symptom"), verdictOf("likely"), verdictOf("drill"), verdictOf("info")
	symptom.Role, symptom.RootCause = verdict.Symptom, "another"
	likely.Confidence = verdict.Partial
	drill.Drill = true
	info.Severity = verdict.Info
	certain := verdictOf("certain")
	tell(t, otlp, symptom, likely, drill, info)
	tell(t, otlp, certain)
	told := func(a agent, times int) {
		t.Helper()
		counts := func() []int {
			return []int{len(am.Told()), len(slack.got()), len(webhook.got()), len(nodes.told(t))}
		}
		require.Eventually(t, func() bool {
			for _, count := range counts() {
				if count < times {
					return false
				}
			}
			return true
		}, patience, 5*time.Millisecond, "%v\n%v\n%v\n%v\n%s", am, slack, webhook, nodes, a.Stderr)
		require.Equal(t, []int{times, times, times, times}, counts())
	}
	told(first, 1)
	require.Equal(t, "certain", am.Alerts(t)[0].Labels["verdict_id"])
	require.Contains(t, slack.got()[0], "GPU certain")
	require.Contains(t, webhook.got()[0], "GPU certain")
	require.Equal(t, "update nodename=node-7 state=drain reason=tracecore: gpu_lost/certain: GPU certain has fallen off the bus", nodes.told(t)[0])
	require.Zero(t, first.Stop(t, syscall.SIGTERM), first.Stderr)

	second := run()
	for _, v := range []*verdict.Verdict{&symptom, &likely, &drill, &info, &certain} {
		now := time.Now()
		v.Status, v.Resolved = verdict.Resolved, &now
		v.Revision++
	}
	tell(t, otlp, symptom, likely, drill, info)
	tell(t, otlp, certain)
	told(second, 2)
	require.Equal(t, "update nodename=node-7 state=undrain", nodes.told(t)[1])
	require.Empty(t, am.Alerts(t))
}
