package attributes

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/fstest"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var update = flag.Bool("update", false, "write ATTRIBUTES.md anew")

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
	want := collect(t).Markdown()
	file := filepath.Join(root, File)
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
		Confidence: verdict.Full, Severity: verdict.Error, Revision: 1, Onset: now, Updated: now, Resolved: &now, Headline: "h",
		Remediation: "r", Culprit: map[string]string{"gpu": "g"}, BlastRadius: []int{3},
		Evidence: []verdict.Evidence{{Name: "e", Time: now}}, NotObserved: []string{"n"},
	}
	v := reflect.ValueOf(full)
	for i := range v.NumField() {
		require.False(t, v.Field(i).IsZero(), "set %s, so that its attribute is seen", v.Type().Field(i).Name)
	}
	record := plog.NewLogRecord()
	verdict.ToRecord(full, record)
	for name := range record.Attributes().All() {
		require.True(t, table.Has(name), "%s: write it into declared.yaml", name)
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
	reads := rule.Rule{File: "p.yaml", Name: "p", Fields: []rule.Field{{Name: "f", Expr: `attributes["nobody.emits"]`}}}
	for name, tt := range map[string]struct {
		tree  fstest.MapFS
		rules []rule.Rule
		says  string
	}{
		"two types": {fstest.MapFS{"receivers/one/metadata.yaml": metadataFile(one), "receivers/two/metadata.yaml": metadataFile(
			"type: two\nattributes: {a: {type: string}}\nevents: {e: {attributes: [a]}}\n")}, nil, "one name has one type"},
		"an event without declaration": {fstest.MapFS{"receivers/one/metadata.yaml": metadataFile(
			"type: one\nevents: {e: {attributes: [b]}}\n")}, nil, "without a declaration"},
		"a rule that reads what nobody sends": {nil, []rule.Rule{reads}, "nobody.emits"},
		"no YAML":                             {fstest.MapFS{"receivers/one/metadata.yaml": metadataFile("{")}, nil, "receivers/one/metadata.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Collect(tt.tree, tt.rules)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

func TestMetricAttributesAreNoRecords(t *testing.T) {
	table, err := Collect(fstest.MapFS{"receivers/one/metadata.yaml": metadataFile(
		"type: one\nattributes: {a: {type: int, description: About a.}, outcome: {type: string}}\nevents: {e: {attributes: [a]}}\n")}, nil)
	require.NoError(t, err)
	require.True(t, table.Has("a"))
	require.False(t, table.Has("outcome"))
	require.Contains(t, string(table.Markdown()), "| `a` | int |  | one |  | About a |\n")
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
