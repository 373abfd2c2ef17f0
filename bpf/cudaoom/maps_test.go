package cudaoom

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const python = `55d0c0000000-55d0c0001000 r--p 00000000 fd:01 77                         /usr/bin/python3.12
7f00b0000000-7f00b0400000 r--p 00000000 fd:01 1311                       /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14
7f00c0000000-7f00c4000000 r-xp 00400000 fd:01 1311                       /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14
7f00c4000000-7f00c5000000 rw-p 04400000 fd:01 1311                       /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14
7f00d0000000-7f00d0100000 r-xp 00000000 fd:01 1312                       /usr/local/cuda/lib64/libcudart.so.12.4.127
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
`

func TestLibcudaIsFoundAmongTheMappedFiles(t *testing.T) {
	driver := mapping{library{"fd:01", 1311}, "7f00c0000000-7f00c4000000", "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14"}
	for name, tc := range map[string]struct {
		maps string
		want []mapping
	}{
		"a job":        {python, []mapping{driver}},
		"mapped twice": {python + "7f10c0000000-7f10c4000000 r-xp 00400000 fd:01 1311 /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14\n", []mapping{driver}},
		"two of them": {
			python + "7f20c0000000-7f20c4000000 r-xp 00400000 00:1b 9 /usr/local/cuda/compat/libcuda.so.555.42.02\n",
			[]mapping{driver, {library{"00:1b", 9}, "7f20c0000000-7f20c4000000", "/usr/local/cuda/compat/libcuda.so.555.42.02"}},
		},
		"replaced by an update": {
			"7f00c0000000-7f00c4000000 r-xp 0 fd:01 1311 /lib/my libs/libcuda.so.1 (deleted)\n",
			[]mapping{{library{"fd:01", 1311}, "7f00c0000000-7f00c4000000", "/lib/my libs/libcuda.so.1"}},
		},
		"no end of line": {"1-2 r-xp 0 fd:01 5 /libcuda.so", []mapping{{library{"fd:01", 5}, "1-2", "/libcuda.so"}}},
		"only data":      {"7f00c0000000-7f00c4000000 rw-p 0 fd:01 1311 /usr/lib/libcuda.so.1\n", nil},
		"a folder":       {"7f00c0000000-7f00c4000000 r-xp 0 fd:01 1311 /usr/lib/libcuda.so.1/other.so\n", nil},
		"other names":    {"1-2 r-xp 0 fd:01 5 /libcuda.sock\n1-2 r-xp 0 fd:01 6 /libcudadebugger.so.1\n", nil},
		"no addresses":   {"../../x r-xp 0 fd:01 5 /libcuda.so.1\n", nil},
		"no inode":       {"1-2 r-xp 0 fd:01 0 /libcuda.so.1\n1-2 r-xp 0 fd:01 x /libcuda.so.1\n", nil},
		"cut short":      {"1-2 r-xp 0 /libcuda.so.1\n1-2 r /libcuda.so.1\n", nil},
		"nothing":        {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := findLibraries(strings.NewReader(tc.maps))
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
	got, err := findLibraries(strings.NewReader(maps.String()))
	require.NoError(t, err)
	require.Len(t, got, maxMappings)
}

func FuzzFindLibraries(f *testing.F) {
	f.Add(python)
	f.Add("1-2 r-xp 0 fd:01 5 /libcuda.so")
	f.Fuzz(func(t *testing.T, maps string) {
		got, err := findLibraries(strings.NewReader(maps))
		require.NoError(t, err)
		require.LessOrEqual(t, len(got), maxMappings)
		for _, m := range got {
			require.NotZero(t, m.inode)
			require.NotContains(t, m.addresses, "/")
			require.True(t, path.IsAbs(m.path))
		}
	})
}
