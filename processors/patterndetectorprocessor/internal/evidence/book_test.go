package evidence

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var now = time.Date(2026, 11, 20, 14, 2, 11, 0, time.UTC)

func batch(t *testing.T, host, job, trust, event string, attributes map[string]any) (plog.Logs, []byte) {
	t.Helper()
	ld := plog.NewLogs()
	resource := ld.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", host)
	record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName(event)
	require.NoError(t, record.Attributes().FromRaw(attributes))
	record.Attributes().PutStr("gen_ai.training.job_id", job)
	record.Attributes().PutStr("tracecore.trust", trust)
	payload, err := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
	require.NoError(t, err)
	return ld, payload
}

func only(host, job string) func(string, string) bool {
	return func(h, j string) bool { return h != "" && h == host || j != "" && j == job }
}

// A stranger's flood takes room from itself.
func TestAFloodLeavesWhatIsProven(t *testing.T) {
	b := NewBook(64 << 10)
	ld, payload := batch(t, "node-1", "llm", "proven", "oom.kill", nil)
	b.Add(ld, payload, now)
	for n := range 5000 {
		ld, payload := batch(t, fmt.Sprint("stranger-", n%7), "other", "foreign", "oom.kill", map[string]any{"n": n})
		b.Add(ld, payload, now)
	}
	require.Positive(t, b.Gone())
	require.LessOrEqual(t, b.batches.bytes, 64<<10)
	found, newest := b.Since(0, only("node-1", ""))
	require.Len(t, found, 1)
	require.EqualValues(t, 5001, newest)
	found, _ = b.Since(0, only("", "llm"))
	require.Len(t, found, 1)
	found, _ = b.Since(1, only("node-1", "llm"))
	require.Empty(t, found, "those that came after")
	b.Add(ld, payload, now.Add(2*longest))
	found, _ = b.Since(0, only("", "other"))
	require.Empty(t, found, "too old")
}

func TestFramesAreHeldOnceForEachHash(t *testing.T) {
	b := NewBook(64 << 10)
	frames := map[string]any{"process.stack.hash": "beef", "process.stack.native": []any{"fsync in libc.so.6"}}
	for range 100 {
		ld, payload := batch(t, "node-1", "llm", "claimed", rule.EventStack, frames)
		b.Add(ld, payload, now)
	}
	require.Len(t, b.frames.items, 1)
	for n := range 2000 {
		ld, payload := batch(t, "node-2", "other", "claimed", rule.EventStack, map[string]any{"process.stack.hash": fmt.Sprint(n), "process.stack.native": []any{"spin"}})
		b.Add(ld, payload, now)
	}
	require.LessOrEqual(t, b.frames.bytes, 16<<10)
	key := incidentview.StackKey{Job: "llm", Hash: "beef"}
	require.Len(t, b.Frames([]incidentview.StackKey{key, {Job: "llm", Hash: "none"}, {Job: "other", Hash: "beef"}, {Domain: "pod", Job: "llm", Hash: "beef"}}), 1)
}

func TestIncidentsAreFollowed(t *testing.T) {
	f := NewFollowed()
	v := verdict.Verdict{IncidentID: "inc-1", Role: verdict.RootCause, Status: verdict.Open, Culprit: map[string]string{"host": "node-1"}}
	require.Nil(t, f.Due(now))
	f.Note(&v, now)
	one := f.Due(now)
	require.True(t, one.Wants("any", ""), "not known yet whose records it has")
	one.Hosts = []string{"node-1"}
	f.Looked(one, 7, now)
	require.False(t, one.Wants("any", ""))
	require.True(t, one.Wants("node-1", ""))
	require.Nil(t, f.Due(now))
	require.NotNil(t, f.Due(now.Add(every)))
	v.Status = verdict.Resolved
	f.Note(&v, now)
	f.Looked(f.Due(now), 8, now.Add(after))
	require.NotNil(t, f.Due(now.Add(after+every)), "what comes late is kept too")
	f.Looked(f.Due(now.Add(after+every)), 9, now.Add(after+every))
	require.Empty(t, f.of)
	for n := range 2 * mostFollowed {
		v.IncidentID = fmt.Sprint(n)
		f.Note(&v, now)
	}
	require.Len(t, f.of, mostFollowed)
}

// turns looks at what is due, a look after the other, and returns whose turn it was.
func turns(f *Followed, from time.Time, looks int, between func(now time.Time)) (ids []string) {
	for n := range looks {
		at := from.Add(time.Duration(n) * time.Second)
		between(at)
		if one := f.Due(at); one != nil {
			ids = append(ids, one.ID)
			f.Looked(one, 1, at)
		}
	}
	return ids
}

// An incident with news at each moment keeps its place among those that wait.
func TestNewsCostNobodyHisTurn(t *testing.T) {
	f := NewFollowed()
	of := func(id, domain string) *verdict.Verdict {
		return &verdict.Verdict{IncidentID: id, Role: verdict.RootCause, Status: verdict.Open, Culprit: map[string]string{"host": "node-1", "job_domain": domain}}
	}
	for n := range 20 {
		f.Note(of(fmt.Sprint("other-", n), "user 1"), now)
	}
	busy := of("the busy one", "user 1")
	f.Note(busy, now)
	// One look a second, 21 incidents, each due again after 10 s: all of the time is taken.
	told := turns(f, now, 21, func(at time.Time) { f.Note(busy, at) })
	require.Contains(t, told, "the busy one")
}

// A user whose incidents are hundreds delays the one of another by a look or two, also where
// they came first, come again and again, or are of domains that are new.
func TestManyIncidentsOfOneUserDelayNobodyElse(t *testing.T) {
	for name, flood := range map[string]func(n int) map[string]string{
		"one user": func(int) map[string]string { return map[string]string{"host": "node-1", "job_domain": "user 1"} },
		"one machine with many domains": func(n int) map[string]string {
			return map[string]string{"host": "node-2", "job_domain": fmt.Sprint("user ", n)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := NewFollowed()
			note := func(n int, at time.Time) {
				f.Note(&verdict.Verdict{IncidentID: fmt.Sprint("flood-", n), Role: verdict.RootCause, Status: verdict.Open, Culprit: flood(n)}, at)
			}
			for n := range 400 {
				note(n, now)
			}
			turns(f, now, 30, func(time.Time) {})
			came := now.Add(30 * time.Second)
			f.Note(&verdict.Verdict{IncidentID: "victim", Role: verdict.RootCause, Status: verdict.Open, Culprit: map[string]string{"host": "node-1", "job_domain": "user 2"}}, came)
			more := 400
			told := turns(f, came, 3, func(at time.Time) { note(more, at); more++ })
			require.Contains(t, told, "victim")
		})
	}
}

// Incidents of jobs with ever new names, of one domain, push out none of another on the machine.
func TestIncidentsOfOneDomainPushOutNoneOfAnother(t *testing.T) {
	f := NewFollowed()
	note := func(id, domain, job string) {
		f.Note(&verdict.Verdict{IncidentID: id, Pattern: "rank_exit", Role: verdict.RootCause, Status: verdict.Open, Culprit: map[string]string{"host": "node-1", "job_domain": domain, "job": job}}, now)
	}
	for n := range 8 {
		note(fmt.Sprint("mine-", n), "user 1", "llm")
	}
	for n := range 2 * mostFollowed {
		note(fmt.Sprint("flood-", n), "user 2", fmt.Sprint("job-", n))
	}
	require.Len(t, f.of, mostFollowed)
	for n := range 8 {
		require.NotNil(t, f.of[fmt.Sprint("mine-", n)], n)
	}
}
