package procfs

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// links puts a library into the root of process 42 that is a link to what lies elsewhere.
func (r tree) links(target string) string {
	const name = "/lib/libcuda.so.1"
	lib := filepath.Join(r.Root(), "42/root", name)
	require.NoError(r.t, os.MkdirAll(filepath.Dir(lib), 0o755))
	require.NoError(r.t, os.Symlink(target, lib))
	return name
}

// A process maps a library, unmaps it (so that map_files has no entry), and puts an absolute link
// under its name.
func TestALinkLeadsOutOfNoRoot(t *testing.T) {
	r := newTree(t)
	outside := filepath.Join(t.TempDir(), "of the host")
	require.NoError(t, os.WriteFile(outside, []byte("the host's"), 0o600))
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(outside, &st))
	name := r.links(outside)
	_, err := r.OpenMapped(42, Mapping{Start: 4096, End: 8192, Inode: st.Ino, Path: name})
	require.ErrorIs(t, err, ErrNoPlainFile, "a link")
	dir := filepath.Join(r.Root(), "42/root/links")
	require.NoError(t, os.Symlink(filepath.Dir(outside), dir))
	_, err = r.OpenMapped(42, Mapping{Start: 4096, End: 8192, Inode: st.Ino, Path: "/links/" + filepath.Base(outside)})
	require.ErrorIs(t, err, ErrGone, "a link on the way")
	_, err = r.OpenMapped(42, Mapping{Start: 4096, End: 8192, Inode: st.Ino, Path: "/../../../" + outside})
	require.ErrorIs(t, err, ErrGone, "above its root")
}

// A link inside the root leads where it leads the process.
func TestALinkOnTheWayIsFollowedInsideTheRoot(t *testing.T) {
	r := newTree(t)
	r.write("42/root/usr/lib/libcuda.so", "code")
	require.NoError(t, os.Symlink("/usr/lib", filepath.Join(r.Root(), "42/root/lib")))
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(filepath.Join(r.Root(), "42/root/usr/lib/libcuda.so"), &st))
	file, err := r.OpenMapped(42, Mapping{Start: 4096, End: 8192, Inode: st.Ino, Path: "/lib/libcuda.so"})
	require.NoError(t, err)
	defer file.Close()
	content, err := readAll(file, 100)
	require.NoError(t, err)
	require.Equal(t, "code", string(content.Content))
}

// To open a device or a pipe does something: a pipe shows it by its reader, whom a writer finds.
func TestNothingIsOpenedThatIsNoPlainFile(t *testing.T) {
	for name, arrange := range map[string]func(r tree, pipe string){
		"by its name": func(r tree, pipe string) {
			lib := filepath.Join(r.Root(), "42/root/lib/libcuda.so.1")
			require.NoError(r.t, os.MkdirAll(filepath.Dir(lib), 0o755))
			require.NoError(r.t, os.Link(pipe, lib))
		},
		"by a link": func(r tree, pipe string) { r.links(pipe) },
		"mapped": func(r tree, pipe string) {
			require.NoError(r.t, os.MkdirAll(filepath.Join(r.Root(), "42/map_files"), 0o755))
			require.NoError(r.t, os.Symlink(pipe, filepath.Join(r.Root(), "42/map_files/1000-2000")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTree(t)
			pipe := filepath.Join(r.Root(), "pipe")
			require.NoError(t, syscall.Mkfifo(pipe, 0o600))
			arrange(r, pipe)
			var st syscall.Stat_t
			require.NoError(t, syscall.Stat(pipe, &st))
			events, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
			require.NoError(t, err)
			defer unix.Close(events)
			_, err = unix.InotifyAddWatch(events, pipe, unix.IN_OPEN)
			require.NoError(t, err)
			_, err = r.OpenMapped(42, Mapping{Start: 0x1000, End: 0x2000, Inode: st.Ino, Path: "/lib/libcuda.so.1"})
			require.Error(t, err)
			_, err = unix.Read(events, make([]byte, 4096))
			require.ErrorIs(t, err, unix.EAGAIN, "it was opened, and only then looked at")
		})
	}
}

// What the kernel makes up is none either: to read it may act, or wait.
func TestFilesOfTheKernelAreNotOpened(t *testing.T) {
	fs := Open("")
	_, err := fs.Pin(uint32(os.Getpid()), "/proc/version")
	require.ErrorIs(t, err, ErrNoPlainFile)
}

// A file that this process has mapped is opened by either way.
func TestAFileThatIsMapped(t *testing.T) {
	fs := Open("")
	me := uint32(os.Getpid())
	program, err := fs.Program(me)
	require.NoError(t, err)
	code, err := fs.Code(me, func(m Mapping) bool { return m.Path == program })
	require.NoError(t, err)
	require.NotEmpty(t, code)
	for _, m := range []Mapping{code[0], {Start: 1, End: 2, Inode: code[0].Inode, Path: code[0].Path}} {
		file, err := fs.OpenMapped(me, m)
		require.NoError(t, err)
		content, err := readAll(file, 4)
		require.NoError(t, err)
		require.Equal(t, "\x7fELF", string(content.Content))
		require.NoError(t, file.Close())
	}
}

func TestADeviceIsKnownByItsNumbers(t *testing.T) {
	require.True(t, IsDevice("/dev/null", 1, 3)) // Documentation/admin-guide/devices.txt
	require.False(t, IsDevice("/dev/null", 1, 5))
	require.False(t, IsDevice("/dev", 1, 3))
	require.False(t, IsDevice("/dev/nowhere", 1, 3))
	fake := filepath.Join(t.TempDir(), "null")
	require.NoError(t, os.WriteFile(fake, nil, 0o600))
	require.False(t, IsDevice(fake, 1, 3))
}
