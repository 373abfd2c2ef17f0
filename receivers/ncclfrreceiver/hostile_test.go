//go:build unix

package ncclfrreceiver

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/flightrecorder"
)

// TestLinksAreNotFollowed: anybody may put a link beside the dumps, to a dump, to
// a file whose reading waits, to itself. Each is said and counted once.
func TestLinksAreNotFollowed(t *testing.T) {
	r := newRig(t)
	elsewhere := t.TempDir()
	r.put("rank_0", "missing/rank_0.pickle")
	require.NoError(t, os.Rename(filepath.Join(r.dir, "rank_0"), filepath.Join(elsewhere, "rank_0")))
	for name, to := range map[string]string{
		"rank_1": filepath.Join(elsewhere, "rank_0"), "rank_2": "/proc/kmsg", "rank_3": "/dev/zero",
		"rank_4": "rank_4", "rank_5": "nowhere", "rank_6": elsewhere,
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(r.dir, name)))
	}
	r.config.Include = []string{r.dir, filepath.Join(r.dir, "rank_*")}
	r.start()
	r.look(time.Second)
	require.Equal(t, map[string]int64{"unreadable": 6}, r.refusals())
	require.Empty(t, r.sink.said())
	_, err := ReadFile(filepath.Join(r.dir, "rank_1"), "")
	require.NoError(t, err, "replay follows the link that its user named")

	r.put("new", "missing/rank_0.pickle")
	require.NoError(t, os.Rename(filepath.Join(r.dir, "new"), filepath.Join(r.dir, "rank_2")))
	r.look(time.Second)
	require.Equal(t, []string{"rank 2 waits in gloo:all_reduce #6 of default_pg"}, r.sink.said(), "a dump in the place of a link")
}

// TestAFolderBehindALinkThatTheOperatorNamed is looked into.
func TestAFolderBehindALinkThatTheOperatorNamed(t *testing.T) {
	r := newRig(t)
	r.put("rank_0", "missing/rank_0.pickle")
	link := filepath.Join(t.TempDir(), "current")
	require.NoError(t, os.Symlink(r.dir, link))
	require.Equal(t, []string{filepath.Join(link, "rank_0")}, Find([]string{link}))
	require.Equal(t, []string{link}, Find([]string{link[:len(link)-1] + "*"}), "a glob finds the link alone")
}

// TestWhatTookAFilesPlaceIsNotWaitedFor opens what may stand where a file was
// found a moment ago. Without a writer a pipe would be waited for at the opening.
func TestWhatTookAFilesPlaceIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	pipe, socket, link := filepath.Join(dir, "rank_0"), filepath.Join(dir, "rank_1"), filepath.Join(dir, "rank_2")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer listener.Close()
	require.NoError(t, os.Symlink("/dev/zero", link))
	for path, words := range map[string]string{
		pipe: "no regular file", dir: "no regular file", os.DevNull: "no regular file", "/dev/zero": "no regular file",
		socket: "rank_1", link: "a link is not followed", filepath.Join(dir, "gone"): "no such file",
	} {
		_, err := readWhole(path, 1<<20)
		require.ErrorContains(t, err, words, path)
	}
	_, err = os.OpenFile(link, os.O_RDONLY|plainly, 0)
	require.ErrorIs(t, err, syscall.ELOOP, "a link that comes between the look and the opening")
}

// TestPipesAndDevicesAreLeftOut: PyTorch itself puts a pipe beside a dump.
func TestPipesAndDevicesAreLeftOut(t *testing.T) {
	r := newRig(t)
	require.NoError(t, syscall.Mkfifo(filepath.Join(r.dir, "rank_0"), 0o600))
	listener, err := net.Listen("unix", filepath.Join(r.dir, "rank_1"))
	require.NoError(t, err)
	defer listener.Close()
	require.NoError(t, os.Mkdir(filepath.Join(r.dir, "rank_2"), 0o700))
	require.Empty(t, Find([]string{r.dir, filepath.Join(r.dir, "rank_*"), os.DevNull}))
	r.put("rank_3", "missing/rank_2.pickle")
	r.start()
	require.Equal(t, []string{"rank 3 finished gloo:all_reduce #5 of default_pg and waits in none"}, r.sink.said())
	require.Empty(t, r.refusals())
}

// TestFilesThatSayTheyAreEmptyAreNotRead: those of proc do, and reading some of
// them waits.
func TestFilesThatSayTheyAreEmptyAreNotRead(t *testing.T) {
	path := "/proc/self/stat"
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join(t.TempDir(), "empty")
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	c, err := readWhole(path, 1<<20)
	require.NoError(t, err)
	require.Empty(t, c.data)
	_, err = ReadFile(path, "")
	require.ErrorIs(t, err, flightrecorder.ErrTruncated)
}

// TestAFolderThatComesAndGoes: each dump is still read once.
func TestAFolderThatComesAndGoes(t *testing.T) {
	r := newRig(t)
	r.config.Include = []string{filepath.Join(r.dir, "job")}
	r.start()
	r.look(time.Second)
	require.Empty(t, r.refusals(), "a folder that is not there yet is no error")
	for range 2 {
		require.NoError(t, os.Mkdir(filepath.Join(r.dir, "job"), 0o700))
		r.put("job/rank_0", "missing/rank_0.pickle")
		r.write("job/rank_1", []byte("\x80\x02}"))
		r.look(time.Second)
		require.Equal(t, []string{waits}, r.sink.said())
		require.NoError(t, os.RemoveAll(filepath.Join(r.dir, "job")))
		r.look(time.Second)
	}
	require.Empty(t, r.refusals(), "what was still being written is forgotten with its folder")
	require.Empty(t, r.receiver.waiting)
}

// TestAFileReplacedWhileItWaits is read as what it is now.
func TestAFileReplacedWhileItWaits(t *testing.T) {
	r := newRig(t).start()
	r.write("rank_0", []byte("\x80\x02}"))
	r.look(time.Second)
	r.put("rank_0.new", "missing/rank_0.pickle")
	require.NoError(t, os.Rename(filepath.Join(r.dir, "rank_0.new"), filepath.Join(r.dir, "rank_0")))
	r.look(time.Second)
	require.Equal(t, []string{waits}, r.sink.said())
	require.Empty(t, r.refusals())
}

// TestAFileThatGrowsWhileItIsRead: a writer appends without end. Each reading is
// either of a state that was whole or says that the file changes.
func TestAFileThatGrowsWhileItIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rank_0")
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	_, err = file.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = file.WriteAt([]byte{1}, 0)
				_, _ = file.WriteString("more")
			}
		}
	}()
	changed := 0
	for deadline := time.Now().Add(time.Minute); changed < 3 && time.Now().Before(deadline); {
		c, err := readWhole(path, 1<<30)
		if err != nil {
			require.ErrorIs(t, err, errChanging)
			changed++
			continue
		}
		require.EqualValues(t, c.print.Size, len(c.data))
	}
	close(stop)
	<-stopped
	require.Equal(t, 3, changed)
	_, err = readWhole(path, 1<<30)
	require.NoError(t, err, "read when nobody writes")
}

// TestMoreFilesThanMaxFiles: the first are read, the rest is said and counted once.
func TestMoreFilesThanMaxFiles(t *testing.T) {
	r := newRig(t)
	r.config.MaxFiles = 1
	r.put("rank_0", "missing/rank_0.pickle")
	r.put("rank_2", "missing/rank_2.pickle")
	r.start()
	r.look(time.Second)
	require.Equal(t, []string{waits}, r.sink.said())
	require.Equal(t, map[string]int64{"too_many": 1}, r.refusals())
}

// TestANameThatIsNoUTF8 becomes text: the next collector would refuse the record.
func TestANameThatIsNoUTF8(t *testing.T) {
	data, err := os.ReadFile(dumps + "missing/rank_0.pickle")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "job\xff_rank_0")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		require.ErrorIs(t, err, syscall.EILSEQ, "a file system that has no such names")
		return
	}
	logs, err := ReadFile(path, "")
	require.NoError(t, err)
	for _, v := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes().All() {
		require.True(t, utf8.ValidString(v.AsString()))
	}
}
