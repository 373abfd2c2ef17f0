package charts_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/gputest"
)

// multiarch is where Debian and Ubuntu have libraries.
const multiarch = "lib/x86_64-linux-gnu"

// gpuNode renders the chart with settings and makes a node for its agent: no GPU,
// no libraries, a glibc that is not the image's.
func gpuNode(t *testing.T, i image, root string, settings ...string) (node, any) {
	t.Helper()
	// Metrics on standard output; no probes: another test has them all.
	settings = append(settings, "gpu.enabled=true", "config.service.pipelines.logs.receivers={gpu}", "config.service.pipelines.metrics.receivers={gpu}",
		"config.exporters.debug.verbosity=detailed", "config.exporters.debug.use_internal_logger=false")
	var args []string
	for _, setting := range settings {
		args = append(args, "--set", setting)
	}
	rendered := render(t, args...)
	usr := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(usr, multiarch), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(usr, multiarch, "libc.so.6"), []byte("another node's glibc"), 0o755))
	return node{image: i, root: root, config: collectorConfigs(t, rendered)["agent"], state: t.TempDir(), folders: map[string]string{"usr": usr}}, pod(t, rendered)
}

// scripted shares a script with a container: its folder, and the variable that
// names it.
func (n *node) scripted(t *testing.T, spec any, variable string) {
	t.Helper()
	setVariable(t, spec, variable)
	n.shared = filepath.Dir(os.Getenv(variable))
}

// shellRoot is a container's root with a shell and cp.
func shellRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	shell, err := os.ReadFile("/bin/busybox")
	require.NoError(t, err, "run `make deps`")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr", multiarch), 0o755))
	for _, name := range []string{"sh", "cp"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, "usr/bin", name), shell, 0o755))
	}
	return root
}

// setVariable gives the agent a variable of this process.
func setVariable(t *testing.T, spec any, name string) {
	t.Helper()
	require.NotEmpty(t, os.Getenv(name))
	container := at(t, spec, "containers", 0).(map[string]any)
	container["env"] = append(container["env"].([]any), map[string]any{"name": name, "value": os.Getenv(name)})
}

// TestTheImageReadsGPUs runs agents from the image for GPUs, with stand-ins for
// NVIDIA's libraries where they are on a node.
func TestTheImageReadsGPUs(t *testing.T) {
	requireContainers(t)
	i := readImage(t, "tracecore-gpu.tar")
	root := i.root(t)

	t.Run("a node without GPUs", func(t *testing.T) {
		for _, source := range []string{"auto", "nvml", "dcgm"} {
			n, spec := gpuNode(t, i, root, "gpu.source="+source)
			agent := n.run(t, spec, at(t, spec, "containers", 0))
			agent.healthy(t)
			agent.answers(t, "http://127.0.0.1:8888/metrics", `otelcol_receiver_gpu_source{`)
			agent.answers(t, "http://127.0.0.1:8888/metrics", `state="library_absent"} 1`)
		}
	})
	host := gputest.New(t)
	gpus, engine := host.NVML, host.DCGM
	t.Run("NVIDIA's container runtime", func(t *testing.T) {
		gpus.Script("gpus 2")
		n, spec := gpuNode(t, i, i.root(t), "gpu.source=nvml", "gpu.runtimeClassName=nvidia", "security.privileged=false")
		require.Equal(t, "nvidia", at(t, spec, "runtimeClassName"))
		require.Subset(t, environment(t, at(t, spec, "containers", 0)), []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility"})
		n.driver = filepath.Join(t.TempDir(), "libnvidia-ml.so.580.65.06")
		gpus.Build(n.driver, "-Wl,-soname,libnvidia-ml.so.1")
		n.scripted(t, spec, "TRACECORE_NVML_SCRIPT")
		agent := n.run(t, spec, at(t, spec, "containers", 0))
		agent.says(t, "Name: hw.gpu.utilization")
		agent.says(t, "gpu.id: Str(0000:2a:00.0)")
		gpus.Script("gpus 2", "event 1 1 8 79")
		agent.says(t, "GPU 0000:2a:00.0 on node-1 has fallen off the bus")
	})
	t.Run("the node's own driver", func(t *testing.T) {
		gpus.Script()
		n, spec := gpuNode(t, i, root, "gpu.source=auto")
		gpus.Build(filepath.Join(n.folders["usr"], multiarch, "libnvidia-ml.so.1"))
		n.scripted(t, spec, "TRACECORE_NVML_SCRIPT")
		agent := n.run(t, spec, at(t, spec, "containers", 0))
		agent.says(t, "Name: hw.gpu.utilization")
	})
	t.Run("a host engine, its library in an image", func(t *testing.T) {
		t.Setenv("TRACECORE_DCGM_ADDRESS", "engine.test:5555")
		n, spec := gpuNode(t, i, root, "gpu.source=dcgm", "gpu.dcgm.address=engine.test:5555", "gpu.dcgm.libraryImage=dcgm.test/dcgm:4")
		n.folders["libdcgm"] = t.TempDir()
		require.NoError(t, os.Chmod(n.folders["libdcgm"], 0o777)) // as a kubelet makes an emptyDir
		theirs := n
		theirs.root = shellRoot(t)
		copying := theirs.run(t, spec, at(t, spec, "initContainers", 0))
		require.Zero(t, copying.wait(t), copying.text)
		require.Contains(t, copying.text.String(), "no libdcgm.so.4 in this image")

		engine.Build(filepath.Join(theirs.root, "usr", multiarch, "libdcgm.so.4"))
		copying = theirs.run(t, spec, at(t, spec, "initContainers", 0))
		require.Zero(t, copying.wait(t), copying.text)
		n.scripted(t, spec, "TRACECORE_DCGM_SCRIPT")
		setVariable(t, spec, "TRACECORE_DCGM_ADDRESS")
		agent := n.run(t, spec, at(t, spec, "containers", 0))
		agent.says(t, "Name: hw.gpu.sm.occupancy")
	})
	t.Run("a host engine", func(t *testing.T) {
		t.Setenv("TRACECORE_DCGM_ADDRESS", "192.0.2.1:5555")
		n, spec := gpuNode(t, i, root)
		engine.Build(filepath.Join(n.folders["usr"], multiarch, "libdcgm.so.4"))
		n.scripted(t, spec, "TRACECORE_DCGM_SCRIPT")
		setVariable(t, spec, "TRACECORE_DCGM_ADDRESS")
		agent := n.run(t, spec, at(t, spec, "containers", 0))
		agent.says(t, "Name: hw.gpu.sm.occupancy")
	})
}

// TestTheImageForGPUsIsTheOtherWithMore: the same layers, and over them the
// programs of `make build` and the C library with its license.
func TestTheImageForGPUsIsTheOtherWithMore(t *testing.T) {
	requireContainers(t)
	plain, gpu := readImage(t, "tracecore.tar"), readImage(t, "tracecore-gpu.tar")
	require.Equal(t, plain.layers, gpu.layers[:len(plain.layers)])
	require.Equal(t, plain.config.Config.Entrypoint, gpu.config.Config.Entrypoint)
	require.Equal(t, plain.config.Config.User, gpu.config.Config.User)
	files, _ := gpu.files(t)
	for _, name := range []string{"tracecore", "tracecore-gpu"} {
		built, err := os.ReadFile(tool(t, "bin/"+name))
		require.NoError(t, err)
		require.True(t, bytes.Equal(built, files["usr/bin/"+name]), "bin/%s and the image's differ: run `make build image`", name)
	}
	require.Contains(t, string(files["usr/share/doc/libc6/copyright"]), "GNU Lesser General Public")
	require.Contains(t, string(files["usr/share/common-licenses/LGPL-2.1"]), "Version 2.1, February 1999")
	out, err := exec.Command("chroot", gpu.root(t), "/usr/lib64/ld-linux-x86-64.so.2", "--verify", "/usr/bin/tracecore-gpu").CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestSourcesThatCannotBeReadAreRefused(t *testing.T) {
	for settings, says := range map[string]string{
		"gpu.enabled=true,gpu.dcgm.address=embedded": "gpu.dcgm.address: embedded is an engine that always answers: set gpu.source to dcgm",
		"gpu.dcgm.address=localhost":                 "/gpu/dcgm/address",
		"gpu.source=rocm":                            "/gpu/source",
		"gpu.nvml.enabled=true":                      "'nvml'", // as it was before
	} {
		out, err := helm(t, "--set", settings)
		require.Error(t, err, settings)
		require.Contains(t, out, says)
	}
}
