package identity

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Bounds on what an environment, which anybody can write, may claim.
const (
	maxWorldSize = 1 << 24 // ranks: far beyond any job, far below an overflow
	maxJobID     = 256     // bytes
	maxHostName  = 253     // bytes, RFC 1035 section 2.3.4 as text
	maxToken     = 128     // bytes
)

// DrillVariable is how a drill says to the agent that a process is its own; its value is
// a token that Options.Drill checks.
const DrillVariable = "TRACECORE_DRILL"

// launch is what an environment says about a training job.
type launch struct {
	rank, localRank, worldSize int // Unknown when none
	jobID                      string
	masterAddr                 string
	masterPort                 int
	rendezvous                 string // that no environment says
	byCalls                    bool   // nor does it name the rank: its calls do
	peers                      int    // ranks that meet at its store, where the environment does not name which of them it is
	mpi                        bool   // a launcher of MPI started it, which has one process on each host
	launcher                   string // whose mark it has, "" for none
	ofStep                     bool   // it is the task of a step of Slurm that has the rank
	attempt                    int    // 1 for the first start, 0 when none says
	trace                      Trace  // of a rank
	drill                      string // claims that a drill started it, to be proven
	badValues                  int    // values refused
}

// noLaunch is what an environment without any of the variables says.
func noLaunch() launch { return launch{rank: Unknown, localRank: Unknown, worldSize: Unknown} }

// variables are the ones that are read. Index them with the constants below.
type variables [variableCount][]byte

const (
	varRank = iota
	varLocalRank
	varWorldSize
	varSlurmProcID
	varSlurmLocalID
	varSlurmStepTasks
	varOMPIRank
	varOMPILocalRank
	varOMPISize
	varPMIRank
	varPMILocalRank
	varPMISize
	varJAXRank
	varJAXSize
	varNodeRank
	varFluxRank
	varFluxLocalRank
	varFluxSize
	varHorovodRank
	varHorovodLocalRank
	varHorovodSize
	varPaddleRank
	varPaddleLocalRank
	varPaddleSize
	varJobID
	varElasticRunID
	varFluxJobID
	varSlurmJobID
	varPMIXNamespace
	varMasterAddr
	varMasterPort
	varJAXCoordinator
	varHorovodAddr
	varHorovodPort
	varPaddleMaster
	varPaddleEndpoints
	varElasticRestarts
	varSlurmRestarts
	varDrill
	varTraceparent
	variableCount
	none = -1
)

// index maps a name to its variable. A switch on a converted byte slice neither
// allocates nor needs package state.
func index(name []byte) int {
	switch string(name) {
	case "RANK":
		return varRank
	case "LOCAL_RANK":
		return varLocalRank
	case "WORLD_SIZE":
		return varWorldSize
	case "SLURM_PROCID":
		return varSlurmProcID
	case "SLURM_LOCALID":
		return varSlurmLocalID
	case "SLURM_STEP_NUM_TASKS":
		return varSlurmStepTasks
	case "OMPI_COMM_WORLD_RANK":
		return varOMPIRank
	case "OMPI_COMM_WORLD_LOCAL_RANK":
		return varOMPILocalRank
	case "OMPI_COMM_WORLD_SIZE":
		return varOMPISize
	case "PMI_RANK":
		return varPMIRank
	case "MPI_LOCALRANKID":
		return varPMILocalRank
	case "PMI_SIZE":
		return varPMISize
	case "JAX_PROCESS_ID":
		return varJAXRank
	case "JAX_NUM_PROCESSES":
		return varJAXSize
	case "NODE_RANK":
		return varNodeRank
	case "FLUX_TASK_RANK": // flux-environment(7)
		return varFluxRank
	case "FLUX_TASK_LOCAL_ID":
		return varFluxLocalRank
	case "FLUX_JOB_SIZE":
		return varFluxSize
	case "FLUX_JOB_ID":
		return varFluxJobID
	case "HOROVOD_RANK": // horovod/runner/gloo_run.py
		return varHorovodRank
	case "HOROVOD_LOCAL_RANK":
		return varHorovodLocalRank
	case "HOROVOD_SIZE":
		return varHorovodSize
	case "HOROVOD_GLOO_RENDEZVOUS_ADDR":
		return varHorovodAddr
	case "HOROVOD_GLOO_RENDEZVOUS_PORT":
		return varHorovodPort
	case "PADDLE_TRAINER_ID": // paddle/distributed/launch/controllers/collective.py
		return varPaddleRank
	case "PADDLE_RANK_IN_NODE":
		return varPaddleLocalRank
	case "PADDLE_TRAINERS_NUM":
		return varPaddleSize
	case "PADDLE_MASTER":
		return varPaddleMaster
	case "PADDLE_TRAINER_ENDPOINTS":
		return varPaddleEndpoints
	case "JOB_ID":
		return varJobID
	case "TORCHELASTIC_RUN_ID":
		return varElasticRunID
	case "SLURM_JOB_ID":
		return varSlurmJobID
	case "PMIX_NAMESPACE":
		return varPMIXNamespace
	case "JAX_COORDINATOR_ADDRESS":
		return varJAXCoordinator
	case "TORCHELASTIC_RESTART_COUNT":
		return varElasticRestarts
	case "SLURM_RESTART_COUNT":
		return varSlurmRestarts
	case "MASTER_ADDR":
		return varMasterAddr
	case "MASTER_PORT":
		return varMasterPort
	case "TRACEPARENT": // OpenTelemetry, "Environment Variables as Context Propagation Carriers"
		return varTraceparent
	case DrillVariable:
		return varDrill
	}
	return none
}

// sources are the launchers, the innermost first: torchrun, Horovod, PaddlePaddle, Open MPI,
// PMI (MPICH, Intel MPI), Slurm, Flux, JAX. mpirun inside an allocation of Slurm has srun start a daemon on each node. Its
// ranks have the daemon's SLURM_PROCID, which is the index of the node.
//
// A source counts when it gives rank and world size, both: a RANK alone is a common name in
// programs that train nothing. A batch script of Slurm is none: it has SLURM_PROCID=0, and
// SLURM_NTASKS where the job says --ntasks. What srun starts alone has SLURM_STEP_NUM_TASKS
// (env_array_for_step of src/common/env.c sets it, also with --preserve-env, where
// SLURM_NTASKS stays that of the job).
//
// The mark is a variable that a launcher gives to its ranks, and no other that says a rank in
// the same words: an operator of Kubernetes says RANK, Slurm's pmi2 PMI_RANK, a script
// whatever it likes.
func sources() [8]rankSource {
	return [...]rankSource{
		{varRank, varLocalRank, varWorldSize, varElasticRestarts, "torchrun"},
		{varHorovodRank, varHorovodLocalRank, varHorovodSize, none, ""},
		{varPaddleRank, varPaddleLocalRank, varPaddleSize, none, ""},
		{varOMPIRank, varOMPILocalRank, varOMPISize, varPMIXNamespace, "mpirun"},
		{varPMIRank, varPMILocalRank, varPMISize, varPMILocalRank, "hydra"},
		{varSlurmProcID, varSlurmLocalID, varSlurmStepTasks, none, ""},
		{varFluxRank, varFluxLocalRank, varFluxSize, none, ""},
		{varJAXRank, none, varJAXSize, none, ""},
	}
}

type rankSource struct {
	rank, local, world, mark int
	launcher                 string // whose mark it is
}

// parseEnviron reads an environment block: NAME=VALUE strings, each ended by a
// NUL. Anything may stand in it. Of a name given twice the first counts, as for
// getenv(3).
func parseEnviron(block []byte) launch {
	vars := scan(block)
	l := noLaunch()
	for _, s := range sources() {
		if l.rank != Unknown {
			l.takeLocal(&vars, s)
		} else if l.takeRank(&vars, s) {
			l.mpi = s.rank == varOMPIRank || s.rank == varPMIRank
			l.ofStep = s.rank == varSlurmProcID
			if s.mark != none && vars[s.mark] != nil {
				l.launcher = s.launcher
			}
		}
	}
	if l.rank == Unknown {
		l.takeNode(&vars)
	}
	l.takeJob(&vars)
	l.drill = l.word(vars[varDrill], maxToken)
	return l
}

func scan(block []byte) (vars variables) {
	for len(block) > 0 {
		var entry []byte
		entry, block, _ = bytes.Cut(block, []byte{0})
		name, value, found := bytes.Cut(entry, []byte{'='})
		if !found {
			continue
		}
		if i := index(name); i != none && vars[i] == nil {
			vars[i] = value // never nil: it follows an equals sign
		}
	}
	return vars
}

// takeRank reports whether this source names a rank of a world.
func (l *launch) takeRank(vars *variables, s rankSource) bool {
	if vars[s.rank] == nil || vars[s.world] == nil {
		return false
	}
	r, w := l.number(vars[s.rank], maxWorldSize-1), l.number(vars[s.world], maxWorldSize)
	if r == Unknown || w == Unknown {
		return false
	}
	if r >= w {
		l.badValues++
		return false
	}
	l.rank, l.worldSize = r, w
	if s.local == none || vars[s.local] == nil {
		return true
	}
	if l.localRank = l.number(vars[s.local], maxWorldSize-1); l.localRank >= w {
		l.localRank = Unknown
		l.badValues++
	}
	return true
}

// takeLocal reads the local rank of a process whose launcher says none, where another source
// names the same rank of the same world: srun --mpi=pmi2 says PMI_RANK and SLURM_LOCALID.
func (l *launch) takeLocal(vars *variables, s rankSource) {
	if same := noLaunch(); l.localRank == Unknown && same.takeRank(vars, s) && same.rank == l.rank && same.worldSize == l.worldSize {
		l.localRank = same.localRank
	}
}

// lightning is the launcher of PyTorch Lightning, whose first process on a node is a rank and starts the others.
const lightning = "lightning"

// takeNode reads what Lightning says, which has no RANK (_SubprocessScriptLauncher of
// lightning/fabric/strategies/launchers): NODE_RANK, LOCAL_RANK and the WORLD_SIZE of all nodes. How many ranks
// are on a node it does not say. So these are the ranks of the first node. Those of the others are
// known by their calls, and their job by the address of its store.
func (l *launch) takeNode(vars *variables) {
	if vars[varRank] != nil || vars[varNodeRank] == nil || vars[varLocalRank] == nil || vars[varWorldSize] == nil {
		return
	}
	node, of := l.number(vars[varNodeRank], maxWorldSize-1), rankSource{rank: varLocalRank, local: varLocalRank, world: varWorldSize}
	switch {
	case node == Unknown:
	case node > 0:
		l.takeStore(vars)
		l.peers = max(0, l.number(vars[varWorldSize], maxWorldSize))
	case l.takeRank(vars, of):
		l.launcher = lightning
	}
}

// meets is what the calls of a process say of its rank, at the store that its environment names.
func (l launch) meets(environ launch) launch {
	if environ.masterAddr != "" && environ.peers == l.worldSize {
		l.masterAddr, l.masterPort, l.rendezvous = environ.masterAddr, environ.masterPort, ""
	}
	return l
}

// in is what the environment of a process in that cgroup says. sbatch hands the environment that
// it has to the batch script, with SLURM_STEP_NUM_TASKS where it runs within a step itself (srun
// --pty bash). The script, and a shell of salloc, is in a cgroup that says what it is.
func (l launch) in(cgroupPath string) launch {
	if step := procfs.SlurmStep(cgroupPath); l.ofStep && (step == "batch" || step == "interactive") {
		none := noLaunch()
		none.jobID, none.drill, none.badValues = l.jobID, l.drill, l.badValues
		return none
	}
	return l
}

// takeJob reads what names the job. A bare JOB_ID and the address of a store
// mean a training job only beside a rank; the launchers' own names always do.
func (l *launch) takeJob(vars *variables) {
	if l.rank != Unknown {
		l.jobID = l.word(vars[varJobID], maxJobID)
		l.takeStore(vars)
		l.takeAttempt(vars)
		l.takeTrace(vars)
	}
	for _, source := range [...]int{varElasticRunID, varFluxJobID, varSlurmJobID, varPMIXNamespace} {
		if l.jobID != "" {
			return
		}
		l.jobID = l.word(vars[source], maxJobID)
		// torchrun's --rdzv-id when nobody gave one: it names every such job.
		if source == varElasticRunID && l.jobID == "none" {
			l.jobID = ""
		}
	}
}

// takeStore reads where the ranks meet.
func (l *launch) takeStore(vars *variables) {
	first, _, _ := bytes.Cut(vars[varPaddleEndpoints], []byte{','}) // of rank 0
	for _, at := range [...][2][]byte{
		{vars[varMasterAddr], vars[varMasterPort]}, {vars[varHorovodAddr], vars[varHorovodPort]},
		endpoint(vars[varPaddleMaster]), endpoint(first), endpoint(vars[varJAXCoordinator]),
	} {
		if l.masterAddr = l.word(at[0], maxHostName); at[1] != nil {
			l.masterPort = max(0, l.number(at[1], 65535))
		}
		if l.masterAddr != "" {
			return
		}
	}
}

// endpoint parts HOST:PORT.
func endpoint(text []byte) (parts [2][]byte) {
	if at := bytes.LastIndexByte(text, ':'); at > 0 {
		parts = [2][]byte{text[:at], text[at+1:]}
	}
	return parts
}

// takeAttempt reads how often the launcher has started the job again.
func (l *launch) takeAttempt(vars *variables) {
	for _, source := range [...]int{varElasticRestarts, varSlurmRestarts} {
		if vars[source] != nil && l.attempt == 0 {
			l.attempt = l.number(vars[source], maxWorldSize) + 1 // Unknown is -1
		}
	}
}

// takeTrace reads the trace that the launcher gave to the rank.
func (l *launch) takeTrace(vars *variables) {
	if vars[varTraceparent] == nil {
		return
	}
	trace, ok := parseTraceparent(vars[varTraceparent])
	if !ok {
		l.badValues++
		return
	}
	l.trace = trace
}

// number reads a decimal number of digits alone, at most limit; any other text
// counts as bad and is Unknown.
func (l *launch) number(digits []byte, limit int) int {
	n := 0
	for _, c := range digits {
		if c < '0' || c > '9' || n > limit {
			l.badValues++
			return Unknown
		}
		n = n*10 + int(c-'0')
	}
	if len(digits) == 0 || n > limit {
		l.badValues++
		return Unknown
	}
	return n
}

// word reads printable text without white space, at most limit bytes long; any
// other counts as bad and is "".
func (l *launch) word(value []byte, limit int) string {
	if len(value) == 0 {
		return ""
	}
	odd := func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }
	if len(value) > limit || !utf8.Valid(value) || bytes.IndexFunc(value, odd) >= 0 {
		l.badValues++
		return ""
	}
	return string(value)
}
