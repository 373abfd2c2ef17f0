package patterns

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/story"
)

// TestEveryPatternTellsEveryKindOfStory holds each folder to its stories. Those of
// its neighbours are in TestEveryStoryAgainstEveryPattern.
func TestEveryPatternTellsEveryKindOfStory(t *testing.T) {
	for _, r := range library(t) {
		t.Run(r.Name, func(t *testing.T) {
			told := stories(t, r.Name)
			for _, kind := range story.Kinds() {
				require.NotEmpty(t, told[kind], "no story of %s says kind: %s", r.Name, kind)
				for i := range told[kind] {
					require.Empty(t, misfit(&told[kind][i], r.Name), "%s says kind: %s", told[kind][i].Name, kind)
				}
			}
		})
	}
}

// stories are those of one pattern by kind.
func stories(t *testing.T, pattern string) map[story.Kind][]story.Story {
	t.Helper()
	names, err := fs.Glob(FS(), pattern+"/testdata/*.txtar")
	require.NoError(t, err)
	told := map[story.Kind][]story.Story{}
	for _, name := range names {
		archive, err := fs.ReadFile(FS(), name)
		require.NoError(t, err)
		s, err := story.Parse(name, archive)
		require.NoError(t, err)
		told[s.Input.Kind] = append(told[s.Input.Kind], s)
	}
	return told
}

// misfit says why s is not of the kind it claims.
func misfit(s *story.Story, pattern string) string {
	wants := func(fits func(v *story.Verdict) bool) bool {
		return slices.ContainsFunc(s.Want.Verdicts, func(v story.Verdict) bool { return v.Pattern == pattern && fits(&v) })
	}
	switch kind := s.Input.Kind; {
	case kind == story.Fires && !wants(func(v *story.Verdict) bool { return v.Confidence == "full" }):
		return "it wants no full verdict of its pattern"
	case kind == story.NearMiss && wants(func(v *story.Verdict) bool { return v.Confidence != "partial" }):
		return "it wants a verdict of its pattern that is not partial"
	case kind == story.Healthy && wants(func(*story.Verdict) bool { return true }):
		return "it wants a verdict of its pattern"
	case kind == story.OutOfOrder && !slices.ContainsFunc(s.Input.Records, late):
		return "its records arrive as they happen"
	case kind == story.Flood && len(s.Want.Stats) == 0:
		return "it wants no counter of what was given up"
	}
	return ""
}

// late reports whether r arrives after it happened.
func late(r story.Record) bool { return r.Time != nil && *r.Time < r.At }

// sections are what an operator finds in the README of every pattern, in this order.
var sections = []string{"Symptom", "Verdict", "Signals", "Query", "Alert", "What to do", "What not to conclude"}

// TestEveryREADMETellsTheOperatorWhatToDo holds the README of each pattern to its
// sections, and to its rule: what it reads, what it explains, when it resolves.
func TestEveryREADMETellsTheOperatorWhatToDo(t *testing.T) {
	metric := verdictMetric(t)
	for _, r := range library(t) {
		t.Run(r.Name, func(t *testing.T) {
			content, err := fs.ReadFile(FS(), r.Name+"/README.md")
			require.NoError(t, err)
			text := readSections(t, string(content))
			for _, name := range sections {
				require.Greater(t, len(strings.Fields(text[name])), 5, "section %q says nothing", name)
			}
			checkVerdict(t, &r, text["Verdict"])
			for _, name := range sources(&r) {
				require.Contains(t, text["Signals"], "`"+name+"`", "the rule reads it")
			}
			require.Regexp(t, `(?i)the kernel('s word)? alone`, text["Signals"], "what is left when only the kernel speaks")
			require.Contains(t, text["Query"], `pattern_name="`+r.Name+`"`)
			require.Contains(t, text["Alert"], metric+`{pages="true",pattern="`+r.Name+`",status="open"}`)
			require.Contains(t, text["Alert"], `pattern_name="`+r.Name+`"`)
			for _, label := range culpritLabel.FindAllStringSubmatch(text["Query"]+text["Alert"], -1) {
				require.Contains(t, r.Culprit, label[1], "the verdict does not name it")
			}
		})
	}
}

// TestEveryPatternHasARowInTheTables finds each pattern by its id where readers look for it.
func TestEveryPatternHasARowInTheTables(t *testing.T) {
	for file, row := range map[string]string{
		"README.md":    `(?m)^\| %[1]d \| \[%[2]s\]\(%[2]s/README\.md\) \| [^|]+ \|(?: ([^|]+) | )\|$`,
		"../README.md": "(?m)^\\| %[1]d \\| \\[`%[2]s`\\]\\(patterns/%[2]s\\) \\| [^|]+ \\|$",
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		rules := library(t)
		for i := range rules {
			r := &rules[i]
			found := regexp.MustCompile(fmt.Sprintf(row, r.ID, r.Name)).FindSubmatch(text)
			require.NotNil(t, found, "%s: write the row of %s, with its id %d", file, r.Name, r.ID)
			if file == "README.md" {
				require.Equal(t, r.Partial.IsZero(), len(found[1]) == 0, "%s: partial when", r.Name)
			}
		}
		require.Len(t, regexp.MustCompile(`(?m)^\| \d+ \| \[`).FindAll(text, -1), len(rules), "%s: a row of no pattern", file)
	}
}

// culpritLabel is an attribute of a verdict that names a part of the culprit, as Loki
// writes it: with underscores.
var culpritLabel = regexp.MustCompile(`pattern_culprit_(\w+)`)

// checkVerdict compares the table of the verdict with the rule.
func checkVerdict(t *testing.T, r *rule.Rule, table string) {
	t.Helper()
	for _, row := range []string{"full", "never", "severity", "names", "resolves"} {
		require.Regexp(t, `(?m)^\| `+row+` \| \S+`, table, "row %q", row)
	}
	require.Equal(t, !r.Partial.IsZero(), regexp.MustCompile(`(?m)^\| partial \| \S`).MatchString(table), "row partial")
	for _, e := range r.Explains {
		require.Contains(t, table, "`"+e.Pattern+"`", "the rule explains it")
	}
}

// readSections returns the text below each heading of the second level; those that
// are required come in their order.
func readSections(t *testing.T, readme string) map[string]string {
	t.Helper()
	text := map[string]string{}
	var order []string
	for _, part := range strings.Split(readme, "\n## ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		text[name] = body
		if slices.Contains(sections, name) {
			order = append(order, name)
		}
	}
	require.Equal(t, sections, order, "sections")
	return text
}

// sources are the events and metrics that r cannot do without, or reads besides.
func sources(r *rule.Rule) []string {
	var names []string
	for _, e := range r.All() {
		names = append(names, r.Events(e)...)
		names = append(names, e.Metrics...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// verdictMetric is the counter of verdicts as Prometheus knows it.
func verdictMetric(t *testing.T) string {
	t.Helper()
	const name = "processor_patterndetector_verdicts"
	metadata, err := os.ReadFile("../processors/patterndetectorprocessor/metadata.yaml")
	require.NoError(t, err)
	require.Contains(t, string(metadata), "\n    "+name+":\n")
	return "otelcol_" + name
}
