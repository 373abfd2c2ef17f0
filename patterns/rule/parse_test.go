package rule_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// valid is a small rule that the cases below break in one place each.
const valid = `id: 1001
name: my_fault
summary: something of mine broke
fields:
  unit: resource.attributes["my.unit"]
  code: attributes["my.code"]
key: [host]
within: 1m
evidence:
  first:
    logs: my.event
    where: attributes["my.code"] == 7
    shows: "code 7 on {host}"
  second:
    logs: [my.other, my.third]
    match: [host, pid]
    follows: {evidence: first, within: 30s}
    shows: "then this"
    absent: "the second"
full: first and second
partial: first
severity: {by: pid, cases: {"1": info}, default: error}
headline: "{host} is broken"
remedy: mend it
`

func TestParseReadsWhatTheFileSays(t *testing.T) {
	r, err := rule.Parse("mine.yaml", []byte(valid))
	require.NoError(t, err)
	require.Equal(t, 1001, r.ID)
	require.Subset(t, r.FieldNames(), []string{"host", "pod", "unit", "code"})
	require.Equal(t, r.FieldNames(), r.FieldsInUse(nil), "without a culprit the verdict names all that is known")
	require.Equal(t, []string{"my.other", "my.third"}, r.Evidence[1].Logs)
	require.Equal(t, r.Within, r.Evidence[0].Occurs.Within)
	require.False(t, r.Evidence[1].CanStart())
	require.Equal(t, rule.Forget, r.OnExpiry)
	require.Subset(t, r.Attributes(), []string{"host.name", "process.pid", "my.code", "kernelevents.fault_id"})
}

// What is said by default may depend on another field, and on a third.
func TestADefaultMayBeAChoiceOfItsOwn(t *testing.T) {
	headline := `headline:
  by: pid
  cases: {"1": "init is broken"}
  default: {by: code, cases: {"7": "{unit} is broken"}, default: {by: pid, cases: {"2": "kthreadd is broken"}, default: "something is"}}`
	text := strings.Replace(valid, `headline: "{host} is broken"`, headline, 1)
	r, err := rule.Parse("mine.yaml", []byte(text))
	require.NoError(t, err)
	require.Subset(t, r.FieldsInUse(nil), []string{"pid", "code", "unit"})
	for _, tc := range []struct{ pid, code, want string }{
		{"1", "7", "init is broken"}, {"2", "7", "mine is broken"}, {"2", "8", "kthreadd is broken"}, {"3", "", "something is"},
	} {
		values := map[string]string{"pid": tc.pid, "code": tc.code, "unit": "mine"}
		got := r.Headline.Expand(rule.Known{Field: func(name string) (string, bool) { return values[name], values[name] != "" }})
		require.Equal(t, tc.want, got)
	}
	_, err = rule.Parse("mine.yaml", []byte(strings.Replace(text, "by: code", "by: cod", 1)))
	require.ErrorContains(t, err, `mine.yaml:26:17: there is no field "cod"`)
}

// Evidence that depends on itself would never be decided.
func TestEvidenceThatDependsOnItselfIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ first, second string }{
		"each excepts the other":      {"except: second", "except: first"},
		"each comes before the other": {"soon_before: {evidence: second, within: 3s}", "soon_before: {evidence: first, within: 3s}"},
		"one of each":                 {"except: second", "soon_before: {evidence: first, within: 3s}"},
	} {
		t.Run(name, func(t *testing.T) {
			file := strings.Replace(valid, "    where:", "    "+tc.first+"\n    where:", 1)
			one, err := rule.Parse("mine.yaml", []byte(file))
			require.NoError(t, err, "one alone is no circle")
			require.Len(t, one.Evidence, 2)
			_, err = rule.Parse("mine.yaml", []byte(strings.Replace(file, "    match:", "    "+tc.second+"\n    match:", 1)))
			require.ErrorContains(t, err, "depends, by way of others, on itself")
		})
	}
	_, err := rule.Parse("mine.yaml", []byte(strings.Replace(valid, "within: 1m", "holds_back: {evidence: frist, for: 1s}", 1)))
	require.ErrorContains(t, err, `did you mean "first"?`)
}

// What a rule does not name is not read from its records.
func TestOnlyFieldsInUseAreRead(t *testing.T) {
	r, err := rule.Parse("mine.yaml", []byte(strings.Replace(valid, "within: 1m", "culprit: [host]", 1)))
	require.NoError(t, err)
	require.Equal(t, []string{"host", "node", "boot", "rank", "pid", "started", "job", "job_domain", "run", "workload", "unit", "code"}, r.FieldsInUse([]string{"workload"}))
	require.NotContains(t, r.Attributes(), "k8s.pod.uid")
}

// Each error names file, line and column, what is wrong and what to do. Of what
// is not YAML the parser knows no column.
func TestErrorsNameThePlaceAndWhatToDo(t *testing.T) {
	for name, tc := range map[string]struct {
		old, new string
		want     []string
	}{
		"unknown key":             {"within: 1m", "witin: 1m", []string{"mine.yaml:8:1: ", `unknown key "witin"`, `did you mean "within"?`}},
		"unknown key of evidence": {"where:", "were:", []string{"mine.yaml:12:", `unknown key "were" in evidence first`, `did you mean "where"?`}},
		"unknown operator key":    {"follows: {evidence: first, within: 30s}", "occurs: {times: 3}", []string{"mine.yaml:17:", `unknown key "times" in occurs`, "use one of count, within, by, values"}},
		"bad OTTL":                {`attributes["my.code"] == 7`, `attributes["my.code"] = 7`, []string{"mine.yaml:12:12: ", "where of evidence first is not valid OTTL", "see the OTTL grammar"}},
		"unknown OTTL function":   {`attributes["my.code"] == 7`, `Nosuch(attributes["my.code"])`, []string{"mine.yaml:12:12: ", `"Nosuch"`}},
		"nested OTTL":             {`attributes["my.code"] == 7`, strings.Repeat("Not(", 40), []string{"mine.yaml:12:12: ", "more than 8 nested brackets"}},
		"long OTTL":               {`attributes["my.code"] == 7`, strings.Repeat("x", 5000), []string{"mine.yaml:12:12: ", "at most 4096"}},
		"a clock in OTTL":         {`attributes["my.code"] == 7`, `time < Now()`, []string{"mine.yaml:12:12: ", `"Now"`}},
		"bad OTTL in a field": {`attributes["my.code"]
key`, "attributes[\"my.code\"\nkey", []string{"mine.yaml:6:", "field code"}},
		"a lead of nothing":            {"where:", "lead: {least: 1s}\n    where:", []string{"mine.yaml:12:11: ", "lead needs occurs with by"}},
		"unknown evidence":             {"full: first and second", "full: first and secnd", []string{"mine.yaml:20:7: ", `no evidence "secnd"`, `did you mean "second"?`}},
		"not":                          {"full: first and second", "full: first and not second", []string{"mine.yaml:20:", "use unless"}},
		"half an expression":           {"full: first and second", "full: (first and second", []string{"mine.yaml:20:", "closing parenthesis"}},
		"unknown key field":            {"key: [host]", "key: [hots]", []string{"mine.yaml:7:", `no field "hots"`, `did you mean "host"?`}},
		"unknown match field":          {"match: [host, pid]", "match: [host, pit]", []string{"mine.yaml:16:19: ", `did you mean "pid"?`}},
		"unknown template field":       {`"{host} is broken"`, `"{hostname} is broken"`, []string{"mine.yaml:23:11: ", "{hostname}", `did you mean "host"?`}},
		"stray bracket":                {`"{host} is broken"`, `"{host} is broken]"`, []string{"mine.yaml:23:", "stray"}},
		"bad duration":                 {"within: 1m", "within: 1 minute", []string{"mine.yaml:8:", "write 30s, 5m, 2h"}},
		"negative duration":            {"within: 1m", "within: -1m", []string{"mine.yaml:8:"}},
		"an empty name":                {"name: my_fault", "name:", []string{"mine.yaml:1:1: ", "name is missing"}},
		"half an operator":             {"follows:", "stays: {for: 3s}\n    follows:", []string{"mine.yaml:17:12: ", "while is missing in stays"}},
		"half an unless":               {"within: 1m", "unless: [{evidence: first}]", []string{"mine.yaml:8:10: ", "before is missing in unless"}},
		"after beyond within":          {"within: 1m", "explains: [{pattern: x, share: [host], after: 9m}]", []string{"mine.yaml:8:12: ", "write a smaller after"}},
		"on, as it was once written":   {"within: 1m", "explains: [{pattern: x, on: [host]}]", []string{"mine.yaml:8:25: ", `unknown key "on" in explains: write share:`}},
		"two lists in one explanation": {"within: 1m", "explains: [{pattern: x, share: [host in hosts, pid in pids]}]", []string{"mine.yaml:8:12: ", "write another explanation"}},
		"unknown evidence of when":     {"within: 1m", "explains: [{pattern: x, share: [host], when: fist}]", []string{"mine.yaml:8:12: ", `did you mean "first"?`}},
		"ranks without after":          {"within: 1m", "explains: [{pattern: x, share: [host], ranks: {in: y}}]", []string{"mine.yaml:8:12: ", "write after"}},
		"unknown key of ranks":         {"within: 1m", "explains: [{pattern: x, share: [host], after: 1m, ranks: {among: y}}]", []string{"mine.yaml:8:59: ", `unknown key "among" in ranks`}},
		"a predefined field again":     {`code: attributes["my.code"]`, `host: resource.attributes["host.name"]`, []string{"mine.yaml:6:9: ", `field host is predefined as resource.attributes["host.name"]: leave it out`}},
		"predefined, from elsewhere":   {`code: attributes["my.code"]`, `host: attributes["my.host"]`, []string{"mine.yaml:6:9: ", "write it under identity to read it elsewhere"}},
		"identity as it is":            {"within: 1m", `identity: {host: 'resource.attributes["host.name"]'}`, []string{"mine.yaml:8:18: ", "leave it out"}},
		"identity of nothing":          {"within: 1m", `identity: {nod: 'attributes["my.node"]'}`, []string{"mine.yaml:8:17: ", `did you mean "node"?`}},
		"evidence with the same":       {"    shows: \"then this\"", "    fields: {pid: 'attributes[\"process.pid\"]'}\n    shows: \"then this\"", []string{"mine.yaml:18:19: ", "leave it out"}},
		"unknown field of a choice":    {"{by: pid,", "{by: pit,", []string{"mine.yaml:22:16: ", `did you mean "pid"?`}},
		"unknown severity":             {"default: error", "default: eror", []string{"mine.yaml:22:50: ", `"eror" is not allowed here: use one of [info warning error critical]`}},
		"no id":                        {"id: 1001\n", "", []string{"mine.yaml:1:", "id is missing"}},
		"bad id":                       {"id: 1001", "id: zero", []string{"mine.yaml:1:", "whole number"}},
		"key twice":                    {"within: 1m", "within: 1m\nwithin: 2m", []string{"already"}},
		"list instead of mapping":      {"  unit: resource.attributes[\"my.unit\"]\n  code: attributes[\"my.code\"]", "  - host", []string{"mine.yaml:5:", "must be a mapping"}},
		"alias":                        {"key: [host]", "key: &k [host]\nculprit: *k", []string{"aliases are not supported"}},
		"full by a claim":              {"follows:", "believed: true\n    follows:", []string{"mine.yaml:21:", "full rests on second, which is believed"}},
		"two operators":                {"follows:", "occurs: {count: 2}\n    increases: {amount: 1}\n    follows:", []string{"more than one operator"}},
		"logs and metrics":             {"logs: my.event", "logs: my.event\n    metrics: my.metric", []string{"mine.yaml:10:", "one of them"}},
		"increases on logs":            {"follows:", "increases: {amount: 1}\n    follows:", []string{"increases is for metrics"}},
		"changes without value":        {"follows:", "changes: {count: 2}\n    follows:", []string{"needs value"}},
		"unknown field in by":          {"follows:", "occurs: {by: [host, pit], values: 2}\n    follows:", []string{"mine.yaml:17:25: ", `no field "pit"`, `did you mean "pid"?`}},
		"by of another evidence":       {"    shows: \"then this\"", "    fields: {line: body}\n    shows: \"then this\"\n  third:\n    logs: x\n    occurs: {by: [line], values: 2}\n    shows: x", []string{"evidence third needs field line", "define it under fields"}},
		"a log stays without by":       {"follows:", "stays: {while: 'true', for: 3s}\n    follows:", []string{"mine.yaml:14:3: ", "stays on logs needs by", "by: [host, pid]"}},
		"a log changes without by":     {"follows:", "value: body\n    changes: {count: 2}\n    follows:", []string{"changes on logs needs by"}},
		"values without by":            {"follows:", "occurs: {values: 2}\n    follows:", []string{"write by, or leave out values"}},
		"no values":                    {"follows:", "occurs: {by: pid, values: 0}\n    follows:", []string{"mine.yaml:17:31: ", "at least 1"}},
		"nothing begins a fault":       {"logs: my.event", "logs: my.event\n    match: [host]", []string{"must do without match"}},
		"on_expiry":                    {"within: 1m", "on_expiry: close", []string{"[forget resolve]"}},
		"choice without a default":     {", default: error", "", []string{"mine.yaml:22:11: ", "default is missing in a choice"}},
		"empty":                        {valid, "", []string{"mine.yaml:1:", "empty"}},
		"not YAML":                     {"key: [host]", "key: [host", []string{"mine.yaml:", "correct the YAML"}},
		"a tab":                        {"  first:", "\tfirst:", []string{"mine.yaml:10: ", "correct the YAML"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, valid, tc.old)
			_, err := rule.Parse("mine.yaml", []byte(strings.Replace(valid, tc.old, tc.new, 1)))
			require.Error(t, err)
			for _, part := range tc.want {
				require.ErrorContains(t, err, part)
			}
		})
	}
}

// What a file leaves out is as if its default stood there.
func TestDefaultsAreReadLikeWhatIsWritten(t *testing.T) {
	short, err := rule.Parse("mine.yaml", []byte(strings.Replace(valid, "within: 1m\n", "explains: [{pattern: rank_exit, share: [host]}]\n", 1)))
	require.NoError(t, err)
	require.Equal(t, 5*time.Minute, short.Within)
	require.Equal(t, 24*time.Hour, short.Expires)
	require.Equal(t, rule.Forget, short.OnExpiry)
	require.Equal(t, 5*time.Minute, short.Explains[0].Within)
	require.Equal(t, rule.Occurs{Count: 1, Within: short.Within, Values: 1}, short.Evidence[0].Occurs)
	rises := strings.Replace(valid, "logs: my.event\n", "metrics: my.metric\n    increases: {by: pid}\n", 1)
	r, err := rule.Parse("mine.yaml", []byte(rises))
	require.NoError(t, err)
	require.Equal(t, rule.Occurs{Count: 1, Within: r.Within, By: []string{"pid"}, Values: 1}, r.Evidence[0].Occurs)
}

// A second document of a file is a pattern that nobody would run.
func TestAFileHasOnePattern(t *testing.T) {
	second := strings.Replace(valid, "id: 1001", "id: 1002", 1)
	for name, tc := range map[string]struct{ file, want string }{
		"another pattern":      {valid + "---\n" + second, "mine.yaml:26: one pattern a file, and this begins another: move what follows --- to a file of its own"},
		"after an empty one":   {valid + "---\n---\n" + second, "mine.yaml:27: one pattern a file"},
		"after its end":        {valid + "...\n" + second, "mine.yaml:"},
		"what is not YAML":     {valid + "---\n\tx\n", "mine.yaml:26: found character that cannot start any token: correct the YAML"},
		"an end":               {valid + "...\n", ""},
		"comments":             {valid + "---\n# the end\n", ""},
		"a beginning":          {"# mine\n---\n" + valid, ""},
		"nothing, then a rule": {"---\n---\n" + valid, "mine.yaml:3: one pattern a file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rule.Parse("mine.yaml", []byte(tc.file))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestAllErrorsOfAFileAreReportedAtOnce(t *testing.T) {
	broken := strings.NewReplacer("within: 1m", "witin: 1m", "remedy:", "remady:").Replace(valid)
	_, err := rule.Parse("mine.yaml", []byte(broken))
	require.ErrorContains(t, err, "witin")
	require.ErrorContains(t, err, "remady")
}

func TestCheckRefusesWhatIsTaken(t *testing.T) {
	library, err := patterns.Library()
	require.NoError(t, err)
	for name, tc := range map[string]struct{ old, new, want string }{
		"name":             {"name: my_fault", "name: gpu_lost", "the name gpu_lost is taken by gpu_lost/pattern.yaml: choose another name"},
		"id":               {"id: 1001", "id: 18", "the id 18 is taken by gpu_lost/pattern.yaml (gpu_lost)"},
		"unknown detector": {"within: 1m", "detector: slowest", `mine.yaml:8:11: there is no detector "slowest"`},
		"forged finding":   {"logs: my.event", "logs: finding.slowest", "mine.yaml:10:3: evidence first reads finding.slowest, which only a detector makes"},
		"unknown pattern":  {"within: 1m", "explains: [{pattern: rank_exxit, share: [host]}]", `mine.yaml:8:12: explains an unknown pattern "rank_exxit": did you mean "rank_exit"?`},
		"unknown list":     {"within: 1m", "explains: [{pattern: nccl_hang, share: [host in hots]}]", `nccl_hang has no field "hots": did you mean "host`},
		"unknown field":    {"within: 1m", "explains: [{pattern: rank_exit, share: [host=hots]}]", `rank_exit has no field "hots": did you mean "host"?`},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := rule.Parse("mine.yaml", []byte(strings.Replace(valid, tc.old, tc.new, 1)))
			require.NoError(t, err)
			require.ErrorContains(t, rule.Check(append(library[:len(library):len(library)], r)), tc.want)
		})
	}
}

func TestLoadFindsFilesInFolders(t *testing.T) {
	files := fstest.MapFS{
		"b/pattern.yaml":      {Data: []byte(strings.Replace(valid, "id: 1001", "id: 7", 1))},
		"a.yml":               {Data: []byte(valid)},
		"b/testdata/bad.yaml": {Data: []byte("nonsense")},
		"b/README.md":         {Data: []byte("nonsense")},
	}
	rules, err := rule.Load(files, ".")
	require.NoError(t, err)
	require.Len(t, rules, 2)
	require.Equal(t, 7, rules[0].ID)
	require.Equal(t, "b/pattern.yaml", rules[0].File)
}

func TestLoadPathsReadsFilesAndFolders(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "mine.yaml")
	require.NoError(t, os.WriteFile(file, []byte(valid), 0o600))
	for _, path := range []string{dir, file} {
		rules, err := rule.LoadPaths(path)
		require.NoError(t, err)
		require.Len(t, rules, 1)
		require.Equal(t, file, rules[0].File)
	}
	_, err := rule.LoadPaths(filepath.Join(dir, "none"))
	require.ErrorContains(t, err, "name a pattern file or a folder")
	_, err = rule.LoadPaths("none")
	require.ErrorContains(t, err, "by its whole path: this one is looked up in /")
	other := filepath.Join(dir, "mine.txt")
	require.NoError(t, os.WriteFile(other, []byte(valid), 0o600))
	for _, path := range []string{other, os.DevNull} {
		_, err = rule.LoadPaths(path)
		require.ErrorContains(t, err, "is no pattern file: name a *.yaml file", path)
	}
}

// Kubernetes mounts a ConfigMap as links to a hidden folder with its version.
func TestAMountedConfigMapIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "..2026_11_25"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "..2026_11_25", "mine.yaml"), []byte(valid), 0o600))
	require.NoError(t, os.Symlink("..2026_11_25", filepath.Join(dir, "..data")))
	require.NoError(t, os.Symlink("..data/mine.yaml", filepath.Join(dir, "mine.yaml")))
	rules, err := rule.LoadPaths(dir)
	require.NoError(t, err)
	require.Len(t, rules, 1)
	require.Equal(t, filepath.Join(dir, "mine.yaml"), rules[0].File)
}

func TestTemplateLeavesOutWhatIsNotKnown(t *testing.T) {
	tpl, err := rule.ParseTemplate("a {x}[, b {y}][, c {x}{y}] d {y}")
	require.NoError(t, err)
	require.Equal(t, "a 1 d unknown", tpl.Expand(rule.Known{Field: func(field string) (string, bool) { return "1", field == "x" }}))
}

func TestTemplates(t *testing.T) {
	known := map[string]string{"x": "3", "single": "1", "two": "2", "list": "0-3, 8", "range": "0-3", "name": "rank-3", "names": "a, b", "many": "131072", "large": "83391348736"}
	seen := map[string]bool{"death": true, rule.Full: true}
	knowns := rule.Known{
		Field: func(name string) (string, bool) { value, ok := known[name]; return value, ok },
		Holds: func(name string) bool { return seen[name] },
	}
	for text, want := range map[string]string{
		"{x: rank|ranks} {x} {x: waits|wait}":                               "rank 3 waits",
		"{list: rank|ranks} {list} {list: waits|wait}":                      "ranks 0-3, 8 wait",
		"{range: waits|wait} {names: is|are}":                               "wait are",
		"{name: job|jobs}{name: |s}":                                        "job",
		"[rank {y}|process {x}|a process] died":                             "process 3 died",
		"[rank {y}|process {z}|a process] died":                             "a process died",
		"Xid[if death: took down {x}| hit {x}]":                             "Xid took down 3",
		"Xid[if flood: took down {x}| hit {x}]":                             "Xid hit 3",
		"Xid[if death: took down {y}| hit somebody]":                        "Xid hit somebody",
		"[if full:certain][if death and flood:no][if flood or death:, yes]": "certain, yes",
		"a | b":                          "a | b",
		"all {many} ranks wait":          "all 131,072 ranks wait",
		"[{many} ranks|ranks] of {many}": "131,072 ranks of 131072",
		"wait: {many: number}, {x: number}, {name: number}":                                    "wait: 131,072, 3, rank-3",
		"{single: number error|errors}, {x: number error|errors}, {many: number error|errors}": "1 error, 3 errors, 131,072 errors",
		"{y: number time|times}, {name: number time|times}, {x: number|numbers}":               "unknown, rank-3 times, number",
		"{two: all rank|ranks}, {x: all rank|ranks}, {many: all rank|ranks}":                   "both ranks, all 3 ranks, all 131,072 ranks",
		"{single: all rank|ranks}, {y: all rank|ranks}, {name: all rank|ranks}":                "1 rank, unknown, rank-3 ranks",
		"{x} ranks, {name} ranks":                  "3 ranks, rank-3 ranks",
		"{many} bytes of {large} bytes, {y} bytes": "128 KiB of 77.7 GiB, unknown bytes",
		"[{x} bytes|none]; {name} bytes":           "3 bytes; rank-3 bytes",
		"{x: one|more} bytes":                      "one bytes",
		"{many: one|more} ranks, {list} ranks":     "one ranks, 0-3, 8 ranks",
	} {
		tpl, err := rule.ParseTemplate(text)
		require.NoError(t, err, text)
		require.Equal(t, want, tpl.Expand(knowns), text)
	}
	for text, problem := range map[string]string{
		"{x: rank}": "two words", "{x: number rank}": "two words", "{x: all}": "two words", "{x: all rank}": "two words", "{x: a|b|c}": "two words", "[if : x]": "no condition", "[if death x]": "no condition", "[a|b": "a ] is missing",
		"[a[b]]": "not nested", "{x": "not a field", "a]": "stray", "[{x: a|b]": "not a field",
	} {
		_, err := rule.ParseTemplate(text)
		require.ErrorContains(t, err, problem, text)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(valid))
	f.Add([]byte("id: &a [*a]\n"))
	f.Add([]byte("evidence: {a: {below_median: {of: [x], ratio: 1e400}}}"))
	library, err := os.ReadDir("..")
	if err != nil {
		f.Fatal(err)
	}
	for _, entry := range library {
		if content, err := os.ReadFile(filepath.Join("..", entry.Name(), "pattern.yaml")); err == nil {
			f.Add(content)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := rule.Parse("f.yaml", content)
		if err != nil {
			return
		}
		if r.ID < 1 || r.Name == "" || len(r.Key) == 0 || r.Full.IsZero() || r.Within <= 0 {
			t.Fatalf("an invalid rule was accepted: %+v", r)
		}
		_ = r.Attributes()
		_ = rule.Check([]rule.Rule{r})
	})
}
