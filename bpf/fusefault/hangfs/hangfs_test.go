//go:build linux

package hangfs

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

func TestMain(m *testing.M) {
	if IsChild() {
		os.Exit(Child())
	}
	os.Exit(m.Run())
}

func start(t *testing.T, opts Options) *FS {
	t.Helper()
	privtest.Require(t)
	f, err := Start(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

func visitAll(t *testing.T, f *FS) *Visitor {
	t.Helper()
	v, err := f.Visit(Visit{Env: []string{"RANK=3"}, Accesses: []Access{
		{How: Read, File: Cached + "1"}, {How: Read, File: Direct}, {How: Stat, File: Cached},
		{How: Fault, File: Cached + "2", Threads: 3}, {How: Copy, File: Cached + "3"},
		{How: Write, File: Direct}, {How: Fsync, File: Cached},
	}})
	require.NoError(t, err)
	return v
}

func wait(t *testing.T, v *Visitor) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience)
	defer cancel()
	require.NoError(t, v.Wait(ctx))
}

func TestVisitorsComeBackWhenTheDaemonAnswers(t *testing.T) {
	for name, opts := range map[string]Options{"seen by all": {}, "private": {Private: true}} {
		t.Run(name, func(t *testing.T) {
			f := start(t, opts)
			v := visitAll(t, f)
			require.NoError(t, v.Go())
			wait(t, v)
			data := make([]byte, 5)
			file, err := os.Open(f.Path(Cached))
			require.NoError(t, err)
			defer file.Close()
			_, err = file.Read(data)
			require.NoError(t, err)
		})
	}
}

func TestHeldVisitorsAreReleased(t *testing.T) {
	for name, step := range map[string]struct {
		hold, release func(f *FS) error
	}{
		"thaw":     {(*FS).Freeze, (*FS).Thaw},
		"continue": {(*FS).Stop, (*FS).Continue},
		"death":    {(*FS).Freeze, (*FS).Kill},
		"umount":   {(*FS).Freeze, (*FS).Abort},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, Options{})
			v := visitAll(t, f)
			require.NoError(t, step.hold(f))
			require.NoError(t, v.Go())
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.ErrorIs(t, v.Wait(ctx), context.Canceled)
			require.NoError(t, step.release(f))
			wait(t, v)
		})
	}
}

func TestCloseEndsWhatHangsAndLeavesNothing(t *testing.T) {
	for name, private := range map[string]bool{"seen by all": false, "private": true} {
		t.Run(name, func(t *testing.T) {
			f := start(t, Options{Private: private})
			v := visitAll(t, f)
			require.NoError(t, f.Freeze())
			require.NoError(t, v.Go())
			require.NoError(t, f.Stop())
			require.NoError(t, f.Close())
			require.NoError(t, f.Close())
			require.NoDirExists(t, f.Dir())
			<-v.Gone()
		})
	}
}

func TestPrivateMountIsSeenByNobodyElse(t *testing.T) {
	f := start(t, Options{Private: true})
	_, err := findMount(os.Getpid(), f.Dir())
	require.ErrorContains(t, err, "is no mount point")
	v, err := f.Visit(Visit{})
	require.NoError(t, err)
	mount, err := findMount(v.PID(), f.Dir())
	require.NoError(t, err)
	require.Equal(t, "fuse.hangfs", mount.FSType)
}

func TestNoMountPointSaysSo(t *testing.T) {
	_, err := Start(Options{Dir: "/no/such/place"})
	require.ErrorContains(t, err, "find the mount point")
}

func TestSweepTakesOnlyOldDirectoriesOfDeadMakers(t *testing.T) {
	parent := t.TempDir()
	long := time.Now().Add(-2 * time.Hour)
	const nobody = "4194305" // above PID_MAX_LIMIT
	for name, stays := range map[string]bool{
		"hangfs-" + nobody + "-1":                    false,
		"hangfs-" + nobody + "-young":                true,
		"hangfs-" + strconv.Itoa(os.Getpid()) + "-1": true,
		"hangfs-x-1":             true,
		"other-" + nobody + "-1": true,
	} {
		dir := filepath.Join(parent, name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		if !strings.HasSuffix(name, "young") {
			require.NoError(t, os.Chtimes(dir, long, long))
		}
		sweep(parent)
		_, err := os.Stat(dir)
		require.Equal(t, stays, err == nil, name)
	}
}
