package activity

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// tree is a proc file system of a test.
type tree struct {
	t    *testing.T
	root string
}

func newTree(t *testing.T) tree {
	p := tree{t, t.TempDir()}
	return p
}

func (p tree) write(name, text string) {
	file := filepath.Join(p.root, name)
	require.NoError(p.t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(p.t, os.WriteFile(file, []byte(text), 0o600))
}

func statLineOf(name, state string, user, system, start uint64) string {
	return fmt.Sprintf("42 (%s) %s 1 42 42 0 -1 4194304 1 0 0 0 %d %d 0 0 20 0 9 0 %d 1000 1", name, state, user, system, start)
}

// begun is when process 42 began, in ticks and as identity says it.
const (
	begun   = 60000
	begunNS = begun * uint64(procfs.Tick)
)

// add puts process 42 into the tree.
func (p tree) add(state string, process, main uint64) identity.Process {
	p.write("42/stat", statLineOf("py) R (x", state, process, 50, begun))
	p.write("42/task/42/stat", statLineOf("py) R (x", state, main, 0, begun))
	p.write("42/schedstat", "1250000000 7000000000 99\n")
	p.write("42/maps", "7f00 r-xp 0 0:1 1 /usr/lib/libc.so.6\n")
	require.NoError(p.t, os.MkdirAll(filepath.Join(p.root, "42/ns"), 0o755))
	require.NoError(p.t, os.RemoveAll(filepath.Join(p.root, "42/ns/net")))
	require.NoError(p.t, os.Symlink("net:[4026531840]", filepath.Join(p.root, "42/ns/net")))
	return identity.Process{PID: 42, Rank: 3, StartNS: begunNS}
}

func TestReadsWhatAProcessDoes(t *testing.T) {
	for letter, state := range map[string]socketstall.State{
		"R": socketstall.Running, "S": socketstall.Sleeping, "I": socketstall.Sleeping, "D": socketstall.DiskSleep, "T": socketstall.Stopped, "Z": socketstall.Zombie, "?": "",
		"t": socketstall.Sleeping, // at the first look: it may be a profiler
	} {
		tree := newTree(t)
		p := tree.add(letter, 250, 125)
		require.Equal(t, Process{
			Process: p, State: state, Ending: state == socketstall.Zombie, CPU: 3 * time.Second, MainCPU: 1250 * time.Millisecond, Polling: 500 * time.Millisecond, Delayed: 7 * time.Second, NetNS: 4026531840,
		}, New(procfs.Open(tree.root).WithPatience(hosttest.Patience)).Read(p, false))
	}
}

func TestKernelWithoutDelays(t *testing.T) {
	tree := newTree(t)
	p := tree.add("R", 250, 125)
	for _, text := range []string{"", "1", "1 two 3", "1 -99999999999999999999 3"} {
		tree.write("42/schedstat", text)
		require.Zero(t, New(procfs.Open(tree.root).WithPatience(hosttest.Patience)).Read(p, false).Delayed)
	}
	require.NoError(t, os.Remove(filepath.Join(tree.root, "42/schedstat")))
	require.Zero(t, New(procfs.Open(tree.root).WithPatience(hosttest.Patience)).Read(p, false).Delayed)
}

func TestWhatCannotBeReadIsNotKnown(t *testing.T) {
	tree := newTree(t)
	r := New(procfs.Open(tree.root).WithPatience(hosttest.Patience))
	p := identity.Process{PID: 42, StartNS: begunNS}
	require.Equal(t, Unread(p), r.Read(p, true), "no process")
	for name, text := range map[string]string{
		"empty": "", "no name": "42 S 1", "short": "42 (x) S 1 2 3", "words": strings.ReplaceAll(statLineOf("x", "S", 1, 1, begun), strconv.Itoa(begun), "soon"),
	} {
		tree.write("42/stat", text)
		require.Equal(t, Unread(p), r.Read(p, true), name)
	}
	tree.write("42/stat", statLineOf("x", "S", 1<<63, 1<<63, begun))
	require.Positive(t, r.Read(p, false).CPU, "absurd times do not overflow")
}

func TestStrangerUnderTheSameNumberIsNotRead(t *testing.T) {
	tree := newTree(t)
	p := tree.add("T", 250, 125)
	p.StartNS += uint64(procfs.Tick)
	require.Equal(t, Unread(p), New(procfs.Open(tree.root).WithPatience(hosttest.Patience)).Read(p, true))

	r := New(procfs.Open(tree.root).WithPatience(hosttest.Patience))
	p.StartNS = begunNS
	require.Equal(t, socketstall.Stopped, r.Read(p, false).State)
	p.StartTime = p.StartTime.Add(time.Hour)
	require.Equal(t, socketstall.Stopped, r.Read(p, false).State, "a wall clock that was set makes nobody a stranger")
	tree.write("42/stat", statLineOf("cron", "S", 1, 1, 99000))
	require.Equal(t, Unread(p), r.Read(p, false), "another process has the number now")
}

func TestNCCLIsFoundEvenIfItComesLate(t *testing.T) {
	tree := newTree(t)
	p := tree.add("S", 1, 1)
	r := New(procfs.Open(tree.root).WithPatience(hosttest.Patience))
	require.False(t, r.Read(p, true).NCCL)
	r.Wait()
	tree.write("42/maps", strings.Repeat("7f00-7f01 r-xp 0 0:1 1 "+strings.Repeat("/x", 50_000)+"\n", 3)+"7f00-7f01 r-xp 0 0:1 1 /opt/nccl/libnccl.so.2.27.3\n")
	for range firstPause - 1 {
		require.False(t, r.Read(p, true).NCCL)
	}
	r.Read(p, true)
	r.Wait()
	require.True(t, r.Read(p, true).NCCL)
}

func TestForgetsTheDead(t *testing.T) {
	tree := newTree(t)
	p := tree.add("S", 1, 1)
	r := New(procfs.Open(tree.root).WithPatience(hosttest.Patience))
	r.Read(p, false)
	r.Keep(func(uint32) bool { return false })
	require.Empty(t, r.known)
}
