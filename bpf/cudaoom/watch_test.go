//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/cudaoom/fakejob"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

func TestLibraryIsDetachedWhenItsLastProcessIsGone(t *testing.T) {
	p := open(t, Options{})
	library := install(t)
	first, second := job(t, library), job(t, library)
	require.Equal(t, probe.Watched{Libraries: 1}, watch(t, p, first, second))
	require.NoError(t, first.Close())
	require.Equal(t, probe.Watched{Libraries: 1}, watch(t, p, second))
	require.NoError(t, second.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	require.Equal(t, second.PID(), next(t, p).PID)

	require.Equal(t, probe.Watched{}, watch(t, p))
	require.NoError(t, second.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	nothing(t, p)
	require.Equal(t, probe.Watched{Libraries: 1}, watch(t, p, second), "and found again")
	require.NoError(t, second.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	require.Equal(t, second.PID(), next(t, p).PID)
}

// A container with a driver of its own, beside one with the host's.
func TestEachLibraryIsAttachedOnItsOwn(t *testing.T) {
	p := open(t, Options{})
	one, other := job(t, install(t)), job(t, install(t))
	require.Equal(t, probe.Watched{Libraries: 2}, watch(t, p, one, other))
	for _, j := range []*fakejob.Job{one, other} {
		require.NoError(t, j.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
		require.Equal(t, j.PID(), next(t, p).PID)
	}
}

func TestProcessThatMapsTheLibraryLaterIsSeen(t *testing.T) {
	p := open(t, Options{})
	library := install(t)
	watched := job(t, library)
	watch(t, p, watched)
	late := job(t, library) // nobody told the probe of it
	require.NoError(t, late.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	require.Equal(t, late.PID(), next(t, p).PID)
}

// A driver update replaces the file under a job that runs on.
func TestLibraryThatWasReplacedIsStillWatched(t *testing.T) {
	p := open(t, Options{})
	library := install(t)
	j := job(t, library)
	require.NoError(t, os.Remove(library))
	require.NoError(t, os.WriteFile(library, []byte("not a library"), 0o644))
	require.Equal(t, probe.Watched{Libraries: 1}, watch(t, p, j))
	require.NoError(t, j.Do(fakejob.Create(2<<20, 0, fakejob.OutOfMemory)))
	require.Equal(t, MemCreate, next(t, p).Function)
}

func TestLibrariesBeyondTheLimitAreCountedAndHadWhenThereIsRoom(t *testing.T) {
	p := open(t, Options{MaxLibraries: 1})
	first := job(t, install(t))
	require.Equal(t, probe.Watched{Libraries: 1}, watch(t, p, first))
	second := job(t, install(t))
	for range 3 {
		require.Equal(t, probe.Watched{Libraries: 1, Over: 1}, watch(t, p, first, second))
	}
	watch(t, p, second) // the first is gone
	require.Equal(t, probe.Watched{Libraries: 1}, watch(t, p, second))
	require.NoError(t, second.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	require.Equal(t, second.PID(), next(t, p).PID)
}

func TestDriverWithoutTheNewerFunctionsIsWatchedAllTheSame(t *testing.T) {
	p := open(t, Options{})
	j := job(t, install(t, "cuMemAlloc_v2", "cuMemAllocManaged"))
	require.Equal(t, probe.Watched{Libraries: 1}, watch(t, p, j))
	require.NoError(t, j.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	require.Equal(t, MemAlloc, next(t, p).Function)
}

// A file of that name without the driver's functions: said once, tried again after
// the longest pause.
func TestLibraryThatCannotBeAttachedIsTriedAgainNowAndThen(t *testing.T) {
	p := open(t, Options{})
	j := job(t, bareLibrary(t))
	w, err := p.Watch(processes(j))
	require.NoError(t, err)
	require.ErrorContains(t, w.Err, "exports none of the driver's allocation functions")
	require.Equal(t, 1, w.Failed)
	told := 0
	for range 2 * (uprobe.MaxPause + 1) {
		w, err = p.Watch(processes(j))
		require.NoError(t, err)
		require.Equal(t, 1, w.Failed)
		if w.Err != nil {
			told++
		}
	}
	require.Equal(t, 2, told)
}

// bareLibrary is a libcuda with one function that no driver has.
func bareLibrary(t *testing.T) string {
	library := filepath.Join(t.TempDir(), fakejob.LibraryName)
	file := fakejob.Library([]string{"cuMemAlloc_v2"})
	for i := range file[:4096] {
		if string(file[i:i+5]) == "cuMem" {
			file[i] = 'x'
		}
	}
	require.NoError(t, os.WriteFile(library, file, 0o755))
	return library
}

// BenchmarkWatch is what the processes of a job cost that share a libcuda: the first
// look, which attaches, a look that finds nothing new, and detaching.
func BenchmarkWatch(b *testing.B) {
	privtest.Require(b)
	for _, count := range []int{1, 300} {
		b.Run(fmt.Sprintf("processes=%d", count), func(b *testing.B) {
			library, jobs := install(b, fakejob.Functions()...), make([]*fakejob.Job, count)
			for i := range jobs {
				jobs[i] = job(b, library)
			}
			var attaching, looking, detaching time.Duration
			for b.Loop() {
				p := open(b, Options{})
				attaching += took(func() { require.Equal(b, probe.Watched{Libraries: 1}, watch(b, p, jobs...)) })
				b.ReportMetric(float64(2*len(entries())), "uprobes")
				looking += took(func() { watch(b, p, jobs...) })
				detaching += took(func() { require.Equal(b, probe.Watched{}, watch(b, p)) })
				require.NoError(b, p.Close())
			}
			for name, spent := range map[string]time.Duration{"ms/attach": attaching, "ms/look": looking, "ms/detach": detaching} {
				b.ReportMetric(float64(spent.Microseconds())/1000/float64(b.N), name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func took(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}
