package cluster_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"gopkg.in/yaml.v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// watcher is tracecore as a tier of the chart configures it, with the service
// account of that tier.
type watcher struct {
	*process
	dir     string
	metrics int
	from    *server
}

// kubeconfig is what the pod of a service account has: its token.
func (s *server) kubeconfig(t *testing.T, account string) string {
	t.Helper()
	request, err := s.CoreV1().ServiceAccounts(release).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return s.kubeconfigOf(t, request.Status.Token)
}

func (s *server) kubeconfigOf(t *testing.T, token string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: s.config.Host, CertificateAuthority: s.config.CAFile}
	config.AuthInfos["bearer"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "bearer", Namespace: release}
	config.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

// tierConfig is the collector configuration of a tier, as the chart renders it.
func tierConfig(t *testing.T, tier string, args ...string) string {
	t.Helper()
	for _, object := range render(t, append([]string{"--set", "gateway.enabled=true"}, args...)...) {
		if object.GetKind() == "ConfigMap" && object.GetLabels()["app.kubernetes.io/component"] == tier {
			return object.Object["data"].(map[string]any)["config.yaml"].(string)
		}
	}
	require.FailNow(t, "no such tier", tier)
	return ""
}

// newWatcher prepares the events tier: its configuration, with a file instead of
// a gateway and with ports and folders of the test.
func newWatcher(t *testing.T, s *server, args ...string) *watcher {
	t.Helper()
	w := &watcher{dir: t.TempDir(), metrics: hosttest.FreePort(t), from: s}
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(tierConfig(t, "events", args...)), &config))
	set(t, config, s.kubeconfig(t, "test-tracecore-events"), "receivers", "k8sevents", "kubeconfig")
	set(t, config, map[string]any{"file": map[string]any{"path": w.records(), "append": true}}, "exporters")
	set(t, config, []any{"file"}, "service", "pipelines", "logs", "exporters")
	w.local(t, config, hosttest.FreePort(t))
	return w
}

// local replaces what listens and what is written.
func (w *watcher) local(t *testing.T, config map[string]any, health int) {
	t.Helper()
	set(t, config, filepath.Join(w.dir, "state"), "extensions", "file_storage", "directory")
	set(t, config, fmt.Sprintf("127.0.0.1:%d", health), "extensions", "health_check", "endpoint")
	if _, ok := config["extensions"].(map[string]any)["history"]; ok { // where verdicts are made
		set(t, config, filepath.Join(w.dir, "state", "history"), "extensions", "history", "directory")
		set(t, config, map[string]any{"endpoint": fmt.Sprintf("127.0.0.1:%d", hosttest.FreePort(t))}, "extensions", "history", "http")
	}
	set(t, config, map[string]any{"readers": []any{map[string]any{"pull": map[string]any{"exporter": map[string]any{"prometheus": map[string]any{"host": "127.0.0.1", "port": w.metrics}}}}}}, "service", "telemetry", "metrics")
	text, err := yaml.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "config.yaml"), text, 0o600))
}

// set writes a value below keys that the rendered configuration must have.
func set(t *testing.T, config map[string]any, value any, path ...string) {
	t.Helper()
	for _, key := range path[:len(path)-1] {
		next, ok := config[key].(map[string]any)
		require.True(t, ok, "%v has no %s", path, key)
		config = next
	}
	config[path[len(path)-1]] = value
}

func (w *watcher) records() string { return filepath.Join(w.dir, "records.json") }

func (w *watcher) start(t *testing.T, environment ...string) {
	t.Helper()
	w.process = start(t, filepath.Join(w.dir, "log"), environment, need(t, "../../bin/tracecore"), "--config", filepath.Join(w.dir, "config.yaml"))
}

// recordsOf are the records that a file exporter has written so far, none while
// there is no file.
func recordsOf(t *testing.T, path string) []plog.LogRecord {
	t.Helper()
	text, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	var all []plog.LogRecord
	for _, line := range strings.SplitAfter(string(text), "\n") {
		if !strings.HasSuffix(line, "\n") {
			continue // still being written
		}
		logs, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs([]byte(line))
		require.NoError(t, err)
		for _, resource := range logs.ResourceLogs().All() {
			for _, r := range resource.ScopeLogs().At(0).LogRecords().All() {
				all = append(all, r)
			}
		}
	}
	return all
}

// seen are the records so far, one line for each: hint, object, message.
func (w *watcher) seen(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, r := range recordsOf(t, w.records()) {
		all = append(all, describe(r))
	}
	return all
}

func describe(r plog.LogRecord) string {
	line := r.EventName()
	for _, key := range []string{"k8s.event.hint", "k8s.object.kind", "k8s.object.name", "k8s.node.name", "k8s.node.pressure", "gen_ai.training.job_id"} {
		if value, found := r.Attributes().Get(key); found {
			line += " " + value.Str()
		}
	}
	return line + ": " + r.Body().Str()
}

// await waits until the records are these and no others, in any order.
func (w *watcher) await(t *testing.T, want ...string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for len(w.seen(t)) < len(want) && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	require.ElementsMatch(t, want, w.seen(t))
}

// metric adds up the samples of a counter; -1 while there is none.
func (w *watcher) metric(name string) float64 {
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", w.metrics))
	if err != nil {
		return -1
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return -1
	}
	total, found := 0.0, false
	for _, line := range strings.Split(string(body), "\n") {
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		var value float64
		if _, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &value); err == nil {
			total, found = total+value, true
		}
	}
	if !found {
		return -1
	}
	return total
}
