package engine_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
)

const bytesRule = `
id: 1000
name: bytes
summary: a part broke
key: [host, job]
culprit: [host, job]
evidence: {open: {logs: opened, shows: "open"}, hit: {logs: hit, shows: "hit"}}
full: open and hit
severity: error
headline: "part of {job} on {host}"
remedy: look
`

// opened sends one record about a job.
func opened(e *engine.Engine, job string, more func(plog.LogRecord)) plog.Logs {
	ld := logs(1, began, func(_ int, lr plog.LogRecord) {
		lr.SetEventName("opened")
		lr.Attributes().PutStr("gen_ai.training.job_id", job)
		more(lr)
	})
	ld.ResourceLogs().At(0).Resource().Attributes().PutStr("host.name", "node-1")
	return e.Logs(ld)
}

func TestRecordsAreCutBeforeTheyAreHeld(t *testing.T) {
	e := blockedEngine(t, bytesRule, engine.Options{})
	kept := opened(e, "job", func(lr plog.LogRecord) {
		lr.Body().SetStr(strings.Repeat("b", 1<<20))
		for i := range 10_000 {
			lr.Attributes().PutStr(fmt.Sprint("a", i), strings.Repeat("x", 1000))
		}
	})
	require.EqualValues(t, 1, e.Stats().Cut)
	size := (&plog.ProtoMarshaler{}).LogsSize(kept)
	require.Greater(t, size, 1000, "it is kept for the journal")
	require.Less(t, size, 300<<10)
}

// TestLongIdsThatDifferBehindTheCutAreTwo: the second would else be a mark of the first.
func TestLongIdsThatDifferBehindTheCutAreTwo(t *testing.T) {
	e := blockedEngine(t, bytesRule, engine.Options{})
	long := strings.Repeat("j", 5000)
	for _, end := range []string{"a", "b", "a"} {
		opened(e, long+end, func(plog.LogRecord) {})
	}
	require.Equal(t, 2, e.Stats().Waiting)
}

// TestHeldBytesAreBounded: faults whose marks are many and long count as several. What
// is held stays below what the places are for, however long the texts were.
func TestHeldBytesAreBounded(t *testing.T) {
	const room, place = 100, 8 << 10
	e := blockedEngine(t, bytesRule, engine.Options{Waiting: room, Recent: room})
	opened(e, "warm", func(plog.LogRecord) {})
	before := heap()
	for i := range 4 * room {
		job := fmt.Sprint(i, strings.Repeat("j", 1000))
		for j := range 40 {
			opened(e, job, func(lr plog.LogRecord) { lr.SetTimestamp(lr.Timestamp() + pcommon.Timestamp(j)) })
		}
	}
	stats := e.Stats()
	require.Positive(t, stats.EvictedWaiting)
	require.Less(t, stats.Waiting, room, "a large fault takes several places")
	require.Less(t, heap()-before, uint64(4*room*place))
	runtime.KeepAlive(e)
}
