package identity

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func block(entries ...string) []byte {
	return []byte(strings.Join(entries, "\x00") + "\x00")
}

func TestEnvironmentNamesTheRank(t *testing.T) {
	for name, tc := range map[string]struct {
		environ []byte
		want    launch
	}{
		"torchrun": {
			block("PATH=/bin", "RANK=12", "LOCAL_RANK=4", "WORLD_SIZE=16", "MASTER_ADDR=node-0", "MASTER_PORT=29400", "TORCHELASTIC_RUN_ID=run-7"),
			launch{rank: 12, localRank: 4, worldSize: 16, jobID: "run-7", masterAddr: "node-0", masterPort: 29400},
		},
		"torchrun without a job name": {
			block("RANK=0", "WORLD_SIZE=1", "TORCHELASTIC_RUN_ID=none"),
			launch{rank: 0, localRank: Unknown, worldSize: 1},
		},
		"torchrun's unnamed job within a Slurm job": {
			block("RANK=0", "WORLD_SIZE=1", "TORCHELASTIC_RUN_ID=none", "SLURM_JOB_ID=991"),
			launch{rank: 0, localRank: Unknown, worldSize: 1, jobID: "991"},
		},
		"Slurm": {
			block("SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NTASKS=4", "SLURM_JOB_ID=991", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4"),
			launch{rank: 3, localRank: 1, worldSize: 4, jobID: "991", ofStep: true},
		},
		"Open MPI": {
			block("OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_SIZE=4"),
			launch{rank: 2, localRank: 0, worldSize: 4, mpi: true},
		},
		"Open MPI 5, whose namespace is another at each start": {
			block("OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_SIZE=4", "PMIX_RANK=2", "PMIX_NAMESPACE=prterun-node0-31337@1", "PMIX_SERVER_URI41=prterun-node0-31337@0.0;tcp4://10.0.0.1:38417"),
			launch{rank: 2, localRank: 0, worldSize: 4, jobID: "prterun-node0-31337@1", mpi: true, launcher: "mpirun"},
		},
		"Open MPI under Slurm": {
			block("OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "PMIX_NAMESPACE=slurm.pmix.991.0", "SLURM_JOB_ID=991", "SLURM_RESTART_COUNT=2"),
			launch{rank: 2, localRank: Unknown, worldSize: 4, jobID: "991", attempt: 3, mpi: true, launcher: "mpirun"},
		},
		"MPICH, Hydra with PMI": {
			block("PMI_RANK=2", "PMI_FD=9", "PMI_SIZE=4", "MPI_LOCALNRANKS=2", "MPI_LOCALRANKID=1"),
			launch{rank: 2, localRank: 1, worldSize: 4, mpi: true, launcher: "hydra"},
		},
		"Flux": {
			block("FLUX_JOB_ID=ƒ3ETxsR9H", "FLUX_JOB_SIZE=4", "FLUX_JOB_NNODES=2", "FLUX_TASK_RANK=3", "FLUX_TASK_LOCAL_ID=1"),
			launch{rank: 3, localRank: 1, worldSize: 4, jobID: "ƒ3ETxsR9H"},
		},
		"Flux with PMI": {
			block("FLUX_JOB_ID=f3ETxsR9H", "FLUX_JOB_SIZE=4", "FLUX_TASK_RANK=3", "FLUX_TASK_LOCAL_ID=1", "PMI_RANK=3", "PMI_SIZE=4", "PMI_FD=9"),
			launch{rank: 3, localRank: 1, worldSize: 4, jobID: "f3ETxsR9H", mpi: true},
		},
		"torchrun within a task of Flux": {
			block("FLUX_JOB_ID=f3ETxsR9H", "FLUX_JOB_SIZE=2", "FLUX_TASK_RANK=1", "FLUX_TASK_LOCAL_ID=0", "RANK=9", "LOCAL_RANK=1", "WORLD_SIZE=16", "TORCHELASTIC_RUN_ID=none"),
			launch{rank: 9, localRank: 1, worldSize: 16, jobID: "f3ETxsR9H"},
		},
		"horovodrun with Gloo": {
			block("HOROVOD_RANK=5", "HOROVOD_SIZE=8", "HOROVOD_LOCAL_RANK=1", "HOROVOD_CONTROLLER=gloo", "HOROVOD_GLOO_RENDEZVOUS_ADDR=10.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT=40001"),
			launch{rank: 5, localRank: 1, worldSize: 8, masterAddr: "10.0.0.1", masterPort: 40001},
		},
		"PaddlePaddle": {
			block("PADDLE_MASTER=10.0.0.1:49178", "PADDLE_TRAINER_ID=9", "PADDLE_TRAINERS_NUM=16", "PADDLE_RANK_IN_NODE=1", "PADDLE_TRAINER_ENDPOINTS=10.0.0.1:49179,10.0.0.1:49180"),
			launch{rank: 9, localRank: 1, worldSize: 16, masterAddr: "10.0.0.1", masterPort: 49178},
		},
		"PaddlePaddle with the addresses of its hosts": {
			block("PADDLE_TRAINER_ID=9", "PADDLE_TRAINERS_NUM=16", "PADDLE_RANK_IN_NODE=1", "PADDLE_TRAINER_ENDPOINTS=10.0.0.1:6070,10.0.0.1:6071,10.0.0.2:6070"),
			launch{rank: 9, localRank: 1, worldSize: 16, masterAddr: "10.0.0.1", masterPort: 6070},
		},
		"PyTorch Lightning on its first node": {
			block("MASTER_ADDR=127.0.0.1", "MASTER_PORT=4711", "NODE_RANK=0", "LOCAL_RANK=3", "WORLD_SIZE=8"),
			launch{rank: 3, localRank: 3, worldSize: 8, masterAddr: "127.0.0.1", masterPort: 4711, launcher: "lightning"},
		},
		"PyTorch Lightning on another node, whose ranks it does not say": {
			block("MASTER_ADDR=node-0", "MASTER_PORT=4711", "NODE_RANK=1", "LOCAL_RANK=3", "WORLD_SIZE=8"),
			launch{rank: Unknown, localRank: Unknown, worldSize: Unknown, masterAddr: "node-0", masterPort: 4711, peers: 8},
		},
		"an operator of Kubernetes, which says a rank": {
			block("MASTER_ADDR=node-0", "MASTER_PORT=4711", "NODE_RANK=0", "LOCAL_RANK=3", "WORLD_SIZE=8", "RANK=5"),
			launch{rank: 5, localRank: 3, worldSize: 8, masterAddr: "node-0", masterPort: 4711},
		},
		"a pod of a launcher that is still to start": {
			block("MASTER_ADDR=node-0", "MASTER_PORT=4711", "NODE_RANK=0", "WORLD_SIZE=8"), noLaunch(),
		},
		"MPICH over PMIx: a rank without a world is none": {
			block("PMIX_RANK=2", "PMIX_NAMESPACE=ns"),
			launch{rank: Unknown, localRank: Unknown, worldSize: Unknown, jobID: "ns"},
		},
		"srun, started again after a node failure": {
			block("SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NTASKS=4", "SLURM_JOB_ID=991", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4", "SLURM_RESTART_COUNT=1", "SLURM_LAUNCH_NODE_IPADDR=10.0.0.1"),
			launch{rank: 3, localRank: 1, worldSize: 4, jobID: "991", attempt: 2, ofStep: true},
		},
		"srun --preserve-env: a step is smaller than its job": {
			block("SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NTASKS=8", "SLURM_JOB_ID=991", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4"),
			launch{rank: 3, localRank: 1, worldSize: 4, jobID: "991", ofStep: true},
		},
		"the batch script of a job of Slurm is no rank": { // its task's id is 0
			block("SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NODEID=0", "SLURM_TASK_PID=812", "SLURM_NTASKS=4", "SLURM_NPROCS=4", "SLURM_JOB_ID=991", "ENVIRONMENT=BATCH"),
			launch{rank: Unknown, localRank: Unknown, worldSize: Unknown, jobID: "991"},
		},
		"JAX": {
			block("JAX_COORDINATOR_ADDRESS=host0:1234", "JAX_NUM_PROCESSES=4", "JAX_PROCESS_ID=3"),
			launch{rank: 3, localRank: Unknown, worldSize: 4, masterAddr: "host0", masterPort: 1234},
		},
		"a worker of torchrun that was started again": {
			block("RANK=3", "LOCAL_RANK=3", "WORLD_SIZE=8", "GROUP_RANK=0", "ROLE_RANK=3", "LOCAL_WORLD_SIZE=8", "TORCHELASTIC_RESTART_COUNT=1", "TORCHELASTIC_MAX_RESTARTS=3", "TORCHELASTIC_RUN_ID=none", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"),
			launch{rank: 3, localRank: 3, worldSize: 8, attempt: 2, masterAddr: "127.0.0.1", masterPort: 29500, launcher: "torchrun"},
		},
		"PyTorchJob of the training operator": { // a master and workers, one process each
			block("PYTHONUNBUFFERED=1", "PET_NNODES=3", "PET_NODE_RANK=1", "MASTER_ADDR=llm-master-0", "MASTER_PORT=23456", "WORLD_SIZE=3", "RANK=1"),
			launch{rank: 1, localRank: Unknown, worldSize: 3, masterAddr: "llm-master-0", masterPort: 23456},
		},
		"accelerate, its own launcher on one GPU": { // no process group: no rank
			block("ACCELERATE_MIXED_PRECISION=bf16", "ACCELERATE_USE_CPU=false"), noLaunch(),
		},
		"deepspeed": {
			block("CUDA_VISIBLE_DEVICES=0,1", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500", "WORLD_SIZE=2", "CROSS_RANK=0", "CROSS_SIZE=1", "LOCAL_SIZE=2", "RANK=1", "LOCAL_RANK=1"),
			launch{rank: 1, localRank: 1, worldSize: 2, masterAddr: "10.0.0.1", masterPort: 29500},
		},
		"an indexed Job of Kubernetes knows its index and no world": {
			block("JOB_COMPLETION_INDEX=2", "HOSTNAME=llm-2"), noLaunch(),
		},
		"a JobSet whose script sets what torch needs": {
			block("JOB_COMPLETION_INDEX=2", "JOBSET_NAME=llm", "RANK=2", "WORLD_SIZE=4", "MASTER_ADDR=llm-workers-0-0.llm", "MASTER_PORT=3389"),
			launch{rank: 2, localRank: Unknown, worldSize: 4, masterAddr: "llm-workers-0-0.llm", masterPort: 3389},
		},
		"a worker of Ray before it sets what torch needs": {
			block("RAY_JOB_ID=01000000", "RAY_ADDRESS=10.0.0.1:6379", "PYTHONPATH=/app"), noLaunch(),
		},
		"srun --mpi=pmi2": {
			block("SLURM_JOB_ID=991", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4", "SLURM_NTASKS=4", "SLURM_PROCID=2", "SLURM_LOCALID=1", "PMI_RANK=2", "PMI_SIZE=4", "PMI_FD=9", "PMI_JOBID=991.0"),
			launch{rank: 2, localRank: 1, worldSize: 4, jobID: "991", mpi: true},
		},
		"srun --mpi=pmix": {
			block("SLURM_JOB_ID=991", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4", "SLURM_NTASKS=4", "SLURM_PROCID=2", "SLURM_LOCALID=1", "PMIX_RANK=2", "PMIX_NAMESPACE=slurm.pmix.991.0"),
			launch{rank: 2, localRank: 1, worldSize: 4, jobID: "991", ofStep: true},
		},
		// mpirun has srun start its daemon on each node: the ranks have what the daemon has.
		"Open MPI's mpirun in an allocation of Slurm": {
			block("SLURM_JOB_ID=991", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_LOCALID=0", "OMPI_COMM_WORLD_RANK=13", "OMPI_COMM_WORLD_LOCAL_RANK=5", "OMPI_COMM_WORLD_SIZE=16"),
			launch{rank: 13, localRank: 5, worldSize: 16, jobID: "991", mpi: true},
		},
		"the same on the node of the batch script": {
			block("SLURM_JOB_ID=991", "SLURM_NTASKS=16", "SLURM_PROCID=0", "SLURM_LOCALID=0", "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_LOCAL_RANK=3", "OMPI_COMM_WORLD_SIZE=16"),
			launch{rank: 3, localRank: 3, worldSize: 16, jobID: "991", mpi: true},
		},
		"Hydra in an allocation of Slurm": {
			block("SLURM_JOB_ID=991", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_LOCALID=0", "PMI_RANK=13", "PMI_SIZE=16", "MPI_LOCALRANKID=5"),
			launch{rank: 13, localRank: 5, worldSize: 16, jobID: "991", mpi: true, launcher: "hydra"},
		},
		"the local rank of another rank is not taken": {
			block("SLURM_STEP_NUM_TASKS=16", "SLURM_PROCID=1", "SLURM_LOCALID=0", "PMI_RANK=13", "PMI_SIZE=16"),
			launch{rank: 13, localRank: Unknown, worldSize: 16, mpi: true},
		},
		"PMI": {
			block("PMI_RANK=2", "PMI_SIZE=4"),
			launch{rank: 2, localRank: Unknown, worldSize: 4, mpi: true},
		},
		"torchrun goes before Slurm, JOB_ID before both": {
			block("SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_JOB_ID=991", "RANK=9", "WORLD_SIZE=16", "TORCHELASTIC_RUN_ID=run-7", "JOB_ID=mine"),
			launch{rank: 9, localRank: Unknown, worldSize: 16, jobID: "mine"},
		},
		"a RANK alone is no rank, and a JOB_ID without a rank no job": {
			block("RANK=5", "JOB_ID=nightly", "MASTER_ADDR=x"),
			launch{rank: Unknown, localRank: Unknown, worldSize: Unknown},
		},
		"a RANK alone does not hide Slurm": {
			block("RANK=5", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2"),
			launch{rank: 1, localRank: Unknown, worldSize: 2, ofStep: true},
		},
		"a launcher knows its job": {
			block("SLURM_JOB_ID=991"),
			launch{rank: Unknown, localRank: Unknown, worldSize: Unknown, jobID: "991"},
		},
		"the first of two counts": {
			block("RANK=1", "RANK=2", "WORLD_SIZE=4"),
			launch{rank: 1, localRank: Unknown, worldSize: 4},
		},
		"the last entry may lack its end": {
			[]byte("RANK=1\x00WORLD_SIZE=4"),
			launch{rank: 1, localRank: Unknown, worldSize: 4},
		},
		"names are whole": {
			block("XRANK=1", "RANK_=1", "rank=1", "RANK", "WORLD_SIZE=4", "=RANK=1"),
			launch{rank: Unknown, localRank: Unknown, worldSize: Unknown},
		},
		"empty": {nil, noLaunch()},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, parseEnviron(tc.environ)) })
	}
}

// TestTheStepOfSlurmSaysWhatIsARank: sbatch that is called within a step of one task hands on what that step has.
func TestTheStepOfSlurmSaysWhatIsARank(t *testing.T) {
	environ := []string{"SLURM_JOB_ID=992", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NTASKS=4", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=1"}
	for path, want := range map[string]int{
		"/system.slice/slurmstepd.scope/job_992/step_batch/user/task_0":       Unknown,
		"/slurm/uid_1000/job_992/step_batch":                                  Unknown,
		"/system.slice/slurmstepd.scope/job_992/step_interactive/user/task_0": Unknown,
		"/system.slice/slurmstepd.scope/job_992/step_0/user/task_0":           0,
		"/user.slice/step_batch":                                              0, // no path of Slurm
		"":                                                                    0, // its cgroup could not be read, or Slurm makes none
	} {
		got := parseEnviron(block(environ...)).in(path)
		require.Equal(t, want, got.rank, path)
		require.Equal(t, "992", got.jobID, path)
	}
	inside := "/system.slice/slurmstepd.scope/job_992/step_batch/user/task_0"
	require.Equal(t, 3, parseEnviron(block(append(environ, "RANK=3", "WORLD_SIZE=4")...)).in(inside).rank, "torchrun in the script starts ranks")
}

func TestHostileValuesAreUnknownAndCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		environ []byte
		bad     int
	}{
		"not a number":        {block("RANK=three", "WORLD_SIZE=8"), 1},
		"negative":            {block("RANK=-1", "WORLD_SIZE=8"), 1},
		"signed":              {block("RANK=+1", "WORLD_SIZE=8"), 1},
		"empty value":         {block("RANK=", "WORLD_SIZE=8"), 1},
		"white space":         {block("RANK= 1", "WORLD_SIZE=8"), 1},
		"beyond any integer":  {block("RANK="+strings.Repeat("9", 100000), "WORLD_SIZE=8"), 1},
		"world too large":     {block("RANK=1", "WORLD_SIZE=16777217"), 1},
		"rank beyond world":   {block("RANK=8", "WORLD_SIZE=8"), 1},
		"both":                {block("RANK=x", "WORLD_SIZE=y"), 2},
		"endpoints of none":   {block("PADDLE_TRAINER_ID=0", "PADDLE_TRAINERS_NUM=-2", "PADDLE_TRAINER_ENDPOINTS=:,:"), 1},
		"of a node":           {block("NODE_RANK=x", "LOCAL_RANK=0", "WORLD_SIZE=8"), 1},
		"on a node":           {block("NODE_RANK=0", "LOCAL_RANK=8", "WORLD_SIZE=8"), 1},
		"a world of none":     {block("NODE_RANK=1", "LOCAL_RANK=0", "WORLD_SIZE=-8"), 1},
		"two bad sources":     {block("RANK=x", "WORLD_SIZE=8", "PMI_RANK=1", "PMI_SIZE=0"), 2},
		"bytes after a digit": {block("RANK=1\xff", "WORLD_SIZE=8"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			want := noLaunch()
			want.badValues = tc.bad
			require.Equal(t, want, parseEnviron(tc.environ))
		})
	}
}

func TestBadValueOfOneVariableLeavesTheOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		entry string
		want  launch
	}{
		"local rank":           {"LOCAL_RANK=8", launch{localRank: Unknown, jobID: "j"}},
		"port":                 {"MASTER_PORT=65536", launch{localRank: Unknown, jobID: "j"}},
		"control characters":   {"JOB_ID=a\x1b[31mb", launch{localRank: Unknown, jobID: "j"}},
		"no UTF-8":             {"JOB_ID=\xff", launch{localRank: Unknown, jobID: "j"}},
		"spaces":               {"JOB_ID=a b", launch{localRank: Unknown, jobID: "j"}},
		"too long for a job":   {"JOB_ID=" + strings.Repeat("a", 257), launch{localRank: Unknown, jobID: "j"}},
		"too long for a host":  {"MASTER_ADDR=" + strings.Repeat("a", 254), launch{localRank: Unknown, jobID: "j"}},
		"new line in the host": {"MASTER_ADDR=a\nb", launch{localRank: Unknown, jobID: "j"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.rank, tc.want.worldSize, tc.want.badValues = 1, 8, 1
			require.Equal(t, tc.want, parseEnviron(block("RANK=1", "WORLD_SIZE=8", tc.entry, "SLURM_JOB_ID=j")))
		})
	}
}

func TestAJobWithoutAnIDIsItsRendezvous(t *testing.T) {
	const container = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, tc := range map[string]struct {
		addr, container, pod, job, want string
	}{
		"an address":                  {"10.0.0.1", "", "", "", "10.0.0.1:29500/8"},
		"a name":                      {"node-0", container, "llm-master-0", "", "node-0:29500/8"},
		"a job with an id needs none": {"10.0.0.1", "", "", "j", ""},
		"no store":                    {"", "", "", "", ""},
		"loopback says nothing outside the machine": {"127.0.0.1", "", "", "", "n1:29500/8"},
		"by its name":                 {"localhost", "", "", "", "n1:29500/8"},
		"of IPv6":                     {"::1", "", "", "", "n1:29500/8"},
		"nor outside the container":   {"localhost", container, "", "", "0123456789ab:29500/8"},
		"nor outside the pod":         {"localhost", container, "llm-master-0", "", "llm-master-0:29500/8"},
		"a pod in the host's network": {"127.0.0.1", "", "llm-master-0", "", "llm-master-0:29500/8"},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts{pid: 42, host: "n1", launch: launch{rank: 3, worldSize: 8, jobID: tc.job, masterAddr: tc.addr, masterPort: 29500}, home: home{membership: membership{ContainerID: tc.container}, podName: tc.pod}}
			r, _ := derive(f, nil)
			require.Equal(t, tc.want, r.Rendezvous)
			worker, _ := derive(facts{pid: 43, host: "n1", launch: noLaunch()}, r)
			require.Equal(t, []any{tc.want, uint32(42)}, []any{worker.Rendezvous, worker.RankPID})
		})
	}
}

// Two jobs of MPICH on one host say nothing that tells them apart; their launchers do.
func TestAJobOfMPIWithoutAnIDIsItsLauncher(t *testing.T) {
	of := func(launcher uint32, variables ...string) *record {
		r, _ := derive(facts{pid: 42, parentPID: launcher, host: "n1", launch: parseEnviron(block(variables...))}, nil)
		return r
	}
	require.Equal(t, "n1:launcher-812/4", of(812, "PMI_RANK=2", "PMI_SIZE=4").Rendezvous)
	require.Equal(t, "n1:launcher-813/4", of(813, "PMI_RANK=2", "PMI_SIZE=4").Rendezvous)
	require.Empty(t, of(1, "PMI_RANK=2", "PMI_SIZE=4").Rendezvous, "its launcher has ended: nobody can tell")
	require.Empty(t, of(812, "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "PMIX_NAMESPACE=prterun-n1-1@1").Rendezvous, "it has an id")
	require.Empty(t, of(812, "RANK=2", "WORLD_SIZE=4").Rendezvous, "whatever starts such ranks may be one process each")
	wrapper := of(812, "PMI_RANK=2", "PMI_SIZE=4")
	python, _ := derive(facts{pid: 43, parentPID: 42, host: "n1", launch: parseEnviron(block("PMI_RANK=2", "PMI_SIZE=4"))}, wrapper)
	require.Equal(t, "n1:launcher-812/4", python.Rendezvous)
}

func FuzzEnviron(f *testing.F) {
	f.Add(block("RANK=1", "WORLD_SIZE=8", "LOCAL_RANK=0", "JOB_ID=a", "MASTER_PORT=1"))
	f.Add(block("JAX_PROCESS_ID=1", "JAX_NUM_PROCESSES=8", "JAX_COORDINATOR_ADDRESS=a:1", "SLURM_RESTART_COUNT=2"))
	f.Add(block("SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=8", "=", "PMI_RANK"))
	f.Add([]byte("RANK=\x00WORLD_SIZE=99999999999999999999"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l := parseEnviron(raw)
		if l.rank == Unknown {
			require.Equal(t, [2]int{Unknown, Unknown}, [2]int{l.localRank, l.worldSize})
			require.Empty(t, l.masterAddr)
		} else {
			require.GreaterOrEqual(t, l.rank, 0)
			require.Less(t, l.rank, l.worldSize)
			require.Less(t, l.localRank, l.worldSize)
			require.LessOrEqual(t, l.worldSize, maxWorldSize)
		}
		require.LessOrEqual(t, len(l.jobID), maxJobID)
		require.NotContains(t, l.jobID, "\n")
		require.GreaterOrEqual(t, l.attempt, 0)
		require.True(t, l.masterPort >= 0 && l.masterPort <= 65535)
	})
}

func BenchmarkEnviron(b *testing.B) {
	entries := []string{}
	for range 60 {
		entries = append(entries, "SOME_SERVICE_PORT_443_TCP_ADDR=10.100.200.300")
	}
	environ := block(append(entries, "RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=8", "JOB_ID=job")...)
	b.SetBytes(int64(len(environ)))
	b.ReportAllocs()
	for b.Loop() {
		parseEnviron(environ)
	}
}
