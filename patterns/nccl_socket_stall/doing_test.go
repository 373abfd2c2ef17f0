package ncclsocketstall

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// A rank without a CPU is told with who has it; one whose limit seldom holds it back is not
// told to have too little.
func TestWhoTakesTheCPUFromARank(t *testing.T) {
	limited := socketstall.Doing{Limit: "/pod/c", Milli: 1500, Throttle: 87}
	seldom := socketstall.Doing{Limit: "/pod/c", Milli: 1000, Throttle: 12}
	for name, tc := range map[string]struct {
		doing  socketstall.Doing
		how    socketstall.Activity
		want   string
		advice string
	}{
		"starved by its limit": {limited, socketstall.Starved, "its main thread is ready to run and gets no CPU: the CPU limit of its cgroup /pod/c, 1.5 CPUs, holds it back in 87 % of the periods", adviceCPU},
		"starved, a limit that is seldom reached": {seldom, socketstall.Starved,
			"its main thread is ready to run and gets no CPU: the CPU limit of its cgroup /pod/c, 1 CPU, holds it back in 12 % of the periods", adviceCPU},
		"starved by others":                     {socketstall.Doing{Pressure: 64}, socketstall.Starved, "its main thread is ready to run and gets no CPU: other processes of its host have them (CPU pressure 64 %)", adviceCPU},
		"starved, nobody says by whom":          {socketstall.Doing{}, socketstall.Starved, "its main thread is ready to run and gets no CPU", adviceCPU},
		"computes, mostly held back":            {limited, socketstall.Computing, "its main thread computes: the CPU limit of its cgroup /pod/c, 1.5 CPUs, holds it back in 87 % of the periods", adviceCPU},
		"computes, seldom held back":            {seldom, socketstall.Computing, "its main thread computes", adviceLoop},
		"a thread computes beside a busy host":  {socketstall.Doing{Pressure: 64}, socketstall.ThreadComputing, "a thread beside its main thread computes", adviceLoop},
		"a limit without its size is not named": {socketstall.Doing{Throttle: 30, Limit: "/c"}, socketstall.Starved, "its main thread is ready to run and gets no CPU", adviceCPU},
	} {
		t.Run(name, func(t *testing.T) {
			p := &socketstall.Process{Doing: tc.doing}
			p.Doing.Activity = tc.how
			require.Equal(t, tc.want, doing(p))
			require.Equal(t, tc.advice, (&conclusion{Held: heldSilent}).advice(p))
		})
	}
}
