package verdict

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test -update to write it")
	require.Equal(t, string(want), string(got))
}

func TestRender(t *testing.T) {
	partial := lostGPU()
	partial.Confidence, partial.Severity = Partial, Warning
	partial.NotObserved = append(partial.NotObserved, "the loss reported by the driver a second time")
	cleared := revised(lostGPU(), func(v *Verdict) {
		end := at("14:09:30")
		v.Status, v.Resolved, v.Updated = Resolved, &end, end
	})
	storm := lostGPU()
	storm.Evidence[0].Count, storm.Evidence[0].Last = 100_000, at("14:02:19.000")
	storm.Onset = storm.Onset.Add(-15 * time.Hour)
	storm.Evidence = append([]Evidence{{Name: "before", Time: storm.Onset, Count: 1, Source: "pcie.error", Shows: "PCIe errors on the port above"}}, storm.Evidence...)

	late := lostGPU()
	late.Late, late.Evidence[0].Late = true, true

	for name, verdicts := range map[string][]Verdict{
		"late":           {late},
		"incident":       {abortedRank(), lostGPU()},
		"partial":        {partial},
		"cleared":        {cleared},
		"storm":          {storm},
		"orphan_symptom": {abortedRank()},
		"hostile":        {hostile()},
		"job":            job(600),
		"two_incidents":  {lostGPU(), elsewhere()},
		"sizes":          {killedWorker()},
		"pods":           {inPod("named", "ml", "llama-worker-3"), inPod("without_namespace", "", "llama-worker-3"), inPod("unnamed", "ml", "")},
		"nothing":        {},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, Render(&out, verdicts, Options{Now: at("14:02:16")}))
			golden(t, name, out.Bytes())
		})
	}
}

func elsewhere() Verdict {
	v := lostGPU()
	v.ID, v.IncidentID, v.Onset = "gpu_lost-2", "inc-2", v.Onset.Add(time.Minute)
	v.Culprit = map[string]string{"host": "node-3", "gpu": "0000:1a:00.0", "container": strings.Repeat("ab", 32), "vendor": "nvidia"}
	v.BlastRadius, v.PatternID, v.Pattern = nil, 0, "my_own_rule"
	return v
}

// inPod is a worker in a pod, of which more or less is known beside its uid.
func inPod(id, namespace, name string) Verdict {
	v := killedWorker()
	v.ID, v.IncidentID = id, id
	v.Culprit = map[string]string{
		"host": "node-17", "rank": "5", "pod": "2c1f7e90-6b1e-4f43-8a2f-0d4c7a1f9b3e", "namespace": namespace, "pod_name": name,
	}
	if name != "" {
		v.Culprit["workload"] = "statefulset/llama-worker"
	}
	return v
}

// job is one lost GPU that took the ranks of a whole job down.
func job(ranks int) []Verdict {
	incident := []Verdict{lostGPU()}
	for rank := range ranks {
		v := abortedRank()
		v.ID, v.BlastRadius = fmt.Sprintf("rank_exit-%d", rank), []int{rank}
		v.Headline = fmt.Sprintf("rank %d was killed by SIGABRT", rank)
		v.Culprit = map[string]string{"host": fmt.Sprintf("node-%d", rank/8), "rank": fmt.Sprint(rank)}
		v.Onset = v.Onset.Add(time.Duration(rank) * time.Millisecond)
		incident = append(incident, v)
	}
	return incident
}

// A reader who sees one line of a drill must not act on it.
func TestADrillIsMarkedWhereverItIsTold(t *testing.T) {
	drill := lostGPU()
	drill.Drill, drill.Confidence = true, Partial
	more := drill
	more.Revision, more.Headline = 2, "GPU 0000:65:00.0 fell off the bus; rank 3 and rank 4 were using it"
	end := more
	resolved := end.Updated.Add(time.Minute)
	end.Revision, end.Status, end.Resolved = 3, Resolved, &resolved
	var b strings.Builder
	require.NoError(t, RenderChange(&b, nil, []Verdict{drill}, Options{}))
	require.Regexp(t, `^DRILL, CRITICAL, likely  GPU`, b.String())
	b.Reset()
	require.NoError(t, RenderChange(&b, []Verdict{drill}, []Verdict{more}, Options{}))
	require.Regexp(t, `^DRILL, UPDATE  GPU`, b.String())
	b.Reset()
	require.NoError(t, RenderChange(&b, []Verdict{more}, []Verdict{end}, Options{}))
	require.Regexp(t, `^DRILL, CLEARED  GPU`, b.String())
}

func TestRenderInColor(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Render(&out, []Verdict{lostGPU(), abortedRank()}, Options{Color: true, Now: at("14:02:16")}))
	golden(t, "color", out.Bytes())
}

func TestRenderShowsTimesInTheZoneOfNow(t *testing.T) {
	var out bytes.Buffer
	tokyo := time.FixedZone("JST", 9*3600)
	require.NoError(t, Render(&out, []Verdict{lostGPU()}, Options{Now: at("14:02:16").In(tokyo)}))
	require.Contains(t, out.String(), "since     23:02:11.531 JST, 4 s ago")
}

func TestRenderLetsNothingControlTheTerminal(t *testing.T) {
	v := hostile()
	v.IncidentID, v.Pattern, v.Remediation = "\x1bX", "\x1b]52;c;AAAA\x07", "\x1b[8m do \r nothing"
	v.Evidence[0].Source = "\u202egpu\x9b"
	after := Merge([]Verdict{v}, []Verdict{revised(v, func(v *Verdict) { v.Culprit["pod"] = "\x1bP"; v.Severity = Error })})
	var out bytes.Buffer
	require.NoError(t, Render(&out, []Verdict{v}, Options{}))
	require.NoError(t, RenderChange(&out, []Verdict{v}, after, Options{}))
	for _, r := range out.String() {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%q reached the terminal", r)
	}
	require.NotContains(t, out.String(), "\nCRITICAL  forged line")
}

func TestRenderIsBounded(t *testing.T) {
	v := lostGPU()
	v.Headline, v.Remediation = strings.Repeat("wide ", 10_000), strings.Repeat("r", 1<<20)
	for i := range 5000 {
		v.Evidence = append(v.Evidence, Evidence{Name: fmt.Sprint(i), Time: v.Onset, Shows: strings.Repeat("é", 5000)})
		v.NotObserved = append(v.NotObserved, strings.Repeat("n", 5000))
		v.Culprit[fmt.Sprintf("key%d", i)] = strings.Repeat("v", 100)
		v.BlastRadius = append(v.BlastRadius, 2*i)
	}
	var out bytes.Buffer
	require.NoError(t, Render(&out, []Verdict{v}, Options{}))
	require.Less(t, out.Len(), 16<<10)
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestRenderReturnsTheWritersError(t *testing.T) {
	require.ErrorContains(t, Render(brokenPipe{}, []Verdict{lostGPU()}, Options{}), "broken pipe")
	require.ErrorContains(t, RenderChange(brokenPipe{}, nil, []Verdict{lostGPU()}, Options{}), "broken pipe")
}

func change(t *testing.T, before, news []Verdict) string {
	t.Helper()
	var out bytes.Buffer
	before = Merge(nil, before)
	require.NoError(t, RenderChange(&out, before, Merge(before, news), Options{Now: at("14:02:16")}))
	return out.String()
}

// drills are the same verdicts of a drill.
func drills(verdicts []Verdict) []Verdict {
	verdicts = slices.Clone(verdicts)
	for i := range verdicts {
		verdicts[i].Drill = true
	}
	return verdicts
}

func TestRenderChange(t *testing.T) {
	partial := lostGPU()
	partial.Confidence = Partial
	confirmed := revised(partial, func(v *Verdict) {
		v.Confidence, v.NotObserved, v.Severity = Full, nil, Critical
		v.Evidence = append(v.Evidence, Evidence{
			Name: "recovery", Time: at("14:02:13.250"), Count: 1, Source: "gpu.xid",
			Shows: "the driver asks for a restart of the node (Xid 154)",
		})
		v.Remediation = "Restart the node."
	})
	cleared := revised(confirmed, func(v *Verdict) {
		end := at("14:09:30")
		v.Status, v.Resolved = Resolved, &end
	})
	again := revised(cleared, func(v *Verdict) {
		v.Status, v.Resolved = Open, nil
		v.Evidence = append(v.Evidence, Evidence{Name: "xid_79_again", Time: at("14:20:00"), Count: 1, Source: "gpu.xid", Shows: "Xid 79 once more"})
	})
	counted := revised(lostGPU(), func(v *Verdict) { v.Evidence[0].Count = 900 })
	symptomCleared := revised(abortedRank(), func(v *Verdict) { v.Status = Resolved })

	stuck := revised(lostGPU(), func(v *Verdict) {
		v.Headline = "daemon juicefs (pid 812) of /data/training/imagenet on node-17 does not answer a READ for 11 s; ranks 0-1 of job llm-70b wait"
	})
	longer := revised(stuck, func(v *Verdict) { v.Headline = strings.Replace(v.Headline, "11 s", "601 s", 1) })
	told := revised(stuck, func(v *Verdict) { v.Headline = "the kernel killed juicefs (pid 812)" })
	late := revised(abortedRank(), func(v *Verdict) { v.RootCause, v.IncidentID = cleared.ID, cleared.IncidentID })
	goesOn := revised(cleared, func(v *Verdict) { v.GoesOn = Error })
	allOver := revised(goesOn, func(v *Verdict) { v.GoesOn = "" })
	for _, c := range []struct {
		name         string
		before, news []Verdict
	}{
		{"change_cause_cleared", []Verdict{confirmed, late}, []Verdict{goesOn}},
		{"change_goes_on_no_more", []Verdict{goesOn, late}, []Verdict{allOver}},
		{"change_dies_after_the_end", []Verdict{cleared}, []Verdict{goesOn, late}},
		{"change_first_heard_after_the_end", nil, []Verdict{goesOn, late}},
		{"change_age_only", []Verdict{stuck}, []Verdict{longer}},
		{"change_reminder", []Verdict{stuck}, []Verdict{longer, abortedRank()}},
		{"change_headline", []Verdict{stuck}, []Verdict{told}},
		{"change_after_the_end", []Verdict{cleared}, []Verdict{late}},
		{"change_first", nil, []Verdict{lostGPU()}},
		{"change_symptom", []Verdict{lostGPU()}, []Verdict{abortedRank()}},
		{"change_cause_found", []Verdict{asCause()}, []Verdict{lostGPU(), revised(abortedRank(), func(*Verdict) {})}},
		{"change_confirmed", []Verdict{partial}, []Verdict{confirmed}},
		{"change_cleared", []Verdict{confirmed}, []Verdict{cleared}},
		{"change_again", []Verdict{cleared}, []Verdict{again}},
		{"change_counts_only", []Verdict{lostGPU()}, []Verdict{counted}},
		{"change_old_revision", []Verdict{confirmed}, []Verdict{partial}},
		{"change_symptom_cleared", []Verdict{lostGPU(), abortedRank()}, []Verdict{symptomCleared}},
		{"change_many_symptoms", job(1), job(100)[1:]},
		{"change_one_of_many", job(100), job(101)[100:]},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := change(t, c.before, c.news)
			golden(t, c.name, []byte(said))

			said = change(t, drills(c.before), drills(c.news))
			require.True(t, said == "" || strings.HasPrefix(said, "DRILL, "), said)
		})
	}
}

// What wakes somebody, or takes a machine away, is said in one place.
func TestWhatPages(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Verdict)
		pages  bool
	}{
		"a certain root cause": {func(*Verdict) {}, true},
		"a warning":            {func(v *Verdict) { v.Severity = Warning }, true},
		"information":          {func(v *Verdict) { v.Severity = Info }, false},
		"a symptom":            {func(v *Verdict) { v.Role = Symptom }, false},
		"likely":               {func(v *Verdict) { v.Confidence = Partial }, false},
		"a drill":              {func(v *Verdict) { v.Drill = true }, false},
		"over":                 {func(v *Verdict) { v.Status = Resolved }, false},
		"its effects go on":    {func(v *Verdict) { v.Status, v.GoesOn = Resolved, Error }, true},
		"mild effects go on":   {func(v *Verdict) { v.Status, v.GoesOn = Resolved, Info }, false},
		"effects of a symptom": {func(v *Verdict) { v.Status, v.GoesOn, v.Role = Resolved, Error, Symptom }, false},
		"no severity goes on":  {func(v *Verdict) { v.Status, v.GoesOn = Resolved, "bad" }, false},
	} {
		v := lostGPU()
		tt.change(&v)
		require.Equal(t, tt.pages, v.Pages(Warning), name)
	}
}
