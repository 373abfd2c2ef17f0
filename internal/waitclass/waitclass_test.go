package waitclass

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The frames of a test are written innermost first, as "file:function", "object:symbol" and
// "function[module]", with spaces between.
func stack(kernel, native, python string) (s Stack) {
	for _, f := range strings.Fields(kernel) {
		name, module, _ := strings.Cut(strings.TrimSuffix(f, "]"), "[")
		s.Kernel = append(s.Kernel, Function{name, module})
	}
	for _, f := range strings.Fields(native) {
		object, symbol, _ := strings.Cut(f, ":")
		s.Native = append(s.Native, Native{"/usr/lib/" + object, symbol})
	}
	for _, f := range strings.Fields(python) {
		file, function, _ := strings.Cut(f, ":")
		s.Python = append(s.Python, Python{file, function})
	}
	return s
}

// Stacks as they were read: M on this project's machines (Linux 6.18 and PyTorch 2.14 with Gloo
// on CPython 3.14, 2026-11-22), K as the kernel's source has the calls, P as PyTorch's has.
func TestWhatAThreadWaitsFor(t *testing.T) {
	const (
		futex = "futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex do_syscall_64 entry_SYSCALL_64_after_hwframe"
		eval  = " python3.14:_PyEval_EvalFrameDefault python3.14:PyEval_EvalCode python3.14:Py_RunMain libc.so.6:__libc_start_main python3.14:_start"
		site  = "/usr/lib/python3/dist-packages/"
	)
	table, err := New()
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		stack    Stack
		class    Class
		function string
		owner    string
	}{
		"M a rank waits in all_reduce": {
			stack(futex, "libc.so.6:pthread_cond_wait libtorch_cpu.so:_ZN4c10d4Work4waitENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE libtorch_python.so: python3.14:PyObject_Call"+eval,
				site+"torch/distributed/distributed_c10d.py:all_reduce "+site+"torch/distributed/c10d_logger.py:wrapper ddp.py:main ddp.py:<module>"),
			Collective, "futex_do_wait", "futex",
		},
		"M the culprit sleeps in its own code": {
			stack("hrtimer_nanosleep common_nsleep __x64_sys_clock_nanosleep do_syscall_64", "libc.so.6:clock_nanosleep python3.14:"+eval, "ddp.py:save_checkpoint ddp.py:main ddp.py:<module>"),
			OwnCode, "hrtimer_nanosleep", "",
		},
		"M an extension in C sleeps": {
			stack("hrtimer_nanosleep", "libc.so.6:clock_nanosleep libc.so.6:nanosleep libspinext.so:inner_wait libspinext.so:outer_call libffi.so.8:ffi_call _ctypes.so:"+eval, "job.py:work"),
			OwnCode, "hrtimer_nanosleep", "",
		},
		"M a parent in vfork": {stack("kernel_clone __do_sys_vfork do_syscall_64", "", ""), OwnCode, "kernel_clone", ""},
		"no Python is known, the library tells": {
			stack(futex, "libc.so.6:pthread_cond_wait libtorch_cpu.so:_ZN4c10d16ProcessGroupGloo8WorkGloo4waitE libtorch_python.so:"+eval, ""),
			Collective, "futex_do_wait", "futex",
		},
		"ncclCommInitRank": {
			stack("sk_wait_data tcp_recvmsg_locked tcp_recvmsg inet_recvmsg", "libc.so.6:recv libnccl.so.2: libnccl.so.2:ncclCommInitRankConfig libtorch_cuda.so:"+eval, site+"torch/distributed/distributed_c10d.py:_new_process_group_helper train.py:main"),
			Collective, "sk_wait_data", "tcp",
		},
		"torch.cuda.synchronize": {
			stack("", "libcuda.so.570.124.06: libcuda.so.570.124.06: libcudart.so.12:cudaDeviceSynchronize libtorch_cuda.so:"+eval, site+"torch/cuda/__init__.py:synchronize train.py:step"),
			GPU, "", "",
		},
		"item() of a tensor, which is no frame of Python": {
			stack("", "[vdso]: libc.so.6:clock_gettime libcuda.so.1: libcuda.so.1:cuStreamSynchronize libtorch_cuda.so:"+eval, "train.py:log_loss train.py:main"),
			GPU, "", "",
		},
		"checkpoint that copies from its GPU": {
			stack("", "libcuda.so.1:cuMemcpyDtoHAsync_v2 libtorch_cuda.so:"+eval, site+"torch/serialization.py:_save "+site+"torch/serialization.py:save train.py:save_checkpoint"),
			GPU, "", "",
		},
		"the driver of the GPU does not return": {
			stack("__schedule schedule rwsem_down_read_slowpath nvidia_unlocked_ioctl[nvidia] __x64_sys_ioctl", "libc.so.6:ioctl", ""),
			GPU, "rwsem_down_read_slowpath", "nvidia",
		},
		"K torch.save on a FUSE mount": {
			stack("request_wait_answer[fuse] __fuse_simple_request[fuse] fuse_send_write[fuse] fuse_perform_write[fuse] fuse_file_write_iter[fuse] vfs_write", "libc.so.6:write python3.14:"+eval,
				site+"torch/serialization.py:save train.py:save_checkpoint train.py:main"),
			Storage, "request_wait_answer", "fuse",
		},
		"K a write of its own on NFS": {
			stack("rpc_wait_bit_killable[sunrpc] __rpc_execute[sunrpc] nfs4_do_call_sync[nfsv4] nfs_file_fsync[nfs] __x64_sys_fsync", "libc.so.6:fsync"+eval, "train.py:log"),
			Storage, "rpc_wait_bit_killable", "nfs",
		},
		"K a page of a file on ext4": {
			stack("io_schedule folio_wait_bit_common filemap_get_pages filemap_read ext4_file_read_iter vfs_read", "libc.so.6:read"+eval, "train.py:load"),
			Storage, "folio_wait_bit_common", "ext4",
		},
		"K a page fault, whose file system is not on the stack": {
			stack("io_schedule folio_wait_bit_common __folio_lock_or_retry filemap_fault __do_fault do_fault handle_mm_fault exc_page_fault", "libfoo.so:compute", "train.py:step"),
			Storage, "folio_wait_bit_common", "page_cache",
		},
		"K ext4 that waits for its disk": {
			stack("io_schedule blk_mq_get_tag submit_bio ext4_mpage_readpages ext4_readahead", "", ""), Storage, "blk_mq_get_tag", "ext4",
		},
		"K NFS writes back": {stack("nfs_wait_on_request nfs_wb_folio nfs_file_fsync __x64_sys_fsync", "libc.so.6:fsync"+eval, "train.py:save"), Storage, "nfs_wait_on_request", "nfs"},
		"K NFS is built in": {
			stack("rpc_wait_bit_killable __wait_on_bit out_of_line_wait_on_bit rpc_wait_for_completion_task _nfs4_proc_open _nfs4_open_and_get_state path_openat", "libc.so.6:openat"+eval, "train.py:load"),
			Storage, "rpc_wait_bit_killable", "nfs",
		},
		"K a name on NFS that another rank looks up": {stack("d_alloc_parallel __lookup_slow walk_component path_lookupat filename_lookup vfs_statx", "libc.so.6:stat"+eval, "train.py:load"), Storage, "d_alloc_parallel", "vfs"},
		"K a folder on NFS in which another rank makes a file": {
			stack("schedule_preempt_disabled rwsem_down_write_slowpath down_write open_last_lookups path_openat do_filp_open", "libc.so.6:openat"+eval, "train.py:save"),
			Storage, "rwsem_down_write_slowpath", "vfs",
		},
		"K the same on PREEMPT_RT":           {stack("schedule_rtlock rwbase_write_lock down_write filename_create do_mkdirat", "", ""), Storage, "rwbase_write_lock", "vfs"},
		"K a file that another thread reads": {stack("__mutex_lock __fdget_pos ksys_read", "libc.so.6:read"+eval, "dataset.py:read"), Storage, "__mutex_lock", "vfs"},
		"K a file on NFS that another thread writes": {
			stack("rwsem_down_write_slowpath down_write nfs_start_io_write[nfs] nfs_file_write[nfs] vfs_write", "libc.so.6:write"+eval, "train.py:log"), Storage, "rwsem_down_write_slowpath", "nfs",
		},
		"K a lock on NFS that another host has": {
			stack("schedule_timeout wait_woken nfs4_proc_lock[nfsv4] do_setlk[nfs] nfs_flock[nfs] __do_sys_flock", "libc.so.6:flock"+eval, "train.py:lock"), Lock, "nfs4_proc_lock", "file_lock",
		},
		"K a lock on NFS whose server is away": {
			stack("rpc_wait_bit_killable[sunrpc] _nfs4_do_setlk[nfsv4] nfs4_proc_lock[nfsv4] do_setlk[nfs] nfs_flock[nfs] __do_sys_flock", "libc.so.6:flock"+eval, "train.py:lock"), Storage, "rpc_wait_bit_killable", "nfs",
		},
		"K a lock on NFS 3 that another host has": {stack("nlmclnt_wait[lockd] nlmclnt_lock[lockd] nlmclnt_proc[lockd] nfs3_proc_lock[nfsv3]", "", ""), Lock, "nlmclnt_wait", "file_lock"},
		"K a lock that is a file on NFS, whose server is away": {
			stack("rpc_wait_bit_killable[sunrpc] nfs4_run_open_task[nfsv4] nfs4_atomic_open[nfsv4] path_openat", "libc.so.6:openat"+eval, site+"filelock/_unix.py:_acquire "+site+"filelock/_api.py:acquire train.py:main"),
			Storage, "rpc_wait_bit_killable", "nfs",
		},
		"K a lock that is a file, which another has": {
			stack("locks_lock_inode_wait __do_sys_flock", "libc.so.6:flock"+eval, site+"filelock/_unix.py:_acquire "+site+"filelock/_api.py:acquire train.py:main"), Lock, "locks_lock_inode_wait", "file_lock",
		},
		"K the code of a lock is on a file system that does not answer": {
			stack("io_schedule folio_wait_bit_common filemap_fault __do_fault handle_mm_fault exc_page_fault", "libc.so.6:pthread_cond_wait python3.14:PyThread_acquire_lock_timed"+eval, "/usr/lib/python3.14/threading.py:wait train.py:step"),
			Storage, "folio_wait_bit_common", "page_cache",
		},
		"K the code behind the GIL is": {
			stack("folio_wait_bit_common filemap_fault exc_page_fault", "python3.14:PyEval_RestoreThread python3.14:"+eval, "train.py:step"), Storage, "folio_wait_bit_common", "page_cache",
		},
		"K the lock of its memory, in a page fault": {stack("rwsem_down_read_slowpath down_read_killable lock_mm_and_find_vma do_user_addr_fault exc_page_fault", "", ""), Lock, "rwsem_down_read_slowpath", "memory_map"},
		"K a lock of a driver that is not known":    {stack("__mutex_lock other_ioctl[other] __x64_sys_ioctl", "libc.so.6:ioctl", ""), Lock, "__mutex_lock", "kernel_lock"},
		"K a pipe without a reader":                 {stack("wait_for_partner fifo_open do_dentry_open path_openat", "libc.so.6:openat"+eval, "train.py:main"), OwnCode, "wait_for_partner", ""},
		"Lustre reads":                              {stack("cl_sync_io_wait[obdclass] cl_io_submit_sync[obdclass] ll_io_read_page[lustre]", "libc.so.6:read"+eval, "dataset.py:read"), Storage, "cl_sync_io_wait", "lustre"},
		"K Ceph opens":                              {stack("ceph_mdsc_wait_request[ceph] ceph_mdsc_do_request[ceph] ceph_open[ceph]", "libc.so.6:openat", ""), Storage, "ceph_mdsc_wait_request", "ceph"},
		"K a mount on demand":                       {stack("autofs_wait autofs_mount_wait autofs_d_automount __traverse_mounts step_into path_lookupat", "", ""), Storage, "autofs_wait", "autofs"},
		"Lustre":                                    {stack("schedule_timeout ptlrpc_set_wait[ptlrpc] osc_io_fsync_end[osc] ll_fsync[lustre]", "", ""), Storage, "ptlrpc_set_wait", "lustre"},
		"P the next batch": {
			stack("do_poll do_sys_poll __x64_sys_poll", "libc.so.6:poll"+eval,
				"/usr/lib/python3.14/selectors.py:select /usr/lib/python3.14/multiprocessing/connection.py:wait /usr/lib/python3.14/multiprocessing/queues.py:get "+site+"torch/utils/data/dataloader.py:_try_get_data "+site+"torch/utils/data/dataloader.py:__next__ train.py:main"),
			DataLoading, "do_poll", "",
		},
		"P a data set on FUSE, in the rank itself": {
			stack("fuse_simple_request[fuse]", "libc.so.6:read"+eval, "dataset.py:__getitem__ "+site+"torch/utils/data/_utils/fetch.py:fetch "+site+"torch/utils/data/dataloader.py:__next__"),
			DataLoading, "fuse_simple_request", "fuse",
		},
		"a data set from an object store": {
			stack("sk_wait_data tcp_recvmsg", "libc.so.6:recv"+eval, "/usr/lib/python3.14/ssl.py:read "+site+"urllib3/response.py:read "+site+"botocore/response.py:read dataset.py:__getitem__ "+site+"torch/utils/data/_utils/worker.py:_worker_loop"),
			DataLoading, "sk_wait_data", "tcp",
		},
		"a name is looked up": {
			stack("do_poll do_sys_poll __x64_sys_poll", "libc.so.6:__poll libc.so.6: libc.so.6:_nss_dns_gethostbyname4_r libc.so.6:getaddrinfo _socket.cpython-311.so:"+eval, "/usr/lib/python3.11/socket.py:getaddrinfo /usr/lib/python3.11/socket.py:create_connection train.py:main"),
			NameServer, "do_poll", "",
		},
		"P a rank looks up the address of its store": {
			stack("do_poll do_sys_poll __x64_sys_poll", "libc.so.6:__poll libc.so.6: libc.so.6:getaddrinfo libtorch_cpu.so: libtorch_cpu.so:_ZN4c10d8TCPStoreC1ENSt7__cxx1112basic_stringE libtorch_python.so:"+eval,
				site+"torch/distributed/rendezvous.py:_create_c10d_store "+site+"torch/distributed/distributed_c10d.py:init_process_group train.py:main"),
			NameServer, "do_poll", "",
		},
		"its frames of compiled code are not read": {
			stack("do_poll do_sys_poll", "", "/usr/lib/python3.11/socket.py:getaddrinfo /usr/lib/python3.11/socket.py:create_connection train.py:main"), NameServer, "do_poll", "",
		},
		"a server is asked over a socket of UDP": {stack("__skb_wait_for_more_packets udp_recvmsg", "libc.so.6:recvfrom libc.so.6:getaddrinfo", ""), NameServer, "__skb_wait_for_more_packets", "udp"},
		"K a look-up reads a file on NFS": {
			stack("rpc_wait_bit_killable[sunrpc] nfs4_run_open_task[nfsv4] nfs4_atomic_open[nfsv4]", "libc.so.6:openat libc.so.6:getaddrinfo _socket.cpython-311.so:"+eval, "/usr/lib/python3.11/socket.py:getaddrinfo train.py:main"),
			Storage, "rpc_wait_bit_killable", "nfs",
		},
		"an address is connected to": {
			stack("inet_wait_for_connect __inet_stream_connect", "libc.so.6:connect _socket.cpython-311.so:"+eval, "/usr/lib/python3.11/socket.py:create_connection train.py:main"), Network, "inet_wait_for_connect", "tcp",
		},
		"a request of its own": {
			stack("sk_wait_data tcp_recvmsg", "libc.so.6:recv"+eval, "/usr/lib/python3.14/socket.py:readinto /usr/lib/python3.14/http/client.py:begin train.py:log"),
			Network, "sk_wait_data", "tcp",
		},
		"a lock of its own": {
			stack(futex, "libc.so.6:pthread_cond_wait python3.14:PyThread_acquire_lock_timed"+eval, "/usr/lib/python3.14/threading.py:wait train.py:step"),
			Lock, "futex_do_wait", "futex",
		},
		"a thread of Python that reads a pipe": {
			stack("anon_pipe_read vfs_read", "libc.so.6:read python3.14:_Py_read"+eval, "train.py:reads /usr/lib/python3.14/threading.py:run /usr/lib/python3.14/threading.py:_bootstrap_inner /usr/lib/python3.14/concurrent/futures/thread.py:_worker"),
			OwnCode, "anon_pipe_read", "",
		},
		"the GIL": {
			stack(futex, "libc.so.6:pthread_cond_timedwait python3.14:PyEval_RestoreThread python3.14:"+eval, "train.py:step"),
			Lock, "futex_do_wait", "futex",
		},
		"a lock that is a file": {
			stack("hrtimer_nanosleep", "libc.so.6:clock_nanosleep"+eval, site+"filelock/_api.py:acquire train.py:main"),
			Lock, "hrtimer_nanosleep", "",
		},
		"the lock of its memory": {stack("rwsem_down_write_slowpath down_write_killable vm_mmap_pgoff", "", ""), Lock, "rwsem_down_write_slowpath", "memory_map"},
		"P compile workers": {
			stack(futex, "libc.so.6:pthread_cond_wait"+eval, "/usr/lib/python3.14/threading.py:wait /usr/lib/python3.14/concurrent/futures/_base.py:result "+site+"torch/_inductor/async_compile.py:wait "+site+"torch/_inductor/compile_fx.py:compile_fx "+site+"torch/_dynamo/output_graph.py:call_user_compiler train.py:main"),
			Compiling, "futex_do_wait", "futex",
		},
		"P a compiled step that waits in a collective": {
			stack(futex, "libc.so.6:pthread_cond_wait libtorch_cpu.so:_ZN4c10d4Work4waitE"+eval,
				"/tmp/torchinductor_u/ab/cab.py:call "+site+"torch/_inductor/output_code.py:__call__ "+site+"torch/_inductor/utils.py:run "+site+"torch/_functorch/_aot_autograd/runtime_wrappers.py:runtime_wrapper "+site+"torch/_dynamo/eval_frame.py:compile_wrapper train.py:main"),
			Collective, "futex_do_wait", "futex",
		},
		"P a compiled step that computes": {
			stack("", "/tmp/torchinductor_u/x.so:kernel"+eval, "/tmp/torchinductor_u/ab/cab.py:call "+site+"torch/_inductor/output_code.py:__call__ "+site+"torch/_dynamo/eval_frame.py:compile_wrapper train.py:main"),
			OwnCode, "", "",
		},
		"a kernel is compiled when it is loaded": {stack("", "libnvidia-ptxjitcompiler.so.570.124.06: libcuda.so.1:cuModuleLoadData"+eval, "train.py:main"), Compiling, "", ""},
		"a checkpoint whose ranks agree first": {
			stack(futex, "libc.so.6:pthread_cond_wait libtorch_cpu.so:_ZN4c10d4Work4waitE"+eval, site+"torch/distributed/distributed_c10d.py:all_gather_object "+site+"torch/distributed/checkpoint/utils.py:gather_object "+site+"torch/distributed/checkpoint/state_dict_saver.py:save train.py:main"),
			Collective, "futex_do_wait", "futex",
		},
		"M a rank whose interpreter has no name for its loop waits for the store": {
			stack("do_sys_poll __x64_sys_poll", "libc.so.6: libc.so.6:poll libtorch_cpu.so.2.14.1: libtorch_cpu.so.2.14.1:_ZN4c10d8TCPStore6doWaitEN3c108ArrayRefE libtorch_python.so.2.14.1: python3.14: python3.14:PyEval_EvalCode python3.14:Py_RunMain libc.so.6:__libc_start_main python3.14:_start", "train.py:<module>"),
			Store, "do_sys_poll", "",
		},
		"M a rank waits for a key of the store": {
			stack("do_poll do_sys_poll __x64_sys_poll", "libc.so.6:poll libtorch_cpu.so.2.14.1: libtorch_cpu.so.2.14.1:_ZN4c10d8TCPStore6doWaitE libtorch_cpu.so.2.14.1:_ZN4c10d8TCPStore4waitE libtorch_cpu.so.2.14.1:_ZN4c10d11PrefixStore4waitE libtorch_python.so.2.14.1:"+eval, "wait.py:until_written train.py:main"),
			Store, "do_poll", "",
		},
		"the same, of a library that has the symbols of its inner functions": {
			stack("do_poll do_sys_poll __x64_sys_poll", "libc.so.6:poll libtorch_cpu.so:_ZN4c10d7tcputil9recvBytesE libtorch_cpu.so:_ZN4c10d6detail9TCPClient12receiveValueE libtorch_cpu.so:_ZN4c10d8TCPStore5doGetE libtorch_python.so:"+eval, "train.py:main"),
			Store, "do_poll", "",
		},
		"P a store in a file": {
			stack("hrtimer_nanosleep", "libc.so.6:clock_nanosleep libtorch_cpu.so:_ZN4c10d9FileStore3getE libtorch_python.so:"+eval, "train.py:main"), Store, "hrtimer_nanosleep", "",
		},
		"P a store in its own process, for which a data set waits": {
			stack(futex, "libc.so.6:pthread_cond_timedwait libtorch_cpu.so:_ZN4c10d9HashStore10waitLockedE libtorch_python.so:"+eval, "data.py:__getitem__ "+site+"torch/utils/data/_utils/fetch.py:fetch train.py:main"),
			Store, "futex_do_wait", "futex",
		},
		"P Gloo asks the store for the addresses of the others": {
			stack("do_poll", "libc.so.6:poll libtorch_cpu.so:_ZN4c10d8TCPStore5doGetE libtorch_cpu.so:_ZN4c10d11PrefixStore3getE libtorch_cpu.so:_ZN4c10d16ProcessGroupGloo9GlooStore3getE libtorch_cpu.so:_ZN4gloo10rendezvous7Context15connectFullMeshE libtorch_cpu.so:_ZN4c10d16ProcessGroupGlooC1E libtorch_python.so:"+eval, "train.py:main"),
			Collective, "do_poll", "",
		},
		"M ranks meet in init_process_group": {
			stack("do_poll", "libc.so.6:poll libtorch_cpu.so:_ZN4c10d8TCPStore6doWaitE libtorch_cpu.so:_ZN4c10d8TCPStore4waitE libtorch_python.so:"+eval, site+"torch/distributed/distributed_c10d.py:_store_based_barrier "+site+"torch/distributed/distributed_c10d.py:init_process_group train.py:main"),
			Collective, "do_poll", "",
		},
		"a hook of a collective asks the store": {
			stack("do_poll", "libc.so.6:poll libtorch_cpu.so:_ZN4c10d8TCPStore6doWaitE libtorch_python.so: python3.14: python3.14: libtorch_python.so: libtorch_cpu.so:_ZN4c10d7Reducer13autograd_hookEm", "train.py:hook"),
			Store, "do_poll", "",
		},
		"a hook that a collective's thread calls in Python": {
			stack("hrtimer_nanosleep", "libc.so.6:clock_nanosleep python3.14: python3.14: libtorch_python.so: libtorch_cpu.so:_ZN4c10d7Reducer13autograd_hookEm libtorch_cpu.so: libc.so.6:", "train.py:hook"),
			OwnCode, "hrtimer_nanosleep", "",
		},
		"registers memory for RDMA":    {stack("__schedule schedule mlx5_cmd_exec[mlx5_core] mlx5_ib_reg_user_mr[mlx5_ib] ib_uverbs_ioctl[ib_uverbs]", "libc.so.6:ioctl libibverbs.so.1:ibv_reg_mr", ""), Network, "mlx5_cmd_exec", "mlx5"},
		"NCCL registers memory":        {stack("mlx5_cmd_exec[mlx5_core]", "libc.so.6:ioctl libibverbs.so.1:ibv_reg_mr libnccl.so.2: libnccl.so.2:ncclCommInitRank", ""), Collective, "mlx5_cmd_exec", "mlx5"},
		"a page that user space fills": {stack("handle_userfault do_anonymous_page handle_mm_fault", "", ""), Storage, "handle_userfault", "userfaultfd"},
		"M a rank of a device of its own in backward, whose thread does the work": {
			stack(futex, "libc.so.6:pthread_cond_wait libtorch_cpu.so.2.14.1: libtorch_cpu.so.2.14.1:_ZN5torch8autograd6Engine11thread_mainERKSt10shared_ptrINS0_9GraphTaskEE libtorch_cpu.so.2.14.1:_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptr libtorch_python.so.2.14.1: libtorch_cpu.so.2.14.1:_ZN5torch8autograd6Engine7executeERKSt6vector libtorch_python.so.2.14.1:"+eval,
				site+"torch/autograd/graph.py:_engine_run_backward "+site+"torch/autograd/__init__.py:backward "+site+"torch/_tensor.py:Tensor.backward train.py:main"),
			Backward, "futex_do_wait", "futex",
		},
		"M that thread, in a function of the user": {
			stack("hrtimer_nanosleep", "libc.so.6:clock_nanosleep python3.14: libtorch_python.so.2.14.1: libtorch_cpu.so.2.14.1:_ZN5torch8autograd6Engine17evaluate_functionE libtorch_cpu.so.2.14.1:_ZN5torch8autograd6Engine11thread_mainE", "train.py:F.backward "+site+"torch/autograd/function.py:BackwardCFunction.apply"),
			OwnCode, "hrtimer_nanosleep", "",
		},
		"the same, and compiled code is not read": {
			stack(futex, "", site+"torch/autograd/graph.py:_engine_run_backward "+site+"torch/autograd/__init__.py:backward train.py:main"), Backward, "futex_do_wait", "futex",
		},
		"P a thread of backward that has nothing to do": {
			stack(futex, "libc.so.6:pthread_cond_wait libtorch_cpu.so:_ZN5torch8autograd6Engine11thread_mainERKSt10shared_ptrINS0_9GraphTaskEE libtorch_python.so: libstdc++.so.6: libc.so.6:clone3", ""), Backward, "futex_do_wait", "futex",
		},
		"P a thread of backward waits for its GPU": {
			stack("", "libcuda.so.1:cuEventSynchronize libtorch_cuda.so: libtorch_cpu.so:_ZN5torch8autograd6Engine17evaluate_functionE libtorch_cpu.so:_ZN5torch8autograd6Engine11thread_mainE", ""), GPU, "", "",
		},
		"a rank of Gloo in backward, in the collective of a hook": {
			stack(futex, "libc.so.6:pthread_cond_wait libtorch_cpu.so:_ZN4c10d4Work4waitE libtorch_cpu.so:_ZN4c10d7Reducer17finalize_backwardEv libtorch_cpu.so:_ZN5torch8autograd6Engine11thread_mainE libtorch_python.so:"+eval, site+"torch/autograd/graph.py:_engine_run_backward train.py:main"),
			Collective, "futex_do_wait", "futex",
		},
		"a rank without a GPU computes its backward": {
			stack("", "libmkldnn.so:gemm libtorch_cpu.so: libtorch_cpu.so:_ZN5torch8autograd6Engine17evaluate_functionE libtorch_cpu.so:_ZN5torch8autograd6Engine11thread_mainE libtorch_python.so:"+eval, site+"torch/autograd/graph.py:_engine_run_backward train.py:main"),
			OwnCode, "", "",
		},
		"the same, and waits for its threads of OpenMP": {
			stack(futex, "libc.so.6:pthread_cond_wait libtorch_cpu.so: libtorch_cpu.so:_ZN5torch8autograd6Engine17evaluate_functionE libtorch_cpu.so:_ZN5torch8autograd6Engine11thread_mainE libtorch_python.so:"+eval, site+"torch/autograd/graph.py:_engine_run_backward train.py:main"),
			Lock, "futex_do_wait", "futex",
		},
		"a hook of a user sleeps in backward": {
			stack("hrtimer_nanosleep", "libc.so.6:clock_nanosleep"+eval+" libtorch_python.so: libtorch_cpu.so:_ZN5torch8autograd6Engine17evaluate_functionE libtorch_cpu.so:_ZN5torch8autograd6Engine11thread_mainE", "train.py:hook "+site+"torch/autograd/graph.py:_engine_run_backward train.py:main"),
			OwnCode, "hrtimer_nanosleep", "",
		},
		"jax.distributed.initialize": {stack(futex, "libc.so.6:pthread_cond_wait xla_extension.so:"+eval, site+"jax/_src/distributed.py:initialize train.py:main"), Collective, "futex_do_wait", "futex"},
		"torch.distributed.rpc, at its end": {
			stack(futex, "libc.so.6:pthread_cond_wait libtorch_cpu.so:_ZN5torch11distributed3rpc"+eval, site+"torch/distributed/rpc/api.py:_all_gather "+site+"torch/distributed/rpc/api.py:shutdown train.py:main"),
			Collective, "futex_do_wait", "futex",
		},
		"DeepEP waits on its CPU for the counts of the other ranks": {
			stack("", "deep_ep_cpp.cpython-312-x86_64-linux-gnu.so:_ZN7deep_ep6Buffer18internode_dispatchE"+eval, site+"deep_ep/buffer.py:internode_dispatch train.py:main"), Collective, "", "",
		},
		"NVSHMEM finds its other ranks": {
			stack("sk_wait_data tcp_recvmsg", "libc.so.6:recv nvshmem_bootstrap_uid.so.3: libnvshmem_host.so.3:nvshmemx_hostlib_init_attr"+eval, "train.py:main"), Collective, "sk_wait_data", "tcp",
		},
		"K DeepSpeed swaps in from NVMe": {
			stack("read_events do_io_getevents __x64_sys_io_getevents", "libaio.so.1:io_getevents async_io.so:_ZN22deepspeed_aio_handle_t4waitEv"+eval, site+"deepspeed/runtime/swap_tensor/utils.py:swap_in train.py:main"),
			Storage, "read_events", "aio",
		},
		"K io_uring": {stack("io_cqring_wait __do_sys_io_uring_enter", "liburing.so.2:__sys_io_uring_enter own.so:read"+eval, "train.py:main"), Storage, "io_cqring_wait", "io_uring"},
		"GPUDirect Storage, and compiled code is not read": {
			stack("nvfs_io_wait[nvidia_fs] nvfs_ioctl[nvidia_fs] __x64_sys_ioctl", "", "train.py:load"), Storage, "nvfs_io_wait", "nvidia_fs",
		},
		"K gfs2 waits for a lock of the cluster": {stack("dlm_wait[dlm] gfs2_glock_wait[gfs2] gfs2_open[gfs2]", "", ""), Storage, "dlm_wait", "gfs2"},
		"K a software RAID":                      {stack("md_super_wait[md_mod] md_write_start[md_mod] raid5_make_request[raid456]", "", ""), Storage, "md_super_wait", "block"},
		"Ray Data": {
			stack(futex, "libc.so.6:pthread_cond_wait _raylet.so:"+eval, site+"ray/_private/worker.py:get "+site+"ray/data/iterator.py:iter_torch_batches train.py:main"), DataLoading, "futex_do_wait", "futex",
		},
		"M nobody could read more than the kernel's part": {stack(futex, "", ""), OwnCode, "futex_do_wait", "futex"},
		"the same of a socket":                            {stack("sk_wait_data tcp_recvmsg_locked tcp_recvmsg", "", ""), OwnCode, "sk_wait_data", "tcp"},
		"the same of a file":                              {stack("io_schedule folio_wait_bit_common filemap_read", "", ""), Storage, "folio_wait_bit_common", "page_cache"},
		"computes":                                        {stack("", "libopenblas.so.0:dgemm_kernel"+eval, "train.py:step"), OwnCode, "", ""},
		"nothing is known":                                {Stack{}, OwnCode, "", ""},
		"a program that is called as a collective is not one": {stack("", "myncclthing:ncc libfoo.so:xnccl_y", "torch_distributed.py:all_reduce mytorch/distributed/distributed_c10d.pyx:f"), OwnCode, "", ""},
		"a user's own file called mysocket.py":                {stack("", "", "/home/u/mysocket.py:read"), OwnCode, "", ""},
		"a user's own file called socket.py":                  {stack("", "", "/home/u/socket.py:read"), OwnCode, "", ""},
		"a user's own queue.py beside an environment":         {stack("", "", "/home/u/python3/src/queue.py:get"), OwnCode, "", ""},
		"a user's own folder called grain":                    {stack(futex, "libc.so.6:pthread_cond_wait"+eval, "/usr/lib/python3.14/threading.py:wait /home/u/grain/train.py:step"), Lock, "futex_do_wait", "futex"},
		"a user's own folder called safetensors":              {stack("hrtimer_nanosleep", "libc.so.6:clock_nanosleep"+eval, "/home/u/safetensors/convert.py:main"), OwnCode, "hrtimer_nanosleep", ""},
		"grain of a virtual environment":                      {stack("", "", "/home/u/.venv/lib/python3.12/site-packages/grain/_src/python/data_loader.py:next /home/u/grain/train.py:step"), DataLoading, "", ""},
		"a checkout of Megatron-LM":                           {stack("", "", "/workspace/Megatron-LM/megatron/core/pipeline_parallel/p2p_communication.py:recv /workspace/Megatron-LM/pretrain_gpt.py:main"), Collective, "", ""},
		"K the standard library in a zip file":                {stack("", "", "/opt/app/python312.zip/queue.py:get train.py:main"), Lock, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := table.Of(tc.stack)
			require.Equal(t, tc.class, got.Class, "%+v", got)
			require.Equal(t, tc.function, got.Function, "%+v", got)
			require.Equal(t, tc.owner, got.Owner, "%+v", got)
			require.Equal(t, got.Class == OwnCode, got.Why == "", "%+v", got)
		})
	}
}

// TestEveryRowHasASourceAndDecides: each is met by a frame that it is made for, and no row
// before it takes that frame away.
func TestEveryRowHasASourceAndDecides(t *testing.T) {
	table, err := New()
	require.NoError(t, err)
	classes := map[Class]bool{OwnCode: true}
	for layer, rows := range map[string][]row{"python": table.python, "native": table.native, "kernel": table.kernel} {
		require.NotEmpty(t, rows)
		for _, r := range rows {
			classes[r.class] = true
			require.Greater(t, len(r.source), 3, "%+v", r)
			names := r.names
			if names == nil {
				names = []string{"anything"}
			}
			for _, name := range names {
				if r.class == OwnCode { // it says who works, not for what a thread waits
					continue
				}
				got := table.Of(frameOf(layer, r, name))
				require.Equal(t, r.class, got.Class, "%s %+v %s is taken by %+v", layer, r, name, got)
				if layer == "kernel" {
					require.Equal(t, r.where, got.Owner, "%+v %s", r, name)
				}
			}
		}
	}
	for _, c := range Classes() {
		require.True(t, classes[c], "no row is of class %s", c)
	}
}

func frameOf(layer string, r row, name string) Stack {
	switch layer {
	case "python":
		file := r.where
		if strings.HasSuffix(file, "/") {
			file += "x/y.py"
		}
		if !strings.Contains(file, "/") {
			return Stack{Python: []Python{{"/usr/lib/python3.13t/" + file, name}}}
		}
		return Stack{Python: []Python{{"/opt/venv/lib/python3.12/site-packages/" + file, name}}}
	case "native":
		if r.where == "*" {
			return Stack{Native: []Native{{"/opt/own.so", name + "X"}}}
		}
		return Stack{Native: []Native{{"/usr/lib/" + r.where + ".so.1", name}}}
	}
	if module, ok := strings.CutPrefix(name, "["); ok {
		return Stack{Kernel: []Function{{"anything", strings.TrimSuffix(module, "]")}}}
	}
	return Stack{Kernel: []Function{{name, ""}}, Native: []Native{{"/opt/own.so", "f"}}}
}

func TestALineThatIsNoRowIsAnError(t *testing.T) {
	for _, bad := range []string{"python lock a.py *", "perl lock a.pl * x", "python sleep a.py * x"} {
		_, err := parse("# words\n\n" + bad + "\n")
		require.ErrorContains(t, err, "line 3", bad)
	}
}

// TestInWhichCallARankWaits: what the program has called, also where the frame of Python has returned to compiled code.
func TestInWhichCallARankWaits(t *testing.T) {
	const (
		gloo = "libc.so.6:pthread_cond_wait libtorch_cpu.so:_ZN4gloo9transport3tcp13UnboundBuffer8"
		site = "/usr/lib/python3/dist-packages/torch/distributed/"
	)
	table, err := New()
	require.NoError(t, err)
	for name, tc := range map[string]struct{ native, python, want string }{
		"a collective":                      {"libtorch_cpu.so:_ZN4c10d4Work4waitE", site + "distributed_c10d.py:all_reduce " + site + "c10d_logger.py:wrapper train.py:step", "all_reduce"},
		"a collective of others":            {"libtorch_cpu.so:_ZN4c10d4Work4waitE", site + "distributed_c10d.py:broadcast " + site + "distributed_c10d.py:broadcast_object_list train.py:step", "broadcast_object_list"},
		"a receive":                         {gloo + "waitRecvEPi", site + "distributed_c10d.py:recv train.py:step", "recv"},
		"Work.wait of a receive":            {gloo + "waitRecvEPiNSt6chrono8durationE", "train.py:exchange", "recv"},
		"Work.wait of a send":               {gloo + "waitSendEPiNSt6chrono8durationE", "train.py:exchange", "send"},
		"Work.wait of who knows what":       {"libtorch_cpu.so:_ZN4c10d4Work4waitE", "train.py:exchange", ""},
		"a name of the program is none":     {"libc.so.6:clock_nanosleep", "train.py:recv", ""},
		"a stage of a pipeline of Megatron": {"", "/usr/lib/python3/dist-packages/megatron/core/pipeline_parallel/p2p_communication.py:_communicate /usr/lib/python3/dist-packages/megatron/core/pipeline_parallel/p2p_communication.py:recv_forward x/schedules.py:f", "recv_forward"},
		"a program in C++ under MPI":        {"libc.so.6:epoll_wait libopen-pal.so.80:opal_progress libmpi.so.40:ompi_request_default_wait libmpi.so.40:PMPI_Allreduce train:main", "", "MPI_Allreduce"},
		"mpi4py":                            {"libmpi.so.40:ompi_coll_base_barrier_intra_tree libmpi.so.40:MPI_Barrier MPI.cpython-314.so:", "train.py:step", "MPI_Barrier"},
		"a program in C++ under NCCL":       {"libnccl.so.2: libnccl.so.2:pncclCommInitRank train:main", "", "ncclCommInitRank"},
		"a rank of DeepSpeed begins": {
			"libtorch_cpu.so:_ZN4c10d8TCPStore6doWaitE", site + "distributed_c10d.py:init_process_group " + "/usr/lib/python3/dist-packages/deepspeed/comm/torch.py:TorchBackend.init_process_group /usr/lib/python3/dist-packages/deepspeed/comm/comm.py:init_distributed train.py:main", "init_distributed",
		},
		"a rank of JAX begins": {
			"_jax.so:", "/usr/lib/python3/dist-packages/jax/_src/distributed.py:State.initialize /usr/lib/python3/dist-packages/jax/_src/distributed.py:initialize train.py:main", "initialize",
		},
	} {
		require.Equal(t, tc.want, table.Of(stack("futex_do_wait", tc.native, tc.python)).Call, name)
	}
}

// TestWhereRanksFindEachOther: at the start of their job, and not where it makes one more group.
func TestWhereRanksFindEachOther(t *testing.T) {
	for _, call := range []string{"init_process_group", "init_distributed", "init_rpc", "initialize", "connect", "MPI_Init", "MPI_Init_thread"} {
		require.True(t, AtStart(call), call)
	}
	for _, call := range []string{"", "new_group", "all_reduce", "shutdown", "MPI_Finalize", "MPI_Barrier", "ncclCommSplit"} {
		require.False(t, AtStart(call), call)
	}
}

// FuzzOf: whatever a process calls itself, the answer is one of the classes.
func FuzzOf(f *testing.F) {
	f.Add("futex_wait", "libc.so.6:x", "a.py:b")
	f.Add("[fuse]", ":", ":")
	table, err := New()
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, kernel, native, python string) {
		w := table.Of(stack(kernel, native, python))
		require.True(t, slices.Contains(Classes(), w.Class))
	})
}

func BenchmarkOf(b *testing.B) {
	table, err := New()
	require.NoError(b, err)
	s := stack("futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex do_syscall_64 entry_SYSCALL_64_after_hwframe", strings.Repeat("libc.so.6:x ", 40), strings.Repeat("/a/b/c/train.py:main ", 20))
	for b.Loop() {
		table.Of(s)
	}
}
