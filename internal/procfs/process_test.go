package procfs

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func statLine(name, state, flags, threads string) string {
	return "7 (" + name + ") " + state + " 3 7 7 0 -1 " + flags + " 1 2 3 4 250 50 7 8 20 0 " + threads + " 0 4711 1000 0"
}

func TestStatLine(t *testing.T) {
	for name, tc := range map[string]struct {
		line           string
		want           Stat
		ended, stopped bool
	}{
		"ordinary":                {statLine("python3", "S", "4194560", "1"), Stat{Name: "python3", State: 'S', Threads: 1}, false, false},
		"a name like fields":      {statLine("a) S 1 (b", "R", "0", "1"), Stat{Name: "a) S 1 (b", State: 'R', Threads: 1}, false, false},
		"an empty name":           {statLine("", "D", "0", "1"), Stat{State: 'D', Threads: 1}, false, false},
		"a name that is no text":  {statLine("a\xff", "R", "0", "1"), Stat{Name: "a�", State: 'R', Threads: 1}, false, false},
		"kernel thread":           {statLine("kworker/0:1", "I", "69238880", "1"), Stat{Name: "kworker/0:1", State: 'I', Threads: 1, Kernel: true}, false, false},
		"stopped":                 {statLine("x", "T", "0", "9"), Stat{Name: "x", State: 'T', Threads: 9}, false, true},
		"traced":                  {statLine("x", "t", "0", "9"), Stat{Name: "x", State: 't', Threads: 9}, false, true},
		"zombie":                  {statLine("x", "Z", "0", "1"), Stat{Name: "x", State: 'Z', Threads: 1}, true, false},
		"zombie, all threads out": {statLine("x", "Z", "0", "0"), Stat{Name: "x", State: 'Z'}, true, false},
		"dead":                    {statLine("x", "X", "0", "0"), Stat{Name: "x", State: 'X'}, true, false},
		"leader gone, group not":  {statLine("x", "Z", "0", "12"), Stat{Name: "x", State: 'Z', Threads: 12}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.PID, tc.want.ParentPID, tc.want.StartTicks, tc.want.CPU = 7, 3, 4711, 3*time.Second
			tc.want.System, tc.want.Reaped, tc.want.Faults = 500*time.Millisecond, 150*time.Millisecond, 1
			got, err := ParseStat([]byte(tc.line))
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.ended, got.Ended())
			require.Equal(t, tc.stopped, got.Stopped())
		})
	}
	good := statLine("x", "S", "0", "1")
	for name, bad := range map[string]string{
		"empty": "", "no name": "7 x S 3", "closed before it opens": ")(", "cut": good[:40], "two letters": strings.Replace(good, " S ", " SS ", 1),
		"no start": strings.Replace(good, "4711", "soon", 1), "negative parent": strings.Replace(good, "S 3", "S -3", 1),
		"no flags": strings.Replace(good, "-1 0", "-1 x", 1), "no time": strings.Replace(good, "250", "much", 1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseStat([]byte(bad))
			require.Error(t, err)
		})
	}
	absurd, err := ParseStat([]byte(strings.NewReplacer("250 50", "18446744073709551615 18446744073709551615").Replace(good)))
	require.NoError(t, err)
	require.Positive(t, absurd.CPU, "absurd times do not overflow")
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(statLine("python3", "S", "4194560", "1")))
	f.Add([]byte("7 () ) ( S"))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := ParseStat(line)
		require.True(t, err == nil || s == Stat{})
		require.GreaterOrEqual(t, s.CPU, time.Duration(0))
	})
}

func TestProcessesOfThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	f, self := Open(""), uint32(os.Getpid())
	s, err := f.Stat(self)
	require.NoError(t, err)
	require.EqualValues(t, os.Getppid(), s.ParentPID)
	require.NotZero(t, s.StartTicks)
	require.False(t, s.Kernel || s.Ended())
	leader, err := f.ThreadStat(self, self)
	require.NoError(t, err)
	require.Equal(t, s.StartTicks, leader.StartTicks)
	const never = 1 << 30 // above the largest pid, PID_MAX_LIMIT in include/linux/threads.h
	_, err = f.Stat(never)
	require.ErrorIs(t, err, ErrGone)
	pids, err := f.PIDs()
	require.NoError(t, err)
	require.Contains(t, pids, self)
	environ, err := f.Environ(self)
	require.NoError(t, err)
	require.Contains(t, string(environ.Content), "PATH=")
	cgroup, err := f.Cgroup(self)
	require.NoError(t, err)
	require.Contains(t, string(cgroup), ":/")
	number, err := f.Namespace(self, "net")
	require.NoError(t, err)
	require.NotZero(t, number)
}

func TestStatesOfAProcess(t *testing.T) {
	r := newTree(t)
	for line, want := range map[string]State{
		statLine("juicefs", "S", "0", "9"): Alive, statLine("x", "D", "0", "1"): Alive, statLine("leader", "Z", "0", "3"): Alive,
		statLine("x", "T", "0", "9"): Stopped, statLine("x", "Z", "0", "1"): Gone, "odd": Unknown,
	} {
		r.write("7/stat", line)
		r.write("7/task/8/stat", line)
		require.Equal(t, want, r.Process(7).State, line)
		require.Equal(t, want, r.Thread(7, 8).State, line)
	}
	require.Equal(t, Process{State: Gone}, r.Process(9))
	r.SetForeign(true)
	require.Equal(t, Process{State: Unknown}, r.Process(7))
}

func TestOddProcesses(t *testing.T) {
	r := newTree(t)
	for _, name := range []string{"acpi", "99999999999", "0", "12", "7"} {
		require.NoError(t, os.Mkdir(filepath.Join(r.Root(), name), 0o755))
	}
	pids, err := r.PIDs()
	require.NoError(t, err)
	require.Equal(t, []uint32{7, 12}, pids)
	for _, text := range []string{"", "1", "1 two 3", "1 -99999999999999999999 3", "one 2 3", "99999999999999999999 2 3"} {
		r.write("42/schedstat", text)
		_, err := r.Turns(42)
		require.Error(t, err)
	}
	r.write("42/schedstat", "1250000000 7000000000 99\n")
	turns, err := r.Turns(42)
	require.NoError(t, err)
	require.Equal(t, Turns{1250 * time.Millisecond, 7 * time.Second}, turns)
	require.NoError(t, os.MkdirAll(filepath.Join(r.Root(), "42/ns"), 0o755))
	require.NoError(t, os.Symlink("nonsense", filepath.Join(r.Root(), "42/ns/net")))
	_, err = r.Namespace(42, "net")
	require.ErrorContains(t, err, "is no namespace")
	_, err = Open(filepath.Join(r.Root(), "nowhere")).PIDs()
	require.ErrorContains(t, err, "set HOST_PROC")
}

func BenchmarkStat(b *testing.B) {
	f := Open("")
	b.ReportAllocs()
	for b.Loop() {
		_, _ = f.Stat(1)
	}
}
