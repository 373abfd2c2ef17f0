package charts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// notes are those that helm prints once it has installed the chart. helm template prints none:
// here they are the text of an object.
func notes(t *testing.T, args ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tracecore")
	require.NoError(t, os.CopyFS(dir, os.DirFS("tracecore")))
	require.NoError(t, os.Rename(filepath.Join(dir, "templates/NOTES.txt"), filepath.Join(dir, "notes")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "templates/notes.yaml"), []byte(`{"kind": "Notes", "text": {{ tpl (.Files.Get "notes") . | toJson }}}`), 0o600))
	args = append([]string{"template", "test", dir, "--namespace", "gpu", "--kube-version", kubeVersion, "--show-only", "templates/notes.yaml"}, args...)
	out, err := run(t, tool(t, ".cache/bin/helm"), args...)
	require.NoError(t, err, out)
	var object struct{ Text string }
	require.NoError(t, yaml.Unmarshal([]byte(out), &object), out)
	return object.Text
}

var (
	notedWorkload  = regexp.MustCompile(`exec (daemonset|statefulset)/(\S+) -c (\S+) -- tracecore (\S+)`)
	notedComponent = regexp.MustCompile(`logs .*-l app\.kubernetes\.io/instance=(\S+),app\.kubernetes\.io/component=(\S+) -c (\S+)`)
)

// TestNotesNameWhatIsInstalled: each command of the notes is for a workload, pods and a container
// that the same values make.
func TestNotesNameWhatIsInstalled(t *testing.T) {
	kinds := map[string]string{"daemonset": "DaemonSet/agent", "statefulset": "StatefulSet/gateway"}
	for _, scenario := range scenarios(t) {
		t.Run(filepath.Base(scenario), func(t *testing.T) {
			text, rendered := notes(t, "--values", scenario), render(t, "--values", scenario)
			all := objects(t, rendered)
			require.NotContains(t, text, "<no value>")
			for line := range strings.Lines(text) {
				if strings.Contains(line, "kubectl") && !strings.Contains(line, "label namespace") {
					require.Contains(t, line, "kubectl -n gpu ")
				}
			}
			workloads := notedWorkload.FindAllStringSubmatch(text, -1)
			require.Len(t, workloads, 1, text)
			for _, w := range workloads {
				workload := all[kinds[w[1]]]
				require.NotNil(t, workload, "%s: no %s", w[0], w[2])
				require.Equal(t, w[2], at(t, workload, "metadata", "name"))
				require.Contains(t, containers(t, workload, "containers"), w[3])
				require.Equal(t, "incidents", w[4])
			}
			pods := notedComponent.FindAllStringSubmatch(text, -1)
			require.NotEmpty(t, pods, text)
			for _, p := range pods {
				workload := all["DaemonSet/"+p[2]]
				if workload == nil {
					workload = all["StatefulSet/"+p[2]]
				}
				require.NotNil(t, workload, "%s: no %s", p[0], p[2])
				labels := at(t, workload, "spec", "template", "metadata", "labels")
				require.Equal(t, p[1], at(t, labels, "app.kubernetes.io/instance"))
				require.Equal(t, p[2], at(t, labels, "app.kubernetes.io/component"))
				require.Contains(t, append(containers(t, workload, "containers"), containers(t, workload, "initContainers")...), p[3])
			}
			require.Contains(t, text, "helm -n gpu test test --logs")
			require.Contains(t, rendered, "helm.sh/hook: test")
		})
	}
}

// TestNotesSayWhatIsNotSet: what the values leave out is said, and is not once they set it.
func TestNotesSayWhatIsNotSet(t *testing.T) {
	for words, set := range map[string]string{
		"no backend gets verdicts":                               "exporter.otlp.endpoint=backend:4317",
		"exporter.to.url and exporter.otlp.endpoint are empty":   "exporter.to.url=https://backend:4318",
		"Verdicts name pods by their uid alone":                  "podNames.enabled=true",
		"Each agent keeps those of its own node":                 "gateway.enabled=true",
		"The agents are privileged and see the host's processes": "security.privileged=false",
	} {
		require.Contains(t, notes(t), words)
		require.NotContains(t, notes(t, "--set", set), words)
	}
	require.Contains(t, notes(t), "for 30 days in the history above", "the default of the extension, which the chart does not change")
	require.Contains(t, render(t), "directory: /var/lib/tracecore/history")
	require.NotContains(t, render(t), "max_age")
	required := "keeps its pod in Init:Error"
	require.NotContains(t, notes(t), required)
	require.Contains(t, notes(t, "--set", "bpfCheck.required=true"), required)
}

func containers(t *testing.T, workload any, kind string) (names []string) {
	t.Helper()
	list, _ := at(t, workload, "spec", "template", "spec").(map[string]any)[kind].([]any)
	for _, one := range list {
		names = append(names, at(t, one, "name").(string))
	}
	return names
}
