package command

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestStacksAreShownForATerminal(t *testing.T) {
	evil := "a\x1b[31m\nb\u202e"
	seen := []stackProcess{{
		PID: 42, Name: evil, Runtime: "CPython 3.11", Cut: true, NotRead: []string{"kernel: " + evil},
		Threads: []stackThread{
			{
				ID: 42, Name: "python3", Main: true, State: "sleeps", GIL: true, Waits: "data_loading", Why: "w" + evil, Function: "futex_do_wait", Owner: "futex",
				Frames: []stackFrame{{"python", evil, "/t/" + evil, 3}, {"native", "+0x10", "/usr/lib/" + evil, 0}, {"kernel", "futex_do_wait", "", 0}},
			},
			{ID: 43, Name: "w", State: "runs", Waits: "own_code", Ending: true},
		},
	}}
	var out strings.Builder
	require.NoError(t, printStacks(&out, seen))
	for _, r := range out.String() {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%q of %q", r, out.String())
	}
	lines := strings.Split(out.String(), "\n")
	require.Len(t, lines, 10, "%s", out.String())
	require.Contains(t, lines[0], "process 42 (")
	require.Contains(t, lines[0], "CPython 3.11, 2 threads of more")
	require.Equal(t, " of 100,008", cutOff(&stackProcess{Cut: true, All: 100_008}))
	require.Contains(t, lines[3], "thread 42 (python3), main, sleeps, data loading (w")
	require.Contains(t, lines[3], "holds Python's lock (GIL), in futex_do_wait of futex")
	require.Contains(t, lines[4], ":3")
	require.Contains(t, out.String(), "thread 43 (w), runs, own code, its program is over\n")

	out.Reset()
	require.NoError(t, printStacksJSON(&out, seen))
	require.Len(t, strings.Split(out.String(), "\n"), 2)
	require.NotContains(t, out.String(), "\x1b")
	require.NotContains(t, out.String(), "\u202e")
}

func TestStacksWantsPIDs(t *testing.T) {
	for _, args := range [][]string{{}, {"0"}, {"-1"}, {"abc"}, {"1", ""}, {"99999999999"}} {
		_, err := parsePIDs(args)
		require.Error(t, err, "%q", args)
	}
	pids, err := parsePIDs([]string{"1", "42"})
	require.NoError(t, err)
	require.Equal(t, []uint32{1, 42}, pids)
}
