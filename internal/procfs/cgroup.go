package procfs

import (
	"cmp"
	"strconv"
	"strings"
)

// Membership is what /proc/<pid>/cgroup says.
type Membership struct {
	Path        string // memory controller's (v1), else the unified hierarchy's
	ContainerID string // "" where it names none
	PodUID      string
}

// ParseCgroup reads /proc/<pid>/cgroup: lines "id:controllers:path", one per
// hierarchy (cgroups(7)). The path comes from the memory controller, else from
// the unified hierarchy, else from the first line. Container and pod come from
// the first hierarchy that shows any: on a hybrid host some are at the root.
func ParseCgroup(content string) Membership {
	var m Membership
	best := -1
	for line := range strings.Lines(content) {
		controllers, path, ok := splitLine(strings.TrimSuffix(line, "\n"))
		if !ok {
			continue
		}
		if score := score(controllers); score > best {
			best, m.Path = score, strings.ToValidUTF8(path, "�")
		}
		container, pod := parsePath(path)
		if m.ContainerID == "" {
			m.ContainerID = container
		}
		if m.PodUID == "" {
			m.PodUID = pod
		}
	}
	return m
}

func splitLine(line string) (controllers, path string, ok bool) {
	_, rest, ok := strings.Cut(line, ":")
	if !ok {
		return "", "", false
	}
	controllers, path, ok = strings.Cut(rest, ":")
	return controllers, path, ok && strings.HasPrefix(path, "/")
}

func score(controllers string) int {
	for name := range strings.SplitSeq(controllers, ",") {
		if name == "memory" {
			return 2
		}
	}
	if controllers == "" {
		return 1
	}
	return 0
}

// ContainerOf finds the container and pod in a cgroup path, "" where it names none.
func ContainerOf(cgroupPath string) (containerID, podUID string) { return parsePath(cgroupPath) }

// MembershipIn is what a path of a cgroup alone says.
func MembershipIn(cgroupPath string) Membership {
	container, pod := parsePath(cgroupPath)
	return Membership{cgroupPath, container, pod}
}

// TenantOf is the Slurm job, the pod or the container that a cgroup path names, "" where it
// names none. What a user made below his own slice is none.
func TenantOf(cgroupPath string) string {
	return MembershipIn(cgroupPath).tenant()
}

func (m Membership) tenant() string {
	if strings.HasPrefix(m.Path, UsersSlice) {
		return ""
	}
	return cmp.Or(SlurmJob(m.Path), m.PodUID, m.ContainerID)
}

// parsePath finds the container and pod in a cgroup path. It knows the forms by their
// segments alone, so a prefix such as the "/../.." of a cgroup namespace or the nesting of
// kind and Docker-in-Docker does not matter:
//
//	kubepods-burstable-pod<uid with underscores>.slice/cri-containerd-<id>.scope
//	kubepods/burstable/pod<uid>/<id>
//	docker-<id>.scope, docker/<id>, crio-<id>.scope, libpod-<id>.scope/container
//	kubepods-pod<uid>.slice:cri-containerd:<id>
//
// What stands below a container of a pod is of the pod's own making, where it may write to its
// cgroup, and so is what stands below user.slice: the first pod counts, with the first
// container below it, and there is none in a user's slice. Without a pod the innermost
// container counts.
func parsePath(path string) (container, pod string) {
	users := strings.HasPrefix(path, UsersSlice)
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == ':' }) {
		if id := containerID(segment); id != "" {
			container = id
			if pod != "" {
				break
			}
		}
		if uid := PodUID(segment); uid != "" && pod == "" && !users {
			container, pod = "", uid
		}
	}
	return container, pod
}

// UsersSlice begins the paths of what a user started; he makes names there as he likes.
const UsersSlice = "/user.slice/"

// containerIDLength is that of a SHA-256 in hex, which all runtimes use.
const containerIDLength = 64

// containerID reads "<id>" or "<runtime>-<id>", with or without ".scope". The
// monitor that stands beside a container (crio-conmon-, libpod-conmon-) is not in it.
func containerID(segment string) string {
	name := strings.TrimSuffix(segment, ".scope")
	if len(name) < containerIDLength {
		return ""
	}
	prefix, id := name[:len(name)-containerIDLength], name[len(name)-containerIDLength:]
	if !isHex(id) || prefix != "" && !strings.HasSuffix(prefix, "-") || strings.HasSuffix(prefix, "conmon-") {
		return ""
	}
	return id
}

// PodUID reads "pod<uid>" and "kubepods-<class>-pod<uid>.slice", the latter also
// below another root ("kubelet-kubepods-…"). The systemd driver writes
// underscores for dashes. The uid of a static pod is a hash of 32
// hex digits, and stays one.
func PodUID(segment string) string {
	name := strings.TrimSuffix(segment, ".slice")
	prefix, uid, found := cutLast(name, "pod")
	if !found || prefix != "" && !(strings.Contains(prefix, "kubepods-") && strings.HasSuffix(prefix, "-")) {
		return ""
	}
	uid = strings.ToLower(strings.ReplaceAll(uid, "_", "-"))
	if len(uid) == 32 && isHex(uid) {
		return uid
	}
	if !isUUID(uid) {
		return ""
	}
	return uid
}

func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

func isUUID(s string) bool {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return false
	}
	return isHex(strings.ReplaceAll(s, "-", "")) && strings.Count(s, "-") == 4
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// SlurmJob is the Slurm job that a cgroup path names, "" where it names none.
func SlurmJob(path string) string {
	if id := slurmPart(path, "job_"); id != "" {
		if _, err := strconv.ParseUint(id, 10, 32); err == nil {
			return "slurm job " + id
		}
	}
	return ""
}

// SlurmStep is which step of it: a number, "batch" (its script), "interactive" (a shell of
// salloc), "extern" (what comes by ssh).
func SlurmStep(path string) string { return slurmPart(path, "step_") }

// slurmPart reads the paths of Slurm's cgroup plugins:
//
//	/slurm/uid_1000/job_123/step_0 (v1; with several slurmd on a machine slurm_<node>)
//	/system.slice/slurmstepd.scope/job_123/step_0/user/task_0 (v2; or <node>_slurmstepd.scope)
func slurmPart(path, prefix string) string {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	root := segments[0] == "slurm" || strings.HasPrefix(segments[0], "slurm_")
	if !root && (len(segments) < 2 || segments[0] != "system.slice" || !strings.HasSuffix(segments[1], "slurmstepd.scope")) {
		return ""
	}
	for _, s := range segments[1:] {
		if name, ok := strings.CutPrefix(s, prefix); ok {
			return name
		}
	}
	return ""
}
