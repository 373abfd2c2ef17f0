// Package charts_test renders the chart as helm does and checks what comes out:
// against Kubernetes' own schemas, against the collector, and against what the
// probes need.
package charts_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/exporters/alertexporter"
)

// kubeVersion is the release that the schemas come from, see `make chart`.
const kubeVersion = "1.35.4"

// operatorVersion is the release of the Prometheus operator whose resources the
// chart makes.
const operatorVersion = "0.90.1"

// tool returns the path of a program that `make chart` builds.
func tool(t *testing.T, path string) string {
	t.Helper()
	absolute, err := filepath.Abs(filepath.Join("..", path))
	require.NoError(t, err)
	if _, err := os.Stat(absolute); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI must check the chart: %s is missing, run `make chart`", path)
		}
		t.Skipf("%s is missing, run `make chart`", path)
	}
	return absolute
}

func run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	return string(out), err
}

// render returns the chart with a scenario of ci/, or with settings.
func render(t *testing.T, args ...string) string {
	t.Helper()
	out, err := helm(t, args...)
	require.NoError(t, err, out)
	return out
}

func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"template", "test", "tracecore", "--namespace", "gpu", "--kube-version", kubeVersion}, args...)
	return run(t, tool(t, ".cache/bin/helm"), args...)
}

func scenarios(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("tracecore/ci/*-values.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 4)
	return files
}

// objects are the rendered documents, by kind and tier: "ConfigMap/gateway".
func objects(t *testing.T, rendered string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	decoder := yaml.NewDecoder(strings.NewReader(rendered))
	for {
		var object map[string]any
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if object == nil {
			continue // a template that rendered to nothing
		}
		key := fmt.Sprint(object["kind"], "/", at(t, object, "metadata", "labels", "app.kubernetes.io/component"))
		if namespace := at(t, object, "metadata", "namespace"); namespace != "gpu" && namespace != nil {
			key += fmt.Sprint("/", namespace)
		}
		require.NotContains(t, all, key)
		all[key] = object
	}
}

// at walks down maps and lists: at(o, "spec", "containers", 0, "name").
func at(t *testing.T, value any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, ok := value.(map[string]any)
			require.True(t, ok, "%v: not a map above %v", path, step)
			value = m[step]
		case int:
			l, ok := value.([]any)
			require.True(t, ok && len(l) > step, "%v: no element %d", path, step)
			value = l[step]
		}
	}
	return value
}

func pod(t *testing.T, rendered string) any {
	t.Helper()
	return at(t, objects(t, rendered)["DaemonSet/agent"], "spec", "template", "spec")
}

// collectorConfigs are the configurations of the tiers.
func collectorConfigs(t *testing.T, rendered string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for key, object := range objects(t, rendered) {
		if tier, found := strings.CutPrefix(key, "ConfigMap/"); found && tier != "dashboard" && tier != "conditions" {
			all[tier] = at(t, object, "data", "config.yaml").(string)
		}
	}
	require.Contains(t, all, "agent")
	return all
}

// config is the configuration of one tier, decoded.
func config(t *testing.T, tier string, args ...string) map[string]any {
	t.Helper()
	var decoded map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(collectorConfigs(t, render(t, args...))[tier]), &decoded))
	return decoded
}

func TestChartLintsStrictly(t *testing.T) {
	for _, scenario := range scenarios(t) {
		out, err := run(t, tool(t, ".cache/bin/helm"), "lint", "--strict", "tracecore", "--kube-version", kubeVersion, "--values", scenario)
		require.NoError(t, err, out)
	}
}

func TestScenariosAreValidKubernetes(t *testing.T) {
	schemas := writeSchemas(t, tool(t, ".cache/swagger-"+kubeVersion+".json"))
	addCustomSchemas(t, schemas, tool(t, ".cache/crds-"+operatorVersion))
	kubeconform := tool(t, ".cache/bin/kubeconform")
	validate := func(manifest string) (string, error) {
		command := exec.Command(kubeconform, "-strict", "-summary", "-schema-location", schemas+"/{{ .ResourceKind }}{{ .KindSuffix }}.json")
		command.Stdin = strings.NewReader(manifest)
		out, err := command.CombinedOutput()
		return string(out), err
	}
	for _, scenario := range scenarios(t) {
		t.Run(filepath.Base(scenario), func(t *testing.T) {
			rendered := render(t, "--values", scenario)
			out, err := validate(rendered)
			require.NoError(t, err, out)
			require.Contains(t, out, "Invalid: 0, Errors: 0, Skipped: 0")

			// The same manifest with one wrong key must not pass.
			out, err = validate(strings.Replace(rendered, "hostPID: true", "hostPid: true", 1))
			require.Error(t, err, "the schemas let an unknown key pass: %s", out)
		})
	}
}

func TestCollectorAcceptsTheConfiguration(t *testing.T) {
	binary := tool(t, "bin/tracecore")
	t.Setenv("TRACECORE_KAFKA_USERNAME", "from the secret")
	t.Setenv("TRACECORE_KAFKA_PASSWORD", "from the secret")
	t.Setenv("TRACECORE_SLACK_URL", "https://from.the.secret/a")
	t.Setenv("TRACECORE_WEBHOOK_URL", "https://from.the.secret/b")
	t.Setenv("K8S_NODE_NAME", "node-1") // as every agent has it
	for _, scenario := range scenarios(t) {
		t.Run(filepath.Base(scenario), func(t *testing.T) {
			for tier, text := range collectorConfigs(t, render(t, "--values", scenario)) {
				path := filepath.Join(t.TempDir(), tier+".yaml")
				require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
				out, err := run(t, binary, "validate", "--config", path)
				require.NoError(t, err, "%s: %s", tier, out)
				require.NotContains(t, out, "warning:", tier)

				// The same configuration with a part that does nothing is warned of.
				out, err = run(t, binary, "validate", "--config", path, "--set=exporters.debug/unused.verbosity=basic")
				require.NoError(t, err, "%s: %s", tier, out)
				require.Equal(t, 1, strings.Count(out, "warning:"), "%s: %s", tier, out)
			}
		})
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	for setting, problem := range map[string]string{
		"exporter.otlp.endpoint=http://x:4317":            "/exporter/otlp/endpoint",
		"stateDir=/":                                      "/stateDir",
		"stateDir=state":                                  "/stateDir",
		"bpfcheck.required=true":                          "bpfcheck",
		"bpfCheck.required=yes-please":                    "/bpfCheck/required",
		"bpfCheck.patterns={gpu lost}":                    "/bpfCheck/patterns",
		"logLevel=loud":                                   "/logLevel",
		"image.repository=":                               "/image/repository",
		"gateway.replicas=0":                              "/gateway/replicas",
		"gateway.resolver=static":                         "/gateway/resolver",
		"gateway.storage.size=big":                        "/gateway/storage/size",
		"security.capabilities={CAP_BPF}":                 "/security/capabilities",
		"flightRecorder.path=fr":                          "/flightRecorder/path",
		"podNames.enabled=perhaps":                        "/podNames/enabled",
		"kafka.enabled=true":                              "set gateway.enabled=true",
		"kafka.enabled=true,gateway.enabled=true":         "name your brokers as host:port",
		"kafka.brokers={http://kafka:9092}":               "/kafka/brokers/0",
		"kafka.topicPrefix=a b":                           "/kafka/topicPrefix",
		"kafka.sasl.mechanism=PLAIN":                      "set kafka.sasl.secretName",
		"kafka.tls.clientCertificate=true":                "set kafka.tls.secretName",
		"kafka.tls.secretName=kafka":                      "set kafka.tls.enabled=true",
		"tell.alertmanager.endpoint=alertmanager:9093":    "/tell/alertmanager/endpoint",
		"tell.slack.secretName=https://hooks.slack.com/x": "/tell/slack/secretName",
		"tell.minSeverity=loud":                           "/tell/minSeverity",
		"exporter.to.url=backend:4317":                    "/exporter/to/url",
		"traces.enabled=true,receiver.otlp.enabled=false": "set receiver.otlp.enabled=true",
		"traces.enabled=true,kafka.enabled=true,kafka.onlyAgentsWrite=true,gateway.enabled=true,kafka.brokers={a:1}": "set traces.enabled=false, or kafka.enabled=false",
		"nodeConditions.mode=drain":          "/nodeConditions/mode",
		"nodeConditions.breaker.nodes=0":     "/nodeConditions/breaker/nodes",
		"nodeConditions.breaker.percent=101": "/nodeConditions/breaker/percent",
		"nodeConditions.breaker.window=soon": "/nodeConditions/breaker/window",
	} {
		out, err := helm(t, "--set", setting)
		require.Error(t, err, setting)
		require.Contains(t, out, problem, setting)
	}
}

// TestWhatAgentsRefuseHelmRefuses: an installation that is green and whose agents do not start
// watches nothing.
func TestWhatAgentsRefuseHelmRefuses(t *testing.T) {
	refused := map[string]string{
		`tell={"labels":{"my-cluster":"a"}}`:                                  "tell.labels: my-cluster is no name of a label",
		`tell={"labels":{"":"a"}}`:                                            "is no name of a label",
		`tell={"alertmanager":{"endpoint":"http://am:9093/api/v2/alerts"}}`:   "give the address of the Alertmanager alone",
		`tell={"alertmanager":{"endpoint":"http://am:9093/api/v2/alerts/"}}`:  "give the address of the Alertmanager alone",
		`tell={"alertmanager":{"endpoint":"http://am:90930"}}`:                "tell.alertmanager.endpoint: there is no port 90930",
		`exporter={"otlp":{"endpoint":"b:99999"}}`:                            "exporter.otlp.endpoint: there is no port 99999",
		`exporter={"to":{"url":"https://b:0/x"}}`:                             "exporter.to.url: there is no port 0",
		`gpu={"dcgm":{"address":"h:65536"}}`:                                  "gpu.dcgm.address: there is no port 65536",
		`nodeConditions={"breaker":{"window":"10s"}}`:                         "nodeConditions.breaker.window: must be 1m or more",
		`nodeConditions={"breaker":{"window":"0h0m59s"}}`:                     "nodeConditions.breaker.window: must be 1m or more",
		`flightRecorder={"path":"/dumps","jobPattern":"jobs"}`:                "put brackets around the job",
		`flightRecorder={"path":"/dumps","jobPattern":"/jobs/(?:a|b)[(]\\("}`: "put brackets around the job",
		`flightRecorder={"path":"/dumps","jobPattern":"("}`:                   "missing closing )",
	}
	for _, name := range alertexporter.OwnLabels() {
		refused[fmt.Sprintf(`tell={"labels":{%q:"a"}}`, name)] = "tell.labels: " + name + " is written from the verdict"
	}
	for set, says := range refused {
		out, err := helm(t, "--set-json", set)
		require.Error(t, err, set)
		require.Contains(t, out, says, set)
	}
	for _, set := range []string{
		`tell={"alertmanager":{"endpoint":"http://am:9093/prefix"},"labels":{"cluster_1":"a"}}`,
		`exporter={"otlp":{"endpoint":"b:65535"}}`,
		`exporter={"otlp":{"endpoint":"${env:BACKEND}"}}`,
		`exporter={"to":{"url":"https://b/v1:99999x"}}`,
		`nodeConditions={"breaker":{"window":"90s"}}`,
		`nodeConditions={"breaker":{"window":"1h30m"}}`,
		`flightRecorder={"path":"/dumps","jobPattern":"/jobs/(?P<job>[^/]+)/"}`,
		`flightRecorder={"path":"/dumps","jobPattern":"[(]([^/]+)"}`,
	} {
		out, err := helm(t, "--set-json", set)
		require.NoError(t, err, "%s: %s", set, out)
	}
}

// TestAGatewaysNameIsOneOfAService: the API server takes no other, half way through an installation.
func TestAGatewaysNameIsOneOfAService(t *testing.T) {
	of := func(release string, gateway bool) error {
		_, err := run(t, tool(t, ".cache/bin/helm"), "template", release, "tracecore", "--kube-version", kubeVersion, "--set", fmt.Sprint("gateway.enabled=", gateway))
		return err
	}
	for _, release := range []string{"1gpu", "prod.eu"} {
		require.Error(t, of(release, true), release)
		require.NoError(t, of(release, false), release)
	}
	require.NoError(t, of("gpu-1", true))
}
