package identity

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

const (
	idA = "3f4c1f0a9d7be26cf2a5c0b3d1e8f7a6948372615f0e1d2c3b4a59687f6e5d4c"
	idB = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

	uid           = "d9b5c1f2-7a3e-4c55-9f10-8e6a2b4c7d01"
	uidUnderscore = "d9b5c1f2_7a3e_4c55_9f10_8e6a2b4c7d01"
	otherUID      = "11111111-7a3e-4c55-9f10-8e6a2b4c7d01"
)

func TestADomainIsTheSameOnAllNodesOfAJob(t *testing.T) {
	const pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0001_4002_8003_0a1b2c3d4e5f.slice/" +
		"cri-containerd-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.scope"
	const docker = "/system.slice/docker-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.scope"
	for name, tc := range map[string]struct {
		path string
		uid  uint32
		want string
		in   string // namespace
	}{
		"a session":                   {path: "/user.slice/user-1000.slice/session-5.scope", uid: 1000, want: "user 1000"},
		"another session":             {path: "/user.slice/user-1000.slice/session-77.scope", uid: 1000, want: "user 1000"},
		"a service of the user":       {path: "/system.slice/train.service", uid: 1000, want: "user 1000"},
		"another user there":          {path: "/system.slice/train.service", uid: 65534, want: "user 65534"},
		"slurm v1":                    {path: "/slurm/uid_1000/job_123/step_0/task_1", uid: 1000, want: "slurm job 123"},
		"slurm v1, several slurmd":    {path: "/slurm_node7/uid_1000/job_123/step_batch", uid: 1000, want: "slurm job 123"},
		"slurm v2":                    {path: "/system.slice/slurmstepd.scope/job_123/step_0/user/task_1", uid: 1000, want: "slurm job 123"},
		"slurm v2, several slurmd":    {path: "/system.slice/node7_slurmstepd.scope/job_123/step_0", uid: 1000, want: "slurm job 123"},
		"an invented job":             {path: "/user.slice/user-1000.slice/user@1000.service/slurm/job_123", uid: 1000, want: "user 1000"},
		"an invented pod":             {path: "/user.slice/user-1000.slice/user@1000.service" + pod, uid: 1000, want: "user 1000"},
		"a service called job":        {path: "/system.slice/job_123", uid: 1000, want: "user 1000"},
		"no number":                   {path: "/slurm/uid_1000/job_x/step_0", uid: 1000, want: "user 1000"},
		"a pod":                       {path: pod, want: "pods of user 0"},
		"a pod in a namespace":        {path: pod, in: "team-a", want: "pods in namespace team-a"},
		"another user in it":          {path: pod, in: "team-a", uid: 231072, want: "pods in namespace team-a"},
		"a Slurm job in no pod":       {path: "/slurm/uid_1000/job_123/step_0", in: "team-a", want: "slurm job 123"},
		"a container in no pod":       {path: docker, in: "team-a", want: "containers of user 0"},
		"a container":                 {path: docker, want: "containers of user 0"},
		"a machine without a cgroup":  {path: "", want: "user 0"},
		"the root of a cgroup prefix": {path: "/", want: "user 0"},
	} {
		t.Run(name, func(t *testing.T) {
			m := procfs.ParseCgroup("0::" + tc.path + "\n")
			require.Equal(t, tc.want, domainOf(m, tc.in, tc.uid))
		})
	}
}
