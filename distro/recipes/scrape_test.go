package recipes

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// exporter serves one of several texts of a producer, as an exporter does.
type exporter struct {
	address string

	mu      sync.Mutex
	text    string
	scrapes int    // of this text, over one connection
	from    string // its other end
}

func startExporter(t *testing.T, text string) *exporter {
	t.Helper()
	e := &exporter{text: text}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	e.address = strings.TrimPrefix(server.URL, "http://")
	return e
}

func (e *exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.RemoteAddr != e.from { // a scrape that took too long has closed its connection
		e.from, e.scrapes = r.RemoteAddr, 0
	}
	e.scrapes++
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(e.text))
}

// awaitScrapes waits until the text of now was fetched, and the fetch before the
// last is surely with the patterns: the last came over the same connection.
func (e *exporter) awaitScrapes(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		e.mu.Lock()
		scrapes := e.scrapes
		e.mu.Unlock()
		if scrapes >= 3 {
			return
		}
		require.True(t, time.Now().Before(deadline), "nobody scrapes %s", e.address)
		time.Sleep(2 * time.Millisecond)
	}
}

// turnsTo serves another text from now on.
func (e *exporter) turnsTo(t *testing.T, text string) {
	t.Helper()
	e.awaitScrapes(t)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text, e.scrapes = text, 0
}

// startScraping runs a recipe whose exporter is this one, with its receiver hurried.
func startScraping(t *testing.T, recipe, variable, receiver string, e *exporter, more ...string) agent {
	t.Helper()
	t.Setenv(variable, e.address)
	set := "--set=receivers.prometheus/" + receiver + "."
	hurry := []string{set + "config.global.scrape_interval=200ms", set + "config.global.scrape_timeout=200ms", set + "discovery_reload_on_startup=true"}
	return start(t, recipe, slices.Concat(hurry, more)...)
}

// exposition reads what a producer said.
func exposition(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, path...)...))
	require.NoError(t, err)
	return string(text)
}

func TestNodeExporterLeadsToIBLinkFlapAndNodeMemoryError(t *testing.T) {
	say := func(name string) string { return exposition(t, "node_exporter", name) }
	e := startExporter(t, say("1-active.txt"))
	a := startScraping(t, "node-exporter.yaml", "NODE_EXPORTER", "node", e)
	e.turnsTo(t, say("2-down.txt"))
	e.turnsTo(t, say("3-active-again.txt"))
	flap := a.await(t, "the link flaps", func(v verdict.Verdict) bool { // before the gauges have changed back, it went down
		return v.Pattern == "ib_link_flap" && v.Headline == "the link of mlx5_0 port 1 on node-7 goes down and up"
	})
	require.Equal(t, verdict.Claimed, flap.Trust, "an exporter said it, not the kernel")
	require.Empty(t, slices.DeleteFunc(a.verdicts(t), about("ib_link_flap", "device", "mlx5_0")), "nothing else is broken")

	e.turnsTo(t, say("4-uncorrectable.txt"))
	memory := a.await(t, "memory errors", about("node_memory_error", "host", host))
	require.Equal(t, verdict.Partial, memory.Confidence, "no rank died of it")
	require.Equal(t, "the memory controller's counter of uncorrected errors rose by 1", memory.Evidence[0].Shows)
}

func TestDCGMExporterLeadsToHBMECCAndThermalThrottle(t *testing.T) {
	say := func(name string) string { return exposition(t, "dcgm-exporter", name) }
	e := startExporter(t, say("1-healthy.txt"))
	a := startScraping(t, "dcgm-exporter.yaml", "DCGM_EXPORTER", "dcgm", e)
	e.turnsTo(t, say("2-uncorrected.txt"))
	ecc := a.await(t, "memory errors", about("hbm_ecc", "gpu", "0000:53:00.0"))
	require.Equal(t, verdict.Partial, ecc.Confidence, "the driver said nothing")
	require.Equal(t, "the counter of uncorrected errors of GPU 0000:53:00.0 rose by 1", ecc.Evidence[0].Shows)
	require.Equal(t, host, ecc.Culprit["host"])

	e.turnsTo(t, say("3-hot.txt"))
	hot := a.await(t, "heat", about("thermal_throttle", "gpu", "0000:64:00.0"))
	require.Equal(t, verdict.Partial, hot.Confidence, "an exporter said it, not the driver")
	require.Equal(t, "GPU 0000:64:00.0 of node-7 slows down because it is too hot", hot.Headline)
	require.Len(t, a.verdicts(t), 2, "corrected errors, power and what stays equal mean nothing")
}

// Rates take minutes to judge; here it is what the rules read.
func TestDCGMExporterGivesWhatTheRulesOfRatesRead(t *testing.T) {
	e := startExporter(t, exposition(t, "dcgm-exporter", "1-healthy.txt"))
	got := scraped(t, "dcgm-exporter.yaml", "DCGM_EXPORTER", "dcgm", e)
	require.ElementsMatch(t, []string{
		"hw.errors counter {error} 0 error.type=uncorrected gpu.id=0000:53:00.0",
		"hw.errors counter {error} 0 error.type=uncorrected gpu.id=0000:64:00.0",
		"hw.errors counter {error} 0 error.type=nvlink gpu.id=0000:53:00.0",
		"hw.errors counter {error} 3 error.type=nvlink gpu.id=0000:64:00.0",
		"hw.gpu.throttle.duration counter s 51.4884 gpu.id=0000:53:00.0 hw.gpu.throttle.reason=thermal",
		"hw.gpu.throttle.duration counter s 1.2 gpu.id=0000:64:00.0 hw.gpu.throttle.reason=thermal",
		"hw.gpu.nvlink.io counter  41000 gpu.id=0000:53:00.0 hw.gpu.nvlink.link=0",
		"hw.gpu.nvlink.io counter  39000 gpu.id=0000:64:00.0 hw.gpu.nvlink.link=0",
		"hw.gpu.nvlink.io counter  41500 gpu.id=0000:53:00.0 hw.gpu.nvlink.link=11",
		"hw.gpu.nvlink.io counter  12 gpu.id=0000:64:00.0 hw.gpu.nvlink.link=11",
		"hw.gpu.io gauge By/s 8.12e+08 gpu.id=0000:53:00.0 network.io.direction=receive",
		"hw.gpu.io gauge By/s 7.98e+08 gpu.id=0000:64:00.0 network.io.direction=receive",
	}, got)
}

func TestOtherVendorsLeadToHBMECC(t *testing.T) {
	for _, tt := range []struct{ recipe, variable, receiver, gpu, rise string }{
		{"amd-device-metrics-exporter", "AMD_EXPORTER", "amd", "amd-2", "1"},
		{"habana-exporter", "HABANA_EXPORTER", "habana", "habana-AN0300041", "2"},
		{"xpumanager", "XPUM_EXPORTER", "xpum", "0000:4d:00.0", "1"},
	} {
		t.Run(tt.recipe, func(t *testing.T) {
			e := startExporter(t, exposition(t, tt.recipe, "1-healthy.txt"))
			a := startScraping(t, tt.recipe+".yaml", tt.variable, tt.receiver, e)
			e.turnsTo(t, exposition(t, tt.recipe, "2-uncorrected.txt"))
			v := a.await(t, "memory errors", about("hbm_ecc", "gpu", tt.gpu))
			require.Equal(t, verdict.Partial, v.Confidence, "no driver said anything")
			require.Equal(t, "the counter of uncorrected errors of GPU "+tt.gpu+" rose by "+tt.rise, v.Evidence[0].Shows)
			require.Equal(t, host, v.Culprit["host"])
			require.Len(t, a.verdicts(t), 1)
		})
	}
}

// Gaudi's exporter has a gauge for what only grows on one card.
func TestFewerReplacedRowsOfGaudiAreNoErrors(t *testing.T) {
	say := func(name string) string { return exposition(t, "habana-exporter", name) }
	e := startExporter(t, say("2-uncorrected.txt"))
	a := startScraping(t, "habana-exporter.yaml", "HABANA_EXPORTER", "habana", e)
	e.turnsTo(t, say("3-fewer.txt"))
	e.turnsTo(t, say("2-uncorrected.txt"))
	v := a.await(t, "a row more", about("hbm_ecc", "gpu", "habana-AN0300041"))
	require.Equal(t, "the counter of uncorrected errors of GPU habana-AN0300041 rose by 1", v.Evidence[0].Shows)
	require.Len(t, a.verdicts(t), 1)
}

func TestXPUManagerGivesOneSeriesForEachGPU(t *testing.T) {
	e := startExporter(t, exposition(t, "xpumanager", "2-uncorrected.txt"))
	require.ElementsMatch(t, []string{
		"hw.errors counter {error} 1 error.type=uncorrected gpu.id=0000:4d:00.0", // cache
		"hw.errors counter {error} 0 error.type=uncorrected gpu.id=0000:4d:00.0", // not compute
		"hw.errors counter {error} 0 error.type=uncorrected gpu.id=0000:9a:00.0",
		"hw.errors counter {error} 0 error.type=uncorrected gpu.id=0000:9a:00.0",
		"hw.gpu.io counter By 8.12e+10 gpu.id=0000:4d:00.0 network.io.direction=receive",
		"hw.gpu.io counter By 8.12e+10 gpu.id=0000:9a:00.0 network.io.direction=receive",
	}, scraped(t, "xpumanager.yaml", "XPUM_EXPORTER", "xpum", e))
}
