package command

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/distro/internal/drill"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

func TestMain(m *testing.M) {
	if drill.IsChild() {
		os.Exit(drill.Child())
	}
	if commandtest.IsCommand() {
		os.Exit(Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestExitCodes(t *testing.T) {
	badConfig := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(badConfig, []byte("receivers: {otlp: {protocls: {}}}\n"), 0o600))
	badRule := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(badRule, []byte("id: 1000\nname: mine\nfull: x\nevidence:\n  x: {logs: gpu.xid, shows: y}\nwihtin: 5m\n"), 0o600))
	for name, tt := range map[string]struct {
		args []string
		code int
		says string
	}{
		"an unknown key in a rule":    {[]string{"validate", "--set=processors.patterndetector.rules=[" + badRule + "]"}, exitInternal, "mine.yaml:6"},
		"a rule file that is missing": {[]string{"validate", "--set=processors.patterndetector.rules=[/nosuch.yaml]"}, exitInternal, "/nosuch.yaml"},
		"version":                     {[]string{"--version"}, exitOK, ""},
		"help":                        {[]string{"--help"}, exitOK, ""},
		"components":                  {[]string{"components"}, exitOK, ""},
		"the default is valid":        {[]string{"validate"}, exitOK, ""},
		"unknown command":             {[]string{"nosuch"}, exitUsage, "see tracecore --help"},
		"a host that is not there":    {[]string{"status", "--address", "nosuch.invalid:1"}, exitUsage, "give --address for another place"},
		"unknown command of a group":  {[]string{"drill", "nosuch"}, exitUsage, "see tracecore drill --help"},
		"a command of other programs": {[]string{"version"}, exitUsage, "write tracecore --version; see tracecore --help"},
		"a command with a typo":       {[]string{"bpf-chek"}, exitUsage, `did you mean "bpf-check"?`},
		"a group alone":               {[]string{"patterns"}, exitUsage, "which one? use list, reference, show, test"},
		"an argument is missing":      {[]string{"patterns", "show"}, exitUsage, "write tracecore patterns show NAME"},
		"a pattern by a part of it":   {[]string{"patterns", "show", "hbm"}, exitUsage, "did you mean hbm_ecc?"},
		"a limit of nothing":          {[]string{"incidents", "--limit=0"}, exitUsage, "--limit 0: give a number from 1 to 1000"},
		"a number that is none":       {[]string{"incidents", "--limit=x"}, exitUsage, `invalid argument "x" for "--limit" flag: write a whole number; see`},
		"a duration that is none":     {[]string{"incidents", "mute", "i", "--for=x"}, exitUsage, `write a duration, as 30s, 5m or 2h; see`},
		"unknown flag":                {[]string{"--nosuch"}, exitUsage, "see tracecore --help"},
		"unknown flag of a command":   {[]string{"validate", "--nosuch"}, exitUsage, "see tracecore validate --help"},
		"a flag with a typo":          {[]string{"--confg", "x.yaml"}, exitUsage, `unknown flag: --confg: did you mean "--config"?; see tracecore --help`},
		"a flag of a command":         {[]string{"replay", "--jb", "a"}, exitUsage, `did you mean "--job"?; see tracecore replay --help`},
		"a flag cut short":            {[]string{"incidents", "--sinc", "1h"}, exitUsage, `did you mean "--since"?`},
		"a short flag":                {[]string{"incidents", "-Q"}, exitUsage, "unknown shorthand flag: 'Q' in -Q; see tracecore incidents --help"},
		"a flag of no command":        {[]string{"verdict", "--schema"}, exitUsage, `unknown command "verdict" for "tracecore"`},
		"a flag of no command below":  {[]string{"patterns", "lst", "--json"}, exitUsage, `unknown command "lst" for "tracecore patterns": did you mean "list"?`},
		"a report without a file":     {[]string{"report", "abc"}, exitUsage, "report writes a file: name it with -o NAME.html"},
		"a mode that is none":         {[]string{"print-config", "--mode=x"}, exitUsage, "use redacted or unredacted; see tracecore print-config --help"},
		"a format that is none":       {[]string{"print-config", "--format=x"}, exitUsage, "use yaml or json; see tracecore print-config --help"},
		"help on nothing":             {[]string{"help", "nosuch"}, exitUsage, `unknown command "nosuch" for "tracecore": use one of`},
		"help below nothing":          {[]string{"help", "incidents", "nosuch"}, exitUsage, `unknown command "nosuch" for "tracecore incidents": use one of`},
		"help on a command":           {[]string{"help", "incidents", "show"}, exitOK, ""},
		"too many arguments":          {[]string{"validate", "more"}, exitUsage, `tracecore validate takes no argument: leave out "more"; see tracecore validate --help`},
		"a --set without value":       {[]string{"validate", "--set=nothing"}, exitUsage, "equal sign"},
		"a file that is not there":    {[]string{"--config", "/nosuch.yaml"}, exitInternal, "/nosuch.yaml: no such file or directory: give --config a file"},
		"a key nobody knows":          {[]string{"validate", "--config", badConfig}, exitInternal, "bad.yaml:1: receivers::otlp: there is no key \"protocls\": did you mean \"protocols\"?"},
		"a file that stands alone":    {[]string{"validate", "--config=yaml:exporters::debug: {}"}, exitInternal, "lay it over the default by --config tracecore:default --config FILE"},
		"a key over the default":      {[]string{"validate", "--set=receivers.otlp.protocls=1"}, exitInternal, "protocls"},
		"a receiver of before":        {[]string{"validate", "--set=receivers.dcgm.endpoint=localhost:5555"}, exitInternal, "write gpu: {source: dcgm}"},
		"a backend":                   {[]string{"validate", "--to=https://backend:4318", "--to-all=grpcs://other"}, exitOK, ""},
		"a backend without a scheme":  {[]string{"--to=backend:4318"}, exitUsage, "--to: \"backend:4318\" has no scheme: write https://"},
		"the agent as its backend":    {[]string{"validate", "--to=http://localhost:4318"}, exitInternal, "where this tracecore itself listens (receiver otlp)"},
		"a default that is not there": {[]string{"validate", "--config", "tracecore:nosuch"}, exitInternal, "tracecore:default"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := commandtest.Finish(t, commandtest.New(t, tt.args...))
			require.Equal(t, tt.code, got.Code, "%s%s", got.Stdout, got.Stderr)
			require.Contains(t, got.Stderr, tt.says)
		})
	}
}

// Output that found no room is an error of each command: a file that is cut off looks whole.
func TestOutputThatFindsNoRoomIsAnError(t *testing.T) {
	for _, args := range [][]string{{"patterns", "list"}, {"patterns", "test", "--run", "gpu_lost"}, {"print-config"}, {"components"}, {"--help"}, {"bpf-check", "--schema"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip("no /dev/full here: ", err)
		}
		cmd := commandtest.New(t, args...)
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &stderr
		require.Error(t, cmd.Run(), "%v", args)
		require.Equal(t, exitInternal, cmd.ProcessState.ExitCode(), "%v", args)
		require.Contains(t, stderr.String(), "no space left on device", "%v", args)
		require.NoError(t, full.Close())
	}
}

// The help is read by people: it lists no feature gates, and names no types of Go.
func TestHelpIsForPeople(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"validate", "--help"}, {"print-config", "--help"}} {
		got := commandtest.Finish(t, commandtest.New(t, args...))
		require.NotContains(t, got.Stdout, "confmap.")
		require.NotContains(t, got.Stdout, "stringArray")
	}
}

func TestTheExamplesAreValid(t *testing.T) {
	examples, err := filepath.Glob("../../examples/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, examples)
	for _, example := range examples {
		got := commandtest.Finish(t, commandtest.New(t, "validate", "--config", example))
		require.Equal(t, exitOK, got.Code, "%s: %s%s", example, got.Stdout, got.Stderr)
		require.Empty(t, got.Stderr, "all that an example configures does something")
	}
}

// A program that has a port before tracecore costs it that port alone.
func TestAPortThatIsTakenCostsThatPortAlone(t *testing.T) {
	for _, endpoint := range []string{"receivers.otlp.protocols.grpc.endpoint", "receivers.otlp.protocols.http.endpoint"} {
		t.Run(endpoint, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			run := commandtest.Start(t, commandtest.New(t, append(commandtest.Ports(t), "--set="+endpoint+"="+l.Addr().String())...))
			require.Contains(t, run.Stderr.String(), "address already in use; another program")
			require.NoError(t, l.Close())
			require.Eventually(t, func() bool {
				c, err := net.Dial("tcp", l.Addr().String())
				return err == nil && c.Close() == nil
			}, hosttest.Patience, 10*time.Millisecond)
			require.Equal(t, exitOK, run.Stop(t, syscall.SIGTERM), run.Stderr.String())
		})
	}
}

func TestStateFolderThatCannotBeMade(t *testing.T) {
	cmd := commandtest.New(t, commandtest.Ports(t)...)
	cmd.Env = append(cmd.Env, "TRACECORE_STATE_DIR=/proc/nosuch")
	run := commandtest.Start(t, cmd)
	require.Contains(t, run.Stderr.String(), "TRACECORE_STATE_DIR")
	require.Contains(t, run.Stderr.String(), "the disk does not take the state")
	require.Equal(t, exitOK, run.Stop(t, syscall.SIGTERM), run.Stderr.String())
}

func TestASecondProcessOnTheSameStateIsRefused(t *testing.T) {
	state := "TRACECORE_STATE_DIR=" + t.TempDir()
	cmd, second := commandtest.New(t, commandtest.Ports(t)...), commandtest.New(t, commandtest.Ports(t)...)
	cmd.Env, second.Env = append(cmd.Env, state), append(second.Env, state)
	first := commandtest.Start(t, cmd)
	got := commandtest.Finish(t, second)
	require.Equal(t, exitInternal, got.Code)
	require.Contains(t, got.Stderr, "another tracecore uses it (pid ")
	require.Equal(t, exitOK, first.Stop(t, syscall.SIGTERM), first.Stderr.String())
}

func TestSignalsShutDownCleanly(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			run := commandtest.Start(t, commandtest.New(t, commandtest.Ports(t)...))
			require.Equal(t, exitOK, run.Stop(t, signal), run.Stderr.String())
		})
	}
}

// TestWithoutPrivilegesTheRestWorks runs the default as a user who may do
// nothing: it becomes healthy and says what is missing.
func TestWithoutPrivilegesTheRestWorks(t *testing.T) {
	cmd := commandtest.New(t, commandtest.Ports(t)...)
	state := dropPrivileges(t, cmd)
	cmd.Env = append(cmd.Env, "TRACECORE_STATE_DIR="+state)
	run := commandtest.Start(t, cmd)
	info, err := os.Stat(state)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	for _, missing := range []string{"open kmsg: no hook works", "open oomkill: no hook works", "CAP_BPF"} {
		require.Contains(t, run.Stderr.String(), missing)
	}
	require.Equal(t, exitOK, run.Stop(t, syscall.SIGTERM), run.Stderr.String())
}

func TestGreetingSaysWhatIsWatchedAndWhatIsMissing(t *testing.T) {
	limited := works
	limited.Attempts = []probe.Attempt{{Rung: "tp_btf/console", Outcome: probe.OK, Hint: "short ones stay unknown"}}
	root := newRoot()
	var text strings.Builder
	root.SetErr(&text)
	require.NoError(t, writeGreeting(root, machineWith(t, limited, denied), "/some/where", []string{"verdicts to https://backend:4318"}))
	for _, want := range []string{
		"watches   faults (kmsg: tp_btf/console)", "limited   faults: short ones stay unknown", "misses    kills: give it CAP_BPF",
		"patterns  degraded: ", "127.0.0.1:4317", "http://127.0.0.1:8888/metrics", "/some/where", "tracecore bpf-check",
		"sends     verdicts to https://backend:4318",
	} {
		require.Contains(t, text.String(), want)
	}
	require.Regexp(t, `patterns  blind: .*\bhost_oom_kill\b`, text.String())
}

// dropPrivileges makes a command run as nobody (65534) where we are root, from
// a copy of the test binary that nobody can reach, and returns a state folder
// that does not exist yet below one that nobody may write.
func dropPrivileges(t *testing.T, cmd *exec.Cmd) (state string) {
	t.Helper()
	const nobody = 65534
	dir, err := os.MkdirTemp("", "tracecore-nobody-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	cmd.Path = filepath.Join(dir, "tracecore")
	require.NoError(t, os.WriteFile(cmd.Path, binary, 0o755))
	require.NoError(t, os.Chmod(dir, 0o755))
	home := filepath.Join(dir, "home")
	require.NoError(t, os.Mkdir(home, 0o700))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(home, nobody, nobody))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	cmd.Dir = dir
	return filepath.Join(home, "state")
}
