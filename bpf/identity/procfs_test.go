//go:build linux && (amd64 || arm64)

package identity

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatLine(t *testing.T) {
	line := func(comm, state, flags, threads string) string {
		return "7 (" + comm + ") " + state + " 3 7 7 0 -1 " + flags + " 0 0 0 0 0 0 0 0 20 0 " + threads + " 0 4711 1000 0"
	}
	for name, tc := range map[string]struct {
		line string
		want stat
	}{
		"ordinary":                {line("python3", "S", "4194560", "1"), stat{comm: "python3"}},
		"a name like fields":      {line("a) S 1 (b", "R", "0", "1"), stat{comm: "a) S 1 (b"}},
		"an empty name":           {line("", "R", "0", "1"), stat{}},
		"a name that is no text":  {line("a\xff", "R", "0", "1"), stat{comm: "a�"}},
		"kernel thread":           {line("kworker/0:1", "I", "69238880", "1"), stat{comm: "kworker/0:1", kernel: true}},
		"zombie":                  {line("x", "Z", "0", "1"), stat{comm: "x", dead: true}},
		"zombie, all threads out": {line("x", "Z", "0", "0"), stat{comm: "x", dead: true}},
		"leader gone, group not":  {line("x", "Z", "0", "12"), stat{comm: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.pid, tc.want.parentPID, tc.want.startTicks = 7, 3, 4711
			got, err := parseStat(7, tc.line)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
	good := line("x", "S", "0", "1")
	for name, bad := range map[string]string{
		"empty": "", "no name": "7 x S 3", "cut": good[:40], "no number": strings.Replace(good, "4711", "soon", 1),
		"negative parent": strings.Replace(good, "S 3", "S -3", 1), "no flags": strings.Replace(good, "-1 0", "-1 x", 1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseStat(7, bad)
			require.ErrorContains(t, err, "read stat of process 7")
		})
	}
}

func TestOwnStatIsReadFromProc(t *testing.T) {
	st, err := newProcfs("/proc").stat(uint32(os.Getpid()))
	require.NoError(t, err)
	require.EqualValues(t, os.Getppid(), st.parentPID)
	require.False(t, st.kernel || st.dead)
	require.InDelta(t, float64(bootNow()), float64(st.startNS()), 600e9)
}

func TestFileIsReadUpToItsLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for name, tc := range map[string]struct {
		size, limit, want int
		cut               bool
	}{
		"shorter": {99, 100, 99, false}, "as long": {100, 100, 100, false}, "longer": {101, 100, 100, true},
		"empty": {0, 100, 0, false}, "much longer": {70000, 9000, 9000, true}, "long": {70000, 80000, 70000, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", tc.size)), 0o600))
			content, cut, err := readFile(path, tc.limit)
			require.NoError(t, err)
			require.Equal(t, tc.cut, cut)
			require.Len(t, content, tc.want)
		})
	}
	_, _, err := readFile(filepath.Dir(path), 10)
	require.Error(t, err, "a folder")
}

func FuzzStat(f *testing.F) {
	f.Add("7 (python3) S 3 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4711 1000 0")
	f.Add("7 () ) ( S")
	f.Fuzz(func(t *testing.T, line string) {
		st, err := parseStat(7, line)
		require.True(t, err != nil || st.pid == 7)
	})
}
