//go:build unix

package ncclfrreceiver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/flightrecorder"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/process"
)

var keeper = component.MustNewID("file_storage")

// counting is a rig that counts what is read.
func counting(t *testing.T) (*rig, *here) {
	r := newRig(t)
	dumps := &here{limits: flightrecorder.DefaultLimits}
	r.dumps = dumps
	return r, dumps
}

// TestAFileWithManyNamesIsReadOnce touches a dump that is cut short and has 300 hard
// links, again and again: a twentieth of a processor at most reads it, and real dumps
// do not wait.
func TestAFileWithManyNamesIsReadOnce(t *testing.T) {
	r, dumps := counting(t)
	r.cost = time.Second
	whole, err := os.ReadFile("internal/flightrecorder/testdata/missing/rank_0.pickle")
	require.NoError(t, err)
	first := filepath.Join(r.dir, "a_rank_0")
	r.write("a_rank_0", whole[:len(whole)-1])
	for n := range 300 {
		require.NoError(t, os.Link(first, filepath.Join(r.dir, fmt.Sprintf("a_rank_%d", n+1))))
	}
	r.start()
	require.Equal(t, 1, dumps.reads())
	for range 60 {
		require.NoError(t, os.Chtimes(first, r.now, r.now))
		r.look(time.Second)
	}
	require.LessOrEqual(t, dumps.reads(), 4, "readings in a minute")

	r.put("rank_0", "missing/rank_0.pickle")
	for range 5 { // the same owner in the same folder rests for as long as the last reading in vain asks
		r.look(time.Second)
	}
	require.Equal(t, []string{waits}, r.sink.said())
}

func TestTheFilesOfOthersDoNotWait(t *testing.T) {
	p := newPace()
	hostile := candidate{path: "/a/x", print: fingerprint{Inode: 1}, owner: owner{1000, "/a"}}
	sameOwner := candidate{path: "/a/y", print: fingerprint{Inode: 2}, owner: owner{1000, "/a"}}
	others := candidate{path: "/a/z", print: fingerprint{Inode: 3}, owner: owner{1001, "/a"}}
	p.spent(hostile, time.Second, false, began)
	require.False(t, p.may(sameOwner, began.Add(3*time.Second)))
	require.True(t, p.may(others, began))
	require.True(t, p.may(sameOwner, began.Add(4*time.Second)))
	require.False(t, p.may(hostile, began.Add(19*time.Second)))
	require.True(t, p.may(hostile, began.Add(20*time.Second)))
	p.spent(others, time.Second, true, began)
	require.True(t, p.may(candidate{print: fingerprint{Inode: 4}, owner: others.owner}, began), "what gives records costs its owner nothing")
}

func TestSmallAndNewFilesComeFirst(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, size := range []int64{32 << 20, 1 << 20, 2 << 20} {
		path := filepath.Join(dir, fmt.Sprint(len(paths)))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Truncate(path, size))
		paths = append(paths, path)
	}
	p := newPace()
	names := func() (names []string) {
		for _, c := range p.inTurn(named(paths)) {
			names = append(names, filepath.Base(c.path))
		}
		return names
	}
	require.Equal(t, []string{"1", "2", "0"}, names())
	p.spent(p.inTurn(named(paths))[0], time.Second, true, began)
	require.Equal(t, []string{"2", "0", "1"}, names())
	paths = paths[:1]
	require.Equal(t, []string{"0"}, names())
	require.Empty(t, p.files, "what is gone is forgotten")
}

// TestAFileThatEndsItsReaderIsSetAside after a second try, and stays so over a restart.
func TestAFileThatEndsItsReaderIsSetAside(t *testing.T) {
	r, dumps := counting(t)
	r.config.Storage = &keeper
	state := t.TempDir()
	files := fileStorage(t, state)
	r.host[keeper] = files
	dumps.fail(fmt.Errorf("%w: signal: killed", process.ErrKilled))
	r.put("rank_0", "missing/rank_0.pickle")
	r.start()
	r.look(time.Second)
	r.look(time.Second)
	require.Equal(t, 2, dumps.reads())
	require.Equal(t, map[string]int64{"killed_reader": 1}, r.refusals())
	require.NoError(t, r.receiver.Shutdown(t.Context()))
	require.NoError(t, files.Shutdown(context.Background()))

	again, dumps := counting(t)
	again.dir, again.config, again.now = r.dir, r.config, r.now
	reopened := fileStorage(t, state)
	t.Cleanup(func() { require.NoError(t, reopened.Shutdown(context.Background())) })
	again.host[keeper] = reopened
	again.start()
	require.Zero(t, dumps.reads())
	again.put("rank_0", "missing/rank_0.pickle")
	again.pass(time.Second)
	again.put("rank_0", "missing/rank_0.pickle")
	again.look(time.Second)
	require.Equal(t, []string{waits}, again.sink.said(), "a file that was written again is another")
}

// TestAFileThatEndsTheCollectorIsSetAside: a try is noted before the reading.
func TestAFileThatEndsTheCollectorIsSetAside(t *testing.T) {
	r, dumps := counting(t)
	r.put("rank_0", "missing/rank_0.pickle")
	info, err := os.Lstat(filepath.Join(r.dir, "rank_0"))
	require.NoError(t, err)
	r.make()
	require.NoError(t, r.receiver.seen.put(t.Context(), mark{Path: filepath.Join(r.dir, "rank_0"), Print: fingerprintOf(info), Tries: mostTries}))
	require.NoError(t, r.receiver.Start(t.Context(), r.host))
	r.look(0)
	require.Zero(t, dumps.reads())
	require.Equal(t, map[string]int64{"killed_reader": 1}, r.refusals())
}

func TestWithoutAReaderFilesAreTriedAgain(t *testing.T) {
	r, dumps := counting(t)
	dumps.fail(errors.Join(process.ErrNoReader))
	r.put("rank_0", "missing/rank_0.pickle")
	r.start()
	r.look(time.Second)
	require.Equal(t, map[string]int64{"no_reader": 1}, r.refusals(), "said once")
	dumps.fail(nil)
	r.look(time.Second)
	require.Equal(t, []string{waits}, r.sink.said())
}

func TestARefusedDeliveryIsNoFailedReading(t *testing.T) {
	r, dumps := counting(t)
	r.sink.refuse(errors.New("later"))
	r.put("rank_0", "missing/rank_0.pickle")
	r.start()
	for range 5 {
		r.look(time.Second)
	}
	require.GreaterOrEqual(t, dumps.reads(), 5)
	r.sink.refuse(nil)
	r.look(time.Second)
	require.Equal(t, []string{waits}, r.sink.said())
}
