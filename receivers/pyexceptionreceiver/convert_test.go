package pyexceptionreceiver

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/pyexceptionreceiver/internal/metadata"
)

var update = flag.Bool("update", false, "rewrite the golden records")

func newTestConverter() *converter {
	builder := metadata.NewLogsBuilder(metadata.DefaultLogsBuilderConfig(), receivertest.NewNopSettings(metadata.Type))
	return newConverter(builder, record.Host{Name: "node-1", ID: "0123456789abcdef0123456789abcdef", NodeName: "node-1"})
}

// raised is an exception of the training script, which came up through a library.
func raised() pyexception.Event {
	return pyexception.Event{
		Time: start, PID: 42, Thread: 42, Comm: "python3", Minor: 11,
		Chain: []pyexception.Exception{{
			Type: "ValueError", Message: "bad batch 3", Levels: 3,
			Frames: []pyexception.Frame{
				{File: "/app/train.py", Line: 9, Function: "<module>"}, {File: "/app/train.py", Line: 5, Function: "step"},
				{File: "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", Line: 1751, Function: "Module._call_impl"},
			},
		}},
	}
}

func rank() identity.Process {
	return identity.Process{PID: 42, ParentPID: 7, Comm: "python", ContainerID: "c0ffee", PodUID: "u-1", Rank: 3, LocalRank: 3, WorldSize: 8, JobID: "job-1", Domain: "ns/team"}
}

func TestGoldenRecords(t *testing.T) {
	chain := raised()
	chain.More = true
	chain.Chain = append(chain.Chain, pyexception.Exception{
		Relation: pyexception.Cause, Type: "RuntimeError", Message: "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported", Cut: true,
		Levels: 40, Frames: []pyexception.Frame{{File: "/app/model.py", Line: 77, Function: "Model.forward", Skipped: 30}, {File: "/usr/lib/python3.12/runpy.py", Line: 7, Function: "run", Skipped: 8}},
	})
	unread := raised()
	unread.Thread, unread.Comm = 43, "worker"
	unread.Chain[0] = pyexception.Exception{Type: "Lost", Unread: true, Broken: true, Levels: 1, Frames: []pyexception.Frame{{File: "<frozen runpy>", Function: "_run"}}}
	plain := raised()
	nobody := rank()
	nobody.Comm = ""
	for name, tc := range map[string]struct {
		event   *pyexception.Event
		process identity.Process
		final   string
	}{
		"rank_raises": {&plain, rank(), ""}, "chain": {&chain, rank(), finalStatus}, "little_known": {&unread, nobody, ""},
	} {
		t.Run(name, func(t *testing.T) {
			logs := newTestConverter().exception(tc.event, &tc.process, tc.final, start.Add(time.Minute))
			file := filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, golden.WriteLogsToFile(file, logs))
			}
			want, err := golden.ReadLogs(file)
			require.NoError(t, err)
			require.NoError(t, plogtest.CompareLogs(want, logs))
			require.Equal(t, "process.exception", want.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).EventName())
		})
	}
}

func TestSummarySaysWhatAnotherProcessRaised(t *testing.T) {
	const trace = "Traceback (most recent call last):\n  File \"/usr/lib/worker.py\", line 358, in _worker_loop\n    data = fetcher.fetch(index)\nValueError: bad row 3\nin /data/17\n"
	for message, want := range map[string]string{
		"Caught ValueError in DataLoader worker process 0.\nOriginal " + trace:            "ValueError: Caught ValueError in DataLoader worker process 0: ValueError: bad row 3",
		"\n\n-- Process 1 terminated with the following error:\n" + trace:                 "ValueError: -- Process 1 terminated with the following error: ValueError: bad row 3",
		"it says\nTraceback (most recent call last):\n":                                   "ValueError: it says…",
		"it says\nTraceback (most recent call last):\n  File \"a.py\", line 1, in main\n": "ValueError: it says…",
	} {
		x := pyexception.Exception{Type: "ValueError", Message: message}
		require.Equal(t, want, summarize([]pyexception.Exception{x}))
		if x.Cut = true; strings.Contains(want, "bad row") {
			require.NotContains(t, summarize([]pyexception.Exception{x}), "bad row", "what was cut off may be another")
		}
	}
}

func TestSummaryIsOneLineOfBoundedLength(t *testing.T) {
	e := raised()
	require.Equal(t, "ValueError: bad batch 3 at train.py:5 in step", summarize(e.Chain))
	e.Chain[0].Message = "\n first\x1b[31m\r\nsecond"
	require.NotContains(t, summarize(e.Chain), "\n")
	require.NotContains(t, summarize(e.Chain), "\x1b")
	require.NotContains(t, summarize(e.Chain), "second")
	e.Chain[0].Type, e.Chain[0].Message = strings.Repeat("T", 500), strings.Repeat("ö", 5000)
	e.Chain[0].Frames[1].File = "/" + strings.Repeat("f", 250) + ".py"
	require.Less(t, len(summarize(e.Chain)), 300)
	e.Chain[0].Message, e.Chain[0].Frames, e.Chain[0].Type = "", nil, "KeyboardInterrupt"
	require.Equal(t, "KeyboardInterrupt", summarize(e.Chain))
}

func TestClasses(t *testing.T) {
	for said, want := range map[string]string{
		"OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.2 GiB is free.": "cuda.out_of_memory",
		"RuntimeError: CUDA error: an illegal memory access was encountered":                                                                  "cuda.illegal_access",
		"RuntimeError: CUDA error: uncorrectable ECC error encountered":                                                                       "cuda.ecc",
		"RuntimeError: CUDA error: device-side assert triggered":                                                                              "cuda.assert",
		"RuntimeError: CUDA error: no kernel image is available for execution on the device":                                                  "cuda.error",
		"RuntimeError: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`":                                                        "cuda.error",
		"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`":                                            "cuda.error",
		"RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED":                                                                            "cuda.error",
		"DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1333, remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.": "nccl.remote",
		"DistBackendError: NCCL error in: x, unhandled system error\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.":                                                                                                             "nccl.system",
		"DistBackendError: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)":                                                                                                                                                               "nccl.timeout",
		"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:3321":                                                                                                                                                                "gloo.network",
		"RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete":                                                                                                                                      "gloo.timeout",
		"DistStoreError: Timed out after 301 seconds waiting for clients. 1/2 clients joined.":                                                                                                                                                                                        "store.timeout",
		"DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (10.0.0.1, 29500).":                                                                                                                                                               "store.network",
		"RuntimeError: DataLoader worker (pid 512) is killed by signal: Killed.":                                                                                                                                                                                                      "dataloader.worker",
		"RuntimeError: DataLoader worker (pid(s) 512, 513) exited unexpectedly":                                                                                                                                                                                                       "dataloader.worker",
		"OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.":                                                                                                                                                                                                            "cuda.out_of_memory",
		"AcceleratorError: HIP error: an illegal memory access was encountered":                                                                                                                                                                                                       "cuda.illegal_access",
		"JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 11.95MiB.":                                                                                                                                                                                       "cuda.out_of_memory",
		"DistBackendError: NCCL communicator was aborted on rank 3. ":                                                                                                                                                                                                                 "nccl.aborted",
		"DistBackendError: NCCL communicator was aborted on rank 3.  Original reason for failure was: [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7":                                                                                                       "nccl.timeout",
		"DistBackendError: NCCL timeout in communicator initialization.":                                                                                                                                                                                                              "nccl.timeout",
		"DistBackendError: NCCL error: remote process exited or there was a network error, NCCL version 2.26.2":                                                                                                                                                                       "nccl.remote",
		"DistBackendError: NCCL timeout when waiting for nonblocking call to become successful.":                                                                                                                                                                                      "nccl.timeout",
		"DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer. This may indicate a possible application crash on rank 0 or a network set up issue.": "store.network",
		"DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: //worker/attempt_0/default_pg/0//1//cuda//0":                                "store.timeout",
		"RuntimeError: Timed out initializing process group in store based barrier on rank: 1, for key: store_based_barrier_key:1 (world_size=2, worker_count=1, timeout=0:30:00)":                                                                                                     "store.timeout",
		"TimeoutError: The client socket has timed out after 300s while trying to connect to (10.0.0.1, 29500).":                                                                                                                                                                       "store.timeout",
		"RuntimeError: [Rank 0]: Ranks 3 failed to pass monitoredBarrier in 1800000 ms":                                                                                                                                                                                                "gloo.timeout",
		"RuntimeError: [Rank 0]: Ranks 3, 5 failed to pass monitoredBarrier in 1800000 ms":                                                                                                                                                                                             "gloo.timeout",
		"RuntimeError: [Rank 0]: Rank 3 failed to pass monitoredBarrier in 1800000 ms\n Original exception: \nx":                                                                                                                                                                       "gloo.timeout",
		"RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] no error":                                                                                                                                                           "gloo.network",
		"JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: jax_init. This usually happens because a task triggered the barrier too early or too slowly.":                                                                                                                      "peer.timeout",
		"XlaRuntimeError: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n/job:jax_worker/replica:0/task:3":                                                                                                                                              "peer.timeout",
		"RuntimeError: DeepEP error: timeout (dispatch CPU)": "peer.timeout",
		"RuntimeError: DeepEP error: CPU recv timeout":       "peer.timeout",
		"DistBackendError: NCCL error in: x\nncclSystemError: System call failed.\nLast error:\nsocketStartConnect: Connect to 10.0.0.1<39275> failed : Connection refused":                                       "nccl.remote",
		"DistBackendError: NCCL error in: x\nncclSystemError: System call failed.\nLast error:\nError while creating shared memory segment /dev/shm/nccl-abc (size 9637888), error: No space left on device (28)": "nccl.system",
		"RuntimeError: NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for details)":                                                                                                                 "nccl.error",
		"RuntimeError: NCCL Error 6: remote process exited or there was a network error":                                                                                                                          "nccl.remote",
		"XlaRuntimeError: INTERNAL: NCCL operation ncclCommInitRankConfig failed: unhandled system error. Last NCCL warning(error) log entry (may be unrelated) ''.":                                              "nccl.error",
		"DistBackendError: NCCL error in: x, unhandled cuda error\nncclUnhandledCudaError: Call to CUDA function failed.":                                                                                         "nccl.cuda",
		"RuntimeError: [/src/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78]\nTimed out waiting 75000ms for recv operation to complete":                                                                 "gloo.timeout",
		"MemoryError:": "host.out_of_memory",
		"DistNetworkError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).":  "host.address_in_use",
		"DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use": "host.address_in_use",
		"OSError: [Errno 98] Address already in use": "host.address_in_use",
		"DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?": "store.network",
		"RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598":                                   "storage.error",
		"RuntimeError: PytorchStreamWriter failed writing file data/0: file write failed":                                       "storage.error",
		"RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory":                        "",
		"OSError: [Errno 5] Input/output error: '/data/x'":                                                                      "storage.error",
		"OSError: [Errno 28] No space left on device":                                                                           "storage.error",
		"OSError: [Errno 122] Disk quota exceeded":                                                                              "storage.error",
		"OSError: [Errno 28] inotify watch limit reached":                                                                       "",
		"OSError: [Errno 5] Input/output error":                                                                                 "", // of what is not said
		"TimeoutError: [Errno 110] Connection timed out":                                                                        "",
		"FileNotFoundError: [Errno 2] No such file or directory: '/data/x'":                                                     "",
		"ValueError: bad batch 3":                                                                                               "",
	} {
		kind, message, _ := strings.Cut(said, ":")
		require.Equal(t, want, classOf([]pyexception.Exception{{Type: kind, Message: strings.TrimPrefix(message, " ")}}), said)
	}
}

// A checkpoint that several ranks write fails with what failed in each, deep in PyTorch: the line is that of the program.
func TestACheckpointOnAFullDisk(t *testing.T) {
	const folder = "/opt/venv/lib/python3.12/site-packages/torch/distributed/checkpoint/"
	outer := raisedAt("CheckpointException", "write", "/app/train.py:main", "/usr/lib/python3.12/concurrent/futures/_base.py:Future.result", folder+"utils.py:_DistWrapper.all_reduce")
	outer.Frames[1].Skipped, outer.Levels = 9, 12
	for _, inner := range []pyexception.Exception{
		raisedAt("OSError", "[Errno 28] No space left on device"), raisedAt("RuntimeError", "[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598"),
	} {
		inner.Relation = pyexception.Member
		chain := []pyexception.Exception{outer, inner}
		require.Equal(t, "storage.error", classOf(chain))
		require.Equal(t, "CheckpointException: write at train.py:10 in main, from "+inner.Type+": "+inner.Message, summarize(chain))
	}
}

func TestClassOfWhatAnExceptionCameFrom(t *testing.T) {
	require.Equal(t, "cuda.ecc", classOf([]pyexception.Exception{
		{Type: "RuntimeError", Message: "step 7 failed"}, {Relation: pyexception.Cause, Type: "RuntimeError", Message: "CUDA error: uncorrectable ECC error encountered"},
	}))
}

// TestWordsOfTheTable: distro/recipes has the same test for the log of a container.
func TestWordsOfTheTable(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "words.yaml"))
	require.NoError(t, err)
	var table []struct{ Says, Class string }
	require.NoError(t, yaml.Unmarshal(text, &table))
	require.NotEmpty(t, table)
	for _, row := range table {
		path, message, _ := strings.Cut(row.Says, ": ")
		kind := path[strings.LastIndex(path, ".")+1:]
		require.Equal(t, row.Class, classOf([]pyexception.Exception{{Type: kind, Message: message}}), row.Says)
	}
}

// TestWordsOfOthersHaveNoClass: the same numbers of a socket, and the memory of the host.
func TestWordsOfOthersHaveNoClass(t *testing.T) {
	for _, said := range []string{
		"ConnectionAbortedError: [Errno 103] Software caused connection abort",
		"OSError: [Errno 107] Transport endpoint is not connected",
		"OSError: [Errno 112] Host is down",
		"ResourceExhaustedError: OOM when allocating tensor with shape[8] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
		"RuntimeError: received 2 items of ancdata",
		"RuntimeError: unable to mmap 1024 bytes from file </torch_1>: Permission denied (13)",
	} {
		kind, message, _ := strings.Cut(said, ": ")
		require.Empty(t, classOf([]pyexception.Exception{{Type: kind, Message: message}}), said)
	}
}

func raisedAt(kind, message string, frames ...string) pyexception.Exception {
	x := pyexception.Exception{Type: kind, Message: message, Levels: len(frames)}
	for i, f := range frames {
		file, function, _ := strings.Cut(f, ":")
		x.Frames = append(x.Frames, pyexception.Frame{File: file, Line: 10 * (i + 1), Function: function})
	}
	return x
}

// What a cleanup raises hides the exception that it cleans up after, and a wrapper what it was raised from.
func TestWhatWasRaisedBeforeIsSaid(t *testing.T) {
	const c10d = "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:barrier"
	gloo := raisedAt("RuntimeError", "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:3321", "/app/train.py:<module>", "/app/train.py:main", c10d)
	aborted := raisedAt("DistBackendError", "NCCL communicator was aborted on rank 3. ", "/app/train.py:main", c10d)
	as := func(r pyexception.Relation, x pyexception.Exception) pyexception.Exception { x.Relation = r; return x }
	wrong := raisedAt("ValueError", "bad batch 3", "/app/train.py:main", "/app/train.py:step")
	for name, tc := range map[string]struct {
		chain       []pyexception.Exception
		class, said string
		both        bool
	}{
		"a barrier in a finally block": {
			[]pyexception.Exception{gloo, as(pyexception.Context, wrong)}, "gloo.network",
			"RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:3321 at train.py:20 in main, after ValueError: bad batch 3 at train.py:20 in step", true,
		},
		"a barrier in a finally block, after memory ran out": {
			[]pyexception.Exception{aborted, as(pyexception.Context, raisedAt("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.", "/app/train.py:step"))}, "cuda.out_of_memory",
			"DistBackendError: NCCL communicator was aborted on rank 3. at train.py:10 in main, after OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. at train.py:10 in step", true,
		},
		"a barrier after a barrier": {[]pyexception.Exception{aborted, as(pyexception.Context, gloo)}, "nccl.aborted", "DistBackendError: NCCL communicator was aborted on rank 3. at train.py:10 in main", false},
		"the end of a loop":         {[]pyexception.Exception{aborted, as(pyexception.Context, raisedAt("StopIteration", ""))}, "nccl.aborted", "DistBackendError: NCCL communicator was aborted on rank 3. at train.py:10 in main", false},
		"asked to end":              {[]pyexception.Exception{aborted, as(pyexception.Context, raisedAt("KeyboardInterrupt", ""))}, "nccl.aborted", "DistBackendError: NCCL communicator was aborted on rank 3. at train.py:10 in main", false},
		"a wrapper":                 {[]pyexception.Exception{raisedAt("MisconfigurationException", "training failed", "/app/trainer.py:fit"), as(pyexception.Cause, wrong)}, "", "MisconfigurationException: training failed at trainer.py:10 in fit, from ValueError: bad batch 3 at train.py:20 in step", false},
		"a wrapper of a lost peer":  {[]pyexception.Exception{raisedAt("MisconfigurationException", "training failed", "/app/trainer.py:fit"), as(pyexception.Cause, aborted)}, "nccl.aborted", "MisconfigurationException: training failed at trainer.py:10 in fit, from DistBackendError: NCCL communicator was aborted on rank 3. at train.py:10 in main", false},
		"a group":                   {[]pyexception.Exception{raisedAt("ExceptionGroup", "unhandled errors in a TaskGroup (1 sub-exception)", "/app/train.py:main"), as(pyexception.Member, wrong)}, "", "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception) at train.py:10 in main, from ValueError: bad batch 3 at train.py:20 in step", false},
		"what its handler raised":   {[]pyexception.Exception{raisedAt("KeyError", "'labels'", "/app/train.py:main"), as(pyexception.Context, wrong)}, "", "KeyError: 'labels' at train.py:10 in main", false},
		"JAX's own trace":           {[]pyexception.Exception{raisedAt("XlaRuntimeError", "INTERNAL: x", "/app/train.py:main"), as(pyexception.Cause, raisedAt("JaxStackTraceBeforeTransformation", "The preceding stack trace is the source"))}, "", "XlaRuntimeError: INTERNAL: x at train.py:10 in main", false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.said, summarize(tc.chain))
			require.Equal(t, tc.class, classOf(tc.chain))
			require.Equal(t, tc.both, before(tc.chain) != nil)
		})
	}
}

// What has no class wraps a cleanup: the cleanup, and what failed before it, are found behind it.
func TestWhatWrapsACleanup(t *testing.T) {
	const c10d = "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:barrier"
	as := func(r pyexception.Relation, x pyexception.Exception) pyexception.Exception { x.Relation = r; return x }
	peer := raisedAt("RuntimeError", "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:3321", "/app/train.py:main", c10d)
	wrong := as(pyexception.Context, raisedAt("ValueError", "bad batch 3", "/app/train.py:step"))
	wrap := raisedAt("TrainingError", "training failed", "/app/trainer.py:fit")
	for name, chain := range map[string][]pyexception.Exception{
		"raised from it":         {wrap, as(pyexception.Cause, peer), wrong},
		"raised in its handler":  {wrap, as(pyexception.Context, peer), wrong},
		"a group with it inside": {raisedAt("ExceptionGroup", "unhandled errors in a TaskGroup (1 sub-exception)", "/app/train.py:main"), as(pyexception.Member, peer), wrong},
	} {
		t.Run(name, func(t *testing.T) { require.Len(t, before(chain), 1) })
	}
	require.Empty(t, before([]pyexception.Exception{wrap, as(pyexception.Context, peer)}), "it lost a peer, and nothing failed before")
	require.Empty(t, before([]pyexception.Exception{wrap, wrong}), "it lost nobody")
}
