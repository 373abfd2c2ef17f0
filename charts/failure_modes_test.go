package charts_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// requireTests returns how many tests the last cell of a line names. Each exists, in the
// package that is named before it.
func requireTests(t *testing.T, line string) (n int) {
	t.Helper()
	cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), "|"), "|")
	folder := ""
	for _, word := range regexp.MustCompile("`([a-z0-9_/]+)`|\\b(Test[A-Za-z0-9]+)").FindAllStringSubmatch(cells[len(cells)-1], -1) {
		if word[1] != "" {
			folder = word[1]
			continue
		}
		require.True(t, folder != "" && declares(t, filepath.Join("..", folder), word[2]), "%s has no %s", folder, word[2])
		n++
	}
	return n
}

// TestFailureModesSayTheNumbersOfTheCode: a bound that changes changes the page.
func TestFailureModesSayTheNumbersOfTheCode(t *testing.T) {
	page, err := os.ReadFile("../FAILURE-MODES.md")
	require.NoError(t, err)
	bounds := map[string][2]string{
		"after 35 minutes they are":                      {"charts/tracecore/templates/_config.tpl", "stale: 35m"},
		"(10,000 messages)":                              {"charts/tracecore/templates/_config.tpl", "queue_size: 10000"},
		"ask again every 1 to 5 s":                       {"charts/tracecore/templates/_config.tpl", "initial_interval: 1s\n"},
		"every 1 to 5 s, and send":                       {"charts/tracecore/templates/_config.tpl", "max_interval: 5s\n"},
		"for up to 15 minutes still confirms":            {"processors/patterndetectorprocessor/config.go", "MaxDelay:   15 * time.Minute"},
		"up to 32 MiB of state wait in memory":           {"extensions/filestorageextension/extension.go", "mostUnsaved = 32 << 20"},
		"4,096 records wait":                             {"receivers/internal/outbox/outbox.go", "Capacity = 4096"},
		"with 64 of all, none":                           {"internal/procfs/left.go", "maxLeft = 64"},
		"With sixteen of one pod":                        {"internal/procfs/left.go", "leftOfOne = maxLeft / 4"},
		"more than 16 files of libcuda":                  {"receivers/cudaoomreceiver/config.go", "MaxLibraries: 16"},
		"after 1 s, 2 s, … 5 min":                        {"receivers/internal/probereceiver/health.go", "longestPause = 5 * time.Minute"},
		"closed after 5 s; those beyond the limit":       {"receivers/otlpreceiver/config.go", "handshakeTimeout = 5 * time.Second"},
		"health check or to the metrics port":            {"distro/selfmetrics/selfmetrics.go", "readTimeout     = 5 * time.Second"},
		"for a twentieth of a processor at most":         {"receivers/ncclfrreceiver/pace.go", "fileShare = 20"},
		"the file is tried once more, then refused":      {"receivers/ncclfrreceiver/receiver.go", "mostTries = 2"},
		"five times a minute for the files of one user":  {"receivers/ncclfrreceiver/refusals.go", "mostRefusals  = 5 "},
		"where the kernel lacks every hook once an hour": {"receivers/internal/probereceiver/health.go", "rarePause    = time.Hour"},
		"in memory for it, the newest 1,000":             {"exporters/terminalexporter/exporter.go", "mostWaiting = 1000"},
		"tries again every second":                       {"extensions/filestorageextension/extension.go", "tendEvery = time.Second"},
		"was held for up to 15 minutes confirms":         {"processors/patterndetectorprocessor/config.go", "MaxDelay:   15 * time.Minute"},
		"the disk has it within a second":                {"extensions/filestorageextension/extension.go", "tendEvery = time.Second"},
		"too many | closed after 5 s":                    {"extensions/healthcheckextension/factory.go", "reading = 5 * time.Second"},
		"says why and ends with 4":                       {"distro/internal/command/exit.go", "exitDegraded = 4"},
		"cuda_oom` ends with 4":                          {"distro/internal/command/exit.go", "exitDegraded = 4"},
		"above 20,000 sends and receives":                {"bpf/ncclcall/limit.go", "DefaultMaxPointToPoint = 20_000"},
		"above 50,000 calls":                             {"bpf/ncclcall/limit.go", "DefaultMaxCalls        = 50_000"},
		"others read its partitions after 10 s":          {"distro/receivers/kafkareceiver/default_test.go", "require.Equal(t, 10*time.Second, config.SessionTimeout)"},
		"another CPython than 3.8 to 3.14":               {"internal/pystack/pystack.go", "// CPython 3.8 to 3.14 on 64-bit machines is known"},
		"has room for (2,048)":                           {"bpf/ncclcall/ncclcall.bpf.c", "#define MAX_COMMUNICATORS 2048"},
		"than the map holds (8,192; one user gets":       {"bpf/identity/identity.bpf.c", "__uint(max_entries, 8192);"},
		"than the map holds (512; one user gets":         {"bpf/fusefault/fusefault.bpf.c", "__uint(max_entries, 512);"},
		"than the map holds (16,384)":                    {"bpf/fusefault/fusefault.bpf.c", "__uint(max_entries, 16384);"},
		"(512, then one a second)":                       {"receivers/stacksreceiver/budget.go", "recordsAtOnce = 512\n\trecordPause   = time.Second\n"},
		"(2 MiB, then 16 KiB a second)":                  {"receivers/stacksreceiver/budget.go", "textAtOnce    = 2 << 20 // bytes of frames\n\ttextPause     = time.Second / (16 << 10)\n"},
		"makes ten stacks, then one each 30 s: four are": {"receivers/stacksreceiver/standstill.go", "takesAtOnce = 10\n\ttakesKept   = 4\n\ttakePause   = 30 * time.Second\n"},
		"after a hang of 10 s":                           {"receivers/gpureceiver/config.go", "CallTimeout: 10 * time.Second"},
		"(10,000 without a verdict yet, 5,000 with one)": {"processors/patterndetectorprocessor/config.go", "Limits{Waiting: 10_000, Verdicts: 5_000,"},
		"mounts quiet for ten minutes give way":          {"bpf/fusefault/mounts.go", "quietAfter = uint64(10 * time.Minute)"},
	}
	for said, in := range bounds {
		require.Contains(t, string(page), said)
		source, err := os.ReadFile(filepath.Join("..", in[0]))
		require.NoError(t, err)
		require.Contains(t, string(source), in[1], "the page says %q", said)
	}
	for line := range strings.Lines(string(page)) {
		requireNoOtherNumber(t, line, slices.Collect(maps.Keys(bounds)))
	}
}

// requireNoOtherNumber: what a line promises in figures is in one of these phrases. Names in
// backquotes, versions of Linux and a value of the kernel's are no promises.
func requireNoOtherNumber(t *testing.T, line string, phrases []string) {
	t.Helper()
	cells := strings.Split(line, "|")
	if len(cells) < 4 {
		return
	}
	promise := cells[1] + "|" + cells[2]
	for _, phrase := range append(phrases, "`kernel.kptr_restrict` 2") {
		promise = strings.ReplaceAll(promise, phrase, "")
	}
	promise = regexp.MustCompile("`[^`]*`|Linux [0-9.]+( to [0-9.]+)?( without [0-9a-f]{12})?").ReplaceAllString(promise, "")
	require.NotRegexp(t, `[0-9]`, promise, "nothing holds this figure to the code: %s", line)
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
