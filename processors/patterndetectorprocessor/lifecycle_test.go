package patterndetectorprocessor

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadata"
)

func TestLogsAndMetricsShareOneEngine(t *testing.T) {
	r := newRig(t).start(t)
	r.send(t, "test.first", "gpu-1")
	require.Empty(t, r.next.ids())
	require.NoError(t, r.metrics.ConsumeMetrics(context.Background(), levels(r.clock.now(), "gpu-1")))
	require.Equal(t, []string{"gpu-1"}, r.next.ids(), "in the same call")
}

func TestComponentsOfDifferentIDsShareNothing(t *testing.T) {
	r := newRig(t)
	set := processortest.NewNopSettings(metadata.Type)
	set.ID = component.NewIDWithName(metadata.Type, "other")
	other, err := r.factory.CreateLogs(context.Background(), set, r.detector.config, r.next)
	require.NoError(t, err)
	r.start(t)
	require.NoError(t, other.Start(context.Background(), r.host))
	r.send(t, "test.first", "gpu-1")
	require.NoError(t, other.ConsumeLogs(context.Background(), records(began, "test.second", "gpu-1")))
	require.Empty(t, r.next.ids())
	require.NoError(t, other.Shutdown(context.Background()))
}

func TestTwoLogsPipelinesAreRefused(t *testing.T) {
	r := newRig(t)
	_, err := r.factory.CreateLogs(context.Background(), processortest.NewNopSettings(metadata.Type), r.detector.config, r.next)
	require.ErrorContains(t, err, "patterndetector is in two logs pipelines")
	require.ErrorContains(t, err, "forward connector")
	r.stop(t)
}

func TestMetricsAloneCannotStart(t *testing.T) {
	ctx := context.Background()
	factory := NewFactory()
	alone, err := factory.CreateMetrics(ctx, processortest.NewNopSettings(metadata.Type), createDefaultConfig(), consumertest.NewNop())
	require.NoError(t, err)
	require.ErrorContains(t, alone.Start(ctx, componenttest.NewNopHost()), "name it in a logs pipeline too")
	require.NoError(t, alone.Shutdown(ctx))
}

func TestShutdownBeforeStartAndTwice(t *testing.T) {
	r := newRig(t)
	r.stop(t)
	r.stop(t)

	r = newRig(t).start(t)
	r.stop(t)
	r.stop(t)
}

func TestADetectorCanBeMadeAgainAfterTheLastShutdown(t *testing.T) {
	ctx := context.Background()
	r := newRig(t).start(t)
	r.stop(t)
	again, err := r.factory.CreateLogs(ctx, processortest.NewNopSettings(metadata.Type), r.detector.config, r.next)
	require.NoError(t, err)
	require.NotSame(t, r.detector, again.(*logsProcessor).detector)
	require.NoError(t, again.Start(ctx, r.host))
	require.NoError(t, again.Shutdown(ctx))
}

func TestVerdictsWaitForTheLogsPipelineToStart(t *testing.T) {
	ctx := context.Background()
	r := newRig(t)
	require.NoError(t, r.metrics.Start(ctx, r.host))
	first := records(r.clock.now(), "test.first", "gpu-1")
	r.detector.logs(ctx, first)
	require.NoError(t, r.metrics.ConsumeMetrics(ctx, levels(r.clock.now(), "gpu-1")))
	require.Empty(t, r.next.ids(), "the next consumer of logs is not up yet")

	require.NoError(t, r.logs.Start(ctx, r.host))
	r.clock.pass(time.Second)
	require.Equal(t, []string{"gpu-1"}, r.next.ids())
	r.stop(t)
}

// TestShutdownVerifier runs the collector's own check on the logs instance; the
// metrics instance cannot start alone.
func TestShutdownVerifier(t *testing.T) {
	ours := NewFactory()
	logsOnly := processor.NewFactory(metadata.Type, createDefaultConfig, processor.WithLogs(ours.CreateLogs, metadata.LogsStability))
	processortest.VerifyShutdown(t, logsOnly, createDefaultConfig())
}

func TestStorageThatIsNotThere(t *testing.T) {
	r := newRig(t, withStorage(""))
	err := r.logs.Start(context.Background(), r.host)
	require.ErrorContains(t, err, `storage "file_storage/patterns" is not there: define it under extensions and name it in service::extensions`)
	r.stop(t)
}

func TestStorageOfTheWrongKind(t *testing.T) {
	r := newRig(t, withExtension(notStorage{}))
	require.ErrorContains(t, r.logs.Start(context.Background(), r.host), "is not a storage extension")
	r.stop(t)
}

type notStorage struct {
	component.StartFunc
	component.ShutdownFunc
}

// What is switched off is gone, what is tuned has its value.
func TestPatternsAreTuned(t *testing.T) {
	config := createDefaultConfig().(*Config)
	config.Patterns = map[string]map[string]any{"straggler": {"enabled": false}, "nccl_socket_stall": {"settle": "2s"}, "pcie_degradation": {"ratio": 0.7}}
	rules, err := config.LoadRules()
	require.NoError(t, err)
	for _, r := range rules {
		require.NotEqual(t, "straggler", r.Name)
		if r.Name == "nccl_socket_stall" {
			require.Equal(t, int64(2*time.Second), r.Parameters.Duration("settle"))
		}
		if r.Name == "pcie_degradation" {
			require.Equal(t, 0.7, r.Parameters.Number("ratio"))
		}
	}
	config.Patterns = map[string]map[string]any{"straggler": {"steps": 0}}
	require.ErrorContains(t, config.Validate(), "patterns::straggler::steps: 0 is out of range: write a value from 2 to 1000 (default 5, straggler/pattern.yaml:")
}

func TestConfig(t *testing.T) {
	all, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	for _, c := range []struct {
		name     string
		want     *Config
		problems []string
	}{
		{name: "", want: createDefaultConfig().(*Config)},
		{name: "all", want: &Config{
			Rules: []string{"testdata/rules"}, Storage: &storageID, History: &historyID,
			Lateness: 30 * time.Second, MaxDelay: time.Hour, MaxAhead: 5 * time.Second,
			Limits: Limits{Waiting: 100, Verdicts: 200, Recent: 300, Series: 400, Steps: 500}, OutboxSize: 50,
			Steps: Steps{Spans: []string{"iteration"}, Begin: "iteration.begin", Rank: []string{"rank"}, Job: []string{"job"}},
		}},
		{name: "zero", problems: []string{"lateness must be greater than zero", "limits::series must be", "outbox_size must be"}},
		{name: "unknown", problems: []string{"latenes"}},
		{name: "missing_rules", problems: []string{"testdata/none.yaml"}},
		{name: "broken_rules", problems: []string{"testdata/broken/typo.yaml:3", "sumary"}},
		{name: "taken", problems: []string{"testdata/taken/pair.yaml", "the name test_pair is taken", "the id 18 is taken"}},
		{name: "badly_tuned", problems: []string{"patterns::nccl_socket_stall::enabled: \"no\" is neither true nor false"}},
		{name: "no_such_pattern", problems: []string{`patterns::stragler: there is no pattern of that name: did you mean "straggler"?`}},
		{name: "unknown_names", problems: []string{`testdata/unknown/pattern.yaml:21:11: no event "storage.not_respondin" is known: did you mean "storage.not_responding"?`, `testdata/unknown/pattern.yaml:22:24: no attribute "nccl.rank.stat" is known: did you mean "nccl.rank.state"?`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub, err := all.Sub(component.NewIDWithName(metadata.Type, c.name).String())
			require.NoError(t, err)
			config := createDefaultConfig()
			err = sub.Unmarshal(config)
			if err == nil {
				err = confmap.Validate(config)
			}
			if len(c.problems) == 0 {
				require.NoError(t, err)
				require.Equal(t, c.want, config)
			}
			for _, problem := range c.problems {
				require.ErrorContains(t, err, problem)
			}
		})
	}
}
