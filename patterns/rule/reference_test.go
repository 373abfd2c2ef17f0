package rule_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

var update = flag.Bool("update", false, "write patterns/REFERENCE.md anew")

const referenceFile = "../REFERENCE.md"

func TestTheReferenceIsCurrent(t *testing.T) {
	want := rule.Reference()
	if *update {
		require.NoError(t, os.WriteFile(referenceFile, want, 0o644))
	}
	got, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "run: go test ./patterns/rule -update")
}

// keyRow is a row of the reference: key, type, default, meaning.
var keyRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([^|]+) \\| ([^|]*) \\| ([^|]+) \\|$")

func TestTheReferenceSaysOfEachKeyWhatItIs(t *testing.T) {
	text := string(rule.Reference())
	keys, predefined, found := strings.Cut(text, "\n## Predefined fields\n")
	require.True(t, found)
	require.NotContains(t, predefined, "| |", "a field lacks its source or its meaning")
	rows := keyRow.FindAllStringSubmatch(keys, -1)
	require.Equal(t, strings.Count(keys, "\n| `"), len(rows), "a key lacks its type or its meaning")
	headings := map[string]bool{}
	for _, heading := range regexp.MustCompile("(?m)^## (.*)$").FindAllStringSubmatch(text, -1) {
		name := strings.ReplaceAll(strings.ToLower(strings.Trim(heading[1], "`")), " ", "-")
		require.False(t, headings[name], "%s is described twice", heading[1])
		headings[name] = true
	}
	for _, link := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(text, -1) {
		require.True(t, headings[link[1]], "a link leads nowhere: #%s", link[1])
	}
}

// Every key that an error offers is one of the reference, and none is missing.
func TestErrorsOfferTheKeysOfTheReference(t *testing.T) {
	_, err := rule.Parse("mine.yaml", []byte("zzzzzzzzzzzzzzzzzzzzzzzz: 1\n"))
	require.Error(t, err)
	_, offered, found := strings.Cut(strings.SplitN(err.Error(), "\n", 2)[0], "use one of ")
	require.True(t, found, err)
	section, _, _ := strings.Cut(string(rule.Reference())[strings.Index(string(rule.Reference()), "## A pattern file"):], "\n## ")
	var listed []string
	for _, row := range keyRow.FindAllStringSubmatch(section, -1) {
		listed = append(listed, row[1])
	}
	require.Equal(t, listed, strings.Split(offered, ", "))
}
