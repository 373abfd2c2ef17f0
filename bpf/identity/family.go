package identity

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// facts is what was read of one process itself.
type facts struct {
	pid, parentPID uint32
	startNS        uint64
	comm           string
	program        string // its name when it was executed, as far as that was seen
	launch         launch
	drill          bool
	host           string // what this machine is called
	home
	unread    bool     // some of it could not be read, for now
	arguments []string // with which it was executed, where a wrapper has started it
	led       *Born    // the outermost process of its rank, as the agent before this one knew
	script    string   // as in record
}

// derive makes the record of a process from what was read of it and from its
// parent, when that is known. Of a training job's processes three kinds are told
// apart:
//
//   - its own environment names a rank and the parent is not that rank: this is
//     the process the launcher started for the rank;
//   - the parent is that same rank, or the own environment names none while the
//     parent's did: a worker forked without exec, or a program the rank started.
//     It carries the rank's identity with Inherited set;
//   - the parent too has a rank, but has started this one: it is a launcher. It is told so.
func derive(f facts, parent *record) (r *record, parentIsLauncher bool) {
	r = &record{startNS: f.startNS, program: cmp.Or(f.program, f.comm), byCalls: f.launch.byCalls, script: f.script, launcher: f.launch.launcher, podName: f.podName, Process: Process{
		PID: f.pid, ParentPID: f.parentPID, Comm: f.comm,
		Rank: f.launch.rank, LocalRank: f.launch.localRank, WorldSize: f.launch.worldSize,
		JobID: f.launch.jobID, MasterAddr: f.launch.masterAddr, MasterPort: f.launch.masterPort,
		ContainerID: f.membership.ContainerID, PodUID: f.membership.PodUID, CgroupPath: f.membership.Path,
		Domain: f.domain, Drill: f.drill, Attempt: f.launch.attempt, Trace: f.launch.trace, StartNS: f.startNS - f.startNS%uint64(tickNS),
	}}
	if parent == nil {
		r.begin(&f)
		return r, false
	}
	r.Drill = r.Drill || parent.Drill
	if (r.Domain == "" || r.Domain == unknownDomain) && parent.PID > 1 { // pid 1 adopts anybody's
		r.Domain = parent.Domain
	}
	if r.CgroupPath == "" {
		r.placeIn(&parent.Process)
	}
	switch {
	case !parent.IsRank():
	case !r.IsRank():
		r.inherit(&parent.Process)
	case r.startedBy(parent):
		parentIsLauncher = true
	case r.Rank == parent.Rank && r.WorldSize == parent.WorldSize:
		r.complete(&parent.Process)
	}
	r.begin(&f)
	r.share(&parent.Process)
	return r, parentIsLauncher
}

// startedBy reports whether parent, whose environment names a rank as that of r does, is the
// launcher of r. Either its world is smaller: torchrun under srun is one task of Slurm a node.
// Or r has the mark of a launcher that parent has not: the training operator of Kubeflow gives
// a pod whose command is torchrun RANK, the index of the pod, and the WORLD_SIZE of its ranks.
func (r *record) startedBy(parent *record) bool {
	return parent.WorldSize < r.WorldSize || r.launcher != "" && r.launcher != parent.launcher
}

// begin names the rank whose outermost process p is, and the job of one without an id. MPICH
// says neither id nor store; on one host all ranks of a job have one parent.
func (p *Process) begin(f *facts) {
	if !p.IsRank() || p.Inherited {
		return
	}
	p.RankPID = p.PID
	switch world := "/" + strconv.Itoa(p.WorldSize); {
	case p.JobID != "":
	case f.launch.rendezvous != "":
		p.Rendezvous = f.launch.rendezvous
	case p.MasterAddr != "":
		p.Rendezvous = p.meetAt(f) + ":" + strconv.Itoa(p.MasterPort) + world
	case f.launch.mpi && f.parentPID > 1:
		p.Rendezvous = f.host + ":launcher-" + strconv.FormatUint(uint64(f.parentPID), 10) + world
	}
}

// meetAt is the address where the ranks of the job meet. A loopback address says nothing
// outside its machine, or its container. In a pod it is the pod's name: operators of PyTorch jobs give
// localhost to the first pod, and to all others its name, which is that of its service
// (MASTER_ADDR as early training operators of Kubeflow and KubeDL set it).
func (p *Process) meetAt(f *facts) string {
	if addr := net.ParseIP(p.MasterAddr); p.MasterAddr != "localhost" && (addr == nil || !addr.IsLoopback()) {
		return p.MasterAddr
	}
	if f.podName != "" {
		return f.podName
	}
	const shown = 12 // digits of a container's id
	if len(p.ContainerID) >= shown {
		return p.ContainerID[:shown]
	}
	return f.host
}

// placeIn puts a process whose own cgroup could not be read where its parent is.
// Only into a container: outside, the parent may be what starts containers.
func (p *Process) placeIn(parent *Process) {
	if parent.ContainerID != "" {
		p.ContainerID, p.PodUID, p.CgroupPath = parent.ContainerID, parent.PodUID, parent.CgroupPath
	}
}

// inherit takes over the rank of the parent.
func (p *Process) inherit(parent *Process) {
	p.Rank, p.LocalRank, p.WorldSize = parent.Rank, parent.LocalRank, parent.WorldSize
	p.JobID, p.MasterAddr, p.MasterPort = "", "", 0
	p.complete(parent)
}

// complete marks p as one of its parent's and fills in what it does not say.
func (p *Process) complete(parent *Process) {
	p.Inherited = true
	if p.LocalRank == Unknown {
		p.LocalRank = parent.LocalRank
	}
	if p.JobID == "" {
		p.JobID = parent.JobID
	}
	if p.MasterAddr == "" {
		p.MasterAddr, p.MasterPort = parent.MasterAddr, parent.MasterPort
	}
	if p.Attempt == 0 {
		p.Attempt = parent.Attempt
	}
	if !p.Trace.Known() {
		p.Trace = parent.Trace
	}
	p.RankPID, p.RankStart, p.Rendezvous = parent.RankPID, parent.RankStart, parent.Rendezvous
}

// share lets equal strings of parent and child be one in memory: there are many
// processes, few containers and few jobs.
func (p *Process) share(parent *Process) {
	for _, pair := range [...]struct{ mine, theirs *string }{
		{&p.Comm, &parent.Comm}, {&p.ContainerID, &parent.ContainerID}, {&p.PodUID, &parent.PodUID},
		{&p.CgroupPath, &parent.CgroupPath}, {&p.JobID, &parent.JobID}, {&p.MasterAddr, &parent.MasterAddr},
		{&p.Domain, &parent.Domain}, {&p.Rendezvous, &parent.Rendezvous},
	} {
		if *pair.mine == *pair.theirs {
			*pair.mine = *pair.theirs
		}
	}
}

// demote takes the rank from a launcher.
func (p *Process) demote() {
	p.Rank, p.LocalRank, p.WorldSize, p.Inherited = Unknown, Unknown, Unknown, false
	p.RankPID, p.RankStart, p.Wrapped, p.Rendezvous, p.Attempt = 0, time.Time{}, false, "", 0
	p.Trace = Trace{}
}

// Interpreter reports whether a program is one that sets its own environment: Python, and
// what it calls itself in workers of Ray and of PyTorch.
func Interpreter(comm string) bool {
	return slices.ContainsFunc([]string{"python", "ray::", "pt_"}, func(begin string) bool { return strings.HasPrefix(comm, begin) })
}
