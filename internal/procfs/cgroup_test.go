package procfs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	idA = "3f4c1f0a9d7be26cf2a5c0b3d1e8f7a6948372615f0e1d2c3b4a59687f6e5d4c"
	idB = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

	uid           = "d9b5c1f2-7a3e-4c55-9f10-8e6a2b4c7d01"
	uidUnderscore = "d9b5c1f2_7a3e_4c55_9f10_8e6a2b4c7d01"
	otherUID      = "11111111-7a3e-4c55-9f10-8e6a2b4c7d01"
	hashUID       = "0123456789abcdef0123456789abcdef" // of a static pod
)

func TestCgroupPathNamesContainerAndPod(t *testing.T) {
	for name, tc := range map[string]struct{ path, container, pod string }{
		"systemd driver, containerd":      {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uidUnderscore + ".slice/cri-containerd-" + idA + ".scope", idA, uid},
		"systemd driver, guaranteed":      {"/kubepods.slice/kubepods-pod" + uidUnderscore + ".slice/cri-containerd-" + idA + ".scope", idA, uid},
		"systemd driver, CRI-O":           {"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + uidUnderscore + ".slice/crio-" + idA + ".scope/container", idA, uid},
		"CRI-O's monitor":                 {"/kubepods.slice/kubepods-pod" + uidUnderscore + ".slice/crio-conmon-" + idA + ".scope", "", uid},
		"systemd driver, Docker":          {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uidUnderscore + ".slice/docker-" + idA + ".scope", idA, uid},
		"cgroupfs driver":                 {"/kubepods/burstable/pod" + uid + "/" + idA, idA, uid},
		"cgroupfs driver, guaranteed":     {"/kubepods/pod" + uid + "/" + idA, idA, uid},
		"cgroupfs driver, CRI-O":          {"/kubepods/besteffort/pod" + uid + "/crio-" + idA, idA, uid},
		"static pod":                      {"/kubepods/burstable/pod" + hashUID + "/" + idA, idA, hashUID},
		"static pod, systemd driver":      {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + hashUID + ".slice/cri-containerd-" + idA + ".scope", idA, hashUID},
		"drivers of two minds":            {"/system.slice/containerd.service/kubepods-besteffort-pod" + uidUnderscore + ".slice:cri-containerd:" + idA, idA, uid},
		"from a cgroup namespace":         {"/../../kubepods-burstable-pod" + uidUnderscore + ".slice/cri-containerd-" + idA + ".scope", idA, uid},
		"sibling in a cgroup namespace":   {"/../cri-containerd-" + idA + ".scope", idA, ""},
		"own root of a cgroup namespace":  {"/", "", ""},
		"kind: the inner one counts":      {"/docker/" + idB + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + uidUnderscore + ".slice/cri-containerd-" + idA + ".scope", idA, uid},
		"a pod that makes another's":      {"/kubepods.slice/kubepods-pod" + uidUnderscore + ".slice/cri-containerd-" + idA + ".scope/kubepods-pod" + otherUID + ".slice/cri-containerd-" + idB + ".scope", idA, uid},
		"a pod that makes one, cgroupfs":  {"/kubepods/pod" + uid + "/" + idA + "/pod" + otherUID + "/" + idB, idA, uid},
		"a pod that makes one with a :":   {"/kubepods/pod" + uid + "/" + idA + "/x:pod" + otherUID + ":" + idB, idA, uid},
		"a user who makes a pod's":        {"/user.slice/user-1000.slice/user@1000.service/kubepods-pod" + uidUnderscore + ".slice/cri-containerd-" + idA + ".scope", idA, ""},
		"Docker":                          {"/docker/" + idA, idA, ""},
		"Docker, systemd":                 {"/system.slice/docker-" + idA + ".scope", idA, ""},
		"Podman":                          {"/machine.slice/libpod-" + idA + ".scope/container", idA, ""},
		"Podman, rootless":                {"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + idA + ".scope", idA, ""},
		"Podman's monitor":                {"/machine.slice/libpod-conmon-" + idA + ".scope", "", ""},
		"ECS":                             {"/ecs/0123456789abcdef/" + idA, idA, ""},
		"below a container":               {"/docker/" + idA + "/init.scope", idA, ""},
		"the pod itself":                  {"/kubepods/burstable/pod" + uid, "", uid},
		"a login session":                 {"/user.slice/user-0.slice/session-1.scope", "", ""},
		"a service called pod":            {"/system.slice/pod.service", "", ""},
		"a unit that only looks like one": {"/system.slice/tripod" + uid + ".slice", "", ""},
		"63 digits":                       {"/docker/" + idA[1:], "", ""},
		"65 digits":                       {"/docker/a" + idA, "", ""},
		"upper case is no container":      {"/docker/" + strings.ToUpper(idA), "", ""},
		"a broken uid":                    {"/kubepods/pod" + uid[1:] + "/" + idA, idA, ""},
	} {
		t.Run(name, func(t *testing.T) {
			container, pod := parsePath(tc.path)
			require.Equal(t, [2]string{tc.container, tc.pod}, [2]string{container, pod})
		})
	}
}

func TestWhatAUserMakesIsNoTenant(t *testing.T) {
	for path, want := range map[string]string{
		"/kubepods/pod" + uid + "/" + idA:                                 uid,
		"/kubepods/pod" + uid + "/" + idA + "/pod" + otherUID + "/" + idB: uid,
		"/docker/" + idA: idA,
		"/system.slice/slurmstepd.scope/job_7/step_0/user/task_0":               "slurm job 7",
		"/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/docker/" + idA: "slurm job 7",
		"/user.slice/user-1000.slice/user@1000.service/pod" + uid:               "",
		"/user.slice/user-1000.slice/user@1000.service/docker/" + idA:           "",
		"/user.slice/system.slice/slurmstepd.scope/job_7/step_0":                "",
		"/system.slice/nv-exporter.service":                                     "",
		"/":                                                                     "",
		"":                                                                      "",
	} {
		require.Equal(t, want, TenantOf(path), path)
	}
}

func TestCgroupFilePrefersTheMemoryHierarchy(t *testing.T) {
	pod := "/kubepods/burstable/pod" + uid + "/" + idA
	for name, tc := range map[string]struct {
		file string
		want Membership
	}{
		"unified": {"0::" + pod + "\n", Membership{pod, idA, uid}},
		"v1": {
			"12:pids:/p\n11:cpu,cpuacct:/c\n4:memory:" + pod + "\n1:name=systemd:/s\n",
			Membership{pod, idA, uid},
		},
		"hybrid: the unified one is at its root": {
			"5:memory:" + pod + "\n1:name=systemd:" + pod + "\n0::/\n", Membership{pod, idA, uid},
		},
		"hybrid without the memory controller": {
			"2:cpu:/c\n1:name=systemd:" + pod + "\n0::/u\n", Membership{"/u", idA, uid},
		},
		"memory beside others":    {"4:hugetlb,memory:/m\n0::/u\n", Membership{Path: "/m"}},
		"a controller's namesake": {"4:name=memory:/m\n0::/u\n", Membership{Path: "/u"}},
		"colons in the path":      {"0::/a:b\n", Membership{Path: "/a:b"}},
		"no end of line":          {"0::/a", Membership{Path: "/a"}},
		"nonsense":                {"hello\n::\n0::relative\n:\n", Membership{}},
		"bytes that are no text":  {"0::/a\xff\n", Membership{Path: "/a�"}},
		"empty":                   {"", Membership{}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, ParseCgroup(tc.file)) })
	}
}

func FuzzCgroup(f *testing.F) {
	f.Add("0::/kubepods.slice/kubepods-pod" + uidUnderscore + ".slice/cri-containerd-" + idA + ".scope\n")
	f.Add("4:memory:/docker/" + idA + "\n1:name=systemd:/x\n0::/\n")
	f.Add("::\n:::/\npod\n")
	f.Fuzz(func(t *testing.T, content string) {
		m := ParseCgroup(content)
		require.True(t, m.ContainerID == "" || len(m.ContainerID) == 64 && isHex(m.ContainerID), m.ContainerID)
		require.True(t, m.PodUID == "" || isUUID(m.PodUID) || len(m.PodUID) == 32 && isHex(m.PodUID), m.PodUID)
		require.True(t, m.Path == "" || m.Path[0] == '/', m.Path)
		require.NotContains(t, m.Path, "\n")
	})
}
