package identity

import (
	"strconv"
	"strings"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// membership is the cgroup, container and pod of a process.
type membership = procfs.Membership

// home is where a process runs: whose job it can belong to, and its pod.
type home struct {
	membership

	domain  string
	podName string // inside its namespace, "" where the node does not tell it
}

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
	if strings.HasPrefix(m.Path, procfs.UsersSlice) {
		return user
	}
	if job := procfs.SlurmJob(m.Path); job != "" {
		return job
	}
	switch {
	case m.PodUID != "" && namespace != "":
		return DomainOfNamespace(namespace)
	case m.PodUID != "":
		return "pods of " + user
	case m.ContainerID != "":
		return "containers of " + user
	default:
		return user
	}
}

// DomainOfNamespace is the domain of the jobs whose pods are in a namespace.
func DomainOfNamespace(name string) string { return "pods in namespace " + name }

func domainOfUser(uid uint32) string { return "user " + strconv.FormatUint(uint64(uid), 10) }
