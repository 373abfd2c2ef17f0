package identity

import (
	"strconv"
	"strings"
)

// unknownDomain is that of a process that ended before anybody could ask whose it was.
// It is in no known domain.
const unknownDomain = "unknown"

// domainOf says whose job a process of that user and cgroup can belong to: the same text
// on all nodes of the job, and none that its environment can choose. A Slurm job is one
// domain, and so is a namespace of pods: inside it users differ from pod to pod where
// pods have user namespaces. Else it is the user, in pods of a namespace that the node
// does not tell, in other containers, or in neither: sessions and services of one user
// differ from node to node, so the rest of the path says nothing.
func domainOf(m membership, namespace string, uid uint32) string {
	user := domainOfUser(uid)
	if strings.HasPrefix(m.path, usersSlice) {
		return user
	}
	if job := slurmJob(m.path); job != "" {
		return job
	}
	switch {
	case m.podUID != "" && namespace != "":
		return "pods in namespace " + namespace
	case m.podUID != "":
		return "pods of " + user
	case m.containerID != "":
		return "containers of " + user
	default:
		return user
	}
}

func domainOfUser(uid uint32) string { return "user " + strconv.FormatUint(uint64(uid), 10) }

// slurmJob is the domain of a Slurm job. It reads the paths of Slurm's cgroup plugins:
//
//	/slurm/uid_1000/job_123/step_0 (v1; with several slurmd on a machine slurm_<node>)
//	/system.slice/slurmstepd.scope/job_123/step_0/user/task_0 (v2; or <node>_slurmstepd.scope)
func slurmJob(path string) string {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	root := segments[0] == "slurm" || strings.HasPrefix(segments[0], "slurm_")
	if !root && (len(segments) < 2 || segments[0] != "system.slice" || !strings.HasSuffix(segments[1], "slurmstepd.scope")) {
		return ""
	}
	for _, s := range segments[1:] {
		if id, ok := strings.CutPrefix(s, "job_"); ok {
			if _, err := strconv.ParseUint(id, 10, 32); err == nil {
				return "slurm job " + id
			}
		}
	}
	return ""
}
