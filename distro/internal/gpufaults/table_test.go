package gpufaults

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table of faults anew")

// document holds the table, between two marks.
const (
	document = "../../../receivers/gpureceiver/README.md"
	begins   = "<!-- written by go test ./distro/internal/gpufaults -update -->\n"
	ends     = "<!-- end -->\n"
)

// row says what becomes of a fault: the records of the receiver, what the patterns
// said in the end.
func (f *fault) row(said []string) string {
	records := slices.Compact(slices.Sorted(maps.Values(f.event)))
	for i := range records {
		records[i] = "`" + records[i] + "`"
	}
	if len(said) == 0 {
		said = []string{"nothing"}
	}
	return fmt.Sprintf("| %s | %s | %s |\n", f.name, strings.Join(records, ", "), strings.Join(said, "<br>"))
}

// parts are the document before, in and after the table.
func parts(t *testing.T) (before, rows, after string) {
	t.Helper()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begins)
	require.True(t, found, "no mark in %s: %s", document, begins)
	rows, after, found = strings.Cut(rest, ends)
	require.True(t, found, "no mark in %s: %s", document, ends)
	return before, rows, after
}

// check compares a row with the document.
func check(t *testing.T, row string) {
	t.Helper()
	if _, rows, _ := parts(t); !*update {
		require.Contains(t, rows, row, "read what changed; if it is right: go test ./distro/internal/gpufaults -update")
	}
}

// finish holds the document to the rows of all faults, or writes them.
func finish(t *testing.T, made []string) {
	t.Helper()
	if t.Failed() || len(made) < len(faults()) {
		return // not all were played: -run chose some
	}
	before, rows, after := parts(t)
	table := "| what the library does | records | what the patterns say in the end |\n| --- | --- | --- |\n" + strings.Join(made, "")
	if *update {
		require.NoError(t, os.WriteFile(document, []byte(before+begins+table+ends+after), 0o644))
		return
	}
	require.Equal(t, rows, table, "go test ./distro/internal/gpufaults -update")
}
