package attributes

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// conventions is the version of OpenTelemetry's semantic conventions that ours are compared
// with: the newest that the module go.opentelemetry.io/otel of this build has. The names of
// gen_ai and mcp left it with v1.42.0, for github.com/open-telemetry/semantic-conventions-genai,
// and v1.41.0 has them last.
const (
	conventions     = "v1.43.0"
	conventionsOfAI = "v1.41.0"
)

// owned are namespaces of OpenTelemetry of which we have names: with a list that lacks one
// nothing would be compared.
var owned = []string{"code", "container", "gen_ai", "host", "hw", "k8s", "network", "process", "system"}

// conventionsIn is where the module has what it generates of a version of the conventions.
func conventionsIn(t *testing.T, version string) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "go.opentelemetry.io/otel").Output()
	require.NoError(t, err)
	return filepath.Join(strings.TrimSpace(string(dir)), "semconv", version)
}

// opentelemetry reads the attributes of the conventions, with their types, from the
// constants that OpenTelemetry generates of them.
func opentelemetry(t *testing.T) map[string]string {
	t.Helper()
	one := regexp.MustCompile(`// Type: ([^\n]*)\n(?:\s*//[^\n]*\n)*\s*\w+Key = attribute\.Key\("([^"]+)"\)`)
	all, roots := map[string]string{}, map[string]bool{}
	for _, version := range []string{conventionsOfAI, conventions} {
		code, err := os.ReadFile(filepath.Join(conventionsIn(t, version), "attribute_group.go"))
		require.NoError(t, err)
		for _, m := range one.FindAllStringSubmatch(string(code), -1) {
			if root, _, _ := strings.Cut(m[2], "."); version == conventions || root == "gen_ai" || root == "mcp" {
				all[m[2]], roots[root] = m[1], true
			}
		}
	}
	require.Greater(t, len(all), 600)
	for _, root := range owned {
		require.True(t, roots[root], "nothing is compared with OpenTelemetry's names in %s.*", root)
	}
	return all
}

// metricsOfOpenTelemetry are the names of the metrics of the conventions.
func metricsOfOpenTelemetry(t *testing.T) map[string]bool {
	t.Helper()
	name := regexp.MustCompile(`Name\(\) string \{\n\treturn "([^"]+)"`)
	all := map[string]bool{}
	for version, packages := range map[string]string{conventions: "*conv", conventionsOfAI: "genaiconv"} {
		files, err := filepath.Glob(filepath.Join(conventionsIn(t, version), packages, "metric.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files, version)
		for _, file := range files {
			code, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range name.FindAllStringSubmatch(string(code), -1) {
				all[m[1]] = true
			}
		}
	}
	for _, known := range []string{"hw.energy", "process.cpu.time", "gen_ai.client.operation.duration"} {
		require.True(t, all[known], known)
	}
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

// ownNames are names of ours, of attributes, metrics and events, or what they begin with, where
// OpenTelemetry has others of the same first name: it has none for this. A new one is a
// decision: is there really none?
var ownNames = map[string]string{
	"device":              "a label of node_exporter",
	"gen_ai.training.":    "a training job, its ranks and steps; gen_ai has clients, agents and servers of models alone",
	"host.boot":           "one boot of a machine, as ECS calls it",
	"host.lockup":         "the kernel says that a CPU or a task is stuck",
	"host.memory_error":   "the kernel says that memory failed",
	"host.uptime_ns":      "the clock that the kernel's records have",
	"hw.gpu.":             "what NVML and DCGM know of a GPU beyond hw.gpu.task and the metrics of hw",
	"hw.pci.address":      "the join key of devices",
	"hw.power.limit":      "of a GPU, as NVML has it",
	"k8s.event":           "an event of Kubernetes and its fields",
	"k8s.node.pressure":   "a node condition in one word",
	"k8s.object.":         "what an event of Kubernetes is about",
	"k8s.workload":        "kind and name of what made a pod",
	"network.link":        "of a port of RDMA",
	"network.module":      "the optical module of a port",
	"network.port":        "a port of an adapter, not of TCP",
	"network.rdma.device": "an adapter",
	"network.rdma.port":   "a port of an adapter, not of TCP",
	"process.asked":       "a process that was asked to end, and lives",
	"process.exception":   "an exception that a process displayed",
	"process.exit":        "that and how a process ended, beyond process.exit.code",
	"process.gone":        "a process that ended while nobody watched",
	"process.segfault":    "the kernel says that a process touched memory it has not",
	"process.stack":       "where a thread stands",
	"process.start":       "that a process of a rank began; with boot and pid, process.start_ns is one process, once",
}

// decided fails for names that stand in a namespace of OpenTelemetry, and neither there nor in
// ownNames. It notes which of these are used.
func decided(names iter.Seq[string], theirs func(name string) bool, namespaces, used map[string]bool) error {
	var errs []error
	for name := range names {
		root, _, _ := strings.Cut(name, ".")
		if theirs(name) || !namespaces[root] {
			continue
		}
		reason := ""
		for prefix := range ownNames {
			if strings.HasPrefix(name, prefix) {
				reason, used[prefix] = ownNames[prefix], true
			}
		}
		if reason == "" {
			errs = append(errs, fmt.Errorf("%s: OpenTelemetry has names in %s.*: use theirs, or say in ownNames why there is none", name, root))
		}
	}
	return errors.Join(errs...)
}

func TestOwnNamesBesideThoseOfOpenTelemetryAreDecided(t *testing.T) {
	theirs, metrics, used := opentelemetry(t), metricsOfOpenTelemetry(t), map[string]bool{}
	namespaces := map[string]bool{}
	for name := range theirs {
		root, _, _ := strings.Cut(name, ".")
		namespaces[root] = true
	}
	isAttribute := func(name string) bool { return theirs[name] != "" }
	isMetric := func(name string) bool { return metrics[name] }
	known, err := CollectVocabulary(os.DirFS(root))
	require.NoError(t, err)
	require.NoError(t, decided(maps.Keys(collect(t)), isAttribute, namespaces, used))
	require.NoError(t, decided(maps.Keys(known.Metrics), isMetric, namespaces, used))
	require.NoError(t, decided(maps.Keys(known.Events), func(string) bool { return false }, namespaces, used))
	for prefix := range ownNames {
		require.True(t, used[prefix], "%s: nothing is called so any more", prefix)
	}

	// A name in each namespace that nobody has fails, also where one of theirs is only its beginning.
	for _, one := range owned {
		require.ErrorContains(t, decided(slices.Values([]string{one + ".made_up"}), isAttribute, namespaces, used), one+".made_up: OpenTelemetry has names in "+one)
	}
	for _, name := range []string{"gen_ai.request.model.size", "process.command_lines", "host.names"} {
		require.Error(t, decided(slices.Values([]string{name}), isAttribute, namespaces, used), name)
	}
	require.NoError(t, decided(slices.Values([]string{"gen_ai.request.model", "tracecore.made_up", "gen_ai.training.step"}), isAttribute, namespaces, used))
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
