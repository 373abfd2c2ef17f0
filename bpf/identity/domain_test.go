package identity

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADomainIsTheSameOnAllNodesOfAJob(t *testing.T) {
	const pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0001_4002_8003_0a1b2c3d4e5f.slice/" +
		"cri-containerd-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.scope"
	const docker = "/system.slice/docker-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.scope"
	for name, tc := range map[string]struct {
		path string
		uid  uint32
		want string
	}{
		"a session":                   {"/user.slice/user-1000.slice/session-5.scope", 1000, "user 1000"},
		"another session":             {"/user.slice/user-1000.slice/session-77.scope", 1000, "user 1000"},
		"a service of the user":       {"/system.slice/train.service", 1000, "user 1000"},
		"another user there":          {"/system.slice/train.service", 65534, "user 65534"},
		"slurm v1":                    {"/slurm/uid_1000/job_123/step_0/task_1", 1000, "slurm job 123"},
		"slurm v1, several slurmd":    {"/slurm_node7/uid_1000/job_123/step_batch", 1000, "slurm job 123"},
		"slurm v2":                    {"/system.slice/slurmstepd.scope/job_123/step_0/user/task_1", 1000, "slurm job 123"},
		"slurm v2, several slurmd":    {"/system.slice/node7_slurmstepd.scope/job_123/step_0", 1000, "slurm job 123"},
		"an invented job":             {"/user.slice/user-1000.slice/user@1000.service/slurm/job_123", 1000, "user 1000"},
		"an invented pod":             {"/user.slice/user-1000.slice/user@1000.service" + pod, 1000, "user 1000"},
		"a service called job":        {"/system.slice/job_123", 1000, "user 1000"},
		"no number":                   {"/slurm/uid_1000/job_x/step_0", 1000, "user 1000"},
		"a pod":                       {pod, 0, "pods of user 0"},
		"a container":                 {docker, 0, "containers of user 0"},
		"a machine without a cgroup":  {"", 0, "user 0"},
		"the root of a cgroup prefix": {"/", 0, "user 0"},
	} {
		t.Run(name, func(t *testing.T) {
			m := parseCgroup("0::" + tc.path + "\n")
			require.Equal(t, tc.want, domainOf(m, tc.uid))
		})
	}
}
