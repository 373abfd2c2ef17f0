package story

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

const lost = `A GPU is lost.
-- records.yaml --
resource: {host.name: a}
records:
  - {at: +0s, log: gpu.lost, attributes: {gpu.id: "0000:65:00.0", tracecore.trust: proven}}
-- want.yaml --
verdicts:
  - {pattern: gpu_lost, role: root_cause, culprit: {gpu: "0000:65:00.0"}}
`

// A story that does not come out as told says how, whatever differs.
func TestDiffShowsWhatDiffers(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		old, new string
		want     []string
	}{
		"nothing":           {"", "", nil},
		"another culprit":   {`culprit: {gpu: "0000:65:00.0"}`, `culprit: {gpu: "0000:66:00.0"}`, []string{"0000:66:00.0", "0000:65:00.0"}},
		"another role":      {"role: root_cause", "role: symptom", []string{"symptom", "root_cause"}},
		"a verdict too few": {"log: gpu.lost", "log: gpu.found", []string{"- gpu_lost: no such verdict came"}},
		"a verdict more":    {"\n  - {pattern: gpu_lost, role: root_cause, culprit: {gpu: \"0000:65:00.0\"}}", " []", []string{"+ gpu_lost (root_cause, full, open): GPU 0000:65:00.0 on a"}},
		"incidents":         {"verdicts:", "incidents: 2\nverdicts:", []string{"- 2 incidents\n+ 1 incidents"}},
		"counters":          {"verdicts:", "stats: {Late: 1}\nverdicts:", []string{"- Late: at least 1\n+ Late: 0"}},
		"unknown counter":   {"verdicts:", "stats: {Latte: 1}\nverdicts:", []string{"no counter of that name"}},
		"onset":             {"role: root_cause", "onset: +1s", []string{"1s", "0s"}},
		"evidence":          {"role: root_cause", "evidence: [xid_79]", []string{"xid_79", "lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, lost, tc.old)
			r, err := Run(rules, nil, "s.txtar", []byte(strings.Replace(lost, tc.old, tc.new, 1)))
			require.NoError(t, err)
			require.Equal(t, tc.want == nil, r.Passed(), r.Diff)
			for _, part := range tc.want {
				require.Contains(t, r.Diff, part)
			}
		})
	}
}

func TestErrorsSayWhatToWrite(t *testing.T) {
	for name, tc := range map[string]struct{ old, new, want string }{
		"no comment":       {"A GPU is lost.", "", "tell the story"},
		"unknown file":     {"want.yaml", "wants.yaml", "s.txtar:6: unknown file \"wants.yaml\": a story has records.yaml and want.yaml"},
		"no want":          {lost[strings.Index(lost, "-- want"):], "", "needs both"},
		"unknown key":      {"at: +0s", "att: +0s", `s.txtar:5: unknown key "att": did you mean "at"?`},
		"bad offset":       {"at: +0s", "at: soon", `s.txtar:5: "soon" is not an offset: write +0s`},
		"neither":          {"log: gpu.lost, ", "", "s.txtar:5: a record needs log"},
		"bad type":         {"log: gpu.lost", "metric: m, type: histogram", `s.txtar:5: type "histogram": use counter, delta or gauge`},
		"too many":         {"log: gpu.lost", "log: gpu.lost, repeat: {count: 3000000}", "s.txtar:5: repeat needs a count"},
		"unknown kind":     {"records:", "kind: flod\nrecords:", `s.txtar:4: kind "flod": use one of [fires near_miss`},
		"no YAML":          {"-- want.yaml --\nverdicts:", "-- want.yaml --\nverdicts: [", "s.txtar:7: did not find expected node content: correct the YAML here or nearby"},
		"not a number":     {"at: +0s", "at: +0s, value: much", "s.txtar:5: cannot unmarshal"},
		"there twice":      {"-- want.yaml --", "-- records.yaml --", "s.txtar:6: records.yaml is there twice"},
		"two documents":    {"-- want.yaml --", "---\nrecords: []\n-- want.yaml --", "s.txtar:7: a second document after ---: leave it out"},
		"total and listed": {"verdicts:", "total: 1\nverdicts:", "exclude each other"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("s.txtar", []byte(strings.Replace(lost, tc.old, tc.new, 1)))
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, "s.txtar")
		})
	}
}

// A name is told where it is written, once, however often it is used.
func TestNamesBehindAliasesAreFound(t *testing.T) {
	known := &rule.Vocabulary{Events: []string{"gpu.lost"}, Metrics: []string{"node_*"}, Attributes: []string{"gpu.id", "host.name"}}
	_, err := Run(nil, known, "s.txtar", []byte(`GPUs are lost.
-- records.yaml --
records:
  - &one {at: +0s, log: gpu.lost, attributes: &its {gpu.it: a}}
  - {<<: *one, at: +1s}
  - {at: +2s, log: gpu.lots, attributes: *its}
  - {at: +3s, metric: node_x, value: 1, attributes: {gpu.id: a}}
-- want.yaml --
verdicts: []
`))
	require.ErrorContains(t, err, `s.txtar:6:20: no event "gpu.lots" is known: did you mean "gpu.lost"?`)
	require.ErrorContains(t, err, `s.txtar:4:53: no attribute "gpu.it" is known: did you mean "gpu.id"?`)
	require.Len(t, strings.Split(err.Error(), "\n"), 2)
}

func TestRunDirRunsAllAndReportsBadOnes(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	results, err := RunDir(rules, nil, fstest.MapFS{
		"b/one.txtar": {Data: []byte(lost)}, "a.txtar": {Data: []byte(lost)}, "bad.txtar": {Data: []byte("x")}, "readme.md": {Data: []byte("x")},
	})
	require.ErrorContains(t, err, "bad.txtar")
	require.Len(t, results, 2)
	require.Equal(t, "a.txtar", results[0].Name)
	require.True(t, results[1].Passed(), results[1].Diff)
}

// FuzzStory parses hostile archives and plays what parses to the library: no
// panic, no verdict without a root cause.
func FuzzStory(f *testing.F) {
	f.Add([]byte(lost))
	f.Add([]byte("x\n-- records.yaml --\nrecords: [{at: 0s, log: gpu.xid, attributes: {kernelevents.count: -1, kernelevents.last_time_unix_nano: 9223372036854775807, gpu.id: [1], kernelevents.xid: 79}}]\n-- want.yaml --\n"))
	names, err := filepath.Glob("../*/testdata/*.txtar")
	if err != nil || len(names) == 0 {
		f.Fatal("no stories", err)
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	rules, err := patterns.Library()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		s, err := Parse("f.txtar", archive)
		if err != nil || len(s.Input.Records) > 50 {
			return
		}
		for i := range s.Input.Records {
			if s.Input.Records[i].copies() > 100 {
				return
			}
		}
		e, err := engine.New(rules, engine.Options{Waiting: 20, OpenVerdicts: 20, Marks: 4})
		if err != nil {
			t.Fatal(err)
		}
		verdicts, err := s.play(e, s.Input.arrivals(), start)
		if err != nil {
			return
		}
		for _, v := range verdicts {
			if v.ID == "" || v.IncidentID == "" || v.Revision < 1 || (v.Role == "symptom") != (v.RootCause != "") {
				t.Fatalf("malformed verdict: %+v", v)
			}
		}
		saved, err := e.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Restore(saved); err != nil {
			t.Fatal(err)
		}
	})
}
