package procfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhoseAProcessIs(t *testing.T) {
	container := strings.Repeat("a", 64)
	for cgroup, want := range map[string]string{
		"0::/kubepods/pod" + uid + "/" + container + "\n":                               uid,
		"0::/docker/" + container + "\n":                                                container,
		"0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n":                "slurm job 123",
		"0::/system.slice/sshd.service\n":                                               "user 1000",
		"0::/user.slice/user-1000.slice/kubepods/pod" + uid + "/" + container + "\n":    "user 1000",
		"9:name=systemd:/kubepods/pod" + uid + "/" + container + "\n4:memory:/\n0::/\n": uid,
	} {
		r := newTree(t)
		r.write("42/cgroup", cgroup)
		_, err := r.Tenant(42)
		require.ErrorIs(t, err, ErrGone)
		r.write("42/status", "Name:\tx\nUid:\t1000\t0\t0\t0\n")
		tenant, err := r.Tenant(42)
		require.NoError(t, err)
		require.Equal(t, want, tenant, cgroup)
	}
	_, err := newTree(t).Tenant(42)
	require.ErrorIs(t, err, ErrGone)
}

func TestWhoAdministersTheHost(t *testing.T) {
	const all, docker = "000001ffffffffff", "00000000a80425fb"
	for name, tc := range map[string]struct {
		users, rights string
		want          bool
	}{
		"root of the host":                    {"user:[4026531837]", all, true},
		"root of a container":                 {"user:[4026531837]", docker, false},
		"root of its own namespace of users":  {"user:[4026532999]", all, false},
		"who has only the right to mount":     {"user:[4026531837]", "0000000000200000", true},
		"who has all but the right to mount":  {"user:[4026531837]", "000001ffffdfffff", false},
		"who has rights that are no number":   {"user:[4026531837]", "all", false},
		"whose namespace cannot be told from": {"net:[4026531837]", all, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTree(t)
			r.write("42/status", "Name:\tx\nCapPrm:\t"+all+"\nCapEff:\t"+tc.rights+"\nCapBnd:\t"+all+"\n")
			require.NoError(t, os.MkdirAll(filepath.Join(r.Root(), "42/ns"), 0o755))
			require.NoError(t, os.Symlink(tc.users, filepath.Join(r.Root(), "42/ns/user")))
			administers, _ := r.Administers(42)
			require.Equal(t, tc.want, administers)
		})
	}
	r := newTree(t)
	_, err := r.Administers(42)
	require.ErrorIs(t, err, ErrGone)
	require.NoError(t, os.MkdirAll(filepath.Join(r.Root(), "42/ns"), 0o755))
	require.NoError(t, os.Symlink("user:[4026531837]", filepath.Join(r.Root(), "42/ns/user")))
	_, err = r.Administers(42)
	require.ErrorIs(t, err, ErrGone)
	r.write("42/status", "Name:\tx\n")
	_, err = r.Administers(42)
	require.ErrorContains(t, err, "no rights in it")
}
