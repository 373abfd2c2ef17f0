package rule

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// stepsOf parses a rule with this remedy.
func stepsOf(t *testing.T, remedy string) (Choice, error) {
	t.Helper()
	r, err := Parse("pattern.yaml", []byte(`
id: 1000
name: mine
summary: a test
fields: {mount: 'attributes["fuse.mount.point"]', state: 'attributes["fuse.daemon.state"]'}
key: [host]
evidence: {seen: {logs: fuse.stall, shows: "it was seen"}}
full: seen
severity: error
headline: it broke
remedy:
`+remedy))
	return r.Remedy, err
}

func known(values map[string]string) Known {
	return Known{Field: func(name string) (string, bool) { value, ok := values[name]; return value, ok }}
}

const twoSteps = `
  - text: "Look at {mount} on {host}."
    command: "ls -l {mount}"
    effect: looks
    target: "{host}"
  - {text: "Mount it again.", command: "umount -l {mount} && mount {mount}", effect: changes, target: "{host}"}
  - text: "[Its daemon is {state}.]"
`

func TestARemedyOfSteps(t *testing.T) {
	remedy, err := stepsOf(t, twoSteps)
	require.NoError(t, err)
	k := known(map[string]string{"host": "node-a", "mount": "/data"})
	require.Equal(t, []verdict.Step{
		{Text: "Look at /data on node-a.", Command: "ls -l /data", Effect: "looks", Target: "node-a"},
		{Text: "Mount it again.", Command: "umount -l /data && mount /data", Effect: "changes", Target: "node-a"},
	}, remedy.Steps(k))
	require.Equal(t, "Look at /data on node-a: ls -l /data. Mount it again: umount -l /data && mount /data.", remedy.Expand(k))
	require.Subset(t, remedy.Default.Fields(), []string{"mount", "host", "state"})

	plain, err := stepsOf(t, `  "look at {mount}"`)
	require.NoError(t, err)
	require.Empty(t, plain.Steps(k), "the text says it all")
	require.Equal(t, "look at /data", plain.Expand(k))
}

// A word for what is not known would make another command of it.
func TestACommandThatLacksAValueIsLeftOut(t *testing.T) {
	remedy, err := stepsOf(t, twoSteps)
	require.NoError(t, err)
	require.Equal(t, []verdict.Step{
		{Text: "Look at unknown on node-a."}, {Text: "Mount it again."}, {Text: "Its daemon is gone."},
	}, remedy.Steps(known(map[string]string{"host": "node-a", "state": "gone"})))
	for _, s := range remedy.Steps(known(map[string]string{"mount": "/data"})) {
		require.Empty(t, s.Command, "nobody knows where to run it")
	}
}

func TestARemedyOfStepsByCase(t *testing.T) {
	remedy, err := stepsOf(t, `
  by: state
  cases:
    gone:
      - {text: "Start it.", command: "systemctl start x", effect: changes, target: "{host}"}
  default: "Find it."
`)
	require.NoError(t, err)
	require.Len(t, remedy.Steps(known(map[string]string{"state": "gone", "host": "a"})), 1)
	require.Equal(t, "Find it.", remedy.Expand(known(nil)))
}

func TestWhatIsWrongWithSteps(t *testing.T) {
	for remedy, want := range map[string]string{
		`  - {text: "a", command: "b"}`:                                "a command and its effect",
		`  - {text: "a", effect: looks}`:                               "a command and its effect",
		`  - {text: "a", command: "b", effect: breaks}`:                "use one of [looks changes]",
		`  - {command: "b", effect: looks}`:                            "text",
		`  - {text: "a", command: "{nosuch}", effect: looks}`:          "no field",
		`  - just a text`:                                              "step of a remedy",
		strings.Repeat("  - {text: \"a\"}\n", verdict.MaxSteps+1):      "at most 16 steps",
		`  - {text: "a", command: "b", effect: looks, target: "{no}"}`: "no field",
	} {
		_, err := stepsOf(t, remedy)
		require.ErrorContains(t, err, want, remedy)
		require.ErrorContains(t, err, "pattern.yaml:")
	}
}

// hostileWords are what a job can call its mount.
var hostileWords = []string{
	"", "/data", "/my data", "$(reboot)", "`reboot`", "a;reboot", "a\nreboot", "'", "it's", `\'`, `"`, "a&b", "a|b", ">x", "#", "~root", "*", "{a,b}", "!x", "-rf", "--help", "=x", "é",
}

func TestAValueIsOneWordOfAShell(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell here")
	}
	for _, value := range hostileWords {
		out, err := exec.Command(sh, "-c", "printf '%s|' "+ShellWord(value)).Output() //nolint:gosec // that nothing is run is what is tested
		require.NoError(t, err, value)
		want := value
		if strings.HasPrefix(value, "-") {
			want = "./" + value
		}
		require.Equal(t, want+"|", string(out))
	}
}

func FuzzShellWord(f *testing.F) {
	for _, value := range hostileWords {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		word := ShellWord(value)
		if strings.HasPrefix(value, "-") {
			value = "./" + value
		}
		require.Equal(t, value, unquoted(t, word))
	})
}

// unquoted reads a word as POSIX does, 2.2: nothing is special between single quotes, a
// backslash outside of them keeps the next character.
func unquoted(t *testing.T, word string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(word); i++ {
		switch c := word[i]; {
		case c == '\'':
			quoted = !quoted
		case quoted:
			b.WriteByte(c)
		case c == '\\':
			i++
			b.WriteByte(word[i])
		default:
			require.Contains(t, bare, string(c))
			b.WriteByte(c)
		}
	}
	require.False(t, quoted)
	return b.String()
}
