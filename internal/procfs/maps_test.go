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
	require.ErrorContains(t, err, "another file has its name", "a folder")
}
