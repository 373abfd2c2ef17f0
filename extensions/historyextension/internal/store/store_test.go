package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var onset = time.Date(2026, 11, 20, 14, 2, 11, 531_000_000, time.UTC)

// bench is a store with what it tells.
type bench struct {
	*Store
	dir                   string
	mu                    sync.Mutex
	now                   time.Time
	aside                 []error
	evicted, damaged, cut int
}

func newBench(t testing.TB, dir string, maxBytes int64) *bench {
	t.Helper()
	b := &bench{dir: dir, now: onset.Add(time.Hour)}
	b.Store = New(Options{
		Directory: dir, MaxBytes: maxBytes, MaxAge: 30 * 24 * time.Hour, Now: func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.now },
		SetAside: func(_, _ string, why error) { b.aside = append(b.aside, why) },
		Evicted:  func(n int) { b.evicted += n }, Damaged: func(n int) { b.damaged += n }, Cut: func(n int) { b.cut += n },
	})
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func (b *bench) keep(t testing.TB, verdicts ...verdict.Verdict) {
	t.Helper()
	require.NoError(t, b.Keep(context.Background(), verdicts))
}

func (b *bench) ids(t testing.TB, f history.Filter) []string {
	t.Helper()
	found, _, err := b.Incidents(context.Background(), f)
	require.NoError(t, err)
	ids := []string{}
	for _, i := range found {
		ids = append(ids, i.ID)
	}
	return ids
}

// lost is a root cause.
func lost(incident, host, job string, revision int) verdict.Verdict {
	return verdict.Verdict{
		ID: "gpu_lost-" + incident, IncidentID: incident, PatternID: 18, Pattern: "gpu_lost",
		Role: verdict.RootCause, Status: verdict.Open, Confidence: verdict.Full, Trust: verdict.Proven, Severity: verdict.Critical, Revision: revision,
		Onset: onset, Updated: onset.Add(time.Duration(revision) * time.Second), Headline: "GPU lost on " + host, Remediation: "Restart the machine.",
		Culprit:  map[string]string{"host": host, "job": job},
		Evidence: []verdict.Evidence{{Name: "lost", Time: onset, Count: 1, Source: "gpu.lost", Shows: "it fell off the bus"}},
	}
}

// killed is a symptom.
func killed(incident, host, job string, rank int) verdict.Verdict {
	v := lost(incident, host, job, 1)
	v.ID, v.Role, v.RootCause = fmt.Sprintf("rank_exit-%s-%d", incident, rank), verdict.Symptom, v.ID
	v.Pattern, v.Onset = "rank_exit", onset.Add(time.Duration(rank+1)*time.Millisecond)
	v.Headline = fmt.Sprintf("rank %d was killed", rank)
	return v
}

func cleared(v verdict.Verdict) verdict.Verdict {
	end := v.Updated.Add(time.Minute)
	v.Revision++
	v.Status, v.Resolved, v.Updated = verdict.Resolved, &end, end
	return v
}

func TestAnIncidentIsKeptWithAllRevisions(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<22)
	cause := lost("inc-1", "node-17", "llm", 1)
	b.keep(t, killed("inc-1", "node-18", "llm", 3), cause)
	b.keep(t, cause, cleared(cause)) // the first is delivered again
	whole, err := b.Incident(t.Context(), "inc-1", true)
	require.NoError(t, err)
	require.Equal(t, []string{"gpu_lost-inc-1", "rank_exit-inc-1-3"}, []string{whole.Verdicts[0].ID, whole.Verdicts[1].ID})
	require.Equal(t, verdict.Bounded(cleared(cause)), whole.Verdicts[0], "the newest revision, as it was told")
	revisions := []string{}
	for _, r := range whole.Revisions {
		revisions = append(revisions, fmt.Sprint(r.Verdict.ID, " ", r.Verdict.Revision))
	}
	require.ElementsMatch(t, []string{"rank_exit-inc-1-3 1", "gpu_lost-inc-1 1", "gpu_lost-inc-1 2"}, revisions)
	i := whole.Incident
	require.Equal(t, verdict.Resolved, i.Status)
	require.Equal(t, []string{"llm"}, i.Jobs)
	require.Equal(t, []string{"node-17", "node-18"}, i.Nodes)
	require.Equal(t, 2, i.Verdicts)
	_, err = b.Incident(t.Context(), "inc-2", false)
	require.ErrorIs(t, err, ErrNotFound)
}

func TestIncidentsAreFound(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<22)
	second := lost("inc-2", "node-2", "vision", 1)
	second.Onset, second.Updated = onset.Add(time.Hour), onset.Add(time.Hour)
	third := cleared(lost("inc-3", "node-3", "llm", 1))
	third.Culprit["node"] = "k8s-3"
	b.keep(t, lost("inc-1", "node-1", "llm", 1), second, third, killed("inc-1", "node-9", "other", 1))
	for _, c := range []struct {
		name   string
		filter history.Filter
		want   []string
	}{
		{"all, newest onset first", history.Filter{}, []string{"inc-2", "inc-1", "inc-3"}},
		{"open", history.Filter{Open: true}, []string{"inc-2", "inc-1"}},
		{"of a job", history.Filter{Job: "llm"}, []string{"inc-1", "inc-3"}},
		{"of a job that only a symptom names", history.Filter{Job: "other"}, []string{"inc-1"}},
		{"of a host", history.Filter{Node: "node-9"}, []string{"inc-1"}},
		{"of a Kubernetes node", history.Filter{Node: "k8s-3"}, []string{"inc-3"}},
		{"since, and what is open since before", history.Filter{Since: onset.Add(10 * time.Minute)}, []string{"inc-2", "inc-1"}},
		{"of nobody", history.Filter{Job: "' OR 1=1 --"}, []string{}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, b.ids(t, c.filter)) })
	}
	found, more, err := b.Incidents(t.Context(), history.Filter{Limit: 2})
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, found, 2)
	sum, err := b.Summary(t.Context())
	require.NoError(t, err)
	require.Equal(t, [3]int{3, 2, 2}, [3]int{sum.Incidents, sum.Open, sum.RootCauses})
}

// A cause is found later: what stood alone belongs to its incident now, and is found under
// its old name.
func TestAnIncidentThatBecomesPartOfAnother(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<22)
	alone := killed("inc-1", "node-1", "llm", 3)
	alone.Role, alone.RootCause = verdict.RootCause, ""
	b.keep(t, alone)
	require.NoError(t, b.Acknowledge(t.Context(), "inc-1", history.Acknowledgement{At: onset, UID: 7, Note: "seen"}))
	symptom := killed("inc-2", "node-1", "llm", 3)
	symptom.ID, symptom.Revision = alone.ID, 2
	b.keep(t, lost("inc-2", "node-1", "llm", 1), symptom)
	require.Equal(t, []string{"inc-2"}, b.ids(t, history.Filter{}))
	whole, err := b.Incident(t.Context(), "inc-1", true)
	require.NoError(t, err)
	require.Equal(t, "inc-2", whole.Incident.ID)
	require.Len(t, whole.Revisions, 3, "with what was said before")
	require.Equal(t, &history.Acknowledgement{At: onset, UID: 7, Note: "seen"}, whole.Incident.Acknowledged)
}

// A detector that lost its state counts its revisions anew.
func TestALaterStatementWithALowerRevisionIsNewer(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<22)
	b.keep(t, lost("inc-1", "node-1", "llm", 5))
	again := lost("inc-1", "node-1", "llm", 1)
	again.Updated = onset.Add(time.Hour)
	b.keep(t, again)
	b.keep(t, cleared(again))
	whole, err := b.Incident(t.Context(), "inc-1", false)
	require.NoError(t, err)
	require.Equal(t, verdict.Resolved, whole.Incident.Status)
	b.keep(t, lost("inc-1", "node-1", "llm", 5), lost("inc-1", "node-1", "llm", 1))
	whole, err = b.Incident(t.Context(), "inc-1", true)
	require.NoError(t, err)
	require.Equal(t, verdict.Resolved, whole.Incident.Status, "one that was kept before and comes again changes nothing")
	require.Len(t, whole.Revisions, 3)
}

func TestWhatIsKeptIsThereAfterARestart(t *testing.T) {
	dir := t.TempDir()
	first := newBench(t, dir, 1<<22)
	first.keep(t, lost("inc-1", "node-1", "llm", 1))
	info, err := os.Stat(first.Path())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	second := newBench(t, dir, 1<<22)
	require.ErrorContains(t, second.Keep(t.Context(), nil), "locked", "a file has one process")
	require.Error(t, second.Problem())
	require.NoError(t, first.Close())
	second.pass(openEvery)
	require.Equal(t, []string{"inc-1"}, second.ids(t, history.Filter{}))
	require.NoError(t, second.Problem())
	require.Empty(t, second.aside)
}

// A flood of weak verdicts of one tenant pushes out what is its own.
func TestAFloodTakesRoomFromItself(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<20)
	b.keep(t, lost("inc-theirs", "node-1", "theirs", 1))
	text := strings.Repeat("x", 900)
	for i := range 400 {
		weak := lost(fmt.Sprintf("flood-%d", i), "node-2", fmt.Sprintf("job-%d", i), 1)
		weak.Confidence, weak.Trust, weak.Headline, weak.Onset = verdict.Partial, verdict.Foreign, text, onset.Add(time.Duration(i)*time.Second)
		weak.Culprit["job_domain"] = "tenant-2"
		for range 4 {
			weak.Evidence = append(weak.Evidence, verdict.Evidence{Name: "e", Time: onset, Count: 1, Source: "s", Shows: text})
		}
		b.keep(t, weak)
	}
	ids := b.ids(t, history.Filter{Limit: 1000})
	require.Contains(t, ids, "inc-theirs")
	require.Contains(t, ids, "flood-399")
	require.NotContains(t, ids, "flood-0")
	require.Equal(t, 401-len(ids), b.evicted)
	require.Greater(t, len(ids), 100)
	info, err := os.Stat(b.Path())
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(1<<20)+1<<17)
	require.NoError(t, b.Close())

	again := newBench(t, b.dir, 1<<20)
	for i := range 400 {
		again.keep(t, lost(fmt.Sprintf("more-%d", i), "node-2", "job", 1))
	}
	require.Contains(t, again.ids(t, history.Filter{Limit: 1000}), "inc-theirs", "who has how much is known after a restart")
}

func TestOneIncidentDoesNotFillTheFile(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<20)
	b.keep(t, lost("inc-1", "node-1", "llm", 1))
	for rank := range 400 {
		b.keep(t, killed("inc-2", "node-2", "other", rank))
	}
	for revision := 1; revision < 300; revision++ {
		b.keep(t, lost("inc-2", "node-2", "other", revision))
	}
	whole, err := b.Incident(t.Context(), "inc-2", true)
	require.NoError(t, err)
	require.Equal(t, 299, whole.Verdicts[0].Revision)
	require.Positive(t, b.cut)
	require.Equal(t, []string{"inc-1", "inc-2"}, slices.Sorted(slices.Values(b.ids(t, history.Filter{}))))
	require.Zero(t, b.evicted)
}

func TestWhatIsTooOldLeaves(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<22)
	b.keep(t, lost("inc-1", "node-1", "llm", 1))
	b.pass(31 * 24 * time.Hour)
	fresh := lost("inc-2", "node-1", "llm", 1)
	fresh.Updated = b.now
	b.keep(t, fresh)
	require.Equal(t, []string{"inc-2"}, b.ids(t, history.Filter{}))
}

// Any byte of a file's header may say what SQLite cannot do, or does only in part: the file is
// set aside, or it goes on to be used.
func TestADamagedHeaderKeepsNoVerdictOut(t *testing.T) {
	const header = 100 // bytes (sqlite.org/fileformat2.html, section 1.3)
	dir := t.TempDir()
	b := newBench(t, dir, 1<<22)
	b.keep(t, lost("inc-1", "node-1", "llm", 1))
	require.NoError(t, b.Close())
	whole, err := os.ReadFile(filepath.Join(dir, FileName))
	require.NoError(t, err)
	for at := range header {
		for _, value := range []byte{3, 0xff}[:hosttest.Size(2, 1)] {
			hurt := slices.Clone(whole)
			hurt[at] = value
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, FileName), hurt, 0o600))
			b := newBench(t, dir, 1<<22)
			require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{lost("inc-2", "node-1", "llm", 1)}), "byte %d is %d", at, value)
			require.Contains(t, b.ids(t, history.Filter{}), "inc-2", "byte %d is %d", at, value)
			require.NoError(t, b.Close())
		}
	}
}

func TestWhatIsNoHistoryIsSetAside(t *testing.T) {
	other := func(t *testing.T, path string) {
		b := newBench(t, filepath.Dir(path), 1<<22)
		b.keep(t, lost("inc-1", "node-1", "llm", 1))
		_, err := b.conn.ExecContext(t.Context(), "PRAGMA user_version = 99")
		require.NoError(t, err)
		require.NoError(t, b.Close())
	}
	for name, make := range map[string]func(t *testing.T, path string){
		"text": func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("text ", 4096)), 0o600))
		},
		"a folder":             func(t *testing.T, path string) { require.NoError(t, os.MkdirAll(filepath.Join(path, "x"), 0o700)) },
		"a link":               func(t *testing.T, path string) { require.NoError(t, os.Symlink("/dev/zero", path)) },
		"a dangling link":      func(t *testing.T, path string) { require.NoError(t, os.Symlink(path+"x", path)) },
		"a folder for its log": func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path+"-wal", 0o700)) },
		"a hole": func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			require.NoError(t, os.Truncate(path, 1<<40))
		},
		"another version": other,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			make(t, filepath.Join(dir, FileName))
			b := newBench(t, dir, 1<<20)
			b.keep(t, lost("inc-2", "node-1", "llm", 1))
			require.Equal(t, []string{"inc-2"}, b.ids(t, history.Filter{}))
			kept, err := os.ReadDir(filepath.Join(dir, "set-aside"))
			require.NoError(t, err)
			require.NotEqual(t, name == "a hole", len(kept) > 0, "what is too large is not kept")
		})
	}
}

func TestAReaderThatGoesAwayLeavesTheFileOpen(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<22)
	b.keep(t, lost("inc-1", "node-1", "llm", 1))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := b.Incidents(gone, history.Filter{})
	require.Error(t, err)
	require.NoError(t, b.Problem())
	require.Equal(t, []string{"inc-1"}, b.ids(t, history.Filter{}))
	require.NoError(t, b.Close())
	require.ErrorIs(t, b.Keep(t.Context(), nil), errClosed)
	require.False(t, errors.Is(b.Problem(), errUnusable))
}

func BenchmarkKeep(b *testing.B) {
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := newBench(b, b.TempDir(), 64<<20)
			n := 0
			batch := make([]verdict.Verdict, size)
			for b.Loop() {
				for i := range batch {
					n++
					batch[i] = lost(fmt.Sprint("inc-", n), fmt.Sprint("node-", n%1000), "llm", 1)
				}
				s.keep(b, batch...)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/verdict")
		})
	}
}

// Views show the first eight characters of an id: an incident is found by them where it is the
// only one that begins so, also under the id that it had before.
func TestAnIncidentIsFoundByTheBeginningOfItsID(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<22)
	b.keep(t, lost("4a415315aa", "node-1", "llm", 1), lost("4a415315bb", "node-2", "llm", 1), lost("4a4153", "node-3", "llm", 1), lost("7c00aa11cc", "node-4", "llm", 1))
	later := lost("7c00aa11cc", "node-4", "llm", 2)
	later.IncidentID = "9d00bb22dd"
	b.keep(t, lost("9d00bb22dd", "node-5", "llm", 1), later)
	for _, c := range []struct {
		given, found string
		err          error
	}{
		{"4a415315a", "4a415315aa", nil},
		{"4a4153", "4a4153", nil},
		{"4a415315", "", ErrSeveral},
		{"4a41531", "", ErrNotFound}, // too little of it
		{"4a415315ab", "", ErrNotFound},
		{"4a4153%5a", "", ErrNotFound},
		{"7c00aa11", "9d00bb22dd", nil},
	} {
		all, err := b.Incident(t.Context(), c.given, false)
		require.ErrorIs(t, err, c.err, c.given)
		require.Equal(t, c.found, all.Incident.ID, c.given)
	}
	require.NoError(t, b.Problem(), "what a caller asks says nothing of the file")
	require.ErrorIs(t, b.Mute(t.Context(), "4a415315", history.Mute{Until: onset.Add(time.Hour), Reason: "x"}), ErrSeveral)
	require.NoError(t, b.Acknowledge(t.Context(), "4a415315b", history.Acknowledgement{At: onset, UID: 7}))
	all, err := b.Incident(t.Context(), "4a415315bb", false)
	require.NoError(t, err)
	require.EqualValues(t, 7, all.Incident.Acknowledged.UID)
}
