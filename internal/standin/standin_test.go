//go:build linux

package standin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

func TestMain(m *testing.M) {
	if IsChild() {
		os.Exit(Child())
	}
	os.Exit(m.Run())
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(hosttest.Patience); !is(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "not within %v: %s", hosttest.Patience, what)
	}
}

func start(t *testing.T, o Options) *Job {
	t.Helper()
	if o.Namespaces {
		hosttest.Require(t, "it makes network namespaces")
	}
	j, err := Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	return j
}

// works waits until each rank has completed some more collectives.
func works(t *testing.T, j *Job) {
	t.Helper()
	for r := range j.ranks {
		before := j.Steps(r)
		eventually(t, fmt.Sprintf("rank %d at work (%s)", r, j.Error(r)), func() bool { return j.Steps(r) >= before+3 })
	}
}

// halts waits until no rank gets on.
func halts(t *testing.T, j *Job) {
	t.Helper()
	last, since := make([]int64, len(j.ranks)), time.Now()
	eventually(t, "the job at a halt", func() bool {
		for r := range j.ranks {
			if n := j.Steps(r); n != last[r] {
				last[r], since = n, time.Now()
			}
		}
		return time.Since(since) > time.Second
	})
}

func TestJobsOfBothLibrariesHaltAndGoOn(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it waits for jobs of processes")
	}
	for _, library := range []Library{NCCL, Gloo} {
		for _, namespaces := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, namespaces %v", library, namespaces), func(t *testing.T) {
				j := start(t, Options{Library: library, Namespaces: namespaces})
				works(t, j)
				require.NoError(t, j.Signal(2, syscall.SIGSTOP))
				halts(t, j)
				require.NoError(t, j.Signal(2, syscall.SIGCONT))
				works(t, j)
				if namespaces {
					require.NoError(t, j.Drop(1, 2))
					halts(t, j)
					require.NoError(t, j.Heal())
					works(t, j)
				}
				require.NoError(t, j.Limit(0, 20_000_000))
				works(t, j)
				require.NoError(t, j.Compute(1, time.Millisecond))
				works(t, j)
			})
		}
	}
}

func TestFaultsHaltTheJob(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it waits for jobs of processes")
	}
	for name, fault := range map[string]func(*Job) error{
		"sleep": func(j *Job) error { return j.Sleep(2) },
		"deaf":  func(j *Job) error { return j.StopReading(2) },
	} {
		for _, library := range []Library{NCCL, Gloo} {
			t.Run(name+" "+string(library), func(t *testing.T) {
				j := start(t, Options{Library: library})
				works(t, j)
				require.NoError(t, fault(j))
				halts(t, j)
			})
		}
	}
}

func TestRankReadsAFileInItsMainThread(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dataset")
	require.NoError(t, os.WriteFile(file, make([]byte, 3*os.Getpagesize()), 0o600))
	j := start(t, Options{})
	works(t, j)
	require.NoError(t, j.ReadFile(1, file))
	require.NoError(t, j.TouchFile(2, file))
	works(t, j)

	require.NoError(t, j.WriteFile(1, 1<<20, file))
	works(t, j)
	eventually(t, "the file as long as it was told", func() bool {
		info, err := os.Stat(file)
		return err == nil && info.Size() == 1<<20
	})

	pipe := filepath.Join(t.TempDir(), "stuck")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, j.ReadFile(1, pipe))
	halts(t, j)
}

// TestRankWaitsForWhatComputesForIt: the main thread sleeps meanwhile, and the job stands
// still until it is over.
func TestRankWaitsForWhatComputesForIt(t *testing.T) {
	for name, compute := range map[string]func(*Job) error{
		"child":  func(j *Job) error { return j.ComputeInChild(1, 5*time.Second) },
		"thread": func(j *Job) error { return j.ComputeInThread(1, 5*time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			j := start(t, Options{})
			works(t, j)
			require.NoError(t, compute(j))
			halts(t, j)
			works(t, j)
		})
	}
}

func TestMainThreadShowsTheStateOfTheRank(t *testing.T) {
	j := start(t, Options{Busy: true, Phase: time.Millisecond})
	works(t, j)
	require.NoError(t, j.Compute(1, time.Hour))
	main := func() string {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", j.PID(1), j.PID(1)))
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(raw), ") ")
		return rest
	}
	spent := func() string { return strings.Fields(main())[11] }
	before := spent()
	eventually(t, "the main thread burning CPU", func() bool { return spent() != before && strings.HasPrefix(main(), "R") })
}

func TestRankThatDiesEndsItsPeers(t *testing.T) {
	j := start(t, Options{})
	works(t, j)
	require.NoError(t, j.Signal(2, syscall.SIGKILL))
	eventually(t, "an error of its neighbour", func() bool { return j.Error(3) != "" })
}

func TestJobIDIsOneWord(t *testing.T) {
	_, err := Start(Options{JobID: "two words"})
	require.ErrorContains(t, err, `"two words"`)
}

func TestNothingIsLeftBehind(t *testing.T) {
	j := start(t, Options{Library: Gloo})
	works(t, j)
	pid := j.PID(1)
	require.NoError(t, j.Signal(1, syscall.SIGSTOP))
	require.NoError(t, j.ranks[0].orders.Close(), "as when the parent is killed")
	eventually(t, "the end of the stopped rank", func() bool {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(raw), ") Z ")
	})
	require.NoError(t, j.Close())
	require.NoError(t, j.Close())
	require.Error(t, j.Drop(0, 1))
}
