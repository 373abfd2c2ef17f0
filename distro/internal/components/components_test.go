package components

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"gopkg.in/yaml.v3"
)

// root is the repository's root, where the builder runs.
const root = "../../.."

// module is one entry of the builder's list.
type module struct {
	GoMod  string `yaml:"gomod"`
	Import string `yaml:"import"`
	Path   string `yaml:"path"`
}

// importPath is where the builder imports the component from.
func (m module) importPath() string {
	if m.Import != "" {
		return m.Import
	}
	path, _, _ := strings.Cut(m.GoMod, " ")
	return path
}

type manifest struct {
	Dist       map[string]any `yaml:"dist"`
	Extensions []module       `yaml:"extensions"`
	Receivers  []module       `yaml:"receivers"`
	Processors []module       `yaml:"processors"`
	Exporters  []module       `yaml:"exporters"`
	Connectors []module       `yaml:"connectors"`
	Providers  []module       `yaml:"providers"`
	Telemetry  module         `yaml:"telemetry"`
}

func (m manifest) all() []module {
	all := []module{m.Telemetry}
	for _, list := range [][]module{m.Extensions, m.Receivers, m.Processors, m.Exporters, m.Connectors, m.Providers} {
		all = append(all, list...)
	}
	return all
}

func readManifest(t *testing.T) manifest {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "distro/builder-config.yaml"))
	require.NoError(t, err)
	var m manifest
	require.NoError(t, yaml.Unmarshal(text, &m))
	return m
}

func listed(list []module) []string {
	paths := make([]string, len(list))
	for i, m := range list {
		paths[i] = m.importPath()
	}
	return paths
}

func compiled[F component.Factory](parts []part[F]) []string {
	paths := make([]string, len(parts))
	for i, p := range parts {
		paths[i] = p.importPath
	}
	return paths
}

func TestBuilderListsWhatTheBinaryHas(t *testing.T) {
	m := readManifest(t)
	require.ElementsMatch(t, compiled(extensions()), listed(m.Extensions), "extensions")
	require.ElementsMatch(t, compiled(receivers(nil)), listed(m.Receivers), "receivers")
	require.ElementsMatch(t, compiled(processors()), listed(m.Processors), "processors")
	require.ElementsMatch(t, compiled(exporters()), listed(m.Exporters), "exporters")
	require.ElementsMatch(t, compiled(connectors()), listed(m.Connectors), "connectors")
	var providers []string
	for path := range Providers() {
		providers = append(providers, path)
	}
	require.ElementsMatch(t, providers, listed(m.Providers), "providers")
}

func TestBuilderVersionsEqualGoMod(t *testing.T) {
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	versions := map[string]string{}
	for line := range strings.Lines(string(gomod)) {
		if fields := strings.Fields(line); len(fields) >= 2 {
			versions[fields[0]] = fields[1]
		}
	}
	for _, m := range readManifest(t).all() {
		path, version, _ := strings.Cut(m.GoMod, " ")
		if strings.HasPrefix(path+"/", own) {
			require.Equal(t, ".", m.Path, "our own components come from this tree")
			continue
		}
		require.Equal(t, versions[path], version, "%s: write go.mod's version into distro/builder-config.yaml", path)
	}
}

// TestBuilderAcceptsTheManifest runs the collector builder on the file as it is, apart
// from where it writes: what it builds has the components of the agent.
func TestBuilderAcceptsTheManifest(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the builder, which compiles a second binary: about 30 s")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command here: ", err)
	}
	m := readManifest(t)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "bin"), 0o755))
	out, err := os.MkdirTemp(filepath.Join(root, "bin"), "built-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(out) })
	text, err := os.ReadFile(filepath.Join(root, "distro/builder-config.yaml"))
	require.NoError(t, err)
	elsewhere := strings.Replace(string(text), m.Dist["output_path"].(string), "bin/"+filepath.Base(out), 1)
	config := filepath.Join(t.TempDir(), "builder-config.yaml")
	require.NoError(t, os.WriteFile(config, []byte(elsewhere), 0o600))

	goCommand(t, "tool", "-modfile=tools/go.mod", "builder", "--config", config)
	text, err = exec.Command(filepath.Join(out, m.Dist["name"].(string)), "components").Output()
	require.NoError(t, err)
	var built listing
	require.NoError(t, yaml.Unmarshal(text, &built))
	require.ElementsMatch(t, types(extensions()), names(built.Extensions), "extensions")
	require.ElementsMatch(t, types(receivers(nil)), names(built.Receivers), "receivers")
	require.ElementsMatch(t, types(processors()), names(built.Processors), "processors")
	require.ElementsMatch(t, types(exporters()), names(built.Exporters), "exporters")
	require.ElementsMatch(t, types(connectors()), names(built.Connectors), "connectors")
	require.Len(t, built.Providers, len(Providers()))
}

// listing is what the `components` command of a collector prints.
type listing struct {
	Extensions, Receivers, Processors, Exporters, Connectors, Providers []struct{ Name string }
}

func names(list []struct{ Name string }) []string {
	out := make([]string, len(list))
	for i, c := range list {
		out[i] = c.Name
	}
	return out
}

func types[F component.Factory](parts []part[F]) []string {
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = p.factory.Type().String()
	}
	return out
}

func goCommand(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "go %s:\n%s", strings.Join(args, " "), out)
}

// TestWhatOthersSayIsMarked: a receiver that has no events of its own hands on what
// others say, and is wrapped.
func TestWhatOthersSayIsMarked(t *testing.T) {
	for _, p := range receivers(nil) {
		folder, ours := strings.CutPrefix(p.importPath, own)
		require.True(t, ours, "%s: wrap it in distro/receivers", p.importPath)
		text, err := os.ReadFile(filepath.Join(root, folder, "metadata.yaml"))
		if err == nil && strings.Contains(string(text), "\nevents:\n") {
			continue
		}
		text, err = os.ReadFile(filepath.Join(root, folder, "factory.go"))
		require.NoError(t, err)
		require.Contains(t, string(text), "return ingress.Wrap(", p.importPath)
	}
}
