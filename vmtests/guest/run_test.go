package guest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain is also what the tests run: a program that writes a pipe full and ends, and leaves
// a child that keeps the pipe open if it is asked to.
func TestMain(m *testing.M) {
	switch os.Getenv("GUEST_TEST_PLAYS") {
	case "writer":
		for range pipeBytes / 1024 {
			_, _ = os.Stdout.WriteString(strings.Repeat("x", 1023) + "\n")
		}
		os.Exit(0)
	case "parent":
		_, _ = os.StartProcess("/proc/self/exe", []string{"child"}, &os.ProcAttr{Env: []string{"GUEST_TEST_PLAYS=child"}, Files: []*os.File{nil, os.Stdout, os.Stderr}})
		os.Exit(0)
	case "child":
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			if _, err := os.Stdout.WriteString("still here\n"); err != nil {
				os.Exit(0)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// play runs this program in that part, and returns how many lines of its output were sent.
func play(t *testing.T, part string, slow time.Duration) (lines int) {
	t.Helper()
	require.NoError(t, Run(Test{Path: "/proc/self/exe", Dir: t.TempDir(), Limit: time.Minute}, []string{"GUEST_TEST_PLAYS=" + part}, func(l Line) error {
		switch l.Kind {
		case Output:
			if lines == 0 {
				time.Sleep(slow)
			}
			lines++
		case End:
			require.Zero(t, l.Code, l.Error)
		}
		return nil
	}))
	return lines
}

func TestASlowReportLosesNothing(t *testing.T) {
	require.Equal(t, pipeBytes/1024, play(t, "writer", quiet+quiet/2))
}

func TestAChildThatWritesForEverIsCutOff(t *testing.T) {
	require.Positive(t, play(t, "parent", 0))
}
