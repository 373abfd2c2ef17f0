package charts_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

var update = flag.Bool("update", false, "write the table of values into the chart's README")

const (
	tableBegin = "<!-- values: go test ./charts -update -->\n"
	tableEnd   = "<!-- end of values -->\n"
)

// TestReadmeListsTheValues keeps the README's table as values.yaml has it.
func TestReadmeListsTheValues(t *testing.T) {
	const path = "tracecore/README.md"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), tableBegin)
	require.True(t, ok, "the README has lost its mark %s", tableBegin)
	_, after, ok := strings.Cut(rest, tableEnd)
	require.True(t, ok, "the README has lost its mark %s", tableEnd)
	want := before + tableBegin + valuesTable(t) + tableEnd + after
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(text), "values.yaml has changed: go test ./charts -update")
}

func valuesTable(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("tracecore/values.yaml")
	require.NoError(t, err)
	var document yaml.Node
	require.NoError(t, yaml.Unmarshal(text, &document))
	var table strings.Builder
	table.WriteString("| value | default | what |\n| --- | --- | --- |\n")
	writeRows(t, &table, "", document.Content[0])
	return table.String()
}

// writeRows writes a row for each value that has a `# --` comment or no values
// below it.
func writeRows(t *testing.T, table *strings.Builder, prefix string, node *yaml.Node) {
	t.Helper()
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := prefix + key.Value
		text, described := strings.CutPrefix(key.HeadComment, "# -- ")
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && !described {
			writeRows(t, table, name+".", value)
			continue
		}
		if !described {
			text = ""
		}
		var decoded any
		require.NoError(t, value.Decode(&decoded))
		shown, err := json.Marshal(decoded)
		require.NoError(t, err)
		fmt.Fprintf(table, "| `%s` | `%s` | %s |\n", name, shown, text)
	}
}
