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
	s.proc.addPod("team-a", "other-0", uid)
	for name, tc := range map[string]struct {
		user   uint32
		job    string
		want   string
		cgroup string // of the unified hierarchy; "": the kernel does not tell
	}{
		"his job":                           {user: 1000, job: "llama", want: "slurm job 7"},
		"his job, by the name of another's": {user: 2000, job: "llama", want: "user 2000"},
		"another's job":                     {user: 3000, job: "llama", want: "user 3000"},
		"another's job, as root":            {user: 0, job: "llama", want: "user 0"},
		"two of his jobs":                   {user: 1000, job: "twice", want: "user 1000"},
		"no job of Slurm":                   {user: 1000, job: "plain", want: "user 1000"},
		"a job that does not run here":      {user: 1000, job: "elsewhere", want: "user 1000"},
		"his job, from his session":         {user: 1000, job: "llama", want: "slurm job 7", cgroup: session},
		"one of two, from inside of it":     {user: 1000, job: "twice", want: "slurm job 9", cgroup: fmt.Sprintf(slurm, 9)},
		"from another of his jobs":          {user: 1000, job: "llama", want: "slurm job 8", cgroup: fmt.Sprintf(slurm, 8)},
		"the same user in a pod":            {user: 1000, job: "llama", want: "pods in namespace team-a", cgroup: "/kubepods/pod" + uid + "/" + idA},
		"in a pod that is not known here":   {user: 1000, job: "llama", want: "pods of user 1000", cgroup: "/kubepods/pod" + otherUID + "/" + idA},
		"in a container":                    {user: 1000, job: "llama", want: "containers of user 1000", cgroup: "/docker/" + idA},
		"a pod of his own making":           {user: 3000, job: "llama", want: "user 3000", cgroup: session + "/kubepods/pod" + uid + "/" + idA},
		"none":                              {user: 1000, job: "", want: "user 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, s.DomainOf(tc.user, tc.cgroup, tc.job))
			require.Equal(t, tc.want, s.DomainOf(tc.user, tc.cgroup, tc.job), "asked again")
		})
	}
}

func TestAnswersAboutSpeakersAreBounded(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.proc.add(100, 1, s.ns(0), "python", "/", rank3()...)
	s.exec(100, 1, 0, 0, rank3()...)
	s.settle()
	for user := range uint32(3 * mostSpeakers) {
		require.Equal(t, domainOfUser(user), s.DomainOf(user, "", "job"))
	}
	require.LessOrEqual(t, len(s.speakers.of), mostSpeakers)
}
