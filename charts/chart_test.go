// Package charts_test renders the chart as helm does and checks what comes out:
// against Kubernetes' own schemas, against the collector, and against what the
// probes need.
package charts_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// kubeVersion is the release that the schemas come from, see `make chart`.
const kubeVersion = "1.35.4"

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

// objects are the rendered documents by kind.
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
		kind, _ := object["kind"].(string)
		require.NotContains(t, all, kind)
		all[kind] = object
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
	return at(t, objects(t, rendered)["DaemonSet"], "spec", "template", "spec")
}

func collectorConfig(t *testing.T, rendered string) string {
	t.Helper()
	text, ok := at(t, objects(t, rendered)["ConfigMap"], "data", "config.yaml").(string)
	require.True(t, ok)
	return text
}

func TestChartLintsStrictly(t *testing.T) {
	for _, scenario := range scenarios(t) {
		out, err := run(t, tool(t, ".cache/bin/helm"), "lint", "--strict", "tracecore", "--kube-version", kubeVersion, "--values", scenario)
		require.NoError(t, err, out)
	}
}

func TestScenariosAreValidKubernetes(t *testing.T) {
	schemas := writeSchemas(t, tool(t, ".cache/swagger-"+kubeVersion+".json"))
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
	for _, scenario := range scenarios(t) {
		t.Run(filepath.Base(scenario), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			require.NoError(t, os.WriteFile(path, []byte(collectorConfig(t, render(t, "--values", scenario))), 0o600))
			out, err := run(t, binary, "validate", "--config", path)
			require.NoError(t, err, out)
		})
	}
}

func TestInitContainerUsesFlagsTheBinaryHas(t *testing.T) {
	out, err := run(t, tool(t, "bin/tracecore"), "bpf-check", "--help")
	require.NoError(t, err, out)
	require.Contains(t, out, "--report-only")
}

func TestProbesGetWhatTheyNeed(t *testing.T) {
	spec := pod(t, render(t))
	require.Equal(t, true, at(t, spec, "hostPID"))
	require.Equal(t, false, at(t, spec, "automountServiceAccountToken"))
	require.Nil(t, at(t, spec, "hostNetwork"))
	for _, container := range []any{at(t, spec, "containers", 0), at(t, spec, "initContainers", 0)} {
		require.Equal(t, true, at(t, container, "securityContext", "privileged"))
		require.Equal(t, true, at(t, container, "securityContext", "readOnlyRootFilesystem"))
		require.Equal(t, "spec.nodeName", at(t, container, "env", 0, "valueFrom", "fieldRef", "fieldPath"))
	}
	require.ElementsMatch(t, []string{"/sys/kernel", "/sys/fs/cgroup", "/var/lib/tracecore"}, hostPaths(t, spec))
	require.Equal(t, []any{map[string]any{"operator": "Exists"}}, at(t, spec, "tolerations"))
}

// hostPaths are the host's folders that the pod mounts; each must be used.
func hostPaths(t *testing.T, spec any) []string {
	t.Helper()
	used := map[any]bool{}
	for _, mount := range at(t, spec, "containers", 0, "volumeMounts").([]any) {
		used[at(t, mount, "name")] = true
	}
	var paths []string
	for _, volume := range at(t, spec, "volumes").([]any) {
		require.True(t, used[at(t, volume, "name")], "volume %v is not mounted", volume)
		if path, ok := at(t, volume, "hostPath").(map[string]any); ok {
			paths = append(paths, path["path"].(string))
		}
	}
	return paths
}

func TestCheckBlocksOnlyWhenToldTo(t *testing.T) {
	require.Equal(t, []any{"bpf-check", "--report-only"}, at(t, pod(t, render(t)), "initContainers", 0, "args"))
	required := render(t, "--set", "bpfCheck.required=true")
	require.Equal(t, []any{"bpf-check"}, at(t, pod(t, required), "initContainers", 0, "args"))
	require.Nil(t, at(t, pod(t, render(t, "--set", "bpfCheck.enabled=false")), "initContainers"))
}

func TestPodIsReplacedWhenItsConfigurationChanges(t *testing.T) {
	sum := func(args ...string) any {
		return at(t, objects(t, render(t, args...))["DaemonSet"], "spec", "template", "metadata", "annotations", "checksum/config")
	}
	require.Equal(t, sum(), sum())
	require.NotEqual(t, sum(), sum("--set", "logLevel=info"))
}

func TestOverlayMergesAndReplaces(t *testing.T) {
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(collectorConfig(t, render(t, "--values", "tracecore/ci/overlay-values.yaml"))), &config))
	require.Contains(t, at(t, config, "receivers"), "hostmetrics")
	require.Contains(t, at(t, config, "receivers"), "kernelevents")
	require.Equal(t, []any{"otlp", "hostmetrics"}, at(t, config, "service", "pipelines", "metrics", "receivers"))
	require.Equal(t, []any{"memory_limiter", "patterndetector"}, at(t, config, "service", "pipelines", "metrics", "processors"))
}

func TestProbesOfThePodMatchItsPorts(t *testing.T) {
	container := at(t, pod(t, render(t)), "containers", 0)
	ports := map[any]any{}
	for _, port := range at(t, container, "ports").([]any) {
		ports[at(t, port, "name")] = at(t, port, "containerPort")
	}
	for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
		require.Equal(t, 13133, ports[at(t, container, probe, "httpGet", "port")], probe)
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	for setting, problem := range map[string]string{
		"exporter.otlp.endpoint=http://x:4317": "/exporter/otlp/endpoint",
		"stateDir=/":                           "/stateDir",
		"stateDir=state":                       "/stateDir",
		"bpfcheck.required=true":               "bpfcheck",
		"bpfCheck.required=yes-please":         "/bpfCheck/required",
		"logLevel=loud":                        "/logLevel",
		"image.repository=":                    "/image/repository",
	} {
		out, err := helm(t, "--set", setting)
		require.Error(t, err, setting)
		require.Contains(t, out, problem, setting)
	}
}
