package charts_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

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
	require.ElementsMatch(t, []string{"/sys/kernel", "/sys/fs/cgroup", "/sys/fs/bpf", "/var/lib/tracecore"}, hostPaths(t, spec))
	require.Equal(t, []any{map[string]any{"operator": "Exists"}}, at(t, spec, "tolerations"))
}

// Pinned or not, both probes agree; what an agent pinned is removed where it is switched off.
func TestPinIsOneSwitchForBothProbes(t *testing.T) {
	off := config(t, "agent")
	require.NotContains(t, at(t, off, "extensions", "identity"), "pin")
	require.NotContains(t, at(t, off, "receivers", "oomkill"), "pin")
	on := config(t, "agent", "--set", "pin.enabled=true")
	require.Equal(t, "/sys/fs/bpf/tracecore", at(t, on, "extensions", "identity", "pin"))
	require.Equal(t, "/sys/fs/bpf/tracecore", at(t, on, "receivers", "oomkill", "pin"))
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
	some := pod(t, render(t, "--set", "bpfCheck.required=true,bpfCheck.patterns={gpu_lost,fuse_stall}"))
	require.Equal(t, []any{"bpf-check", "--require=gpu_lost,fuse_stall"}, at(t, some, "initContainers", 0, "args"))
	require.Nil(t, at(t, pod(t, render(t, "--set", "bpfCheck.enabled=false")), "initContainers"))
}

func TestPodIsReplacedWhenItsConfigurationChanges(t *testing.T) {
	sum := func(args ...string) any {
		return at(t, objects(t, render(t, args...))["DaemonSet/agent"], "spec", "template", "metadata", "annotations", "checksum/config")
	}
	require.Equal(t, sum(), sum())
	require.NotEqual(t, sum(), sum("--set", "logLevel=info"))
}

func TestOverlayMergesAndReplaces(t *testing.T) {
	c := config(t, "agent", "--values", "tracecore/ci/overlay-values.yaml")
	require.Contains(t, at(t, c, "receivers"), "hostmetrics")
	require.Contains(t, at(t, c, "receivers"), "kernelevents")
	require.Equal(t, []any{"otlp", "hostmetrics"}, at(t, c, "service", "pipelines", "metrics", "receivers"))
	require.Equal(t, []any{"memory_limiter", "patterndetector"}, at(t, c, "service", "pipelines", "metrics", "processors"))
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

// TestUprobesAreAskedForWhereTheyAreAllowed: an agent that may put no breakpoints does
// not run the receiver that needs them, and nobody is alarmed about it.
func TestUprobesAreAskedForWhereTheyAreAllowed(t *testing.T) {
	for settings, runs := range map[string]bool{
		"security.privileged=true":                                                  true,
		"security.privileged=false":                                                 false,
		"security.privileged=false,security.capabilities={BPF,SYS_ADMIN}":           true,
		"security.privileged=false,security.capabilities={ALL}":                     true,
		"security.privileged=true,security.capabilities={BPF},gateway.enabled=true": true,
	} {
		c := config(t, "agent", "--set", settings)
		logs := at(t, c, "service", "pipelines", "logs", "receivers")
		for _, receiver := range []string{"cudaoom", "ncclcall", "pyexception"} {
			if !runs {
				require.NotContains(t, at(t, c, "receivers"), receiver, settings)
				require.NotContains(t, logs, receiver, settings)
				continue
			}
			require.Subset(t, at(t, c, "receivers", receiver), map[string]any{"identity": "identity", "error_mode": "ignore"}, settings)
			require.Contains(t, logs, receiver, settings)
		}
	}
}

// TestNamedCapabilitiesAreEnough runs bpf-check with the capabilities of an agent
// that is not privileged: every probe that works for root works, but for those whose
// uprobes ask for SYS_ADMIN.
func TestNamedCapabilitiesAreEnough(t *testing.T) {
	binary := tool(t, "bin/tracecore")
	hosttest.Require(t, "it loads probes")
	security := at(t, pod(t, render(t, "--set", "security.privileged=false")), "containers", 0, "securityContext")
	require.Equal(t, false, at(t, security, "privileged"))
	require.Equal(t, []any{"ALL"}, at(t, security, "capabilities", "drop"))
	bound := "--bounding-set=-all"
	for _, capability := range at(t, security, "capabilities", "add").([]any) {
		bound += ",+" + strings.ToLower(capability.(string))
	}
	check := []string{binary, "bpf-check", "-o", "json", "--report-only"}
	want := hooks(t, check...)
	require.NotEmpty(t, want)
	require.Equal(t, want, hooks(t, append([]string{"setpriv", bound + ",+sys_admin", "--inh-caps=-all", "--"}, check...)...))
	delete(want, "cudaoom")
	delete(want, "ncclcall")
	delete(want, "pyexception")
	got := hooks(t, append([]string{"setpriv", bound, "--inh-caps=-all", "--"}, check...)...)
	delete(got, "cudaoom") // an older kernel asks for PERFMON alone
	delete(got, "ncclcall")
	delete(got, "pyexception")
	require.Equal(t, want, got)
	require.NotEqual(t, want, hooks(t, append([]string{"setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"}, check...)...))
}

// hooks are the hooks that the probes of a bpf-check got.
func hooks(t *testing.T, command ...string) map[string]string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).Output()
	require.NoError(t, err)
	var report struct {
		Probes []struct{ Probe, Rung string }
	}
	require.NoError(t, json.Unmarshal(out, &report))
	got := map[string]string{}
	for _, probe := range report.Probes {
		if probe.Rung != "" {
			got[probe.Probe] = probe.Rung
		}
	}
	return got
}
