package procfs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhoseLimitWasHit(t *testing.T) {
	const (
		burstable = "/kubepods.slice/kubepods-burstable.slice"
		podSlice  = burstable + "/kubepods-burstable-pod" + uidUnderscore + ".slice"
		systemd   = podSlice + "/cri-containerd-" + idA + ".scope"
		v1        = "/kubepods/burstable/pod" + uid + "/" + idA
		slurmV1   = "/slurm/uid_1000/job_7/step_0/task_1"
		slurmV2   = "/system.slice/slurmstepd.scope/job_7/step_0/user/task_1"
		users     = "/user.slice/user-1000.slice/user@1000.service/app.slice/train.scope"
		podman    = "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + idA + ".scope"
		kind      = "/docker/" + idB + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + uidUnderscore + ".slice/cri-containerd-" + idA + ".scope"
	)
	for _, tc := range []struct{ limit, victim, want string }{
		{systemd, systemd, LimitOfContainer},
		{systemd, systemd + "/ray/worker", LimitOfContainer},
		{systemd + "/ray/worker", systemd + "/ray/worker", LimitOfContainer},
		{podSlice, systemd, LimitOfPod},
		{burstable, systemd, LimitOfOthers},
		{"/kubepods.slice", systemd, LimitOfOthers},
		{v1, v1, LimitOfContainer},
		{"/kubepods/burstable/pod" + uid, v1, LimitOfPod},
		{"/kubepods/burstable", v1, LimitOfOthers},
		{"/kubepods/besteffort", "/kubepods/besteffort/pod" + uid + "/" + idA, LimitOfOthers},
		{"/kubepods", v1, LimitOfOthers},
		{"/kubelet/kubepods", "/kubelet" + v1, LimitOfOthers},
		{"/docker/" + idB, kind, LimitOfOthers}, // the node of kind
		{"/docker/" + idB + "/kubelet.slice/kubelet-kubepods.slice", kind, LimitOfOthers},
		{slurmV1, slurmV1, LimitOfJob},
		{"/slurm/uid_1000/job_7/step_0", slurmV1, LimitOfJob},
		{"/slurm/uid_1000/job_7", slurmV1, LimitOfJob},
		{"/slurm/uid_1000", slurmV1, LimitOfOthers},
		{"/slurm_node1", "/slurm_node1/uid_1000/job_7/step_0", LimitOfOthers},
		{"/system.slice/slurmstepd.scope/job_7/step_0", slurmV2, LimitOfJob},
		{"/system.slice/slurmstepd.scope/job_7", slurmV2, LimitOfJob},
		{"/system.slice/slurmstepd.scope", slurmV2, LimitOfOthers},
		{"/system.slice", slurmV2, LimitOfOthers},
		{"/docker/" + idA, "/docker/" + idA, LimitOfContainer},
		{"/system.slice/docker-" + idA + ".scope", "/system.slice/docker-" + idA + ".scope", LimitOfContainer},
		{"/system.slice", "/system.slice/docker-" + idA + ".scope", LimitOfOthers},
		{"/ml.slice", "/ml.slice/docker-" + idA + ".scope", LimitOfOthers}, // --cgroup-parent
		{"/ml", "/ml/" + idA, LimitOfOthers},
		{podman, podman + "/container", LimitOfContainer},
		{"/user.slice/user-1000.slice", podman + "/container", LimitOfUser},
		{"/user.slice/user-1000.slice", users, LimitOfUser},
		{"/user.slice/user-1000.slice/user@1000.service", users, LimitOfUser},
		{"/user.slice/user-1000.slice/session-3.scope", "/user.slice/user-1000.slice/session-3.scope", LimitOfUnit},
		{users, users, LimitOfUnit},
		{"/user.slice", users, LimitOfOthers},
		{"/system.slice/train.service", "/system.slice/train.service", LimitOfUnit},
		{"/system.slice", "/system.slice/train.service", LimitOfOthers},
		{"/mine", "/mine/below", ""}, // a cgroup that somebody made
		{"", systemd, ""},
	} {
		require.Equal(t, tc.want, LimitOf(tc.limit, tc.victim), "%s, of %s", tc.limit, tc.victim)
	}
}
