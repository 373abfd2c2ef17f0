package procfs

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStatusOfAThread(t *testing.T) {
	const counts = "voluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t2\n"
	for name, tc := range map[string]struct {
		content string
		want    ThreadStatus
		asleep  bool
	}{
		"asleep":            {"Name:\tState: R\nState:\tS (sleeping)\nNSpid:\t42\n" + counts, ThreadStatus{'S', 19, 17, 42, 0, 0, false}, true},
		"in a pod":          {"State:\tD (disk sleep)\nNSpid:\t4242\t77\t7\n" + counts, ThreadStatus{'D', 19, 17, 7, 0, 0, false}, true},
		"stopped":           {"State:\tT (stopped)\nNSpid:\t42\n" + counts, ThreadStatus{'T', 19, 17, 42, 0, 0, false}, true},
		"in a debugger":     {"State:\tt (tracing stop)\nTracerPid:\t77\nNSpid:\t42\n" + counts, ThreadStatus{'t', 19, 17, 42, 77, 0, false}, true},
		"runs":              {"State:\tR (running)\nNSpid:\t42\n" + counts, ThreadStatus{'R', 19, 17, 42, 0, 0, false}, false},
		"a zombie":          {"State:\tZ (zombie)\nNSpid:\t42\n" + counts, ThreadStatus{'Z', 19, 17, 42, 0, 0, false}, false},
		"of many threads":   {"State:\tS\nThreads:\t100008\nNSpid:\t42\n" + counts, ThreadStatus{'S', 19, 17, 42, 0, 100_008, false}, true},
		"told to end":       {"State:\tS\nNSpid:\t42\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n" + counts, ThreadStatus{'S', 19, 17, 42, 0, 0, true}, true},
		"its process alone": {"State:\tS\nNSpid:\t42\nSigPnd:\t0000000000000001\nShdPnd:\t0000000000000100\n" + counts, ThreadStatus{'S', 19, 17, 42, 0, 0, false}, true},
		"without namespace": {"State:\tS\n" + counts, ThreadStatus{'S', 19, 17, 0, 0, 0, false}, true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			put(t, root, "42/task/43/status", tc.content)
			s, err := Open(root).ThreadStatus(42, 43)
			require.NoError(t, err)
			require.Equal(t, tc.want, s)
			require.Equal(t, tc.asleep, s.Asleep())
		})
	}
	root := t.TempDir()
	for _, bad := range []string{"", "State:\tS\n", "State:\t\n" + counts, "State:\tS\nNSpid:\tx\n" + counts, "State:\tS\nTracerPid:\t-1\n" + counts, "State:\tS\nSigPnd:\tx\n" + counts, "State:\tS\nvoluntary_ctxt_switches:\t-1\nnonvoluntary_ctxt_switches:\t2\n"} {
		put(t, root, "42/task/43/status", bad)
		_, err := Open(root).ThreadStatus(42, 43)
		require.Error(t, err, "%q", bad)
	}
	_, err := Open(root).ThreadStatus(42, 44)
	require.ErrorIs(t, err, ErrGone)
}

// A zombie whose other threads live on has lost its main thread alone.
func TestAProcessThatEndsIsToldFromAMainThreadThatHasEnded(t *testing.T) {
	const told, lives, exiting = "SigPnd:\t0000000000000100\n", "SigPnd:\t0000000000000000\n", 0x404004
	for name, tc := range map[string]struct {
		pending string
		flags   int
		ending  bool
	}{
		"they live":         {lives, 0x404000, false},
		"they were told to": {told, 0x404000, true},
		"they do":           {lives, exiting, true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			add := func(tid int, state, pending string, flags int) {
				put(t, root, fmt.Sprintf("42/task/%d/status", tid), "State:\t"+state+"\n"+pending+"voluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t2\n")
				put(t, root, fmt.Sprintf("42/task/%d/stat", tid), fmt.Sprintf("%d (x) %s 1 42 42 0 -1 %d 0 0 0 0 0 0 0 0 20 0 3 0 7 0 0", tid, state, flags))
			}
			add(42, "Z", lives, exiting)
			add(43, "Z", lives, exiting)
			add(44, "S", tc.pending, tc.flags)
			ending, err := Open(root).Ending(42)
			require.NoError(t, err)
			require.Equal(t, tc.ending, ending)
		})
	}
	_, err := Open(t.TempDir()).Ending(42)
	require.ErrorIs(t, err, ErrGone)
}

func TestThreadsAreListedInOrderAndBounded(t *testing.T) {
	root := t.TempDir()
	for tid := range 20 {
		put(t, root, fmt.Sprintf("42/task/%d/status", 42+tid), "")
	}
	threads, err := Open(root).Threads(42, 100)
	require.NoError(t, err)
	require.Len(t, threads, 20)
	require.EqualValues(t, 42, threads[0])
	require.EqualValues(t, 61, threads[19])
	threads, err = Open(root).Threads(42, 7)
	require.NoError(t, err)
	require.Len(t, threads, 7)
	_, err = Open(root).Threads(7, 7)
	require.ErrorIs(t, err, ErrGone)
}

func TestThreadsAreReadTogether(t *testing.T) {
	const status = "State:\tS (sleeping)\nvoluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t2\n"
	root := t.TempDir()
	put(t, root, "42/task/42/status", status)
	put(t, root, "42/task/42/schedstat", "1000000 2000 19\n")
	put(t, root, "44/task/44/status", status)
	put(t, root, "45/task/45/status", "State:\n")
	put(t, root, "42/task/49/status", status)
	read := func(fs *FS) []ThreadLook {
		all := fs.LookAt([]ThreadID{{42, 42}, {43, 43}, {44, 44}, {45, 45}, {42, 49}, {42, 50}})
		require.Len(t, all, 6)
		require.NoError(t, all[0].Err)
		require.EqualValues(t, 19, all[0].Status.Switches)
		require.Equal(t, time.Millisecond, all[0].Ran)
		require.ErrorIs(t, all[1].Err, ErrGone)
		require.NoError(t, all[2].Err)
		require.ErrorIs(t, all[2].RanErr, ErrGone, "a kernel without CONFIG_SCHED_INFO")
		require.ErrorContains(t, all[3].Err, "45")
		require.NoError(t, all[4].Err)
		require.ErrorIs(t, all[5].Err, ErrGone)
		return all
	}
	fs := Open(root)
	together := read(fs)

	// One read that hangs, of all together, leaves the others to be read one by one.
	release := make(chan struct{})
	_, err := Patiently(fs.WithPatience(time.Millisecond), fs.threadsName(), func() (int, error) { <-release; return 0, nil })
	require.ErrorIs(t, err, ErrHung)
	require.Equal(t, together, read(fs.WithPatience(time.Minute)))
	close(release)

	fs.SetForeign(true)
	require.ErrorIs(t, fs.LookAt([]ThreadID{{42, 42}})[0].Err, ErrForeign)
}
