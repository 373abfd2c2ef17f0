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

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// daemon is process 60, which serves a FUSE mount: a thread of it is in that state.
func (p tree) daemon(state string, sleeps, preempted, delayed uint64) {
	p.write("60/stat", fmt.Sprintf("60 (juicefs) S 1 60 60 0 -1 4194304 1 0 0 0 100 0 0 0 20 0 2 0 %d 1000 1", begun))
	p.write("60/status", status("S", 7, 7))
	p.write("60/cgroup", "0::/\n")
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

// How long a thread waits counts when it is over: one that may have begun to, and has had no turn since, is
// not judged yet.
func TestAThreadThatMayHaveBegunToWait(t *testing.T) {
	tree := newTree(t)
	now := time.Now()
	d := NewDemand(procfs.Open(tree.root).WithPatience(hosttest.Patience))
	d.clock = func() time.Time { return now }
	for i, look := range []struct {
		state        string
		sleeps, ran  uint64
		lacks, known bool
	}{
		{"S", 7, 0, false, false},
		{"R", 7, 0, false, false}, // it woke
		{"R", 7, 0, true, true},
		{"R", 9, 1e6, false, false}, // it had a turn, slept and woke
		{"R", 10, 901e6, false, true},
		{"S", 11, 902e6, false, true},
	} {
		tree.daemon(look.state, look.sleeps, 7, 0)
		tree.write("60/task/61/schedstat", fmt.Sprintf("%d 0 1\n", look.ran))
		lacks, known := d.Starves(60)
		require.Equal(t, []bool{look.lacks, look.known}, []bool{lacks, known}, i)
		now = now.Add(time.Second)
	}
}

// fake is the number of an open file that has the name of the device, and is none.
const fake = "9"

// awaits lets process 42 wait for a file of a FUSE mount, in a cgroup.
func (p tree) awaits(cgroup string) {
	p.opens(42, map[int]string{7: "/data/shard"})
	p.write("42/io", "rchar: 0\nwchar: 0\nread_bytes: 0\nwrite_bytes: 0\n")
	p.sleeps(42, 5, call("read", 7), "request_wait_answer")
	p.write("42/cgroup", "0::"+cgroup+"\n")
}

// serves makes process pid a daemon without CPU of that user, in a cgroup and with these rights.
func (p tree) serves(pid uint32, user, cgroup, rights, users string) {
	for _, file := range []string{"stat", "task/60/status", "task/61/status", "task/61/schedstat"} {
		content, err := os.ReadFile(filepath.Join(p.root, "60", file))
		require.NoError(p.t, err)
		p.write(fmt.Sprintf("%d/%s", pid, file), string(content))
	}
	p.write(fmt.Sprintf("%d/status", pid), strings.Replace(status("S", 7, 7), "1000", user, 1)+"CapEff:\t"+rights+"\n")
	p.write(fmt.Sprintf("%d/cgroup", pid), "0::"+cgroup+"\n")
	namespaces := filepath.Join(p.root, strconv.Itoa(int(pid)), "ns")
	require.NoError(p.t, os.MkdirAll(namespaces, 0o755))
	require.NoError(p.t, os.Symlink("user:["+users+"]", filepath.Join(namespaces, "user")))
}

// The initial namespace of users and another, all rights and those of a container.
const (
	initial, inner = "4026531837", "4026532999"
	every, few     = "000001ffffffffff", "00000000a80425fb"
)

// podOf is the cgroup of a container in a pod of that digit.
func podOf(digit string) string {
	id := strings.Repeat(digit, 8) + strings.Repeat("_"+strings.Repeat(digit, 4), 3) + "_" + strings.Repeat(digit, 12)
	return "/kubepods.slice/kubepods-pod" + id + ".slice/cri-containerd-" + strings.Repeat(digit, 64) + ".scope"
}

func (l *looks) unserved() bool {
	for range 4 { // the daemon is found, and compared
		l.look()
		l.Wait()
	}
	return l.look().Inside.Unserved
}

// What a rank waits for may come until it is known whether who serves it has a CPU: after two looks at the
// daemon, of which the search takes the first. Where that cannot be known, the rank is judged even so.
func TestWhoServesIsNotKnownAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		state   string
		another bool // each time another process has its number
		unsure  []bool
		starves bool
	}{
		"a daemon without a CPU":       {"R", false, []bool{true, false, false, false, false, false}, true},
		"a daemon that rests":          {"S", false, []bool{true, false, false, false, false, false}, false},
		"a daemon that nobody can see": {"R", true, []bool{true, true, true, true, false, false}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t)
			l := newLooks(tree, tree.add("S", 250, 125))
			tree.awaits(podOf("1"))
			tree.opens(60, map[int]string{3: fuseDevice})
			tree.daemon(tc.state, 7, 7, 0)
			tree.serves(60, "0", podOf("1"), few, initial)
			var unsure []bool
			var last Process
			for range tc.unsure {
				last = l.look()
				l.Wait()
				unsure = append(unsure, last.Inside.Unsure)
				if tc.another {
					clear(l.daemons.demand.looks)
					for _, found := range *l.daemons.found.Load() {
						found[0].first.at = l.at.Add(-time.Hour)
					}
				}
			}
			require.Equal(t, tc.unsure, unsure)
			require.Equal(t, tc.starves, last.Inside.Unserved)
		})
	}
}

// Another tenant's process may starve by its own doing: it hides nothing, whatever it seems to be.
func TestWhoseDaemonsCount(t *testing.T) {
	const session = "/user.slice/user-1000.slice/session-2.scope"
	for name, tc := range map[string]struct {
		rank, user, daemon, rights, users, file string
		counts                                  bool
	}{
		"of the same user":                         {session, "1000", "/user.slice/user-1000.slice/user@1000.service", few, initial, "3", true},
		"of another user":                          {session, "1001", "/user.slice/user-1001.slice/session-3.scope", few, initial, "3", false},
		"of root of the host":                      {session, "0", "/system.slice/juicefs.service", every, initial, "3", true},
		"of root of the host, for a pod":           {podOf("1"), "0", "/system.slice/juicefs.service", every, initial, "3", true},
		"of the same pod, as another user":         {podOf("1"), "0", podOf("1"), few, initial, "3", true},
		"of a privileged pod":                      {podOf("1"), "0", podOf("2"), every, initial, "3", true},
		"of another pod, as the same user":         {podOf("1"), "1000", podOf("2"), few, initial, "3", false},
		"of another pod, as root":                  {podOf("1"), "0", podOf("2"), few, initial, "3", false},
		"of root of its own namespace of users":    {podOf("1"), "0", podOf("2"), every, inner, "3", false},
		"of a pod, as the user of a rank in none":  {session, "1000", podOf("2"), few, initial, "3", false},
		"a file of that name, by the same user":    {session, "1000", session, few, initial, fake, false},
		"a file of that name, by root of the host": {session, "0", "/system.slice/juicefs.service", every, initial, fake, false},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t)
			l := newLooks(tree, tree.add("S", 250, 125))
			tree.awaits(tc.rank)
			fd, err := strconv.Atoi(tc.file)
			require.NoError(t, err)
			tree.opens(60, map[int]string{fd: fuseDevice})
			tree.daemon("R", 7, 7, 0)
			tree.serves(60, tc.user, tc.daemon, tc.rights, tc.users)
			require.Equal(t, tc.counts, l.unserved())
		})
	}
}

// Those of one tenant, however many, take no room from another's.
func TestDaemonsOfOneTenantHideNoneOfAnother(t *testing.T) {
	tree := newTree(t)
	l := newLooks(tree, tree.add("S", 250, 125))
	tree.awaits(podOf("1"))
	tree.daemon("R", 7, 7, 0)
	for pid := uint32(100); pid < 100+2*maxDaemons; pid++ {
		tree.opens(pid, map[int]string{3: fuseDevice})
		tree.serves(pid, "0", podOf("2"), few, initial)
	}
	const last = 1000
	tree.opens(last, map[int]string{3: fuseDevice})
	tree.serves(last, "0", podOf("1"), few, initial)
	require.True(t, l.unserved())
	found := *l.daemons.found.Load()
	require.Len(t, found, 2)
	require.Len(t, found["22222222-2222-2222-2222-222222222222"], maxDaemons)
}

// A tenant whose processes have many files open delays the search for its own daemons alone.
func TestFilesOfOneTenantDelayNoSearchOfAnother(t *testing.T) {
	tree := newTree(t)
	l := newLooks(tree, tree.add("S", 250, 125))
	l.daemons.room = 20
	tree.awaits(podOf("1"))
	tree.daemon("R", 7, 7, 0)
	many := map[int]string{}
	for fd := range 10 {
		many[fd] = "/dev/null"
	}
	for pid := uint32(100); pid < 110; pid++ {
		tree.opens(pid, many)
		tree.serves(pid, "0", podOf("2"), few, initial)
	}
	const last = 1000
	tree.opens(last-1, map[int]string{3: fuseDevice})
	tree.serves(last-1, "0", podOf("2"), few, initial)
	tree.opens(last, map[int]string{3: fuseDevice})
	tree.serves(last, "0", podOf("1"), few, initial)
	require.True(t, l.unserved())
	own := func() []daemon { return (*l.daemons.found.Load())["22222222-2222-2222-2222-222222222222"] }
	require.Empty(t, own(), "its files are more than its share")
	rounds := 0
	for ; len(own()) == 0; rounds++ {
		require.Less(t, rounds, 11)
		l.at = l.daemons.next
		l.look()
		l.Wait()
	}
	require.Greater(t, rounds, 1)
	for range 12 { // it begins anew
		l.at = l.daemons.next
		l.look()
		l.Wait()
		require.NotEmpty(t, own(), "what a pass has found counts in the next")
	}
}

// A search that took long rests for long, counted from its end.
func TestASearchRests(t *testing.T) {
	tree := newTree(t)
	l := newLooks(tree, tree.add("S", 250, 125))
	tree.awaits("/")
	tree.opens(60, map[int]string{3: fuseDevice})
	tree.daemon("R", 7, 7, 0)
	const long = 200 * time.Millisecond
	searches := 0
	l.daemons.isFUSE = func(string) bool { searches++; time.Sleep(long); return true }
	l.look()
	begun := l.at
	l.Wait()
	require.Equal(t, 1, searches)
	require.GreaterOrEqual(t, l.daemons.next.Sub(begun), (1+searchShare)*long)
	l.at = begun.Add(searchShare*long - 2*time.Second) // a look is a second later
	l.look()
	l.Wait()
	require.Equal(t, 1, searches, "it rests")
	l.at = l.daemons.next
	l.look()
	l.Wait()
	require.Equal(t, 2, searches)
}

// Another process may have the number of a daemon by now.
func TestANumberUsedAgainIsNoDaemon(t *testing.T) {
	tree := newTree(t)
	l := newLooks(tree, tree.add("S", 250, 125))
	tree.awaits("/")
	tree.opens(60, map[int]string{3: fuseDevice})
	tree.daemon("R", 7, 7, 0)
	require.True(t, l.unserved())
	tree.write("60/stat", fmt.Sprintf("60 (other) S 1 60 60 0 -1 4194304 1 0 0 0 100 0 0 0 20 0 2 0 %d 1000 1", begun+1))
	for range 3 {
		require.False(t, l.look().Inside.Unserved)
	}
}

// maps has a process map a file of a device, of two: 00:2f is a FUSE mount.
func (p tree) maps(pid uint32, device string) {
	p.write(fmt.Sprintf("%d/mountinfo", pid), "30 1 0:47 / /data rw - fuse.juicefs JuiceFS:x rw\n31 1 0:48 / /nfs rw - nfs4 server:/x rw\n")
	p.write(fmt.Sprintf("%d/maps", pid), "7f0000000000-7f0000001000 r-xp 00000000 fd:01 5 /usr/lib/libc.so.6\n7f0000002000-7f0000003000 r--s 00000000 "+device+" 7 /data/shard\n")
}

// A rank waits for a file, or for a page of one, and what serves the mount has no CPU.
func TestARankWhoseMountHasNoCPU(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange func(tree)
		waits   bool
	}{
		"in a page fault": {func(p tree) {
			p.write("42/stat", statLineOf("python", "D", 250, 50, begun))
			p.sleeps(42, 5, "-1 0x0 0x0", "folio_wait_bit_common")
			p.maps(42, "00:2f")
		}, true},
		"in a page fault, of NFS or of a disk": {func(p tree) {
			p.write("42/stat", statLineOf("python", "D", 250, 50, begun))
			p.sleeps(42, 5, "-1 0x0 0x0", "folio_wait_bit_common")
			p.maps(42, "00:30")
		}, false},
		"in an open": {func(p tree) { p.sleeps(42, 5, call("openat", 7), "request_wait_answer") }, true},
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
		"a thread of it, that takes signals": {func(p tree) {
			p.sleeps(42, 5, call("futex", 1), "futex_do_wait")
			p.thread(43, "S", 3, call("openat", 7))
			p.write("42/task/43/wchan", "request_wait_answer")
		}, true},
		"a thread of it, in a page fault": {func(p tree) {
			p.sleeps(42, 5, call("futex", 1), "futex_do_wait")
			p.thread(43, "D", 3, "-1 0x0 0x0")
			p.maps(42, "00:2f")
		}, true},
		"a thread of it, in a page fault of NFS or of a disk": {func(p tree) {
			p.sleeps(42, 5, call("futex", 1), "futex_do_wait")
			p.thread(43, "D", 3, "-1 0x0 0x0")
			p.maps(42, "00:30")
		}, false},
		"a thread of it, in a lock": {func(p tree) {
			p.sleeps(42, 5, call("futex", 1), "futex_do_wait")
			p.thread(43, "S", 3, call("futex", 1))
			p.maps(42, "00:2f")
		}, false},
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
		"a child of it, in a page fault": {func(p tree) {
			p.sleeps(42, 5, call("wait4", 50), "do_wait")
			p.childIn("D", 50, 42, "pt_data_worker", 100, 0)
			p.sleeps(50, 3, "-1 0x0 0x0", "folio_wait_bit_common")
			p.maps(50, "00:2f")
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
			tree.write("42/cgroup", "0::/\n")
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
