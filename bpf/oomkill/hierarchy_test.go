//go:build linux && (amd64 || arm64)

package oomkill

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemoryHierarchyIsFoundOnV1V2AndInContainers(t *testing.T) {
	for name, tc := range map[string]struct {
		mountinfo, cgroup string
		want              hierarchy
		parents           []string
	}{
		"v2": {
			"24 23 0:22 / /proc rw - proc proc rw\n30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
			"0::/system.slice/tracecore.service\n",
			hierarchy{mountPoint: "/sys/fs/cgroup", root: "/", own: "/system.slice/tracecore.service", v2: true},
			[]string{"/sys/fs/cgroup", "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/system.slice/tracecore.service"},
		},
		"v1 wins where both are mounted: the controller is there": {
			"30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
			"4:memory:/docker/abc\n1:name=systemd:/x\n0::/y\n",
			hierarchy{mountPoint: "/sys/fs/cgroup/memory", root: "/", own: "/docker/abc"},
			[]string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/docker", "/sys/fs/cgroup/memory/docker/abc"},
		},
		"container without a cgroup namespace sees only its own part": {
			"31 23 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"4:memory:/docker/abc/inner\n",
			hierarchy{mountPoint: "/sys/fs/cgroup/memory", root: "/docker/abc", own: "/docker/abc/inner"},
			[]string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/inner"},
		},
		"own cgroup outside the namespace": {
			"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			"0::/../other\n",
			hierarchy{mountPoint: "/sys/fs/cgroup", root: "/", own: "/../other", v2: true},
			[]string{"/sys/fs/cgroup"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, ok := memoryMount([]byte(tc.mountinfo))
			require.True(t, ok)
			h.own, ok = memoryCgroup([]byte(tc.cgroup), h.v2)
			require.True(t, ok)
			require.Equal(t, tc.want, h)
			require.Equal(t, tc.parents, h.parents())
		})
	}
}

func TestMachineWithoutMemoryCgroupsHasNoHierarchy(t *testing.T) {
	for _, mountinfo := range []string{
		"", "garbage", "30 23 0:26 / /c rw - \n", "1 2 3 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
	} {
		_, ok := memoryMount([]byte(mountinfo))
		require.False(t, ok, mountinfo)
	}
	for _, text := range []string{"", "4:cpu:/x\n", "0\n"} {
		_, ok := memoryCgroup([]byte(text), false)
		require.False(t, ok, text)
	}
}
