package pyexceptionreceiver

import (
	"regexp"
	"strings"

	"github.com/tracecoreai/tracecore/bpf/pyexception"
)

// class is what words of a message are known for.
type class struct {
	name  string
	types []string // of which one must be the exception's; none: any
	words string   // in its message; "": any
	when  *regexp.Regexp
}

// classes, the most telling first. Each row says where its words were read; of PyTorch in
// its main branch, of NCCL in its tags 2.18 to 2.30.
var classes = []class{
	// "CUDA out of memory. Tried to allocate …": c10/cuda/CUDACachingAllocator.cpp.
	{name: "cuda.out_of_memory", words: "CUDA out of memory"},
	// "HIP out of memory. Tried to allocate …": that file, which hipify translates for ROCm.
	{name: "cuda.out_of_memory", words: "HIP out of memory"},
	// "CUDA error: " and cudaGetErrorString: c10/cuda/CUDAException.cpp. The texts behind it
	// are a table in libcudart; hipGetErrorString has the same (ROCm clr,
	// hipamd/src/hip_error.cpp, ihipGetErrorString), and there they were read. This one is of
	// cudaErrorMemoryAllocation.
	{name: "cuda.out_of_memory", words: "CUDA error: out of memory"},
	// "HIP error: " and hipGetErrorString, in that file as hipify translates it.
	{name: "cuda.out_of_memory", words: "HIP error: out of memory"},
	// "CUDA driver error: " and cuGetErrorString, of expandable segments: c10/cuda/driver_api.h,
	// C10_CUDA_DRIVER_CHECK.
	{name: "cuda.out_of_memory", words: "CUDA driver error: out of memory"},
	// backend:cudaMallocAsync: c10/cuda/CUDAMallocAsyncAllocator.cpp, mallocAsync.
	{name: "cuda.out_of_memory", words: "would exceed allowed memory. (out of memory)"},
	// Triton, third_party/nvidia/backend/driver.c and third_party/amd/backend/driver.c, gpuAssert: the
	// second puts " Code: 2, Messsage: " before it.
	{name: "cuda.out_of_memory", when: regexp.MustCompile(`Triton Error \[(CUDA|HIP)\]: .*out of memory`)},
	// The last error of NCCL, behind its ncclUnhandledCudaError; newer ones have its number: NCCL,
	// src/include/checks.h, CUDACHECK, and src/include/cudawrap.h, CUCHECK.
	{name: "cuda.out_of_memory", when: regexp.MustCompile(`Cuda failure (2 )?'out of memory'`)},
	// CuPy, cupy/cuda/memory.pyx, OutOfMemoryError.
	{name: "cuda.out_of_memory", types: []string{"OutOfMemoryError"}, words: "Out of memory allocating "},
	// TensorFlow, tensorflow/core/framework/op_kernel.cc, OpKernelContext::allocate_tensor.
	{name: "cuda.out_of_memory", when: regexp.MustCompile(`OOM when allocating tensor with shape.* on \S*/device:GPU:`)},
	// "Out of memory while trying to allocate …" with the status ResourceExhausted: XLA,
	// stream_executor/tf_allocator_adapter.cc, TfAllocatorAdapter::Allocate. jaxlib puts the
	// name of the status before it (JaxRuntimeError, before XlaRuntimeError).
	{name: "cuda.out_of_memory", words: "RESOURCE_EXHAUSTED: Out of memory"},
	// cudaErrorECCUncorrectable, hipErrorECCNotCorrectable: that table.
	{name: "cuda.ecc", words: "uncorrectable ECC error encountered"},
	// cudaErrorIllegalAddress, hipErrorIllegalAddress: that table. Triton shows it, too.
	{name: "cuda.illegal_access", words: "an illegal memory access was encountered"},
	// cudaErrorAssert, hipErrorAssert: that table.
	{name: "cuda.assert", words: "device-side assert triggered"},
	// cudaErrorLaunchFailure, hipErrorLaunchFailure: that table.
	{name: "cuda.launch_failure", words: "CUDA error: unspecified launch failure"},
	// What the watchdog found stands in front of the error of NCCL that it led to
	// (getNcclErrorDetailStr): torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, checkTimeout.
	{name: "nccl.timeout", words: "Watchdog caught collective operation timeout"},
	// NCCLUtils.cpp, waitUntilInitialized.
	{name: "nccl.timeout", words: "NCCL timeout in communicator initialization"},
	// NCCLUtils.hpp, C10D_NCCL_CHECK_TIMEOUT, and torch/csrc/cuda/nccl.cpp.
	{name: "nccl.timeout", words: "NCCL timeout when waiting for nonblocking call"},
	// Rank 0 has not given the others the id of their communicator: ProcessGroupNCCL.cpp,
	// broadcastUniqueNCCLID. Behind "got error: " stand the words of the store.
	{name: "store.timeout", when: regexp.MustCompile(`retrieving ncclUniqueId from \[0\] .*wait timeout after`)},
	{name: "store.network", words: "retrieving ncclUniqueId from [0] "},
	// torch/distributed/distributed_c10d.py, _store_based_barrier, before it raised DistStoreError.
	{name: "store.timeout", words: "Timed out initializing process group in store based barrier on rank"},
	// torch/csrc/distributed/c10d/socket.cpp, throwTimeoutError, before it raised DistNetworkError.
	{name: "store.timeout", types: []string{"TimeoutError"}, words: "The client socket has timed out after "},
	// torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, monitoredBarrier: the words name the rank
	// that did not come.
	{name: "gloo.timeout", when: regexp.MustCompile(`\[Rank 0\]: Ranks? [\d, ]+failed to pass monitoredBarrier in `)},
	// That file, connectNewGroup: behind it stand words of gloo, or none.
	{name: "gloo.network", words: "Gloo connectFullMesh failed with "},
	// XLA, tsl/distributed_runtime/coordination/coordination_service.cc: the service of JAX.
	{name: "peer.timeout", words: "DEADLINE_EXCEEDED: Barrier timed out. Id: "},
	{name: "peer.timeout", words: "The following tasks are unhealthy (stopped sending heartbeats)"},
	// DeepEP, csrc/deep_ep.cpp: dispatch waits for what the other ranks send.
	{name: "peer.timeout", when: regexp.MustCompile(`DeepEP error: (timeout \(dispatch CPU\)|CPU recv timeout)`)},
	// The last error of NCCL tells whether its system failed, or a peer: NCCL, src/misc/socket.cc,
	// socketProgress and socketStartConnect.
	{name: "nccl.remote", when: regexp.MustCompile(`(?s)nccl(System|Internal)Error: .*(Connection closed by remote peer|failed : Connection (refused|reset by peer|timed out))`)},
	// The names of ncclResult_t: torch/csrc/distributed/c10d/NCCLUtils.cpp,
	// getNcclErrorDetailStr. "NCCL error in: …" stands in front: NCCLUtils.hpp.
	{name: "nccl.remote", words: "ncclRemoteError: "},
	{name: "nccl.system", words: "ncclSystemError: "},
	{name: "nccl.cuda", words: "ncclUnhandledCudaError: "},
	{name: "nccl.internal", words: "ncclInternalError: "},
	{name: "nccl.usage", words: "ncclInvalidUsage: "},
	{name: "nccl.usage", words: "ncclInvalidArgument: "},
	// ncclGetErrorString of ncclRemoteError: NCCL, src/init.cc.
	{name: "nccl.remote", words: "remote process exited or there was a network error"},
	// NCCLUtils.cpp, getNcclComm: somebody else ended it.
	{name: "nccl.aborted", words: "NCCL communicator was aborted on rank"},
	{name: "nccl.error", words: "NCCL error"},
	// torch/csrc/cuda/nccl.cpp, throw_nccl_error: "NCCL Error 1: " and ncclGetErrorString.
	{name: "nccl.error", words: "NCCL Error "},
	// XLA, xla/service/gpu/runtime/nccl_api.cc and its kin, XLA_NCCL_STATUS.
	{name: "nccl.error", when: regexp.MustCompile(`NCCL operation .* failed: `)},
	// gloo/transport/tcp/unbound_buffer.cc, waitRecv and waitSend, behind its file and line
	// (GLOO_ERROR_MSG).
	{name: "gloo.timeout", when: regexp.MustCompile(`(?s)gloo/.*Timed out waiting`)},
	// gloo/transport/tcp/pair.cc, and the texts of strerror.
	{name: "gloo.network", when: regexp.MustCompile(`(?s)gloo/.*(Connection closed by peer|Connection reset by peer|Connection refused|Broken pipe)`)},
	// torch/csrc/distributed/c10d/socket.cpp, SocketListenOp: rank 0, or its launcher, cannot open the store.
	{name: "host.address_in_use", types: []string{"DistNetworkError"}, words: "The server socket has failed to "},
	{name: "host.address_in_use", types: []string{"OSError"}, when: regexp.MustCompile(`^\[Errno 98\]`)}, // EADDRINUSE
	// torch/csrc/Exceptions.cpp: torch.distributed.DistStoreError, DistNetworkError.
	{name: "store.timeout", types: []string{"DistStoreError"}},
	{name: "store.network", types: []string{"DistNetworkError"}},
	// torch/utils/data/dataloader.py, and torch/csrc/DataLoader.cpp for what a signal killed.
	{name: "dataloader.worker", when: regexp.MustCompile(`DataLoader worker \(pid.*\) (is killed by signal|exited unexpectedly)`)},
	{name: "cuda.error", words: "CUDA error: "},
	{name: "cuda.error", words: "HIP error: "},
	// cublasStatus_t and its kin: aten/src/ATen/cuda/CUDABlas.cpp, ATen/cudnn/Exceptions.h.
	{name: "cuda.error", when: regexp.MustCompile(`\bCU(BLAS|DNN|SOLVER|SPARSE|FFT)_STATUS_`)},
	{name: "host.out_of_memory", types: []string{"MemoryError"}},
	// ENOMEM and EMFILE of memory that workers share: aten/src/ATen/MapAllocator.cpp.
	{name: "host.out_of_memory", when: regexp.MustCompile(`unable to mmap \d+ bytes from file <.*Cannot allocate memory`)},
	{name: "host.too_many_files", when: regexp.MustCompile(`unable to (open|mmap) .*: Too many open files`)},
	{name: "host.too_many_files", types: []string{"OSError"}, when: regexp.MustCompile(`^\[Errno 24\]`)},
	// A descriptor sent to a process that may open no more is dropped (unix(7), SCM_RIGHTS): CPython,
	// Lib/multiprocessing/reduction.py, recvfds.
	{name: "host.too_many_files", words: "received 0 items of ancdata"},
	// PyTorch writes a checkpoint and the file takes less than it was given, as where a disk is full; the errno is
	// not among its words: caffe2/serialize/inline_container.cc, PyTorchStreamWriter, with and without its file and line.
	{name: "storage.error", when: regexp.MustCompile(`inline_container\.cc:\d+\] ?\. unexpected pos |PytorchStreamWriter failed writing `)},
	// The storage below: EIO, ENOSPC, EROFS, ECONNABORTED and ENOTCONN (the daemon of a FUSE mount is
	// gone: fs/fuse/dev.c), ESHUTDOWN, ETIMEDOUT, EHOSTDOWN, ESTALE, EREMOTEIO, EDQUOT
	// (include/uapi/asm-generic/errno.h), with the name of a file: of a socket they are no word of storage.
	// CPython makes a type of its own of some (Objects/exceptions.c, _PyExc_InitState).
	{
		name: "storage.error", types: []string{"OSError", "TimeoutError", "ConnectionAbortedError", "BrokenPipeError"},
		when: regexp.MustCompile(`^\[Errno (5|28|30|103|107|108|110|112|116|121|122)\][^:]*: b?['"]`),
	},
	// A write names no file. These are no errors of sockets; where the kernel has other words for ENOSPC (too many
	// inotify watches), who raises it says so.
	{name: "storage.error", types: []string{"OSError"}, when: regexp.MustCompile(`^\[Errno (28|122)\] (No space left on device|Disk quota exceeded)$`)},
}

// classOf is the class of an exception or, where its words are not known, of one that it
// came from. Where it says that its process may have lost another, the class of what failed before says more.
func classOf(chain []pyexception.Exception) string {
	if own := before(chain); own != nil {
		if name := nameOf(&own[0]); name != "" {
			return name
		}
	}
	for i := range chain {
		if name := nameOf(&chain[i]); name != "" {
			return name
		}
	}
	return ""
}

// lost are the classes of words by which a process may have lost another one.
var lost = regexp.MustCompile(`^(nccl\.(remote|timeout|aborted|system|internal|error)|gloo\.|store\.|peer\.)`)

// flow are types that a healthy program handles: they end a loop or a wait, or tell of a connection.
var flow = regexp.MustCompile(`^(StopIteration|StopAsyncIteration|GeneratorExit|KeyboardInterrupt|SystemExit|TimeoutError|timeout|Empty|Full|BrokenPipeError|Connection[A-Za-z]*Error)$`)

// before is what failed before an exception that says that its process may have lost another: a cleanup raised
// that (a barrier in a finally block), or it was raised while the other was handled. Which of them ended the
// process, nothing shows. Nil for none.
func before(chain []pyexception.Exception) []pyexception.Exception {
	first := 0 // what has no class wraps what it was raised from
	for first+1 < len(chain) && nameOf(&chain[first]) == "" {
		first++
	}
	if !lost.MatchString(nameOf(&chain[first])) {
		return nil
	}
	for i := first + 1; i < len(chain); i++ {
		if x := &chain[i]; !lost.MatchString(nameOf(x)) && !flow.MatchString(x.Type) {
			return chain[i:]
		}
	}
	return nil
}

// nameOf is the class of one exception, or else of what its message quotes.
func nameOf(x *pyexception.Exception) string {
	for range 1 + mostNested {
		for i := range classes {
			if classes[i].is(x) {
				return classes[i].name
			}
		}
		if x = unquoted(x); x == nil {
			break
		}
	}
	return ""
}

func (c *class) is(x *pyexception.Exception) bool {
	known := len(c.types) == 0
	for _, one := range c.types {
		known = known || one == unqualified(x.Type)
	}
	return known && strings.Contains(x.Message, c.words) && (c.when == nil || c.when.MatchString(x.Message))
}

// unqualified is the name of a class without its namespace of C++.
func unqualified(name string) string { return name[strings.LastIndexByte(name, ':')+1:] }
