package command

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// rounds is how often the state is damaged; the process is killed half, and started on
// a full disk a fifth as often. `make verify` takes a thousand.
var rounds = flag.Int("state-rounds", 8, "how often TestState… damages the state of an agent")

// seed makes a run of the tests again.
var seed = flag.Uint64("state-seed", uint64(time.Now().UnixNano()), "seed of the damage done by TestState…")

const storedConfig = `
extensions: {health_check: , file_storage: {directory: "%[1]s"}, history: {directory: "%[1]s/history", http: {endpoint: "%[4]s"}}}
receivers: {otlp: {senders: agents, protocols: {http: {endpoint: "%[2]s"}}}}
processors:
  rankjoin: {storage: file_storage}
  patterndetector: {storage: file_storage, history: history, rules: ["%[3]s"]}
exporters:
  terminal: {format: json}
  otlp_grpc: {endpoint: "127.0.0.1:1", tls: {insecure: true}, sending_queue: {storage: file_storage, queue_size: 100000}}
service:
  extensions: [health_check, file_storage, history]
  pipelines: {logs: {receivers: [otlp], processors: [rankjoin, patterndetector], exporters: [terminal, otlp_grpc]}}
  telemetry: {metrics: {level: none}}
`

// node is an agent that keeps its state in a folder, and may be started again and again.
type node struct {
	*commandtest.Running
	state, otlp, config string
	history             string          // where questions are answered
	said                map[string]bool // the hosts that verdicts of earlier runs name
}

func newNode(t *testing.T, state string) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{state: state, otlp: hosttest.FreeAddress(t), history: hosttest.FreeAddress(t), config: filepath.Join(dir, "agent.yaml"), said: map[string]bool{}}
	rule := filepath.Join(dir, "rule.yaml")
	require.NoError(t, os.WriteFile(rule, []byte(strings.Replace(siteRule, "VERSION", "first", 1)), 0o600))
	require.NoError(t, os.WriteFile(n.config, fmt.Appendf(nil, storedConfig, state, n.otlp, rule, n.history), 0o600))
	return n
}

func (n *node) start(t *testing.T) {
	t.Helper()
	n.Running = commandtest.Start(t, commandtest.New(t, "--config="+n.config, "--set=extensions.health_check.endpoint="+hosttest.FreeAddress(t)))
}

// crash kills it and notes what it has said.
func (n *node) crash() {
	n.Kill()
	for line := range strings.Lines(n.Stdout.String()) {
		if !strings.HasSuffix(line, "\n") {
			break // it was killed while it wrote this
		}
		if _, after, found := strings.Cut(line, "of the alarm on "); found {
			host, _, _ := strings.Cut(after, ",")
			n.said[host] = true
		}
	}
}

// alarm has it make a verdict about a host. It returns when the record was taken.
func (n *node) alarm(t *testing.T, host string) {
	t.Helper()
	sendFrom(t, n.otlp, host, "site.alarm")
}

// TestStateThatIsDamaged starts the whole agent on a random damage of its state. It
// always starts, judges and stores again.
func TestStateThatIsDamaged(t *testing.T) {
	t.Logf("-state-seed=%d", *seed)
	n := newNode(t, filepath.Join(t.TempDir(), "state"))
	n.start(t)
	for i := range 40 {
		n.alarm(t, fmt.Sprintf("node-%d", i))
	}
	n.crash()
	require.NoError(t, os.Remove(filepath.Join(n.state, "history", "history.sock"))) // a socket cannot be copied
	for round := range *rounds {
		random := rand.New(rand.NewPCG(*seed, uint64(round)))
		hurt := newNode(t, filepath.Join(t.TempDir(), "state"))
		require.NoError(t, os.CopyFS(hurt.state, os.DirFS(n.state)))
		done := damage(t, random, hurt.state)
		hurt.start(t)
		hurt.alarm(t, "after")
		verdictLike(t, hurt.Running, "alarm on after")
		hurt.Kill()
		hurt.start(t)
		sendFrom(t, hurt.otlp, "after", "site.calm")
		verdictLike(t, hurt.Running, `"status":"resolved".*alarm on after`)
		hurt.Kill()
		if t.Failed() {
			t.Logf("round %d: %s", round, done)
			return
		}
	}
}

// damage changes one file of a state folder, or puts something else in its place.
func damage(t *testing.T, random *rand.Rand, state string) (done string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(state, "*", "*"))
	require.NoError(t, err)
	files = slices.DeleteFunc(files, func(path string) bool { return strings.HasSuffix(path, ".sock") })
	require.NotEmpty(t, files)
	path := files[random.IntN(len(files))]
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	at := random.IntN(max(len(data), 1))
	kinds := []struct {
		name string
		do   func() error
	}{
		{"bits", func() error {
			for range 1 + random.IntN(64) {
				data[random.IntN(len(data))] ^= 1 << random.IntN(8)
			}
			return os.WriteFile(path, data, 0o600)
		}},
		{"cut", func() error { return os.Truncate(path, int64(at)) }},
		{"zeros", func() error { clear(data[at:min(len(data), at+4096)]); return os.WriteFile(path, data, 0o600) }},
		{"swap", func() error {
			half := len(data) / 2
			return os.WriteFile(path, append(data[half:len(data):len(data)], data[:half]...), 0o600)
		}},
		{"garbage", func() error { return os.WriteFile(path, append(data, data[at:]...), 0o600) }},
		{"hole", func() error { return os.Truncate(path, int64(len(data))+1<<30) }},
		{"pipe", func() error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) }},
		{"link", func() error { return errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)) }},
		{"folder", func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }},
		{"file for folder", func() error {
			return errors.Join(os.RemoveAll(filepath.Dir(path)), os.WriteFile(filepath.Dir(path), data, 0o600))
		}},
	}
	kind := kinds[random.IntN(len(kinds))]
	require.NoError(t, kind.do())
	return kind.name + " of " + path
}

// TestStateOutlivesKills kills the agent just after it took a record, again and again.
// Each record that was taken leads to its verdict, in that run or in the next.
func TestStateOutlivesKills(t *testing.T) {
	t.Logf("-state-seed=%d", *seed)
	n := newNode(t, filepath.Join(t.TempDir(), "state"))
	random := rand.New(rand.NewPCG(*seed, 0))
	taken := map[string]bool{}
	for round := range max(*rounds/2, 1) {
		n.start(t)
		for i := range 1 + random.IntN(3) {
			host := fmt.Sprintf("node-%d-%d", round, i)
			n.alarm(t, host)
			taken[host] = true
		}
		time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
		n.crash()
	}
	n.start(t)
	n.alarm(t, "last")
	verdictLike(t, n.Running, "alarm on last")
	n.crash()
	taken["last"] = true
	require.Equal(t, taken, n.said)
}

// TestStateOnAFullDisk starts the agent again and again on a disk without room: it
// judges each time. What it holds meanwhile is on the disk once there is room.
func TestStateOnAFullDisk(t *testing.T) {
	hosttest.Require(t, "mounts a small file system")
	disk := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=2m,mode=700"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	n := newNode(t, filepath.Join(disk, "state"))
	ballast := filepath.Join(disk, "ballast")
	for round := range max(*rounds/5, 2) {
		if round == 1 { // the others begin with files that cannot grow
			require.NoError(t, os.Remove(ballast))
			n.start(t)
			n.alarm(t, "saved")
			n.crash()
		}
		fillDisk(t, ballast)
		n.start(t)
		host := fmt.Sprintf("node-%d", round)
		n.alarm(t, host)
		verdictLike(t, n.Running, "alarm on "+host+",")
		require.Contains(t, n.Stderr.String(), "the disk does not take the state")
		n.crash()
	}
	n.start(t)
	n.alarm(t, "held")
	require.NoError(t, os.Remove(ballast))
	require.Eventually(t, func() bool { return !refusing(n.Stderr.String()) }, hosttest.Patience, 10*time.Millisecond, n.Stderr)
	n.crash()
	n.start(t)
	for _, host := range []string{"saved", "held"} {
		sendFrom(t, n.otlp, host, "site.calm")
		verdictLike(t, n.Running, `"status":"resolved".*alarm on `+host)
	}
}

// refusing reports whether the disk does not take the state of some component: each says
// so for itself, and the last that it said holds.
func refusing(stderr string) bool {
	last := map[string]bool{}
	for line := range strings.Lines(stderr) {
		_, state, _ := strings.Cut(line, `"state": "`)
		state, _, _ = strings.Cut(state, `"`)
		switch {
		case strings.Contains(line, "the disk does not take the state"):
			last[state] = true
		case strings.Contains(line, "the disk takes the state again"):
			last[state] = false
		}
	}
	return slices.Contains(slices.Collect(maps.Values(last)), true)
}

func fillDisk(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
}
