package procfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// host writes files below a folder that is both /proc and /sys.
func host(t *testing.T, files map[string]string) *FS {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	t.Setenv("HOST_SYS", filepath.Join(root, "sys"))
	return Open(root)
}

func TestCPUGroupsOfBothVersions(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  []CPUGroup
	}{
		"v1, limited by the pod": {map[string]string{
			"7/cgroup": "5:memory:/pod/c\n4:cpu,cpuacct:/pod/c\n",
			"sys/fs/cgroup/cpu,cpuacct/pod/c/cpu.cfs_quota_us": "-1\n",
			"sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us":   "150000\n",
			"sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us":  "100000\n",
			"sys/fs/cgroup/cpu,cpuacct/pod/cpu.stat":           "nr_periods 20\nnr_throttled 5\nthrottled_time 99\n",
		}, []CPUGroup{{Path: "/pod", Cores: 1.5, Periods: 20, Throttled: 5}}},
		"v1, one name": {map[string]string{
			"7/cgroup":                              "4:cpu,cpuacct:/c\n",
			"sys/fs/cgroup/cpu/c/cpu.cfs_quota_us":  "50000\n",
			"sys/fs/cgroup/cpu/c/cpu.cfs_period_us": "100000\n",
		}, []CPUGroup{{Path: "/c", Cores: 0.5}}},
		"v2, both levels": {map[string]string{
			"7/cgroup":                      "0::/pod/c\n",
			"sys/fs/cgroup/pod/c/cpu.max":   "200000 100000\n",
			"sys/fs/cgroup/pod/c/cpu.stat":  "usage_usec 1\nnr_periods 9\nnr_throttled 9\nthrottled_usec 7\n",
			"sys/fs/cgroup/pod/cpu.max":     "400000 100000\n",
			"sys/fs/cgroup/pod/cpu.stat":    "nr_periods 3\nnr_throttled 0\n",
			"sys/fs/cgroup/cpu.max":         "1 100000\n", // the root has none
			"sys/fs/cgroup/other/c/cpu.max": "1 100000\n",
		}, []CPUGroup{{Path: "/pod/c", Cores: 2, Periods: 9, Throttled: 9}, {Path: "/pod", Cores: 4, Periods: 3}}},
		"v2 beside v1": {map[string]string{
			"7/cgroup":                             "1:name=systemd:/x\n0::/c\n",
			"sys/fs/cgroup/unified/c/cpu.max":      "100000 100000\n",
			"sys/fs/cgroup/name=systemd/x/cpu.max": "1 1\n",
		}, []CPUGroup{{Path: "/c", Cores: 1}}},
		"no limit": {map[string]string{"7/cgroup": "0::/c\n", "sys/fs/cgroup/c/cpu.max": "max 100000\n"}, nil},
		"the root": {map[string]string{"7/cgroup": "0::/\n4:cpu:/\n"}, nil},
		"nonsense": {map[string]string{"7/cgroup": "0::/../../c\nx\n:::\n", "sys/fs/cgroup/c/cpu.max": "9 0\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := host(t, tc.files).CPUGroups(7)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
	_, err := host(t, nil).CPUGroups(7)
	require.Error(t, err)
}

func TestCPUPressure(t *testing.T) {
	for text, want := range map[string]float64{
		"some avg10=64.31 avg60=1.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n": 64.31,
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n":                                                  0,
	} {
		got, err := host(t, map[string]string{"pressure/cpu": text}).CPUPressure()
		require.NoError(t, err)
		require.InDelta(t, want, got, 0.001)
	}
	for _, text := range []string{"", "some avg10=x\n", "some avg10=NaN \n", "some avg10=-3 \n", "full avg10=3.00 \n"} {
		_, err := host(t, map[string]string{"pressure/cpu": text}).CPUPressure()
		require.Error(t, err, text)
	}
	_, err := host(t, nil).CPUPressure() // switched off
	require.Error(t, err)
}
