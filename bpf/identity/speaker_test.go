//go:build linux && (amd64 || arm64)

package identity

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A user speaks for the jobs that he has on this machine, whatever names he uses.
func TestAUserSpeaksForHisOwnJobsAlone(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	const slurm, session = "/system.slice/slurmstepd.scope/job_%d/step_0/user/task_0", "/user.slice/user-1000.slice/session-1.scope"
	for i, r := range []struct {
		job, cgroup string
		user        int
	}{
		{"llama", fmt.Sprintf(slurm, 7), 1000},
		{"llama", fmt.Sprintf(slurm, 7), 1000},
		{"llama", session, 2000}, // another's job of that name
		{"twice", fmt.Sprintf(slurm, 8), 1000},
		{"twice", fmt.Sprintf(slurm, 9), 1000},
		{"plain", session, 1000},
	} {
		pid := uint32(100 + i)
		environ := []string{fmt.Sprint("RANK=", i), "WORLD_SIZE=8", "JOB_ID=" + r.job}
		s.proc.add(pid, 1, s.ns(0), "python", r.cgroup, environ...)
		s.proc.write(pid, "status", fmt.Sprintf("Name:\tpython\nUid:\t%d\t0\t0\t0\n", r.user))
		s.exec(pid, 1, 0, 0, environ...)
	}
	s.settle()
	for name, tc := range map[string]struct {
		user uint32
		job  string
		want string
	}{
		"his job":                           {1000, "llama", "slurm job 7"},
		"his job, by the name of another's": {2000, "llama", "user 2000"},
		"another's job":                     {3000, "llama", "user 3000"},
		"another's job, as root":            {0, "llama", "user 0"},
		"two of his jobs":                   {1000, "twice", "user 1000"},
		"no job of Slurm":                   {1000, "plain", "user 1000"},
		"a job that does not run here":      {1000, "elsewhere", "user 1000"},
		"none":                              {1000, "", "user 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, s.DomainOf(tc.user, tc.job))
			require.Equal(t, tc.want, s.DomainOf(tc.user, tc.job), "asked again")
		})
	}
}

func TestAnswersAboutSpeakersAreBounded(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.proc.add(100, 1, s.ns(0), "python", "/", rank3()...)
	s.exec(100, 1, 0, 0, rank3()...)
	s.settle()
	for user := range uint32(3 * mostSpeakers) {
		require.Equal(t, domainOfUser(user), s.DomainOf(user, "job"))
	}
	require.LessOrEqual(t, len(s.speakers.of), mostSpeakers)
}
