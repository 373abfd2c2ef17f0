package recipes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// podUID is the uid of the nth pod of a test.
func podUID(n int) string { return fmt.Sprintf("0f8e4c1a-6c39-4f5e-9d0e-%012d", n) }

// criLines are lines as containerd and CRI-O write them (the kubelet's
// pkg/kubelet/kuberuntime/logs: time, stream, P for a part of a line or F for its
// end, text). A long line comes in two parts.
func criLines(text string) string {
	var b strings.Builder
	line := func(tag, s string) {
		fmt.Fprintf(&b, "%s stderr %s %s\n", time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z"), tag, s)
	}
	for l := range strings.Lines(text) {
		l = strings.TrimSuffix(l, "\n")
		const part = 120
		if len(l) > part {
			line("P", l[:part])
			l = l[part:]
		}
		line("F", l)
	}
	return b.String()
}

// writePodLog writes what a container said where the kubelet keeps it.
func writePodLog(t *testing.T, root string, pod int, text string) {
	t.Helper()
	dir := filepath.Join(root, "default_train-"+fmt.Sprint(pod)+"_"+podUID(pod), "trainer")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "0.log"), []byte(criLines(text)), 0o600))
}

func produced(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "logs", name))
	require.NoError(t, err)
	return string(text)
}

// ofRank puts before each line what torch.distributed does since PyTorch 2.3.
func ofRank(rank, text string) string {
	return "[rank" + rank + "]: " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n[rank"+rank+"]: ") + "\n"
}

// startOnPods runs the recipe on a folder of pods that have spoken already.
func startOnPods(t *testing.T, root string) agent {
	t.Helper()
	return start(t, "container-logs.yaml",
		"--config=yaml:service::pipelines::logs::receivers: [forward/recipes]",
		"--set=receivers.filelog/containers.include=["+root+"/*/*/*.log]",
		"--set=receivers.filelog/containers.start_at=beginning",
		"--set=receivers.filelog/containers.poll_interval=10ms")
}

func TestContainerLogsLeadToCUDAOOM(t *testing.T) {
	tests := []struct {
		file            string
		confidence      verdict.Confidence
		headline, shows string
		culprit         map[string]string
	}{
		{
			"pytorch-2.1-other-process.txt", verdict.Full, "pid 1246069 holds 605028352 bytes",
			"144703488 bytes asked, 8849981 bytes free", map[string]string{"holder": "1246069", "gpu_index": "0"},
		},
		{
			"pytorch-2.1-own-process-in-container.txt", verdict.Full, "is fragmented",
			"520093696 bytes asked while 246478274 bytes were free and 346470481 bytes", map[string]string{"holder": "", "gpu_index": "0"},
		},
		{"pytorch-2.5-exhausted.txt", verdict.Full, "is used up", "24459838750 bytes asked, 13668733419 bytes free", nil},
		{"pytorch-2.5-rank-prefix.txt", verdict.Full, "rank 0 on node-7 is fragmented", "2136746229 bytes asked", map[string]string{"rank": "0"}},
		{"pytorch-2.9-memory-fraction-rocm.txt", verdict.Full, "is fragmented", "2097152 bytes asked while 3355443 bytes were free", nil},
		{"pytorch-1.8.txt", verdict.Full, "is fragmented", "3253437726 bytes were free and 511883345 bytes were held unused", nil},
		{"nccl-cuda-failure.txt", verdict.Partial, "GPU out of memory", "an allocation of bytes failed", nil},
	}
	root := t.TempDir()
	for pod, tt := range tests {
		writePodLog(t, root, pod, produced(t, tt.file))
	}
	a := startOnPods(t, root)
	for pod, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			v := a.await(t, tt.file, about("cuda_oom", "pod", podUID(pod)))
			require.Equal(t, tt.confidence, v.Confidence)
			require.Contains(t, v.Headline, tt.headline)
			require.Contains(t, v.Evidence[0].Shows, tt.shows)
			require.Equal(t, host, v.Culprit["host"])
			for key, want := range tt.culprit {
				require.Equal(t, want, v.Culprit[key], key)
			}
		})
	}
}

func TestContainerLogsLeadToDataloaderHang(t *testing.T) {
	tests := []struct{ file, headline, worker string }{
		{"pytorch-1.13.1-worker-killed.txt", "failed: RuntimeError", "17586"},
		{"pytorch-1.13.1-worker-bus-error.txt", "failed: RuntimeError", "17205"},
		{"pytorch-1.13.1-worker-segfault.txt", "failed: RuntimeError", "14604"},
		{"pytorch-1.13.1-dataset-error.txt", "failed: FileNotFoundError", ""},
		{"pytorch-1.13.1-timeout.txt", "failed: RuntimeError", ""},
	}
	root := t.TempDir()
	for rank, tt := range tests {
		writePodLog(t, root, rank, ofRank(fmt.Sprint(rank), produced(t, tt.file)))
	}
	a := startOnPods(t, root)
	for rank, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			v := a.await(t, tt.file, about("dataloader_hang", "rank", fmt.Sprint(rank)))
			require.Equal(t, verdict.Partial, v.Confidence, "nothing says that the rank stands still")
			require.Contains(t, v.Headline, tt.headline)
			require.Equal(t, tt.worker, v.Culprit["worker_pid"])
			require.Equal(t, podUID(rank), v.Culprit["pod"])
			require.Equal(t, "default", v.Culprit["namespace"])
			require.Equal(t, fmt.Sprint("train-", rank), v.Culprit["pod_name"])
			require.Equal(t, host, v.Culprit["host"])
		})
	}
}

// Lines that only talk about it, before one that means it: nothing but that one
// is said.
func TestContainerLogsThatMentionMemoryAreLeftOut(t *testing.T) {
	root := t.TempDir()
	writePodLog(t, root, 1, "INFO never ran out of memory\nDataLoader workers: 8\nCUDA out of memory? set a smaller batch\n"+
		"[rank5]: Tried to allocate 2.00 GiB\n"+produced(t, "pytorch-2.5-exhausted.txt"))
	a := startOnPods(t, root)
	v := a.await(t, "the one that means it", about("cuda_oom", "pod", podUID(1)))
	require.Equal(t, verdict.Full, v.Confidence)
	require.Len(t, v.Evidence, 1)
	require.Len(t, a.verdicts(t), 1)
}
