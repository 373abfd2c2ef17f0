package recipes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

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
		"--set=receivers.file_log/containers.include=["+root+"/*/*/*.log]",
		"--set=receivers.file_log/containers.start_at=beginning",
		"--set=receivers.file_log/containers.poll_interval=10ms")
}

func TestContainerLogsLeadToCUDAOOM(t *testing.T) {
	tests := []struct {
		file            string
		confidence      verdict.Confidence
		headline, shows string
		culprit         map[string]string
	}{
		{
			"pytorch-2.1-other-process.txt", verdict.Partial, "pid 1246069 holds 577 MiB",
			"138 MiB were refused; 8.4 MiB free", map[string]string{"holder": "1246069", "gpu_index": "0"},
		},
		{
			"pytorch-2.1-own-process-in-container.txt", verdict.Full, "is fragmented",
			"496 MiB asked while 235.1 MiB were free and 330.4 MiB", map[string]string{"holder": "", "gpu_index": "0"},
		},
		{"pytorch-2.5-exhausted.txt", verdict.Full, "is used up", "22.8 GiB asked, 12.7 GiB free", nil},
		{"pytorch-2.5-rank-prefix.txt", verdict.Full, "rank 0 on node-7 is fragmented", "2.0 GiB asked", map[string]string{"rank": "0"}},
		{"pytorch-2.9-memory-fraction-rocm.txt", verdict.Partial, "refused", "2 MiB asked and refused, though 3.2 MiB were free", nil},
		{"pytorch-1.8.txt", verdict.Partial, "refused", "though 3.0 GiB were free", nil},
		{"nccl-cuda-failure.txt", verdict.Partial, "GPU out of memory", "an allocation failed", nil},
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
		{"pytorch-1.13.1-worker-killed.txt", "failed: worker exit (RuntimeError)", "17586"},
		{"pytorch-1.13.1-worker-bus-error.txt", "failed: worker exit (RuntimeError)", "17205"},
		{"pytorch-1.13.1-worker-segfault.txt", "failed: worker exit (RuntimeError)", "14604"},
		{"pytorch-1.13.1-dataset-error.txt", "failed: FileNotFoundError", ""},
		{"pytorch-1.13.1-timeout.txt", "failed: timeout (RuntimeError)", ""},
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

// dataErrors are the last lines of tracebacks of readers of data, each by itself a verdict.
var dataErrors = []struct{ line, headline string }{
	{`botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the GetObject operation (reached max retries: 4): Please reduce your request rate.`, "cannot read its data: object store throttled (botocore.exceptions.ClientError)"},
	{`botocore.exceptions.ClientError: An error occurred (503) when calling the HeadObject operation (reached max retries: 4): Service Unavailable`, "cannot read its data: object store throttled"},
	{`google.api_core.exceptions.ServiceUnavailable: 503 GET https://storage.example/o/shard: Service Unavailable`, "cannot read its data: object store throttled"},
	{`gcsfs.retry.HttpError: 503 Server Error`, "cannot read its data: object store throttled (gcsfs.retry.HttpError)"},
	{`RuntimeError: S3 read failed, status code: 503`, "cannot read its data: object store throttled (RuntimeError)"},
	{`OSError: Please reduce your request rate.`, "cannot read its data: object store throttled (OSError)"},
	{`OSError: [Errno 116] Stale file handle: '/data/shard-00042.tar'`, "cannot read its data: stale file handle (OSError)"},
	{`OSError: [Errno 107] Transport endpoint is not connected: '/mnt/s3/shard'`, "cannot read its data: transport endpoint not connected (OSError)"},
	{`ConnectionAbortedError: [Errno 103] Software caused connection abort: '/mnt/s3/shard'`, "cannot read its data: connection aborted (ConnectionAbortedError)"},
	{`OSError: [Errno 5] Input/output error: '/data/shard'`, "cannot read its data: I/O error (OSError)"},
	{`requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/datasets/x`, "cannot read its data: object store throttled (requests.exceptions.HTTPError)"},
	{`google.api_core.exceptions.TooManyRequests: 429 GET https://storage.example/o/y: The object exceeded the rate limit`, "cannot read its data: object store throttled"},
	{`botocore.exceptions.ClientError: An error occurred (ThrottlingException) when calling the GetObject operation: Rate exceeded`, "cannot read its data: object store throttled"},
	{`s3torchconnectorclient._mountpoint_s3_client.S3Exception: Client error: Request throttled`, "cannot read its data: object store throttled"},
	{`azure.core.exceptions.HttpResponseError: The server is busy.`, "cannot read its data: object store throttled"},
	{`azure.core.exceptions.HttpResponseError: Operation failed. ErrorCode:ServerBusy`, "cannot read its data: object store throttled"},
	{`TimeoutError: [Errno 110] Connection timed out: '/data/x'`, "cannot read its data: connection timed out (TimeoutError)"},
	{`OSError: [Errno 112] Host is down: '/data/x'`, "cannot read its data: host is down (OSError)"},
	{`BrokenPipeError: [Errno 108] Cannot send after transport endpoint shutdown: '/lustre/x'`, "cannot read its data: transport endpoint shut down (BrokenPipeError)"},
	{`google.api_core.exceptions.ServiceUnavailable: 503 GET https://storage.googleapis.com/b/o: Try again`, "cannot read its data: object store throttled"},
	{`botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: "https://s3.amazonaws.com/b/k"`, "cannot read its data: object store does not answer (botocore.exceptions.ReadTimeoutError)"},
	{`botocore.exceptions.ConnectTimeoutError: Connect timeout on endpoint URL: "https://bucket.s3.us-east-1.amazonaws.com/k"`, "cannot read its data: object store does not answer"},
	{`botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "http://minio.data:9000/b"`, "cannot read its data: object store does not answer"},
	{`botocore.exceptions.ConnectionClosedError: Connection was closed before we received a valid response from endpoint URL: "https://s3.amazonaws.com/b/k".`, "cannot read its data: object store does not answer"},
	{`fsspec.exceptions.FSTimeoutError`, "cannot read its data: file system timed out (fsspec.exceptions.FSTimeoutError)"},
	{`queue.Empty`, "failed: empty queue (queue.Empty)"},
	{`_queue.Empty`, "failed: empty queue (_queue.Empty)"},
	{`ConnectionResetError: [Errno 104] Connection reset by peer`, "failed: connection reset by peer (ConnectionResetError)"},
	{`RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly`, "failed: worker exit (RuntimeError)"},
	{`RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. `, "failed: worker exit (RuntimeError)"},
	{`RuntimeError: Pin memory thread exited unexpectedly`, "failed: worker exit (RuntimeError)"},
	{`RuntimeError: DataLoader timed out after 30 seconds`, "failed: timeout (RuntimeError)"},
	{`RuntimeError: Caught OSError in DataLoader worker process 3.`, "failed: OSError"},
}

// TestEachErrorOfDataIsTold, with the rank before it and, as PyTorch before 2.3 and other
// launchers leave it out, with the pod alone.
func TestEachErrorOfDataIsTold(t *testing.T) {
	root := t.TempDir()
	for n, tt := range dataErrors {
		writePodLog(t, root, n, ofRank(fmt.Sprint(n), tt.line))
		writePodLog(t, root, 100+n, tt.line+"\n")
	}
	a := startOnPods(t, root)
	for n, tt := range dataErrors {
		t.Run(tt.line, func(t *testing.T) {
			v := a.await(t, "with a rank", about("dataloader_hang", "rank", fmt.Sprint(n)))
			require.Contains(t, v.Headline, tt.headline)
			require.Contains(t, v.Headline, fmt.Sprintf("rank %d ", n))
			v = a.await(t, "without a rank", about("dataloader_hang", "pod", podUID(100+n)))
			require.Contains(t, v.Headline, tt.headline)
			require.Contains(t, v.Headline, fmt.Sprintf("pod default/train-%d ", 100+n))
			require.Equal(t, verdict.Partial, v.Confidence)
		})
	}
}

// TestWordsOfTheTable: what the receiver pyexception knows of an exception, a log says, too.
func TestWordsOfTheTable(t *testing.T) {
	text, err := os.ReadFile("../../receivers/pyexceptionreceiver/testdata/words.yaml")
	require.NoError(t, err)
	var table []struct{ Says, Verdict, Asked, Kind string }
	require.NoError(t, yaml.Unmarshal(text, &table))
	require.NotEmpty(t, table)
	root := t.TempDir()
	for n, row := range table {
		writePodLog(t, root, n, row.Says+"\n")
	}
	a := startOnPods(t, root)
	for n, row := range table {
		t.Run(row.Says, func(t *testing.T) {
			v := a.await(t, row.Says, about(row.Verdict, "pod", podUID(n)))
			require.Contains(t, v.Evidence[0].Shows, row.Asked)
			require.Equal(t, row.Kind, v.Culprit["kind"])
		})
	}
}

// launchers are what they put before a line, and the rank that this says.
var launchers = []struct{ name, prefix, rank string }{
	{"torchrun --tee", "[default3]:", ""},
	{"torchrun --tee, and the rank", "[default3]:[rank11]: ", "11"},
	{"Ray", "(RayTrainWorker pid=4711, ip=10.0.0.3) ", ""},
	{"Ray, in colour", "\x1b[36m(RayTrainWorker pid=4711)\x1b[0m ", ""},
	{"pdsh, DeepSpeed", "node-1: ", ""},
	{"pdsh, DeepSpeed, and the rank", "node-1: [rank12]: ", "12"},
	{"mpirun --tag-output", "[1,13]<stderr>:", "13"},
	{"prterun --output tag", "[prterun-node-1-4711@1,14]<stderr>: ", "14"},
	{"horovodrun", "[15]<stderr>:", "15"},
	{"srun -l", " 3: ", ""},
	{"an exception of a group", "    | ", ""},
	{"a rank's exception of a group", "[rank16]:     | ", "16"},
}

// TestTheLinesOfEachLauncherAreRead, with the rank where the launcher says it.
func TestTheLinesOfEachLauncherAreRead(t *testing.T) {
	root := t.TempDir()
	for n, tt := range launchers {
		writePodLog(t, root, n, tt.prefix+"OSError: [Errno 116] Stale file handle: '/data/x'\n")
	}
	a := startOnPods(t, root)
	for n, tt := range launchers {
		t.Run(tt.name, func(t *testing.T) {
			v := a.await(t, tt.name, about("dataloader_hang", "pod", podUID(n)))
			require.Contains(t, v.Headline, "cannot read its data: stale file handle (OSError)")
			require.Equal(t, tt.rank, v.Culprit["rank"])
		})
	}
}

// outOfMemory are messages of PyTorch's allocator with parts of their numbers.
var outOfMemory = []struct {
	line       string
	confidence verdict.Confidence
	headline   string
}{
	{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 16.00 GiB is free.", verdict.Partial, "refused"},
	{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 1.00 GiB is free.", verdict.Full, "is used up"},
	{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", verdict.Partial, "GPU out of memory"},
	{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB.", verdict.Partial, "GPU out of memory"},
	{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 6.00 GiB is reserved by PyTorch but unallocated.", verdict.Full, "is fragmented"},
	{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 16.00 GiB is free. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 6.00 GiB is reserved by PyTorch but unallocated.", verdict.Partial, "refused"},
	{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. Process 77 has 40.00 GiB memory in use. Including non-PyTorch memory, this process has 3.00 GiB memory in use.", verdict.Partial, "pid 77 holds"},
	{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 1.00 GiB is free. Process 77 has 900.00 MiB memory in use. Process 88 has 70.00 GiB memory in use. Process 99 has 8.00 GiB memory in use. Including non-PyTorch memory, this process has 3.00 GiB memory in use.", verdict.Partial, "pid 88 holds 70 GiB"},
	{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 1.00 GiB is free. Process 77 has 1.00 GiB memory in use. Including non-PyTorch memory, this process has 3.00 GiB memory in use.", verdict.Full, "is used up"},
	{"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.18 GiB total capacity; 60.00 GiB already allocated; 1.00 GiB free; 61.00 GiB reserved in total by PyTorch)", verdict.Full, "is fragmented"},
	{"RuntimeError: CUDA out of memory. Tried to allocate 512 bytes (GPU 0; 79.18 GiB total capacity)", verdict.Partial, "GPU out of memory"},
	{"torch.OutOfMemoryError: CUDA out of memory.", verdict.Partial, "GPU out of memory"},
}

// TestAnOutOfMemoryLineWithAnyOfItsNumbersIsTold.
func TestAnOutOfMemoryLineWithAnyOfItsNumbersIsTold(t *testing.T) {
	root := t.TempDir()
	for n, tt := range outOfMemory {
		writePodLog(t, root, n, tt.line+"\n")
	}
	a := startOnPods(t, root)
	for n, tt := range outOfMemory {
		t.Run(tt.line, func(t *testing.T) {
			v := a.await(t, tt.line, about("cuda_oom", "pod", podUID(n)))
			require.Contains(t, v.Headline, tt.headline)
			require.Equal(t, tt.confidence, v.Confidence)
		})
	}
}

// healthyLines are of servers that answer, and of clients that try again: a level or the name
// of a logger stands where an exception would.
var healthyLines = []string{
	`INFO:     10.0.0.1:50000 - "GET /health HTTP/1.1" 503 Service Unavailable`,
	`ERROR:    10.0.0.1:50000 - "GET /health HTTP/1.1" 503 Service Unavailable`,
	`WARNING:urllib3.connectionpool:Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) after connection broken by 'ProtocolError('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))': /shard`,
	`urllib3.connectionpool: Connection reset by peer`,
	`ERROR:root:upstream answered 503 Service Unavailable`,
	`Error: upstream answered 503 Service Unavailable`,
	`INFO: after SlowDown (1/5)`,
	`WARNING: wandb: Network error (ConnectionError), 503 Server Error: Service Unavailable, entering retry loop.`,
	`wandb: Network error: 503 Server Error: Service Unavailable for url: https://api.wandb.ai/graphql, entering retry loop.`,
	`[rank3]: WARNING: Connection reset by peer`,
	`ConnectionResetError: [Errno 104] Connection reset by peer, retrying in 2 s`,
	`requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://api.wandb.ai/graphql`,
	`openai.RateLimitError: Error code: 429`,
	`TimeoutError: [Errno 110] Connection timed out`,
	`BrokenPipeError: [Errno 108] Cannot send after transport endpoint shutdown`,
	`botocore.exceptions.ConnectTimeoutError: Connect timeout on endpoint URL: "https://sts.us-east-1.amazonaws.com/"`,
	`google.api_core.exceptions.ServiceUnavailable: 503 failed to connect to all addresses`,
	`OSError: [Errno 24] Too many open files`,
	`RuntimeError: received 2 items of ancdata`,
	`RuntimeError: unable to mmap 1024 bytes from file <model.safetensors>: Cannot allocate memory (12)`,
	`2026-11-21 08:00:00.1: W external/local_xla/xla/tsl/framework/bfc_allocator.cc:306] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.00GiB. The caller indicates that this is not a failure`,
	`ResourceExhaustedError: OOM when allocating tensor with shape[8] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu`,
	`WARNING: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.00GiB; a smaller tile is tried`,
	`node-1: INFO: 503 Service Unavailable`,
	`3: step 503 Service Unavailable`,
}

// TestLinesOfOthersAreNoErrorsOfData: the same words of servers, of NCCL, and in prose.
func TestLinesOfOthersAreNoErrorsOfData(t *testing.T) {
	root := t.TempDir()
	writePodLog(t, root, 1, `10.0.0.7 - - "GET /healthz HTTP/1.1" 503 19`+"\n"+
		"2026-11-21 08:00:00 WARN upstream sent 503 Service Unavailable\n"+
		"torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error, Connection reset by peer\n"+
		"RuntimeError: [2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by store->get('0'): Connection reset by peer\n"+
		"[W1121 08:00:00 socket.cpp:460] [c10d] waitForInput: Connection reset by peer\n"+
		"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer, Connection reset by peer\n"+
		"step 503 loss 2.31\n"+
		"ValueError: expected 503 tokens\n"+
		"retry after queue.Empty\n"+
		strings.Join(healthyLines, "\n")+"\n"+
		"note that a Stale file handle needs a new mount\n"+
		produced(t, "pytorch-2.5-exhausted.txt"))
	a := startOnPods(t, root)
	v := a.await(t, "the one that means it", about("cuda_oom", "pod", podUID(1)))
	require.Equal(t, verdict.Full, v.Confidence)
	require.Len(t, a.verdicts(t), 1)
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
