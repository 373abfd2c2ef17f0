package ncclfrreceiver

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// standInVariable makes a rank of this program: it does nothing until its input ends.
const standInVariable = "TRACECORE_STAND_IN"

func TestStandIn(*testing.T) {
	if os.Getenv(standInVariable) != "" { // other tests start it
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}

// standIn is a rank that a test started.
type standIn struct {
	identity.Process
	end func()
}

// rank starts rank 0 with that environment, in dir of root; "" is our own root.
func (r *rig) rank(root, dir string, environ ...string) standIn {
	program, err := os.Executable()
	require.NoError(r.t, err)
	if root != "" {
		inside := filepath.Join(root, "program")
		if _, err := os.Stat(inside); err != nil {
			content, err := os.ReadFile(program)
			require.NoError(r.t, err)
			require.NoError(r.t, os.WriteFile(inside, content, 0o755))
		}
		program = "/program"
	}
	cmd := exec.Command(program, "-test.run=^TestStandIn$")
	cmd.Dir, cmd.Env = dir, append(environ, standInVariable+"=1")
	if root != "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	}
	input, err := cmd.StdinPipe()
	require.NoError(r.t, err)
	output, err := cmd.StdoutPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, cmd.Start())
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = input.Close()
			_ = cmd.Wait()
		}
	}
	r.t.Cleanup(end)
	_, err = fmt.Fscanln(output, new(string)) // before it has its program, it has no environment
	require.NoError(r.t, err)
	return standIn{identity.Process{
		PID: uint32(cmd.Process.Pid), ParentPID: uint32(os.Getpid()), StartTime: r.now, LocalRank: identity.Unknown, WorldSize: 4, JobID: "llm",
	}, end}
}

// living is the identity extension of a rig.
type living struct {
	ranks
	now []identity.Process
}

func (l *living) Ranks() []identity.Process { return l.now }

// knows starts the receiver with these ranks, and nothing in include.
func (r *rig) knows(processes ...standIn) *living {
	id := component.MustNewID("identity")
	l := &living{}
	for _, p := range processes {
		l.now = append(l.now, p.Process)
	}
	r.config.Identity, r.host[id] = &id, l
	r.config.Include = []string{filepath.Join(r.t.TempDir(), "none_*")}
	r.start()
	return l
}

// at puts a dump of rank 0 there, as if written now.
func (r *rig) at(parts ...string) string {
	path := filepath.Join(parts...)
	require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o755))
	data, err := os.ReadFile(dumps + "missing/rank_0.pickle")
	require.NoError(r.t, err)
	require.NoError(r.t, os.WriteFile(path, data, 0o644))
	require.NoError(r.t, os.Chtimes(path, r.now, r.now))
	return path
}

// TestADumpIsFoundWhereItsRankWritesIt puts a rank into a root of its own, as a container
// does, with each name that a version of PyTorch takes.
func TestADumpIsFoundWhereItsRankWritesIt(t *testing.T) {
	hosttest.Require(t, "chroot")
	for name, tt := range map[string]struct {
		environ []string
		file    string
	}{
		"named":                      {[]string{"TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/fr/dump_"}, "/fr/dump_0"},
		"named since 2.8":            {[]string{"TORCH_FR_DUMP_TEMP_FILE=/fr/dump_", "HOME=/root"}, "/fr/dump_0"},
		"both, an older version":     {[]string{"TORCH_FR_DUMP_TEMP_FILE=/new_", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/old_"}, "/old_0"},
		"default of 2.2 to 2.5":      {nil, "/tmp/nccl_trace_rank_0"},
		"default of 2.6":             {[]string{"HOME=/home/u"}, "/home/u/.cache/torch/nccl_trace_rank_0"},
		"default since 2.8":          {[]string{"HOME=/home/u"}, "/home/u/.cache/torch/comm_lib_trace_rank_0"},
		"default without a home":     {nil, "/tmp/.cache/torch/comm_lib_trace_rank_0"},
		"default with a cache":       {[]string{"HOME=/home/u", "XDG_CACHE_HOME=/cache"}, "/cache/torch/comm_lib_trace_rank_0"},
		"beside the program":         {[]string{"TORCH_NCCL_DEBUG_INFO_TEMP_FILE=fr/dump_"}, "/work/fr/dump_0"},
		"behind a link in its root":  {[]string{"TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/link/dump_"}, "/fr/dump_0"},
		"an environment of anything": {[]string{"TORCH_FR_DUMP_TEMP_FILE", "=x", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE="}, "/tmp/nccl_trace_rank_0"},
	} {
		t.Run(name, func(t *testing.T) {
			r, root := newRig(t), t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(root, "work"), 0o755))
			require.NoError(t, os.Symlink("/fr", filepath.Join(root, "link")))
			rank := r.rank(root, "/work", tt.environ...)
			r.knows(rank)
			require.Empty(t, r.sink.said())
			r.at(root, tt.file)
			r.look(time.Second)
			r.look(time.Second)
			require.Equal(t, []string{waits}, r.sink.said())
			got := r.sink.records[0].Attributes().AsRaw()
			require.Equal(t, int64(rank.PID), got["process.pid"])
			require.Equal(t, "llm", got["gen_ai.training.job_id"])
			require.Equal(t, filepath.Base(tt.file), filepath.Base(got["nccl.fr.file"].(string)))
			require.Empty(t, r.refusals())
		})
	}
}

// TestOfTwoEqualVariablesTheFirstCounts, as for getenv(3).
// A rank that is looked at in the middle of execve(2) has no environment yet: that it names
// no dump is not taken for true. One that has cleared its own is believed in the end.
func TestARankThatJustBeginsIsAskedAgain(t *testing.T) {
	named := []byte("TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/fr/dump_\x00")
	begins := &rank{}
	require.True(t, begins.begins(nil))
	require.False(t, begins.begins(named))

	cleared := &rank{}
	for range mostBare {
		require.True(t, cleared.begins(nil))
	}
	require.False(t, cleared.begins(nil))
}

func TestOfTwoEqualVariablesTheFirstCounts(t *testing.T) {
	names := dumpNames([]byte("HOME=/a\x00HOME=/b\x00TORCH_FR_DUMP_TEMP_FILE=/c_\x00TORCH_FR_DUMP_TEMP_FILE=/d_\x00"))
	require.Equal(t, []dumpName{{"/c_", true}, {nameUntil25, false}, {"/a/.cache" + nameSince28, false}, {"/a/.cache" + nameOf26, false}}, names)
}

// TestWhatIsNotTheRanksOwnDumpIsNotRead: what lies under the name is chosen by anybody.
func TestWhatIsNotTheRanksOwnDumpIsNotRead(t *testing.T) {
	hosttest.Require(t, "chroot, and files of other users")
	for name, tt := range map[string]struct {
		lay     func(r *rig, root, file string)
		refused map[string]int64
	}{
		"a link to a dump": {func(r *rig, root, file string) {
			r.at(root, "other")
			require.NoError(r.t, os.Symlink("/other", file))
		}, map[string]int64{"unreadable": 1}},
		"a folder that leads out of the root": {func(r *rig, root, file string) {
			outside := r.t.TempDir()
			r.at(outside, filepath.Base(file))
			require.NoError(r.t, os.Remove(filepath.Dir(file)))
			require.NoError(r.t, os.Symlink(outside, filepath.Dir(file)))
		}, nil},
		"a pipe": {func(r *rig, _, file string) {
			require.NoError(r.t, syscall.Mkfifo(file, 0o600))
		}, map[string]int64{"unreadable": 1}},
		"a device": {func(r *rig, _, file string) {
			require.NoError(r.t, syscall.Mknod(file, syscall.S_IFCHR|0o666, 1<<8|5)) // zero
		}, map[string]int64{"unreadable": 1}},
		"a folder": {func(r *rig, _, file string) {
			require.NoError(r.t, os.Mkdir(file, 0o755))
		}, map[string]int64{"unreadable": 1}},
		"the file of another user": {func(r *rig, root, file string) {
			require.NoError(r.t, os.Chown(r.at(file), 12345, 12345))
		}, map[string]int64{"unreadable": 1}},
		"a large file": {func(r *rig, _, file string) {
			r.config.MaxFileSize = 100
			r.at(file)
		}, map[string]int64{"too_large": 1}},
		"a program": {func(r *rig, _, file string) {
			r.at(file)
			require.NoError(r.t, os.WriteFile(file, []byte("\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R."), 0o644))
			require.NoError(r.t, os.Chtimes(file, r.now, r.now))
		}, map[string]int64{"hostile": 1}},
		"the dump of an earlier run": {func(r *rig, _, file string) {
			old := r.now.Add(-time.Minute)
			require.NoError(r.t, os.Chtimes(r.at(file), old, old))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, root := newRig(t), t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(root, "fr"), 0o755))
			rank := r.rank(root, "/", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/fr/dump_")
			tt.lay(r, root, filepath.Join(root, "fr/dump_0"))
			r.knows(rank)
			r.look(time.Second)
			require.Empty(t, r.sink.said())
			if tt.refused == nil {
				tt.refused = map[string]int64{}
			}
			require.Equal(t, tt.refused, r.refusals(), "said once")
		})
	}
}

// TestFilesOfTheKernelAreNoDumps: some act when they are read.
func TestFilesOfTheKernelAreNoDumps(t *testing.T) {
	hosttest.Require(t, "the files belong to root")
	r := newRig(t)
	rank := r.rank("", "/", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/sys/kernel/mm/hugepages/hugepages-2048kB/../../../../devices/system/cpu/cpu")
	w := &written{process: rank.Process, through: rank.PID}
	for _, path := range []string{"/proc/kmsg", "/sys/kernel/uevent_seqnum"} {
		w.path = path
		_, err := newRoots("").find(w, place{})
		require.Error(t, err, path)
	}
	w.path = "/proc/self/root/etc/passwd"
	_, err := newRoots("").find(w, place{})
	require.ErrorIs(t, err, syscall.ELOOP, "a link of proc leads out of every root")
}

// TestTheDumpOfARankThatHasEndedIsReadThroughAnother, which sees the same files.
func TestTheDumpOfARankThatHasEndedIsReadThroughAnother(t *testing.T) {
	hosttest.Require(t, "chroot")
	r, root := newRig(t), t.TempDir()
	rank, other := r.rank(root, "/"), r.rank(root, "/")
	other.Rank = 1
	known := r.knows(rank, other)
	rank.end()
	known.now = known.now[1:]
	r.look(time.Second)
	r.at(root, "tmp/nccl_trace_rank_0")
	r.look(time.Second)
	r.look(time.Second)
	require.Equal(t, []string{waits}, r.sink.said())
	require.Equal(t, int64(rank.PID), r.sink.records[0].Attributes().AsRaw()["process.pid"])

	other.end()
	known.now = nil
	r.look(2 * afterlife)
	r.look(2 * afterlife)
	require.Empty(t, r.receiver.roots.known, "ranks that have ended are forgotten")
}

// TestAFileThatTwoRanksCanHaveWrittenIsNobodys.
func TestAFileThatTwoRanksCanHaveWrittenIsNobodys(t *testing.T) {
	r := newRig(t)
	name := "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=" + filepath.Join(r.dir, "dump_")
	one, other := r.rank("", "/", name), r.rank("", "/", name)
	other.JobID = "second"
	r.at(r.dir, "dump_0")
	r.knows(one, other)
	require.Equal(t, []string{waits}, r.sink.said())
	got := r.sink.records[0].Attributes().AsRaw()
	require.NotContains(t, got, "process.pid")
	require.NotContains(t, got, "gen_ai.training.job_id")
	require.Equal(t, int64(0), got["gen_ai.training.rank"])
}

// TestWorkersOfARankAreLookedAtOnce, and one in another root too: what starts a container
// may be the outermost process of a rank.
func TestWorkersOfARankAreLookedAtOnce(t *testing.T) {
	hosttest.Require(t, "chroot")
	r, root := newRig(t), t.TempDir()
	outer, worker, inside := r.rank("", "/"), r.rank("", "/"), r.rank(root, "/")
	worker.Inherited, inside.Inherited = true, true
	r.at(root, "tmp/nccl_trace_rank_0")
	r.knows(outer, worker, inside)
	require.Equal(t, []string{waits}, r.sink.said())
	twins := 0
	for _, one := range r.receiver.roots.known {
		if one.twin {
			twins++
		}
	}
	require.Equal(t, 1, twins)
}

// TestManyRanksOfOneUserLeaveTheirTurnToOthers.
func TestManyRanksOfOneUserLeaveTheirTurnToOthers(t *testing.T) {
	r, few := newRoots(""), 3
	var all []identity.Process
	for i := range 3 * mostLooks {
		p := identity.Process{PID: uint32(i + 1), Rank: i, Domain: "user 1", StartTime: began}
		if i < few {
			p.Domain = "user 2"
		}
		all = append(all, p)
	}
	r.resolver = ranks{processes: all}
	r.renew(began)
	seen := map[uint32]int{}
	const rounds = 4
	for range rounds {
		chosen := r.turn()
		require.Len(t, chosen, mostLooks)
		for _, one := range chosen {
			seen[one.PID]++
		}
	}
	for _, p := range all {
		if p.Domain == "user 2" {
			require.Equal(t, rounds, seen[p.PID])
		}
		require.Positive(t, seen[p.PID], "each has its turn")
	}
}

// TestFileSystemsThatNeverAnswerHoldUpTheirUserAlone.
func TestFileSystemsThatNeverAnswerHoldUpTheirUserAlone(t *testing.T) {
	r := newRoots("")
	r.proc.WithPatience(time.Millisecond)
	release := make(chan struct{})
	over := make(chan struct{}, mostHung)
	never := func() (int, error) {
		<-release
		over <- struct{}{}
		return 0, nil
	}
	for i := range 2 * mostHung {
		_, err := patiently(r, "user 1", fmt.Sprint("mount ", i), never)
		require.ErrorIs(t, err, procfs.ErrHung)
	}
	require.Equal(t, mostHung, r.hung.of("user 1"), "the others were not begun")
	r.proc.WithPatience(time.Minute)
	got, err := patiently(r, "user 2", "mount", func() (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, got)
	close(release)
	for range mostHung {
		<-over
	}
}

// TestARankWithoutAnswerIsSaidOnce.
func TestARankWithoutAnswerIsSaidOnce(t *testing.T) {
	require.Equal(t, "no_answer", why(fmt.Errorf("read x: %w", procfs.ErrHung)))
	require.True(t, worthSaying(procfs.ErrHung, dumpName{}))
	require.False(t, worthSaying(errForeignOwner, dumpName{}), "somebody else's file under the default name")
	require.True(t, worthSaying(errForeignOwner, dumpName{chosen: true}))
	require.False(t, worthSaying(procfs.ErrGone, dumpName{chosen: true}))
}
