package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const fairRule = `
id: 1000
name: fair
summary: a part broke
key: [host, job]
culprit: [host, job]
%s
severity: error
headline: "part of {job} on {host}"
remedy: look
`

// TestAFloodCostsOthersNothing: fifty quiet nodes have one thing each under way. Then one
// node sends ten times as many as there is room for, of one job or each of its own. What
// is said last about the quiet nodes still finds what came first.
func TestAFloodCostsOthersNothing(t *testing.T) {
	const quiet, room = 50, 100
	for name, tc := range map[string]struct {
		rule, first, flood, last string
		status                   verdict.Status
	}{
		"open verdicts": {`
evidence: {open: {logs: opened, shows: "open"}}
full: open
resolves: {shut: {logs: shut, shows: "shut"}}`, "opened", "opened", "shut", verdict.Resolved},
		"faults without a verdict": {`
evidence: {open: {logs: opened, shows: "open"}, hit: {logs: hit, shows: "hit"}}
full: open and hit`, "opened", "opened", "hit", verdict.Open},
		"records before their fault": {`
evidence: {open: {logs: opened, shows: "open"}, hit: {logs: hit, match: [host], shows: "hit"}}
full: open and hit`, "hit", "hit", "opened", verdict.Open},
		"series": {`
evidence: {open: {logs: opened, stays: {while: 'attributes["state"] == "hit"', for: 30s, by: [job]}, shows: "open"}}
full: open`, "opened", "opened", "", verdict.Open},
		"faults that one record joins": {`
evidence: {open: {logs: opened, shows: "open"}}
full: open
resolves: {shut: {logs: shut, match: [gpu], shows: "shut"}}`, "opened", "opened", "shut one", verdict.Resolved},
	} {
		for _, jobs := range []int{1, 10 * room} {
			t.Run(fmt.Sprint(name, ", jobs ", jobs), func(t *testing.T) {
				e := blockedEngine(t, fmt.Sprintf(fairRule, tc.rule), engine.Options{
					Waiting: room, OpenVerdicts: room, Recent: room, Series: room, FanOut: 64, Queue: 100 * room,
				})
				send := func(event, host, job string, at time.Duration) {
					ld := logs(1, began.Add(at), func(_ int, lr plog.LogRecord) {
						lr.SetEventName(event)
						lr.Attributes().PutStr("gen_ai.training.job_id", job)
						lr.Attributes().PutStr("gpu.id", "g0")
						lr.Attributes().PutStr("state", "hit")
					})
					ld.ResourceLogs().At(0).Resource().Attributes().PutStr("host.name", host)
					e.Logs(ld)
				}
				for i := range quiet {
					send(tc.first, fmt.Sprint("quiet-", i), "a", time.Duration(i)*time.Millisecond)
				}
				for i := range 10 * room {
					send(tc.flood, "loud", fmt.Sprint("j", i%jobs), time.Second+time.Duration(i)*time.Millisecond)
				}
				switch tc.last {
				case "":
					e.Advance(began.Add(time.Minute))
				case "shut one":
					send("shut", "anywhere", "a", 3*time.Second)
				default:
					for i := range quiet {
						send(tc.last, fmt.Sprint("quiet-", i), "a", 3*time.Second+time.Duration(i)*time.Millisecond)
					}
				}
				told := map[string]bool{}
				for _, v := range e.Verdicts() {
					if v.Status == tc.status && v.Culprit["host"] != "loud" {
						told[v.Culprit["host"]] = true
					}
				}
				require.Len(t, told, quiet)
			})
		}
	}
}

// TestNoClaimPushesOutWhatIsProven: claims and words of strangers, about as many nodes as
// they like, leave the proven faults of others where they are; a flood of proven records
// leaves room for claims.
func TestNoClaimPushesOutWhatIsProven(t *testing.T) {
	const quiet, room = 50, 100
	for name, tc := range map[string]struct{ rule, first, last string }{
		"open verdicts": {`
evidence: {open: {logs: opened, shows: "open"}}
full: open
trust: {full: claimed, partial: foreign}
resolves: {shut: {logs: shut, shows: "shut"}}`, "opened", "shut"},
		"faults without a verdict": {`
evidence: {open: {logs: opened, shows: "open"}, hit: {logs: hit, shows: "hit"}}
full: open and hit
trust: {full: claimed, partial: foreign}`, "opened", "hit"},
		"records before their fault": {`
evidence: {open: {logs: opened, shows: "open"}, hit: {logs: hit, match: [host], shows: "hit"}}
full: open and hit
trust: {full: claimed, partial: foreign}`, "hit", "opened"},
	} {
		for _, flood := range []string{"claimed", "foreign", "proven"} {
			t.Run(name+", "+flood, func(t *testing.T) {
				e := blockedEngine(t, fmt.Sprintf(fairRule, tc.rule), engine.Options{
					Waiting: room, OpenVerdicts: room, Recent: room, FanOut: 64, Queue: 100 * room,
				})
				send := func(event, host, trust string, at time.Duration) {
					ld := logs(1, began.Add(at), func(_ int, lr plog.LogRecord) {
						lr.SetEventName(event)
						lr.Attributes().PutStr("gen_ai.training.job_id", "a")
						lr.Attributes().PutStr("tracecore.trust", trust)
					})
					ld.ResourceLogs().At(0).Resource().Attributes().PutStr("host.name", host)
					e.Logs(ld)
				}
				mine, most := "proven", quiet
				if flood == "proven" {
					mine, most = "claimed", 10
				}
				for i := range most {
					send(tc.first, fmt.Sprint("quiet-", i), mine, time.Duration(i)*time.Millisecond)
				}
				for i := range 10 * room {
					send(tc.first, fmt.Sprint("loud-", i), flood, time.Second+time.Duration(i)*time.Millisecond)
				}
				e.Verdicts()
				told := map[string]bool{}
				for i := range most {
					send(tc.last, fmt.Sprint("quiet-", i), mine, 3*time.Second+time.Duration(i)*time.Millisecond)
				}
				for _, v := range e.Verdicts() {
					if strings.HasPrefix(v.Culprit["host"], "quiet-") {
						told[v.Culprit["host"]] = true
					}
				}
				require.Len(t, told, most)
			})
		}
	}
}

// TestMarksOfOthersStay: one fault has the marks of many jobs, and one of them sends more
// than a fault keeps.
func TestMarksOfOthersStay(t *testing.T) {
	const quiet = 20
	e := blockedEngine(t, fmt.Sprintf(fairRule, `
evidence:
  open: {logs: opened, shows: "open"}
  hits: {logs: hit, match: [gpu], occurs: {by: [host], values: 22, within: 5m}, shows: "hits"}
full: open and hits`), engine.Options{})
	send := func(event, host string, at time.Duration) {
		ld := logs(1, began.Add(at), func(_ int, lr plog.LogRecord) {
			lr.SetEventName(event)
			lr.Attributes().PutStr("gen_ai.training.job_id", "a")
			lr.Attributes().PutStr("gpu.id", "g0")
		})
		ld.ResourceLogs().At(0).Resource().Attributes().PutStr("host.name", host)
		e.Logs(ld)
	}
	send("opened", "node", 0)
	for i := range quiet {
		send("hit", fmt.Sprint("quiet-", i), time.Second)
	}
	for i := range 1000 {
		send("hit", "loud", 2*time.Second+time.Duration(i)*time.Millisecond)
	}
	require.Empty(t, e.Verdicts())
	send("hit", "late", 4*time.Second)
	require.Len(t, e.Verdicts(), 1, "the marks of twenty hosts were forgotten for those of one")
}

// TestClaimsDoNotStretchThePausesOfWhatIsProven: counts of an open verdict are told ever more
// rarely. Somebody who claims the same without end does not make it so for what is proven.
func TestClaimsDoNotStretchThePausesOfWhatIsProven(t *testing.T) {
	e := blockedEngine(t, fmt.Sprintf(fairRule, `
evidence: {open: {logs: opened, shows: "open"}}
full: open
trust: {full: claimed, partial: foreign}`), engine.Options{})
	send := func(trust string, at time.Duration) {
		ld := logs(1, began.Add(at), func(_ int, lr plog.LogRecord) {
			lr.SetEventName("opened")
			lr.Attributes().PutStr("gen_ai.training.job_id", "a")
			lr.Attributes().PutStr("tracecore.trust", trust)
		})
		ld.ResourceLogs().At(0).Resource().Attributes().PutStr("host.name", "node-a")
		e.Logs(ld)
	}
	send("proven", 0)
	require.Len(t, e.Verdicts(), 1)
	at := time.Duration(0)
	for range 1000 {
		at += time.Second
		send("claimed", at)
		e.Advance(began.Add(at))
		e.Verdicts()
	}
	send("proven", at)
	e.Advance(began.Add(at))
	e.Verdicts()
	e.Advance(began.Add(at + 2*time.Second))
	told := e.Verdicts()
	require.Len(t, told, 1)
	require.Equal(t, uint64(2), told[0].Evidence[0].Count)
}
