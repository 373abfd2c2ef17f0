package charts_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// TestAnAgentHoldsItsRecordsWhileNobodyTakesThem: also over its own crash.
func TestAnAgentHoldsItsRecordsWhileNobodyTakesThem(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	agent := c.agents[0]
	agent.start(t)
	agent.die(t, 0, all...)
	agent.kill()
	agent.start(t)
	for _, r := range c.replicas {
		r.start(t)
	}
	c.await(t, "every job", func() bool { return len(c.judged(t)) == len(all) })
}

// TestAFullQueueIsToldAndCounted: the sender hears that its records were not
// taken, and those that were come in the end.
func TestAFullQueueIsToldAndCounted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	agent := c.agents[0]
	agent.set(t, 1, "exporters", "load_balancing", "sending_queue", "num_consumers")
	agent.set(t, 5, "exporters", "load_balancing", "sending_queue", "queue_size")
	agent.start(t)
	taken := map[string]bool{}
	for _, job := range all {
		if agent.offer(t, 0, job) == http.StatusOK {
			taken[fmt.Sprintf("job-%d", job)] = true
		}
	}
	require.NotEmpty(t, taken)
	require.Less(t, len(taken), len(all))
	require.EqualValues(t, len(all)-len(taken), agent.metric(t, "otelcol_exporter_enqueue_failed_log_records"))
	for _, r := range c.replicas {
		r.start(t)
	}
	c.await(t, "what was taken", func() bool { return len(c.judged(t)) == len(taken) })
	require.Equal(t, taken, c.judged(t))
}

// TestAFullDiskSilencesNoVerdict fills the gateway's volume.
func TestAFullDiskSilencesNoVerdict(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	agent, gateway := c.agents[0], c.replicas[0]
	c.resolve(t, gateway)
	gateway.tmpfs = at(t, gateway.config, "extensions", "file_storage", "directory").(string)
	gateway.start(t)
	agent.start(t)
	agent.die(t, 0, 0)
	c.await(t, "the verdict before", func() bool { return len(gateway.latest(t)) == 1 })
	require.Zero(t, gateway.metric(t, "otelcol_extension_file_storage_write_failures"))

	ballast := filepath.Join("/proc", strconv.Itoa(gateway.command.Process.Pid), "root", gateway.tmpfs, "ballast")
	fill(t, ballast)
	agent.die(t, 0, all...)
	c.await(t, "verdicts of a full disk", func() bool { return len(gateway.latest(t)) == len(all) })
	require.NotZero(t, gateway.metric(t, "otelcol_extension_file_storage_write_failures"))
	require.NotZero(t, gateway.metric(t, "otelcol_extension_file_storage_unsaved_bytes"))

	require.NoError(t, os.Remove(ballast))
	c.await(t, "the state on the disk once there is room", func() bool { return gateway.metric(t, "otelcol_extension_file_storage_unsaved_bytes") == 0 })
}

// fill writes until the disk has no room.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer file.Close()
	page := make([]byte, 4096)
	for range 1 << 14 { // 64 MiB: more than any of these disks has
		if _, err = file.Write(page); err != nil {
			break
		}
	}
	require.True(t, errors.Is(err, syscall.ENOSPC), "%v", err)
}

// tell has it serve its metrics.
func (c *collector) tell(t *testing.T) {
	t.Helper()
	c.metrics = hosttest.FreePort(t)
	exporter := map[string]any{"prometheus": map[string]any{"host": "127.0.0.1", "port": c.metrics}}
	c.set(t, map[string]any{"level": "normal", "readers": []any{map[string]any{"pull": map[string]any{"exporter": exporter}}}}, "service", "telemetry", "metrics")
}

// metric is the sum of all series of a metric, 0 when there are none.
func (c *collector) metric(t *testing.T, name string) float64 {
	t.Helper()
	text, sum := scrape(c.metrics), 0.0
	require.NotEmpty(t, text)
	for _, found := range regexp.MustCompile(`(?m)^`+name+`(?:_total)?(?:\{.*\})? (\S+)$`).FindAllStringSubmatch(text, -1) {
		value, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		sum += value
	}
	return sum
}
