package procfs

import (
	"os"
	"path"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var libcuda = []string{"libcuda.so"}

const python = `55d0c0000000-55d0c0001000 r--p 00000000 fd:01 77                         /usr/bin/python3.12
7f00b0000000-7f00b0400000 r--p 00000000 fd:01 1311                       /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14
7f00c0000000-7f00c4000000 r-xp 00400000 fd:01 1311                       /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14
7f00c4000000-7f00c5000000 rw-p 04400000 fd:01 1311                       /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14
7f00d0000000-7f00d0100000 r-xp 00000000 fd:01 1312                       /usr/local/cuda/lib64/libcudart.so.12.4.127
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
`

func TestLibraryIsFoundAmongTheMappedFiles(t *testing.T) {
	driver := Mapping{0x7f00c0000000, 0x7f00c4000000, 0x400000, "fd:01", 1311, "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14"}
	for name, tc := range map[string]struct {
		maps string
		want []Mapping
	}{
		"a job":        {python, []Mapping{driver}},
		"mapped twice": {python + "7f10c0000000-7f10c4000000 r-xp 00400000 fd:01 1311 /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14\n", []Mapping{driver}},
		"two of them": {
			python + "7f20c0000000-7f20c4000000 r-xp 00400000 00:1b 9 /usr/local/cuda/compat/libcuda.so.555.42.02\n",
			[]Mapping{driver, {0x7f20c0000000, 0x7f20c4000000, 0x400000, "00:1b", 9, "/usr/local/cuda/compat/libcuda.so.555.42.02"}},
		},
		"replaced by an update": {
			"7f00c0000000-7f00c4000000 r-xp 0 fd:01 1311 /lib/my libs/libcuda.so.1 (deleted)\n",
			[]Mapping{{0x7f00c0000000, 0x7f00c4000000, 0, "fd:01", 1311, "/lib/my libs/libcuda.so.1"}},
		},
		"no end of line": {"1-2 r-xp 0 fd:01 5 /libcuda.so", []Mapping{{1, 2, 0, "fd:01", 5, "/libcuda.so"}}},
		"only data":      {"7f00c0000000-7f00c4000000 rw-p 0 fd:01 1311 /usr/lib/libcuda.so.1\n", nil},
		"a folder":       {"7f00c0000000-7f00c4000000 r-xp 0 fd:01 1311 /usr/lib/libcuda.so.1/other.so\n", nil},
		"other names":    {"1-2 r-xp 0 fd:01 5 /libcuda.sock\n1-2 r-xp 0 fd:01 6 /libcudadebugger.so.1\n", nil},
		"no addresses":   {"../../x r-xp 0 fd:01 5 /libcuda.so.1\n", nil},
		"no offset":      {"1-2 r-xp zz fd:01 5 /libcuda.so.1\n", nil},
		"no inode":       {"1-2 r-xp 0 fd:01 0 /libcuda.so.1\n1-2 r-xp 0 fd:01 x /libcuda.so.1\n", nil},
		"cut short":      {"1-2 r-xp 0 /libcuda.so.1\n1-2 r /libcuda.so.1\n", nil},
		"nothing":        {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := findLibraries(strings.NewReader(tc.maps), libcuda)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestANameMayStandForAllThatBeginSo(t *testing.T) {
	const maps = "1-2 r-xp 0 fd:01 5 /lib/libnccl.so.2\n1-2 r-xp 0 fd:01 6 /opt/libnccl-pr2127.so.2.30.3\n1-2 r-xp 0 fd:01 7 /lib/libnvcc.so\n1-2 r-xp 0 fd:01 8 /libnccl/other.so\n"
	got, err := findLibraries(strings.NewReader(maps), []string{"libnccl*", "libcuda.so"})
	require.NoError(t, err)
	require.Equal(t, []Mapping{
		{1, 2, 0, "fd:01", 5, "/lib/libnccl.so.2"}, {1, 2, 0, "fd:01", 6, "/opt/libnccl-pr2127.so.2.30.3"},
	}, got)
}

func TestMappingsOfAnOddProcessAreBounded(t *testing.T) {
	var maps strings.Builder
	for i := range 100 {
		maps.WriteString("1-2 r-xp 0 fd:01 " + strings.Repeat("1", 1+i%10) + "5 /libcuda.so.1\n")
	}
	maps.WriteString("1-2 r-xp 0 fd:01 5 /" + strings.Repeat("x", 1<<20) + "/libcuda.so.1\n") // longer than the buffer
	got, err := findLibraries(strings.NewReader(maps.String()), libcuda)
	require.NoError(t, err)
	require.Len(t, got, maxMappings)
}

func FuzzFindLibraries(f *testing.F) {
	f.Add(python)
	f.Add("1-2 r-xp 0 fd:01 5 /libcuda.so")
	f.Fuzz(func(t *testing.T, maps string) {
		got, err := findLibraries(strings.NewReader(maps), libcuda)
		require.NoError(t, err)
		require.LessOrEqual(t, len(got), maxMappings)
		for _, m := range got {
			require.NotZero(t, m.Inode)
			require.NotContains(t, m.Addresses(), "/")
			require.True(t, path.IsAbs(m.Path))
		}
	})
}

func TestOwnCodeIsFoundByItsAddress(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	own, err := Open("").CodeAt(uint64(reflect.ValueOf(TestOwnCodeIsFoundByItsAddress).Pointer()))
	require.NoError(t, err)
	require.Contains(t, own.Path, "procfs")
	_, err = Open("").CodeAt(1)
	require.ErrorContains(t, err, "not mapped")
}

func TestCodeOfFilesThatAreWanted(t *testing.T) {
	root := t.TempDir()
	put(t, root, "42/maps", python+"55d0c0001000-55d0c0002000 r-xp 00001000 fd:01 77 /usr/bin/python3.12\n55d0d0001000-55d0d0002000 r-xp 00009000 fd:01 77 /usr/bin/python3.12\n")
	require.NoError(t, os.Symlink("/usr/bin/python3.12 (deleted)", filepath.Join(root, "42/exe")))
	program, err := Open(root).Program(42)
	require.NoError(t, err)
	require.Equal(t, "/usr/bin/python3.12", program)
	found, err := Open(root).Code(42, func(m Mapping) bool { return m.Path == program })
	require.NoError(t, err)
	require.Equal(t, []Mapping{{0x55d0c0001000, 0x55d0c0002000, 0x1000, "fd:01", 77, program}}, found)
	_, err = Open(root).Program(7)
	require.ErrorIs(t, err, ErrGone)
}

func TestMappedFileIsOpenedOnlyIfItIsTheOne(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	r := newTree(t)
	r.write("7/root/libcuda.so", "code")
	info, err := os.Stat(filepath.Join(r.Root(), "7/root/libcuda.so"))
	require.NoError(t, err)
	inode := reflect.ValueOf(info.Sys()).Elem().FieldByName("Ino").Uint()
	file, err := r.OpenMapped(7, Mapping{Start: 1, End: 2, Inode: inode, Path: "/libcuda.so"})
	require.NoError(t, err)
	require.NoError(t, file.Close())
	_, err = r.OpenMapped(7, Mapping{Start: 1, End: 2, Inode: inode + 1, Path: "/libcuda.so"})
	require.ErrorContains(t, err, "another file has its name")
	_, err = r.OpenMapped(7, Mapping{Start: 1, End: 2, Inode: inode, Path: "/"})
	require.ErrorIs(t, err, ErrNoPlainFile, "a folder")
}

// TestAllCodeOfAProcess is found, with what is no file.
func TestAllCodeOfAProcess(t *testing.T) {
	root := t.TempDir()
	put(t, root, "42/maps", `55d0c0000000-55d0c0001000 r--p 00000000 fd:01 1310 /usr/bin/python3.11
55d0c0001000-55d0c0009000 r-xp 00001000 fd:01 1310 /usr/bin/python3.11
7f00c0000000-7f00c4000000 r-xp 00010000 fd:01 1311 /usr/lib/a b.so (deleted)
7f00c4000000-7f00c5000000 rwxp 00000000 00:00 0 
7f00c5000000-7f00c6000000 r-xp 00000000 00:00 0
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
7f00c6000000-7f00c6000000 r-xp 00000000 00:00 0
nothing at all
`)
	code, err := Open(root).AllCode(42)
	require.NoError(t, err)
	require.Equal(t, []Mapping{
		{0x55d0c0001000, 0x55d0c0009000, 0x1000, "fd:01", 1310, "/usr/bin/python3.11"},
		{0x7f00c0000000, 0x7f00c4000000, 0x10000, "fd:01", 1311, "/usr/lib/a b.so"},
		{0x7f00c4000000, 0x7f00c5000000, 0, "00:00", 0, ""},
		{0x7f00c5000000, 0x7f00c6000000, 0, "00:00", 0, ""},
		{0x7ffd00000000, 0x7ffd00002000, 0, "00:00", 0, "[vdso]"},
		{0xffffffffff600000, 0xffffffffff601000, 0, "00:00", 0, "[vsyscall]"},
	}, code)
	put(t, root, "42/maps", strings.Repeat("7f00c5000000-7f00c6000000 r-xp 00000000 00:00 0\n", maxCode+10))
	code, err = Open(root).AllCode(42)
	require.NoError(t, err)
	require.Len(t, code, maxCode)
	_, err = Open(root).AllCode(43)
	require.ErrorIs(t, err, ErrGone)
}
