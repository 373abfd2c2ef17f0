package attributes

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// conventions is the version of OpenTelemetry's semantic conventions that ours are compared
// with: the newest that the module go.opentelemetry.io/otel of this build has.
const conventions = "v1.43.0"

// opentelemetry reads the attributes of the conventions, with their types, from the
// constants that OpenTelemetry generates of them.
func opentelemetry(t *testing.T) map[string]string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "go.opentelemetry.io/otel").Output()
	require.NoError(t, err)
	code, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "semconv", conventions, "attribute_group.go"))
	require.NoError(t, err)
	one := regexp.MustCompile(`// Type: ([^\n]*)\n(?:\s*//[^\n]*\n)*\s*\w+Key = attribute\.Key\("([^"]+)"\)`)
	all := map[string]string{}
	for _, m := range one.FindAllStringSubmatch(string(code), -1) {
		all[m[2]] = m[1]
	}
	require.Greater(t, len(all), 500)
	return all
}

// TestNamesOfOpenTelemetryAreUsedAsTheyAre: what has a name there has their type here.
func TestNamesOfOpenTelemetryAreUsedAsTheyAre(t *testing.T) {
	theirs, used := opentelemetry(t), 0
	types := map[string][]string{"string": {"string", "Enum"}, "int": {"int"}, "double": {"double"}, "bool": {"boolean", "bool"}, "slice": {"string[]", "int[]"}}
	for name, a := range collect(t) {
		if kind, has := theirs[name]; has {
			require.Contains(t, types[a.Type], kind, "%s is %s in OpenTelemetry %s", name, kind, conventions)
			used++
		}
	}
	require.Greater(t, used, 30)
}

// ownNames are our attributes, or what they begin with, where OpenTelemetry has others of the
// same first name: it has none for this. A new one is a decision: is there really none?
var ownNames = map[string]string{
	"device":              "a label of node_exporter",
	"host.boot.id":        "one boot of a machine, as ECS calls it",
	"host.uptime_ns":      "the clock that the kernel's records have",
	"hw.gpu.":             "what NVML and DCGM know of a GPU beyond hw.gpu.task",
	"hw.pci.address":      "the join key of devices",
	"k8s.event.":          "fields of an event of Kubernetes",
	"k8s.node.pressure":   "a node condition in one word",
	"k8s.object.":         "what an event of Kubernetes is about",
	"k8s.workload":        "kind and name of what made a pod",
	"network.link.state":  "of a port of RDMA",
	"network.module":      "the optical module of a port",
	"network.port":        "a port of an adapter, not of TCP",
	"network.rdma.device": "an adapter",
	"process.exit.":       "how a process ended, beyond process.exit.code",
	"process.stack.":      "where a thread stands",
	"process.start_ns":    "with boot and pid, one process, once",
}

func TestOwnNamesBesideThoseOfOpenTelemetryAreDecided(t *testing.T) {
	theirs, first := opentelemetry(t), map[string]bool{}
	for name := range theirs {
		root, _, _ := strings.Cut(name, ".")
		first[root] = true
	}
	found := map[string]bool{}
	for name := range collect(t) {
		root, _, _ := strings.Cut(name, ".")
		if _, has := theirs[name]; has || !first[root] {
			continue
		}
		reason := ""
		for prefix := range ownNames {
			if strings.HasPrefix(name, prefix) {
				reason, found[prefix] = ownNames[prefix], true
			}
		}
		require.NotEmpty(t, reason, "%s: OpenTelemetry has names in %s.*: use theirs, or say in ownNames why there is none", name, root)
	}
	for prefix := range ownNames {
		require.True(t, found[prefix], "%s: nothing is called so any more", prefix)
	}
}

func TestTheRegistryIsCurrent(t *testing.T) {
	theirs := opentelemetry(t)
	v, err := CollectVocabulary(os.DirFS(root))
	require.NoError(t, err)
	text, err := Registry(collect(t), v.Events, func(name string) bool { _, has := theirs[name]; return has })
	require.NoError(t, err)
	current(t, RegistryFile, text)
}

// TestTheRegistryHoldsTogether: each reference is declared once, here or by OpenTelemetry,
// and each attribute has a type, a stability and a brief.
func TestTheRegistryHoldsTogether(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, RegistryFile))
	require.NoError(t, err)
	var registry struct {
		Groups []registryGroup `yaml:"groups"`
	}
	require.NoError(t, yaml.Unmarshal(text, &registry))
	theirs, declared, groups := opentelemetry(t), map[string]bool{}, map[string]bool{}
	for _, g := range registry.Groups {
		require.False(t, groups[g.ID], "%s twice", g.ID)
		groups[g.ID] = true
		for _, a := range g.Attributes {
			if a.ID == "" {
				continue
			}
			require.False(t, declared[a.ID], "%s twice", a.ID)
			require.NotContains(t, theirs, a.ID, "it is OpenTelemetry's")
			require.NotEmpty(t, a.Type, a.ID)
			require.NotEmpty(t, a.Brief, a.ID)
			require.Equal(t, development, a.Stability, a.ID)
			declared[a.ID] = true
		}
	}
	for _, g := range registry.Groups {
		for _, a := range g.Attributes {
			if a.Ref != "" && theirs[a.Ref] == "" {
				require.True(t, declared[a.Ref], "%s refers to %s, which nobody declares", g.ID, a.Ref)
			}
		}
	}
}
