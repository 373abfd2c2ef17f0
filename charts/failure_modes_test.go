package charts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFailureModesNameTestsMetricsAndAlertsThatExist: each line of the tables has a
// test, and what it says to look at is there.
func TestFailureModesNameTestsMetricsAndAlertsThatExist(t *testing.T) {
	text, err := os.ReadFile("../FAILURE-MODES.md")
	require.NoError(t, err)
	metrics, lines := existing(t), 0
	_, groups := rules(t)
	known := alerts(t, groups)
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| what fails") || strings.HasPrefix(line, "| ---") {
			continue
		}
		lines++
		require.Positive(t, requireTests(t, line), "no test shows this: %s", line)
		for _, metric := range regexp.MustCompile(`otelcol_[a-z0-9_]+`).FindAllString(line, -1) {
			_, exists := metrics[metric]
			require.True(t, exists, "no component has %s", metric)
		}
		for _, alert := range regexp.MustCompile(`Tracecore[A-Z][A-Za-z]+`).FindAllString(line, -1) {
			_, exists := known[alert]
			require.True(t, exists, "the chart has no alert %s", alert)
		}
	}
	require.Greater(t, lines, 25)
}

// TestSecurityNamesTestsThatExist: each threat has a test, or says that it is not met
// yet; each finding of the first attack has its row.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("../docs/security.md")
	require.NoError(t, err)
	lines := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| who tries") || strings.HasPrefix(line, "| ---") {
			continue
		}
		lines++
		require.Equal(t, 4, strings.Count(line, "|"), "a row has who, what holds and a test: %s", line)
		shown := requireTests(t, line) > 0
		require.True(t, shown || strings.Contains(line, "not yet"), "no test shows this, and it does not say so: %s", line)
	}
	require.Greater(t, lines, 40)
	for finding := 1; finding <= 18; finding++ {
		require.Regexp(t, fmt.Sprintf(`(?m)^\| .*\(N%d\) \|`, finding), string(text), "finding N%d has no row", finding)
	}
}

// requireTests returns how many tests a line names, which exist.
func requireTests(t *testing.T, line string) int {
	t.Helper()
	tests := regexp.MustCompile("`([a-z0-9/]+)` (Test[A-Za-z0-9]+)").FindAllStringSubmatch(line, -1)
	for _, test := range tests {
		require.True(t, declares(t, filepath.Join("..", test[1]), test[2]), "%s has no %s", test[1], test[2])
	}
	return len(tests)
}

// declares reports whether a test of that name is in a folder.
func declares(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(source), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
