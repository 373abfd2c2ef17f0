package charts_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// all jobs: enough that each of two replicas judges some.
var all = numbers(32)

func numbers(n int) []int {
	var list []int
	for i := range n {
		list = append(list, i)
	}
	return list
}

// TestAJobIsJudgedInOnePlaceAndOutlivesACrash runs two agents and two gateway
// replicas with the chart's own configurations. Every job has a rank on each
// node; both die, so that only who hears both agents sees the whole fault. Between
// the two deaths one replica is killed.
func TestAJobIsJudgedInOnePlaceAndOutlivesACrash(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.agents[0].die(t, 0, all...)
	c.await(t, "every job judged by its first death", func() bool { return len(c.judged(t)) == len(all) })
	hit, spared := c.replicas[0], c.replicas[1]
	mine, others := hit.latest(t), spared.latest(t)
	require.NotEmpty(t, mine)
	require.NotEmpty(t, others)
	require.Len(t, c.judged(t), len(mine)+len(others), "a job is judged by both replicas")

	hit.kill()
	told := len(hit.verdicts(t))
	c.agents[1].die(t, 1, all...) // the part for the living comes again and again, with that for the dead
	for _, job := range all {
		c.agents[1].die(t, 1, job)
	}
	c.await(t, "the jobs of the other replica, while one is dead", func() bool { return complete(spared.latest(t)) == len(others) })

	hit.start(t)
	c.await(t, "the jobs of the killed replica", func() bool { return complete(hit.latest(t)) == len(mine) })
	require.Equal(t, idsOf(mine), idsOf(hit.latest(t)), "another verdict on a fault that was known before the crash")
	require.Equal(t, idsOf(others), idsOf(spared.latest(t)))

	for rank, a := range c.agents { // what they held for that long comes in the end
		a.died = time.Now().Add(-10 * time.Minute)
		a.die(t, rank, len(all))
	}
	c.await(t, "a job that died ten minutes ago", func() bool {
		return len(c.judged(t)) == len(all)+1 && complete(hit.latest(t))+complete(spared.latest(t)) == len(all)+1
	})
	hit.saidOnce(t, told)
	spared.saidOnce(t, 0)
}

// TestAReplicaThatLeavesTakesWhatItHeard: the other one judges what comes after.
func TestAReplicaThatLeavesTakesWhatItHeard(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.agents[0].die(t, 0, all...)
	c.await(t, "every job judged by its first death", func() bool { return len(c.judged(t)) == len(all) })
	// A message that is tried again goes to the replica that is there then.
	c.await(t, "the end of its delivery", func() bool { return c.agents[0].metric(t, "otelcol_exporter_sent_log_records") == float64(len(all)) })
	gone, stays := c.replicas[0], c.replicas[1]
	moved := gone.latest(t)
	gone.kill()
	c.resolve(t, stays)
	c.agents[1].die(t, 1, all...)
	c.await(t, "every job judged by the replica that stays", func() bool { return len(stays.latest(t)) == len(all) })
	for job, v := range stays.latest(t) {
		before, ofTheOther := moved[job]
		if !ofTheOther {
			require.Equal(t, "0", v.Culprit["rank"], "%s did not move", job)
			continue
		}
		require.NotEqual(t, before.ID, v.ID, "%s moved: its fault is told again", job)
		require.Equal(t, "1", v.Culprit["rank"], "%s moved: by what came after", job)
	}
}

// cluster is two agents and two gateway replicas, which the agents find by name.
type cluster struct {
	agents, replicas []*collector
	hosts            string
	port             int
}

// withoutTokens takes authentication out of a configuration: here is no API server that
// makes tokens. charts/cluster has one.
func (c *collector) withoutTokens(t *testing.T) {
	t.Helper()
	delete(at(t, c.config, "extensions").(map[string]any), "agent_auth")
	var left []any
	for _, one := range at(t, c.config, "service", "extensions").([]any) {
		if one != "agent_auth" {
			left = append(left, one)
		}
	}
	c.set(t, left, "service", "extensions")
	delete(at(t, c.config, "receivers", "otlp", "protocols", "grpc").(map[string]any), "auth")
	if balancer, ok := at(t, c.config, "exporters", "load_balancing").(map[string]any); ok {
		otlp := at(t, balancer, "protocol", "otlp").(map[string]any)
		delete(otlp, "auth")
		delete(otlp, "middlewares")
	}
}

const gatewayName = "test-tracecore-gateway.gpu.svc"

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	for _, one := range append(c.replicas, c.agents...) {
		one.start(t)
	}
	return c
}

// newCluster has started nobody yet.
func newCluster(t *testing.T, settings ...string) *cluster {
	t.Helper()
	hosttest.Require(t, "the agents get an /etc/hosts of their own")
	c := &cluster{hosts: filepath.Join(t.TempDir(), "hosts"), port: hosttest.FreePort(t)}
	args := append(withGateway("--set", "gateway.replicas=2,gateway.resolver=dns,gateway.events.enabled=false"), settings...)
	rendered := map[string]map[string]any{"agent": config(t, "agent", args...), "gateway": config(t, "gateway", args...)}
	for _, address := range []string{"127.0.0.2", "127.0.0.3"} {
		r := newCollector(t, rendered["gateway"])
		r.address = address
		r.withoutTokens(t)
		r.set(t, "agents", "receivers", "otlp", "senders")
		r.set(t, fmt.Sprintf("%s:%d", address, c.port), "receivers", "otlp", "protocols", "grpc", "endpoint")
		r.set(t, "json", "exporters", "terminal", "format")
		r.tell(t)
		c.replicas = append(c.replicas, r)
	}
	c.resolve(t, c.replicas...)
	for range 2 {
		a := newCollector(t, rendered["agent"])
		a.withoutTokens(t)
		a.address = fmt.Sprintf("127.0.0.1:%d", hosttest.FreePort(t))
		a.set(t, map[string]any{"http": map[string]any{"endpoint": a.address}}, "receivers", "otlp", "protocols")
		a.set(t, "agents", "receivers", "otlp", "senders")   // the test speaks for its probes
		for _, signal := range []string{"logs", "metrics"} { // what the probes see is not of interest
			a.set(t, []any{"otlp"}, "service", "pipelines", signal, "receivers")
		}
		a.tell(t)
		c.agents = append(c.agents, a)
	}
	for _, one := range append(c.agents, c.replicas...) { // who balances finds the replicas
		if at(t, one.config, "exporters", "load_balancing") != nil {
			one.set(t, fmt.Sprint(c.port), "exporters", "load_balancing", "resolver", "dns", "port")
			one.hosts = c.hosts
		}
	}
	return c
}

// resolve lets the gateway's name mean these replicas.
func (c *cluster) resolve(t *testing.T, replicas ...*collector) {
	t.Helper()
	text := "127.0.0.1 localhost\n"
	for _, r := range replicas {
		text += r.address + " " + gatewayName + "\n"
	}
	require.NoError(t, os.WriteFile(c.hosts, []byte(text), 0o600))
}

// judged are the jobs that any replica has a verdict on.
func (c *cluster) judged(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, r := range c.replicas {
		for job := range r.latest(t) {
			all[job] = true
		}
	}
	return all
}

func (c *cluster) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	began := time.Now()
	if !assertEventually(done) {
		var said strings.Builder
		for _, one := range append(c.agents, c.replicas...) {
			said.WriteString(one.stderr.String())
		}
		require.FailNow(t, "it never came: "+what, "%s", said.String())
	}
	t.Logf("%s: %v", what, time.Since(began).Round(time.Millisecond))
}

func assertEventually(done func() bool) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return false
}

// complete counts verdicts that rest on the deaths of both ranks.
func complete(verdicts map[string]verdict.Verdict) int {
	n := 0
	for _, v := range verdicts {
		if v.Confidence == verdict.Full && v.Culprit["rank"] == "0" {
			n++
		}
	}
	return n
}

func idsOf(verdicts map[string]verdict.Verdict) map[string]string {
	ids := map[string]string{}
	for job, v := range verdicts {
		ids[job] = v.ID
	}
	return ids
}

// collector is the real binary with one of the chart's configurations, which can
// be killed and started again on its state.
type collector struct {
	config         map[string]any
	file, hosts    string
	health         string
	address        string
	died           time.Time // when its node's ranks did: a record sent twice is the same
	padding        string    // on each record, so that a message is large
	env            []string
	tmpfs          string // its state folder, when that is to be a small disk
	metrics        int    // port
	stdout, stderr *output
	command        *exec.Cmd
}

// newCollector gives it a state folder and ports of its own.
func newCollector(t *testing.T, rendered map[string]any) *collector {
	t.Helper()
	text, err := yaml.Marshal(rendered)
	require.NoError(t, err)
	c := &collector{
		file:   filepath.Join(t.TempDir(), "config.yaml"),
		health: fmt.Sprintf("127.0.0.1:%d", hosttest.FreePort(t)), stdout: &output{}, stderr: &output{},
	}
	require.NoError(t, yaml.Unmarshal(text, &c.config)) // a copy
	state, extensions := t.TempDir(), []any{"health_check", "file_storage"}
	c.set(t, state, "extensions", "file_storage", "directory")
	c.set(t, c.health, "extensions", "health_check", "endpoint")
	if history, ok := at(t, c.config, "extensions").(map[string]any)["history"].(map[string]any); ok { // where verdicts are made
		history["directory"] = filepath.Join(state, "history")
		history["http"] = map[string]any{"endpoint": fmt.Sprintf("127.0.0.1:%d", hosttest.FreePort(t))}
		extensions = append(extensions, "history")
	}
	c.set(t, extensions, "service", "extensions")
	c.set(t, map[string]any{"level": "none"}, "service", "telemetry", "metrics")
	return c
}

// set changes one value of the chart's configuration.
func (c *collector) set(t *testing.T, value any, path ...any) {
	t.Helper()
	last := path[len(path)-1].(string)
	at(t, c.config, path[:len(path)-1]...).(map[string]any)[last] = value
}

// start returns when it is healthy.
func (c *collector) start(t *testing.T) {
	t.Helper()
	text, err := yaml.Marshal(c.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(c.file, text, 0o600))
	args := []string{tool(t, "bin/tracecore"), "--config", c.file}
	switch { // in a mount namespace of its own
	case c.hosts != "":
		args = append([]string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, c.hosts}, args...)
	case c.tmpfs != "":
		args = append([]string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs -o size=4m tmpfs "$0" && exec "$@"`, c.tmpfs}, args...)
	}
	c.command = exec.Command(args[0], args[1:]...)
	c.command.Stdout, c.command.Stderr = c.stdout, c.stderr
	c.command.Env = append(os.Environ(), c.env...)
	require.NoError(t, c.command.Start())
	t.Cleanup(c.kill)
	require.True(t, assertEventually(func() bool {
		response, err := http.Get("http://" + c.health)
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}), "not healthy: %s", c.stderr)
}

// kill ends it as a crash would.
func (c *collector) kill() {
	_ = c.command.Process.Kill()
	_ = c.command.Wait()
}

// die tells an agent, in one message, that a rank of its node has died in each of
// these jobs.
func (c *collector) die(t *testing.T, rank int, jobs ...int) {
	t.Helper()
	require.Equal(t, http.StatusOK, c.offer(t, rank, jobs...))
}

// offer returns what the agent answers.
func (c *collector) offer(t *testing.T, rank int, jobs ...int) int {
	t.Helper()
	records := plog.NewLogs()
	resource := records.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", fmt.Sprintf("node-%d", rank))
	if c.died.IsZero() {
		c.died = time.Now()
	}
	deaths := resource.ScopeLogs().AppendEmpty().LogRecords()
	for _, job := range jobs {
		record := deaths.AppendEmpty()
		record.SetEventName("process.exit")
		record.SetTimestamp(pcommon.NewTimestampFromTime(c.died))
		require.NoError(t, record.Attributes().FromRaw(map[string]any{
			"process.pid": 100 + job, "process.executable.name": "python", "process.exit.signal": 6, "process.exit.signal_name": "SIGABRT", "process.exit.code": 0,
			"gen_ai.training.job_id": fmt.Sprintf("job-%d", job), "gen_ai.training.rank": rank, "gen_ai.training.world_size": 2,
			"padding": c.padding, "tracecore.trust": "proven",
		}))
	}
	body, err := plogotlp.NewExportRequestFromLogs(records).MarshalProto()
	require.NoError(t, err)
	response, err := http.Post("http://"+c.address+"/v1/logs", "application/x-protobuf", bytes.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

// verdicts are all that it has printed, every revision.
func (c *collector) verdicts(t *testing.T) []verdict.Verdict {
	t.Helper()
	var all []verdict.Verdict
	for line := range strings.Lines(c.stdout.String()) {
		if !strings.HasSuffix(line, "\n") {
			break // the rest of it is on its way
		}
		v, err := verdict.FromJSON([]byte(line))
		require.NoError(t, err, line)
		all = append(all, v)
	}
	return all
}

// latest are the newest revisions by job.
func (c *collector) latest(t *testing.T) map[string]verdict.Verdict {
	t.Helper()
	all := map[string]verdict.Verdict{}
	for _, v := range c.verdicts(t) {
		all[v.Culprit["job"]] = v
	}
	return all
}

// saidOnce requires that no revision of a verdict was printed twice, except that what was
// among the first lines, before a crash, may come once more after it, word for word: a crash
// between a delivery and the note of it leaves the delivery to be done (docs/backend.md).
func (c *collector) saidOnce(t *testing.T, beforeTheCrash int) {
	t.Helper()
	first, said := map[string]verdict.Verdict{}, map[string]verdict.Verdict{}
	for i, v := range c.verdicts(t) {
		key := fmt.Sprint(v.ID, " ", v.Revision)
		require.NotContains(t, said, key, "twice: %s", v.Headline)
		if i < beforeTheCrash {
			require.NotContains(t, first, key, "twice: %s", v.Headline)
			first[key] = v
			continue
		}
		if told, ok := first[key]; ok {
			require.Equal(t, told, v, "one revision, told in two ways")
		}
		said[key] = v
	}
}

// output is what a process has written so far.
type output struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.text.String()
}
