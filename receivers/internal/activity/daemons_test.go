package activity

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// daemon is process 60, which serves a FUSE mount: a thread of it is in that state.
func (p tree) daemon(state string, sleeps, preempted, delayed uint64) {
	p.write("60/stat", fmt.Sprintf("60 (juicefs) S 1 60 60 0 -1 4194304 1 0 0 0 100 0 0 0 20 0 2 0 %d 1000 1", begun))
	p.write("60/status", status("S", 7, 7))
	p.write("60/task/60/status", status("S", 7, 7))
	p.write("60/task/61/status", status(state, sleeps, preempted))
	p.write("60/task/61/schedstat", fmt.Sprintf("1000 %d 1\n", delayed))
}

func TestWhoServesAndHasNoCPU(t *testing.T) {
	tree := newTree(t)
	now := time.Now()
	d := NewDemand(procfs.Open(tree.root).WithPatience(hosttest.Patience))
	d.clock = func() time.Time { return now }
	starves := func(after time.Duration, state string, sleeps, preempted, delayed uint64) bool {
		tree.daemon(state, sleeps, preempted, delayed)
		now = now.Add(after)
		lacks, known := d.Starves(60)
		require.Equal(t, after != 0 && after < time.Minute, known)
		return lacks
	}
	const most, least = 600e6, 400e6
	require.False(t, starves(0, "R", 7, 7, 0), "nothing to compare with")
	require.True(t, starves(time.Second, "R", 7, 7, 0), "no turn")
	require.True(t, starves(time.Millisecond, "S", 8, 7, 0), "asked twice at once")
	require.False(t, starves(time.Second, "S", 8, 7, 0), "it sleeps")
	require.True(t, starves(time.Second, "S", 9, 7, most), "it waited for a CPU, and does little with it")
	require.False(t, starves(time.Second, "S", 10, 7, most+least), "it waited for a moment")
	require.False(t, starves(time.Minute, "R", 10, 7, most+least), "long ago")
	tree.write("60/stat", fmt.Sprintf("60 (juicefs) S 1 60 60 0 -1 4194304 1 0 0 0 100 0 0 0 20 0 2 0 %d 1000 1", begun+1))
	now = now.Add(time.Second)
	for _, pid := range []uint32{60, 61} {
		lacks, known := d.Starves(pid)
		require.False(t, lacks || known, "another process has the number, or none")
	}
}

// Another user's process may starve by its own doing: it hides nothing.
func TestWhoseDaemonsCount(t *testing.T) {
	for user, counts := range map[string]bool{"1000": true, "0": true, "1001": false} {
		tree := newTree(t)
		p := tree.add("S", 250, 125)
		tree.opens(42, map[int]string{7: "/data/shard"})
		tree.write("42/io", "rchar: 0\nwchar: 0\nread_bytes: 0\nwrite_bytes: 0\n")
		tree.sleeps(42, 5, call("read", 7), "request_wait_answer")
		tree.opens(60, map[int]string{3: "/dev/fuse"})
		tree.daemon("R", 7, 7, 0)
		tree.write("60/status", strings.Replace(status("S", 7, 7), "1000", user, 1))
		l := newLooks(tree, p)
		for range 4 { // the daemon is found, and compared
			l.look()
			l.Wait()
		}
		require.Equal(t, counts, l.look().Inside.Unserved, "user %s", user)
	}
}

// A rank waits for a file, or for a page of one, and what serves the mount has no CPU.
func TestARankWhoseMountHasNoCPU(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange func(tree)
		waits   bool
	}{
		"in a page fault": {func(p tree) {
			p.write("42/stat", statLineOf("python", "D", 250, 50, begun))
			p.sleeps(42, 5, "-1 0x0 0x0", "folio_wait_bit_common") // of NFS, or of a disk, as well
		}, false},
		"in a read": {func(p tree) {
			p.opens(42, map[int]string{7: "/data/shard"})
			p.sleeps(42, 5, call("read", 7), "request_wait_answer")
		}, true},
		"in a read of its own disk": {func(p tree) {
			p.opens(42, map[int]string{7: "/data/shard"})
			p.sleeps(42, 5, call("read", 7), "io_schedule")
		}, false},
		"a thread of it": {func(p tree) {
			p.sleeps(42, 5, call("futex", 1), "futex_do_wait")
			p.thread(43, "D", 3, call("write", 7))
			p.write("42/task/43/wchan", "request_wait_answer")
		}, true},
		"a thread of it, for another file system": {func(p tree) {
			p.opens(42, map[int]string{7: "/nfs/ckpt"})
			p.sleeps(42, 5, call("futex", 1), "futex_do_wait")
			p.thread(43, "D", 3, call("write", 7))
			p.write("42/task/43/wchan", "rpc_wait_bit_killable")
		}, false},
		"a child of it": {func(p tree) {
			p.sleeps(42, 5, call("wait4", 50), "do_wait")
			p.childIn("D", 50, 42, "pt_data_worker", 100, 0)
			p.sleeps(50, 3, call("read", 7), "request_wait_answer")
		}, true},
		"a child of it, for another file system": {func(p tree) {
			p.sleeps(42, 5, call("wait4", 50), "do_wait")
			p.childIn("D", 50, 42, "pt_data_worker", 100, 0)
			p.sleeps(50, 3, "-1 0x0 0x0", "rpc_wait_bit_killable")
		}, false},
		"in a lock": {func(p tree) { p.sleeps(42, 5, call("futex", 1), "futex_do_wait") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t)
			p := tree.add("S", 250, 125)
			tree.write("42/io", "rchar: 0\nwchar: 0\nread_bytes: 0\nwrite_bytes: 0\n")
			tree.opens(60, map[int]string{3: "/dev/fuse"})
			tree.daemon("R", 7, 7, 0)
			tc.arrange(tree)
			l := newLooks(tree, p)
			before := l.look()
			for range 3 { // the daemon is found, and compared
				before = l.look()
				l.Wait()
			}
			out := l.look()
			how, _ := out.Does(before.Usage(), time.Second, 0)
			require.Equal(t, tc.waits, how == socketstall.Starved)
			tree.daemon("S", 8, 7, 0)
			out = l.look()
			how, _ = out.Does(before.Usage(), time.Second, 0)
			require.Equal(t, socketstall.Idle, how, "the daemon rests, too")
		})
	}
}
