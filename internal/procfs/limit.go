package procfs

import (
	"path"
	"strings"
)

// The things whose memory limit a process can reach.
const (
	LimitOfContainer = "container" // its own, or a cgroup that it made in there
	LimitOfPod       = "pod"       // the containers of its pod together
	LimitOfJob       = "job"       // of Slurm: the job, a step or a task of it
	LimitOfUnit      = "unit"      // a service or a scope of systemd
	LimitOfUser      = "user"      // all that a user runs on the machine
	LimitOfOthers    = "others"    // others, too: all pods or jobs of the machine, or a slice
)

// LimitOf says whose limit it is that the cgroup has which was hit; victim is the cgroup of the
// process that was killed for it, that one or one below. "" where the names do not say.
//
//	/kubepods.slice, /kubepods/burstable    others: the kubelet's limit for all pods of the node
//	/system.slice/slurmstepd.scope          others: all jobs of the machine
//	/user.slice/user-1000.slice             user
//	/system.slice/train.service             unit
//
// Above what the victim belongs to it is a limit of others, whatever its name: in kind a node is
// a container with all of its pods.
func LimitOf(limit, victim string) string {
	if limit == "" {
		return ""
	}
	of, whose := MembershipIn(limit), MembershipIn(victim)
	switch {
	case SlurmJob(limit) != "":
		return LimitOfJob
	case of.ContainerID != "" && (whose.ContainerID == "" || of.ContainerID == whose.ContainerID):
		return LimitOfContainer
	case of.ContainerID == "" && of.PodUID != "":
		return LimitOfPod
	case isUsers(limit):
		return LimitOfUser
	case whose.ContainerID != "" || whose.PodUID != "" || SlurmJob(victim) != "", strings.HasSuffix(limit, ".slice"), isSlurm(limit):
		return LimitOfOthers
	case strings.HasSuffix(limit, ".service"), strings.HasSuffix(limit, ".scope"):
		return LimitOfUnit
	}
	return ""
}

// isUsers reports whether it is the slice of a user, or his service manager, which has all that is
// not in a session of his, or a slice below.
func isUsers(limit string) bool {
	name := path.Base(limit)
	return strings.HasPrefix(limit, UsersSlice) &&
		(strings.HasSuffix(name, ".slice") || strings.HasPrefix(name, "user@") && strings.HasSuffix(name, ".service"))
}

// isSlurm reports whether all jobs of the machine, or of a user, are below it.
func isSlurm(limit string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(limit, "/"), "/")
	return first == "slurm" || strings.HasPrefix(first, "slurm_") || strings.HasSuffix(limit, "slurmstepd.scope")
}
