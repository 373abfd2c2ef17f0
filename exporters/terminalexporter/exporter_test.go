package terminalexporter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tracecoreai/tracecore/exporters/terminalexporter/internal/metadata"
	"github.com/tracecoreai/tracecore/exporters/terminalexporter/internal/metadatatest"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var onset = time.Date(2026, 11, 20, 14, 2, 11, 531_000_000, time.UTC)

func lost(incident string) verdict.Verdict {
	return verdict.Verdict{
		ID: "gpu_lost-" + incident, IncidentID: incident, PatternID: 18, Pattern: "gpu_lost",
		Role: verdict.RootCause, Status: verdict.Open, Confidence: verdict.Full, Severity: verdict.Critical, Revision: 1,
		Onset: onset, Updated: onset, Headline: "GPU lost in " + incident, Remediation: "Restart the machine.",
		Culprit: map[string]string{"host": "node-17"},
	}
}

func killed(incident string, rank int) verdict.Verdict {
	v := lost(incident)
	v.ID, v.Role, v.RootCause = fmt.Sprintf("rank_exit-%s-%d", incident, rank), verdict.Symptom, v.ID
	v.Headline = fmt.Sprintf("rank %d was killed", rank)
	v.Onset = onset.Add(time.Duration(rank+1) * time.Millisecond)
	v.Evidence = []verdict.Evidence{{Name: "exit", Time: onset, Count: 1, Source: "process.exit", Shows: strings.Repeat("x", 500)}}
	return v
}

func records(verdicts ...verdict.Verdict) plog.Logs {
	ld := plog.NewLogs()
	list := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	list.AppendEmpty().Body().SetStr("an ordinary line")
	for _, v := range verdicts {
		verdict.ToRecord(v, list.AppendEmpty())
	}
	return ld
}

type bench struct {
	later time.Duration
	*terminal
	out       *screen
	telemetry *componenttest.Telemetry
	logs      *observer.ObservedLogs
}

// screen is a writer that can refuse.
type screen struct {
	bytes.Buffer
	refuse error
	writes int
}

func (s *screen) Write(p []byte) (int, error) {
	if s.refuse != nil {
		return 0, s.refuse
	}
	s.writes++
	return s.Buffer.Write(p)
}

func newBench(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	config := createDefaultConfig().(*Config)
	if change != nil {
		change(config)
	}
	b := &bench{out: &screen{}, telemetry: componenttest.NewTelemetry()}
	set := metadatatest.NewSettings(b.telemetry)
	var core, logs = observer.New(zap.InfoLevel)
	set.Logger, b.logs = zap.New(core), logs
	var err error
	b.terminal, err = newTerminal(config, set, b.out, func() time.Time { return onset.Add(4*time.Second + b.later) })
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, b.shutdown(context.Background()))
		require.NoError(t, b.telemetry.Shutdown(context.Background()))
	})
	return b
}

func (b *bench) send(t *testing.T, verdicts ...verdict.Verdict) string {
	t.Helper()
	b.out.Reset()
	require.NoError(t, b.consume(context.Background(), records(verdicts...)))
	return b.out.String()
}

func (b *bench) requireVerdicts(t *testing.T, outcomes map[string]int64) {
	t.Helper()
	var points []metricdata.DataPoint[int64]
	for outcome, n := range outcomes {
		points = append(points, metricdata.DataPoint[int64]{Attributes: attribute.NewSet(attribute.String("outcome", outcome)), Value: n})
	}
	metadatatest.AssertEqualExporterTerminalVerdicts(t, b.telemetry, points, metricdatatest.IgnoreTimestamp())
}

func TestIncidentIsPrintedOnceThenOnlyItsNews(t *testing.T) {
	b := newBench(t, nil)
	require.Empty(t, b.send(t), "records that are no verdicts")
	require.Zero(t, b.out.writes)

	first := b.send(t, lost("inc-1"))
	require.Contains(t, first, "CRITICAL  GPU lost in inc-1\n")
	require.Contains(t, first, "  do        Restart the machine.\n")

	require.Empty(t, b.send(t, lost("inc-1")), "the same revision delivered again")

	news := b.send(t, killed("inc-1", 3))
	require.Contains(t, news, "UPDATE  GPU lost in inc-1\n  led to    14:02:11.535  rank 3 was killed\n")
	require.NotContains(t, news, "Restart the machine.")

	cleared := lost("inc-1")
	end := onset.Add(time.Minute)
	cleared.Revision, cleared.Status, cleared.Resolved = 2, verdict.Resolved, &end
	require.Contains(t, b.send(t, cleared), "CLEARED  GPU lost in inc-1\n")
	b.requireVerdicts(t, map[string]int64{"printed": 3, "unchanged": 1})
}

func TestCauseFoundLaterIsPrintedWhole(t *testing.T) {
	b := newBench(t, nil)
	alone := killed("inc-1", 3)
	alone.Role, alone.RootCause = verdict.RootCause, ""
	require.Contains(t, b.send(t, alone), "CRITICAL  rank 3 was killed\n")

	symptom := killed("inc-1", 3)
	symptom.Revision = 2
	found := b.send(t, symptom, lost("inc-1"))
	require.Contains(t, found, "CRITICAL  GPU lost in inc-1\n  note      this is the cause of what was reported before\n")
	require.Contains(t, found, "led to    14:02:11.535  rank 3 was killed\n")
}

func TestJSONIsOneVerdictALine(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Format = formatJSON })
	lines := strings.Split(strings.TrimSuffix(b.send(t, lost("inc-1"), killed("inc-1", 3)), "\n"), "\n")
	require.Len(t, lines, 2)
	v, err := verdict.FromJSON([]byte(lines[0]))
	require.NoError(t, err)
	require.Equal(t, "gpu_lost-inc-1", v.ID)
	require.True(t, json.Valid([]byte(lines[1])))
	require.Empty(t, b.send(t, lost("inc-1")), "a revision is written once")
}

func TestNothingIsLostOrRepeatedWhenTheTerminalRefuses(t *testing.T) {
	b := newBench(t, nil)
	b.out.refuse = errors.New("input/output error")
	for range 3 {
		require.Empty(t, b.send(t, lost("inc-1")), "and no other exporter waits for this one")
	}
	require.Equal(t, 1, b.logs.FilterFieldKey("error").Len(), "one line")
	require.Contains(t, b.logs.All()[0].ContextMap()["error"], "write verdicts to stdout: input/output error")

	b.out.refuse = nil
	b.later = pause
	require.Contains(t, b.send(t), "CRITICAL  GPU lost", "with whatever comes next")
	require.Empty(t, b.send(t, lost("inc-1")))
	b.requireVerdicts(t, map[string]int64{"printed": 1, "unchanged": 3})
}

func TestWhatWaitsForTheTerminalIsBounded(t *testing.T) {
	b := newBench(t, nil)
	b.out.refuse = errors.New("no space left on device")
	for i := range mostWaiting + 50 {
		b.send(t, lost(fmt.Sprintf("inc-%d", i)))
	}
	for range 2 * mostWaiting { // what is told again takes no room
		b.send(t, lost("inc-50"))
	}
	b.out.refuse = nil
	require.Empty(t, b.send(t), "it is left alone for a while")
	b.later = pause
	printed := b.send(t)
	require.NotContains(t, printed, "inc-49\n", "the oldest give way")
	require.Contains(t, printed, fmt.Sprintf("inc-%d\n", mostWaiting+49))
	require.Contains(t, printed, "inc-51\n")
	b.requireVerdicts(t, map[string]int64{"printed": mostWaiting, "lost": 50, "unchanged": 2 * mostWaiting})
}

func TestInvalidVerdictsAreCountedAndLoggedOnce(t *testing.T) {
	b := newBench(t, nil)
	ld := records(lost("inc-1"))
	for range 3 {
		forged := ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().AppendEmpty()
		forged.SetEventName(verdict.EventName)
		forged.Attributes().PutStr(verdict.AttrJSON, `{"verdict_id":"\u001b[2J"}`)
	}
	require.NoError(t, b.consume(context.Background(), ld))
	require.Contains(t, b.out.String(), "GPU lost in inc-1", "its neighbours are printed")
	require.Equal(t, 1, b.logs.Len())
	b.requireVerdicts(t, map[string]int64{"printed": 1, "invalid": 3})
}

func TestMemoryIsBounded(t *testing.T) {
	b := newBench(t, nil)
	b.shown = newMemory(10, 50)
	for i := range 1000 {
		b.send(t, lost(fmt.Sprintf("inc-%d", i)), killed(fmt.Sprintf("inc-%d", i), 0))
	}
	require.Len(t, b.shown.known, 10)
	require.Equal(t, 20, b.shown.held)
	metadatatest.AssertEqualExporterTerminalIncidentsEvicted(t, b.telemetry, []metricdata.DataPoint[int64]{{Value: 990}}, metricdatatest.IgnoreTimestamp())

	for rank := range 1000 {
		b.send(t, killed("inc-999", rank))
	}
	require.LessOrEqual(t, b.shown.held, 50)
	require.Empty(t, b.send(t, lost("inc-999")), "the busy incident itself stays known")
	require.Nil(t, b.shown.known["inc-999"].incident[1].Evidence, "consequences are kept without their evidence")
}

func TestAJobThatDiesDoesNotFillTheScreen(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it has ten thousand verdicts")
	}
	b := newBench(t, nil)
	b.send(t, lost("inc-1"))
	lines := 0
	for rank := range 2000 {
		lines += strings.Count(b.send(t, killed("inc-1", rank)), "\n")
	}
	require.Less(t, lines, 100)
}

func TestConcurrentBatchesDoNotInterleave(t *testing.T) {
	b := newBench(t, nil)
	var senders sync.WaitGroup
	for i := range 20 {
		senders.Go(func() {
			_ = b.consume(context.Background(), records(lost(fmt.Sprintf("inc-%d", i))))
		})
	}
	senders.Wait()
	blocks := strings.Split(strings.TrimSuffix(b.out.String(), "\n\n"), "\n\n")
	require.Len(t, blocks, 20)
	for _, block := range blocks {
		require.Regexp(t, `^CRITICAL  GPU lost in (inc-\d+)\n(  .*\n)*  details .* inc-\d+$`, block)
	}
}

func TestColor(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	require.False(t, useColor(colorAuto, file), "a file is no terminal")
	require.False(t, useColor(colorAuto, &bytes.Buffer{}))
	require.True(t, useColor(colorAlways, file))
	require.False(t, useColor(colorNever, os.Stdout))

	b := newBench(t, func(c *Config) { c.Color = colorAlways })
	require.Contains(t, b.send(t, lost("inc-1")), "\x1b[1;31mCRITICAL\x1b[0m")
}

func TestConfig(t *testing.T) {
	all, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	for _, c := range []struct {
		name    string
		want    *Config
		problem string
	}{
		{name: "", want: &Config{Stream: "stdout", Color: "auto", Format: "text"}},
		{name: "all", want: &Config{Stream: "stderr", Color: "never", Format: "json"}},
		{name: "unknown_stream", problem: `stream is "syslog": set it to one of ["stdout" "stderr"]`},
		{name: "unknown_color", problem: `color is "yes"`},
		{name: "unknown_format", problem: `format is "xml"`},
		{name: "unknown_option", problem: "colour"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub, err := all.Sub(component.NewIDWithName(metadata.Type, c.name).String())
			require.NoError(t, err)
			config := createDefaultConfig()
			err = sub.Unmarshal(config)
			if err == nil {
				err = confmap.Validate(config)
			}
			if c.problem != "" {
				require.ErrorContains(t, err, c.problem)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, config)
		})
	}
}

// What waits is printed at the end, if it can be; what cannot is counted.
func TestWhatWaitsIsTriedAtShutdown(t *testing.T) {
	for name, refuse := range map[string]error{"the stream takes it": nil, "it does not": errors.New("no space left on device")} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.out.refuse = errors.New("no space left on device")
			b.send(t, lost("inc-1"))
			b.out.refuse = refuse
			require.NoError(t, b.terminal.shutdown(t.Context()))
			require.Equal(t, refuse == nil, strings.Contains(b.out.String(), "inc-1"))
			if refuse != nil {
				b.requireVerdicts(t, map[string]int64{"lost": 1})
			}
		})
	}
}

func TestLifecycle(t *testing.T) {
	ctx := context.Background()
	exporter, err := NewFactory().CreateLogs(ctx, exportertest.NewNopSettings(metadata.Type), &Config{Stream: "stderr", Color: "never", Format: "text"})
	require.NoError(t, err)
	require.NoError(t, exporter.Shutdown(ctx), "before Start")
	require.NoError(t, exporter.Shutdown(ctx), "twice")

	exporter, err = NewFactory().CreateLogs(ctx, exportertest.NewNopSettings(metadata.Type), createDefaultConfig())
	require.NoError(t, err)
	require.NoError(t, exporter.Start(ctx, componenttest.NewNopHost()))
	require.NoError(t, exporter.ConsumeLogs(ctx, records()))
	require.NoError(t, exporter.Shutdown(ctx))
	require.NoError(t, exporter.Shutdown(ctx), "twice")
}

// A run that ended is a line, where it was seen from: not at the gateway that it passes.
func TestARunThatEndedIsALine(t *testing.T) {
	end := onset.Add(time.Hour)
	run := history.Run{ID: "r1", Job: "llm", Began: onset, Updated: end, Ended: &end, Outcome: history.RunSucceeded, Ranks: "0-7", RanksCount: 8, EndedRanks: "0-7", EndedCount: 8, Hosts: []string{"node-17"}}
	run.Summary = history.Summarize(&run, nil, 0, nil)
	logs := func(host string) plog.Logs {
		ld := plog.NewLogs()
		resource := ld.ResourceLogs().AppendEmpty()
		resource.Resource().Attributes().PutStr("host.name", host)
		records := resource.ScopeLogs().AppendEmpty().LogRecords()
		history.ToRecord(&run, records.AppendEmpty())
		records.AppendEmpty().SetEventName(history.SummaryEvent) // of a stranger
		return ld
	}
	b := newBench(t, nil)
	b.hostname = "node-17"
	require.NoError(t, b.consume(t.Context(), logs("node-18")))
	require.Empty(t, b.out.String())
	require.NoError(t, b.consume(t.Context(), logs("node-17")))
	require.Equal(t, "RUN ENDED  Job llm succeeded after 1 h 0 min; no stall was seen. Seen: ranks 0-7 on node-17\n\n", b.out.String())
	b = newBench(t, func(c *Config) { c.Format = formatJSON })
	b.hostname = "node-17"
	require.NoError(t, b.consume(t.Context(), logs("node-17")))
	require.Empty(t, b.out.String(), "a line of JSON is a verdict")
}
