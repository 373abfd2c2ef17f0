package examples_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/thishost"
	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor"
	"github.com/tracecoreai/tracecore/receivers/otlpreceiver"
)

const stepRule = `
id: 1001
name: stepped
summary: a rank broke
declares: {events: {test.hit: this test}}
key: [host, job]
culprit: [host, job, rank]
evidence: {hit: {logs: test.hit, shows: "hit"}}
full: hit
trust: {full: claimed}
severity: error
headline: "rank {rank}"
remedy: look
`

// training is a rank that makes one step, says where it is, and is stuck in the next until
// it may go on.
const training = `
import sys, training_step
with training_step.step(1):
    pass
with training_step.step(2):
    print(training_step.TRACE, flush=True)
    sys.stdin.readline()
training_step.waiting.join()
`

// TestTheExampleSendsSteps runs the example as training code does, against the receiver and
// the pattern detector of the distribution: a verdict gets the ids of the step that does not
// end.
func TestTheExampleSendsSteps(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed: ", err)
	}
	verdicts, began, ended := make(chan plog.LogRecord, 1), make(chan plog.LogRecord, 8), make(chan ptrace.Span, 8)
	logs, endpoint := detector(t, verdicts, began, ended)

	cmd := exec.CommandContext(t.Context(), python, "-c", training)
	cmd.Env = append(os.Environ(), "PYTHONPATH=.", "PYTHONDONTWRITEBYTECODE=1", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+endpoint, "RANK=3", "WORLD_SIZE=8", "JOB_ID=j",
		"TRACEPARENT=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	trace, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", strings.TrimSpace(trace), "the launcher's")
	first, second, span := take(t, began), take(t, began), take(t, ended)
	require.Equal(t, first.SpanID(), span.SpanID())
	require.Equal(t, "00f067aa0ba902b7", span.ParentSpanID().String())
	require.Greater(t, span.EndTimestamp(), span.StartTimestamp())
	require.Equal(t, map[string]any{"gen_ai.training.rank": int64(3), "gen_ai.training.job_id": "j", "gen_ai.training.step": int64(1)}, span.Attributes().AsRaw())

	require.NoError(t, logs.ConsumeLogs(t.Context(), hit(t)))
	v, err := verdict.FromRecord(take(t, verdicts))
	require.NoError(t, err)
	told := verdict.SpanOf(second.TraceID(), second.SpanID())
	told.Claimed = true // any process that may connect to the port could have told it
	require.Equal(t, told, v.Span)

	_, err = fmt.Fprintln(stdin)
	require.NoError(t, err)
	require.Equal(t, second.SpanID(), take(t, ended).SpanID())
	require.NoError(t, cmd.Wait())
}

func take[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case one := <-from:
		return one
	case <-time.After(hosttest.Patience):
		require.FailNow(t, "nothing came")
		panic("not reached")
	}
}

// hit is a record about rank 3 of this machine.
func hit(t *testing.T) plog.Logs {
	t.Helper()
	name, err := thishost.Name()
	require.NoError(t, err)
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("host.name", name)
	lr := rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	lr.SetEventName("test.hit")
	lr.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	lr.Attributes().PutInt("gen_ai.training.rank", 3)
	lr.Attributes().PutStr("gen_ai.training.job_id", "j")
	return ld
}

// detector starts a pattern detector behind an OTLP receiver, and returns its logs pipeline
// and where it listens.
func detector(t *testing.T, verdicts, began chan<- plog.LogRecord, ended chan<- ptrace.Span) (logs consumer.Logs, endpoint string) {
	t.Helper()
	host := componenttest.NewNopHost()
	rule := filepath.Join(t.TempDir(), "stepped.yaml")
	require.NoError(t, os.WriteFile(rule, []byte(stepRule), 0o600))
	factory := patterndetectorprocessor.NewFactory()
	config := factory.CreateDefaultConfig().(*patterndetectorprocessor.Config)
	config.Rules = []string{rule}
	settings := processortest.NewNopSettings(factory.Type())
	out, err := consumer.NewLogs(func(_ context.Context, ld plog.Logs) error {
		each(ld, verdict.EventName, verdicts)
		return nil
	})
	require.NoError(t, err)
	p, err := factory.CreateLogs(t.Context(), settings, config, out)
	require.NoError(t, err)
	tp, err := factory.CreateTraces(t.Context(), settings, config, consumertest.NewNop())
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context(), host))
	require.NoError(t, tp.Start(t.Context(), host))
	t.Cleanup(func() {
		require.NoError(t, p.Shutdown(context.Background()))
		require.NoError(t, tp.Shutdown(context.Background()))
	})
	return p, receiver(t, p, tp, began, ended)
}

// receiver hands on what comes, and says so after it was taken.
func receiver(t *testing.T, p consumer.Logs, tp consumer.Traces, began chan<- plog.LogRecord, ended chan<- ptrace.Span) (endpoint string) {
	t.Helper()
	toLogs, err := consumer.NewLogs(func(ctx context.Context, ld plog.Logs) error {
		defer each(ld, "training.step.begin", began)
		return p.ConsumeLogs(ctx, ld)
	})
	require.NoError(t, err)
	toTraces, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
		err := tp.ConsumeTraces(ctx, td)
		ended <- td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
		return err
	})
	require.NoError(t, err)
	endpoint = hosttest.FreeAddress(t)
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{"http": map[string]any{"endpoint": endpoint}}}).Unmarshal(config))
	settings := receivertest.NewNopSettings(factory.Type())
	l, err := factory.CreateLogs(t.Context(), settings, config, toLogs)
	require.NoError(t, err)
	tr, err := factory.CreateTraces(t.Context(), settings, config, toTraces)
	require.NoError(t, err)
	for _, one := range []interface {
		Start(context.Context, component.Host) error
		Shutdown(context.Context) error
	}{l, tr} {
		require.NoError(t, one.Start(t.Context(), componenttest.NewNopHost()))
		t.Cleanup(func() { require.NoError(t, one.Shutdown(context.Background())) })
	}
	return endpoint
}

// each says of every record of that name that it came.
func each(ld plog.Logs, event string, to chan<- plog.LogRecord) {
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			for _, lr := range sl.LogRecords().All() {
				if lr.EventName() == event {
					to <- lr
				}
			}
		}
	}
}

// TestTheExampleOutlivesWhoAnswersIt: a server that speaks another protocol, as that of gRPC does,
// costs the job neither its steps nor a word in its log, and what comes after it is sent.
func TestTheExampleOutlivesWhoAnswersIt(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed: ", err)
	}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { other.Close() })
	asked := make(chan struct{}, 8)
	go func() {
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write([]byte("\x00\x00\x12\x04no HTTP\r\n"))
			_ = c.Close()
			asked <- struct{}{}
		}
	}()
	cmd := exec.Command(python, "-c", "import training_step\nwith training_step.step(1):\n    pass\ntraining_step.waiting.join()")
	cmd.Env = append(os.Environ(), "PYTHONPATH=.", "PYTHONDONTWRITEBYTECODE=1", "RANK=", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+other.Addr().String())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
	for range 2 { // the begin and the end: one that is not taken does not end the thread
		<-asked
	}
}
