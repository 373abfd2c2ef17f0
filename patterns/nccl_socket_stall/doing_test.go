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

// What has no CPU may be a thread, or what serves the file that the main thread waits for.
func TestWhatHasNoCPU(t *testing.T) {
	for name, tc := range map[string]struct {
		state socketstall.State
		doing socketstall.Doing
		want  string
	}{
		"its main thread":           {socketstall.Running, socketstall.Doing{Syscall: "read", File: "/data/shard"}, "its main thread is ready to run and gets no CPU"},
		"a thread":                  {socketstall.Sleeping, socketstall.Doing{Syscall: "futex"}, "a thread of it, or what serves its files, is ready to run and gets no CPU"},
		"what serves a file":        {socketstall.Sleeping, socketstall.Doing{Syscall: "read", File: "/data/shard", Pressure: 64}, "it waits for /data/shard, and what serves that is ready to run and gets no CPU: other processes of its host have them (CPU pressure 64 %)"},
		"what serves a mapped file": {socketstall.DiskSleep, socketstall.Doing{Channel: "folio_wait_bit_common"}, "it waits for a file, and what serves that is ready to run and gets no CPU"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.doing.Activity = socketstall.Starved
			require.Equal(t, tc.want, doing(&socketstall.Process{State: tc.state, Doing: tc.doing}))
		})
	}
}

// SIGCONT ends the stop of a signal alone: what a debugger or a freezer holds, or has ended,
// has a remedy of its own, whether it is the rank or its child.
func TestWhichRemedyFitsAHaltedProcess(t *testing.T) {
	child := func(state socketstall.State, traced bool) socketstall.Doing {
		return socketstall.Doing{Activity: socketstall.Idle, Syscall: "read", Child: "pt_data_worker", ChildPID: 212, Held: socketstall.Held{State: state, Awaited: true}, Traced: traced}
	}
	for name, tc := range map[string]struct {
		held   string
		state  socketstall.State
		doing  socketstall.Doing
		advice string
	}{
		"a signal stops the rank":                   {heldStopped, socketstall.Stopped, socketstall.Doing{Stopper: "SIGSTOP from bash (pid 812) of user 1000"}, "stopped"},
		"nobody knows what stops the rank":          {heldStopped, socketstall.Stopped, socketstall.Doing{}, "stopped"},
		"a debugger holds the rank":                 {heldStopped, socketstall.Stopped, socketstall.Doing{Traced: true}, "traced"},
		"the main thread has ended":                 {heldStopped, socketstall.Zombie, socketstall.Doing{}, "ended"},
		"it has ended while a debugger was told of": {heldStopped, socketstall.Zombie, socketstall.Doing{Traced: true}, "ended"},
		"a freezer holds the rank":                  {heldFrozen, socketstall.Frozen, socketstall.Doing{}, "frozen"},
		"a freezer holds what a debugger held":      {heldFrozen, socketstall.Frozen, socketstall.Doing{Traced: true}, "frozen"},
		"a signal stops its child":                  {heldSilent, socketstall.Sleeping, child(socketstall.Stopped, false), "child_stopped"},
		"a debugger holds its child":                {heldSilent, socketstall.Sleeping, child(socketstall.Stopped, true), "child_traced"},
		"a freezer holds its child":                 {heldSilent, socketstall.Sleeping, child(socketstall.Frozen, false), "child_frozen"},
		"a freezer holds a child, told as traced":   {heldSilent, socketstall.Sleeping, child(socketstall.Frozen, true), "child_frozen"},
		"its child is blocked in the kernel":        {heldSilent, socketstall.Sleeping, child(socketstall.DiskSleep, false), "file"},
		"its child sleeps":                          {heldSilent, socketstall.Sleeping, child(socketstall.Sleeping, false), "child"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &conclusion{Held: tc.held}
			require.Equal(t, tc.advice, c.advice(&socketstall.Process{State: tc.state, Doing: tc.doing}))
		})
	}
}

// TestAThreadThatIsBlockedIsNoLock: the main thread waits in a lock for a thread that a file system
// does not answer. Where the main thread itself is blocked, or a child holds it up, that says more.
func TestAThreadThatIsBlockedIsNoLock(t *testing.T) {
	thread := socketstall.Thread{TID: 4711, Syscall: "write", Channel: "rpc_wait_bit_killable", File: "/ckpt/model.pt"}
	fault := socketstall.Thread{TID: 4711, Channel: "folio_wait_bit_common"}
	lock := socketstall.Doing{Activity: socketstall.Idle, Syscall: "futex", Channel: "futex_do_wait"}
	with := func(d socketstall.Doing, change func(*socketstall.Doing)) socketstall.Doing { change(&d); return d }
	const asleep = "its main thread is asleep in futex, futex_do_wait, at 0 % CPU"
	for name, tc := range map[string]struct {
		state  socketstall.State
		doing  socketstall.Doing
		want   string
		advice string
	}{
		"a lock": {socketstall.Sleeping, lock, asleep, adviceSleep},
		"a thread on NFS": {socketstall.Sleeping, with(lock, func(d *socketstall.Doing) { d.Thread = thread }),
			asleep + "; its thread 4711 is blocked on /ckpt/model.pt (write, rpc_wait_bit_killable)", adviceThread},
		"a thread in a page fault": {socketstall.Sleeping, with(lock, func(d *socketstall.Doing) { d.Thread = fault }),
			asleep + "; its thread 4711 is blocked in the kernel (the kernel, folio_wait_bit_common): a file system or a driver does not answer", adviceThread},
		"the main thread itself": {socketstall.DiskSleep, socketstall.Doing{Activity: socketstall.Idle, Syscall: "read", Channel: "rpc_wait_bit_killable", File: "/data/x", Thread: thread},
			"its main thread is blocked on /data/x (read, rpc_wait_bit_killable), at 0 % CPU", adviceFile},
		"a worker that is stopped": {socketstall.Sleeping, with(lock, func(d *socketstall.Doing) {
			d.Thread, d.Child, d.ChildPID, d.Held = thread, "pt_data_worker", 212, socketstall.Held{State: socketstall.Stopped, Awaited: true}
		}), "it waits for its child process pt_data_worker (pid 212), which is stopped (SIGSTOP or a debugger)", adviceStop},
		"it goes on": {socketstall.Sleeping, with(lock, func(d *socketstall.Doing) { d.Thread, d.Activity = thread, socketstall.ThreadComputing }),
			"a thread beside its main thread computes", adviceLoop},
	} {
		t.Run(name, func(t *testing.T) {
			p := &socketstall.Process{State: tc.state, Doing: tc.doing}
			require.Equal(t, tc.want, doing(p))
			require.Equal(t, tc.advice, (&conclusion{Held: heldSilent}).advice(p))
		})
	}
}
