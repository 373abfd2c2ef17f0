package attributes

import (
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/ingress"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var update = flag.Bool("update", false, "write ATTRIBUTES.md and vocabulary.yaml anew")

// root is the repository's root.
const root = "../../.."

func collect(t *testing.T) Table {
	t.Helper()
	rules, err := patterns.Library()
	require.NoError(t, err)
	table, err := Collect(os.DirFS(root), rules)
	require.NoError(t, err)
	return table
}

func TestTheTableIsCurrent(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	page, err := Page(os.DirFS(root), rules)
	require.NoError(t, err)
	current(t, File, page)
}

func TestTheVocabularyIsCurrent(t *testing.T) {
	vocabulary, err := CollectVocabulary(os.DirFS(root))
	require.NoError(t, err)
	text, err := vocabulary.YAML()
	require.NoError(t, err)
	current(t, VocabularyFile, text)
	require.Contains(t, vocabulary.Events["oom.kill"].Attributes, "process.pid")
}

func TestTheReservedEventsAreCurrent(t *testing.T) {
	text, err := EventMakers(os.DirFS(root))
	require.NoError(t, err)
	current(t, ingress.Events, text)
	for _, line := range []string{"gpu.xid receiver", "k8s.event receiver", "nccl.collective.incomplete judge", "pattern.verdict judge"} {
		require.Contains(t, string(text), line+"\n")
	}
	require.NotContains(t, string(text), "dataloader.error", "container logs bring it")
}

// TestTheVocabularyHasWhatPatternsRead is what a rule of a site is checked with.
func TestTheVocabularyHasWhatPatternsRead(t *testing.T) {
	vocabulary, err := patterns.Vocabulary()
	require.NoError(t, err)
	rules, err := patterns.Library()
	require.NoError(t, err)
	require.NoError(t, vocabulary.Check(rules), "declare it in the metadata.yaml of its emitter, or in %s", outsideFile)
	for i := range rules {
		if d := rules[i].Detect; d != nil {
			require.Subset(t, vocabulary.Events, d.Logs, rules[i].Name)
			require.Subset(t, vocabulary.Metrics, d.Metrics, rules[i].Name)
			require.Subset(t, vocabulary.Events, slices.Collect(maps.Keys(d.Findings)), rules[i].Name)
		}
	}
}

// current compares a generated file with what it should be, or writes it.
func current(t *testing.T, name string, want []byte) {
	t.Helper()
	file := filepath.Join(root, name)
	if *update {
		require.NoError(t, os.WriteFile(file, want, 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "run: go test ./distro/internal/attributes -update")
}

// TestEveryAttributeOfAVerdictIsListed emits a verdict with every member set.
func TestEveryAttributeOfAVerdictIsListed(t *testing.T) {
	table := collect(t)
	now := time.Unix(1, 0)
	full := verdict.Verdict{
		ID: "v", IncidentID: "i", PatternID: 1, Pattern: "p", Role: verdict.Symptom, RootCause: "r", Status: verdict.Resolved,
		Confidence: verdict.Full, Trust: verdict.Proven, Severity: verdict.Error, Revision: 1, Onset: now, Updated: now, Resolved: &now, Over: &now, Headline: "h",
		Remediation: "r", Culprit: map[string]string{"gpu": "g"}, Boot: "b", Run: "r", BlastRadius: []int{3}, Waits: []verdict.Wait{{For: "rank 3"}}, GoesOn: verdict.Error, Drill: true, Late: true, Stands: true,
		Evidence: []verdict.Evidence{{Name: "e", Time: now}}, NotObserved: []string{"n"},
		Span: verdict.IncidentSpan("i"), RankSpans: []verdict.RankSpan{{Rank: 1}},
		Steps: []verdict.Step{{Text: "s"}}, Missing: []verdict.Missing{{Name: "m", Text: "n"}},
	}
	v := reflect.ValueOf(full)
	for i := range v.NumField() {
		require.False(t, v.Field(i).IsZero(), "set %s, so that its attribute is seen", v.Type().Field(i).Name)
	}
	record := plog.NewLogRecord()
	verdict.ToRecord(full, record)
	for name := range record.Attributes().All() {
		require.True(t, table.Has(name), "%s: write it into patterns/verdict/events.yaml", name)
	}
}

func TestHasKnowsFamilies(t *testing.T) {
	table := Table{"a.b.*": {}, "c": {}}
	require.True(t, table.Has("a.b.x"))
	require.True(t, table.Has("a.b.x.y"))
	require.True(t, table.Has("c"))
	require.False(t, table.Has("a.b"))
	require.False(t, table.Has("c.d"))
}

func metadataFile(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func TestWhatDoesNotFitIsAnError(t *testing.T) {
	const one = "type: one\nattributes: {a: {type: int}}\nevents: {e: {attributes: [a]}}\n"
	reads := rule.Rule{File: "p.yaml", Name: "p", Evidence: []rule.Evidence{{Where: `attributes["absent.everywhere"] == 1`}}}
	for name, tt := range map[string]struct {
		tree  fstest.MapFS
		rules []rule.Rule
		says  string
	}{
		"two types": {fstest.MapFS{"receivers/one/metadata.yaml": metadataFile(one), "receivers/two/metadata.yaml": metadataFile(
			"type: two\nattributes: {a: {type: string}}\nevents: {e: {attributes: [a]}}\n")}, nil, "one name has one type"},
		"an attribute of nobody": {fstest.MapFS{"receivers/one/metadata.yaml": metadataFile(
			"type: one\nevents: {e: {attributes: [b]}}\n")}, nil, "receivers/one/metadata.yaml: event e has the attribute b without a declaration"},
		"a group of nobody": {fstest.MapFS{"receivers/one/metadata.yaml": metadataFile(
			"type: one\nevents: {e: {groups: [g]}}\n")}, nil, "receivers/one/metadata.yaml: event e has the group g without a declaration"},
		"a file of groups that is not there": {fstest.MapFS{"receivers/one/metadata.yaml": metadataFile(
			"type: one\ninclude: [../g.yaml]\n")}, nil, "include ../g.yaml"},
		"an unknown key of a sender": {fstest.MapFS{outsideFile: metadataFile("exporter: {metric: {}}\n")}, nil, "field metric not found"},
		"an attribute that a sender does not declare": {fstest.MapFS{outsideFile: metadataFile(
			"exporter: {metrics: {m: {attributes: [a]}}}\n")}, nil, "exporter: metric m has the attribute a without a declaration"},
		"a rule that reads what nobody sends": {nil, []rule.Rule{reads}, "absent.everywhere"},
		"no YAML":                             {fstest.MapFS{"receivers/one/metadata.yaml": metadataFile("{")}, nil, "receivers/one/metadata.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.tree == nil {
				tt.tree = fstest.MapFS{}
			}
			if tt.tree[outsideFile] == nil {
				tt.tree[outsideFile] = metadataFile("")
			}
			_, err := Collect(tt.tree, tt.rules)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

const shared = "groups: {who: {attributes: [b]}}\nattributes: {b: {type: string}}\n"

func TestTableAndVocabularyOfATree(t *testing.T) {
	tree := fstest.MapFS{
		"receivers/shared.yaml": metadataFile(shared),
		"receivers/one/metadata.yaml": metadataFile("type: one\ninclude: [../shared.yaml]\nresource_attributes: {h: {type: string}}\n" +
			"attributes: {a: {type: int, description: About a.}, m: {type: string}, outcome: {type: string}}\n" +
			"events: {e: {description: What | happened., feature: hands, groups: [who], attributes: [a]}}\nmetrics: {n: {attributes: [m]}}\n"),
		"receivers/two/metadata.yaml": metadataFile("type: two\nattributes: {a: {type: int}}\nevents: {e: {description: Likewise., attributes: [a]}}\n"),
		"patterns/p/findings.yaml":    metadataFile("type: p (detector)\nattributes: {f: {type: int}}\nevents: {finding.p: {attributes: [f]}}\n"),
		outsideFile:                   metadataFile("exporter: {attributes: {x: {type: string}}, metrics: {node_*: {}}}\n"),
	}
	table, err := Collect(tree, nil)
	require.NoError(t, err)
	require.False(t, table.Has("outcome"), "of its own telemetry")
	page, err := Page(tree, nil)
	require.NoError(t, err)
	require.Contains(t, string(page), "| `a` | int |  | one, two |  | About a |\n")
	require.Contains(t, string(page), "| `f` | int |  | p (detector) |  |  |\n")
	require.Contains(t, string(page), "| `e` | one, two | hands | What \\| happened |\n")
	vocabulary, err := CollectVocabulary(tree)
	require.NoError(t, err)
	require.Equal(t, &Vocabulary{
		Events: map[string]Signal{
			"e":         {Emitters: []string{"one", "two"}, Feature: "hands", Attributes: []string{"a", "b"}},
			"finding.p": {Emitters: []string{"p (detector)"}, Attributes: []string{"f"}},
		},
		Metrics: map[string]Signal{
			"n":      {Emitters: []string{"one"}, Attributes: []string{"m"}},
			"node_*": {Emitters: []string{"exporter"}},
		},
		Attributes: map[string]string{"a": "int", "b": "string", "f": "int", "h": "string", "m": "string", "x": "string"},
	}, vocabulary)

	tree["receivers/two/metadata.yaml"] = metadataFile("type: two\nevents: {e: {feature: feet}}\n")
	_, err = CollectVocabulary(tree)
	require.ErrorContains(t, err, "event e comes from the feature hands in [one] and from feet in two")
}

// kinds are the types that mdatagen knows.
var kinds = map[string]pcommon.ValueType{
	"string": pcommon.ValueTypeStr, "int": pcommon.ValueTypeInt, "bool": pcommon.ValueTypeBool, "double": pcommon.ValueTypeDouble,
	"slice": pcommon.ValueTypeSlice,
}

// TestEveryEmittedAttributeIsListed reads the records that the receivers' own
// tests hold their output to.
func TestEveryEmittedAttributeIsListed(t *testing.T) {
	table := collect(t)
	files, err := filepath.Glob(filepath.Join(root, "receivers/*/testdata/golden/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		logs, err := golden.ReadLogs(file)
		require.NoError(t, err, file)
		listed := func(attributes pcommon.Map) {
			for name, value := range attributes.All() {
				require.True(t, table.Has(name), "%s emits %s: declare it in the component's metadata.yaml", file, name)
				require.Equal(t, kinds[table[name].Type], value.Type(), "%s: %s", file, name)
			}
		}
		for _, resource := range logs.ResourceLogs().All() {
			listed(resource.Resource().Attributes())
			for _, scope := range resource.ScopeLogs().All() {
				for _, record := range scope.LogRecords().All() {
					listed(record.Attributes())
				}
			}
		}
	}
}

// setter finds the methods that tools/events made of a declaration.
var setter = regexp.MustCompile(`(?m)^func \(a \w+\) (\w+)\([^)]*\) .*a\.attributes\.\w+\("([^"]+)"|(?m)^func \(a \w+\) (\w+)\([^)]*\) .*\{$\n.*a\.attributes\.\w+\("([^"]+)"`)

// TestEveryDeclaredAttributeIsWritten is the other half of what the compiler checks: an
// attribute that no code writes is a promise that nothing keeps.
func TestEveryDeclaredAttributeIsWritten(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "receivers/*/internal/*/generated_events.go"))
	require.NoError(t, err)
	shared, err := filepath.Glob(filepath.Join(root, "receivers/internal/record/generated_groups.go"))
	require.NoError(t, err)
	require.NotEmpty(t, shared)
	for _, file := range append(files, shared...) {
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		folder := filepath.Dir(filepath.Dir(filepath.Dir(file)))
		written := handWritten(t, folder)
		methods := setter.FindAllStringSubmatch(string(code), -1)
		require.NotEmpty(t, methods, file)
		for _, m := range methods {
			method, attribute := m[1]+m[3], m[2]+m[4]
			require.Regexp(t, `\.`+method+`\b`, written, "%s: nothing writes %s", folder, attribute)
		}
	}
}

// handWritten returns the Go code of a folder and those below it, without tests and what
// is generated.
func handWritten(t *testing.T, folder string) string {
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "generated_") {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	}))
	return all.String()
}
