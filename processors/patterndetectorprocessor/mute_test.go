package patterndetectorprocessor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// muteFor mutes one thing of the test rule for a time.
func muteFor(thing string, wait time.Duration) rigOption {
	return withConfig(func(c *Config) {
		c.Mutes = []Mute{{Pattern: "test_pair", Culprit: map[string]any{"thing": thing}, Until: began.Add(wait).Format(time.RFC3339), Reason: "it is repaired"}}
	})
}

func (r *rig) fault(t *testing.T, thing string) {
	r.send(t, "test.first", thing)
	r.send(t, "test.second", thing)
}

func TestAMutedVerdictIsToldWhenTheMuteEnds(t *testing.T) {
	dir := t.TempDir()
	before := newRig(t, withStorage(dir), muteFor("gpu-1", 10*time.Minute)).start(t)
	before.fault(t, "gpu-1")
	before.fault(t, "gpu-2")
	require.Equal(t, []string{"gpu-2"}, before.next.ids(), "only what is named is muted")
	counted, err := before.telemetry.GetMetric("otelcol_processor_patterndetector_verdicts_muted")
	require.NoError(t, err)
	require.NotNil(t, counted)
	require.Equal(t, 2, before.stats().OpenVerdicts)
	before.clock.pass(time.Minute)

	after := newRig(t, withStorage(crashed(t, dir)), muteFor("gpu-1", 10*time.Minute)).start(t)
	after.clock.pass(9 * time.Minute)
	require.Empty(t, after.next.ids())
	after.clock.pass(2 * time.Minute)
	after.delivered(t)
	require.Equal(t, []string{"gpu-1"}, after.next.ids())
	require.Equal(t, verdict.Open, after.next.verdicts[0].Status)
	after.clock.pass(time.Minute)
	after.delivered(t)
	require.Len(t, after.next.ids(), 1, "once")
}

// A mute that is taken out of the configuration ends, too.
func TestAMuteThatIsGoneHoldsNothing(t *testing.T) {
	dir := t.TempDir()
	before := newRig(t, withStorage(dir), muteFor("gpu-1", time.Hour)).start(t)
	before.fault(t, "gpu-1")
	before.stop(t)
	after := newRig(t, withStorage(dir)).start(t)
	after.clock.pass(time.Second)
	after.delivered(t)
	require.Equal(t, []string{"gpu-1"}, after.next.ids())
}

// Who was told that a fault is open hears that it is over, muted or not; of a fault that
// nobody heard of nobody hears the end.
func TestTheEndOfAMutedVerdict(t *testing.T) {
	d := newRig(t, muteFor("gpu-1", time.Hour)).detector
	told := verdict.Verdict{ID: "a", Pattern: "test_pair", Culprit: map[string]string{"thing": "gpu-1"}, Revision: 2, Status: verdict.Open}
	fresh := told
	fresh.ID, fresh.Revision = "b", 1
	require.True(t, d.hold(context.Background(), told))
	require.True(t, d.hold(context.Background(), fresh))
	told.Status, fresh.Status = verdict.Resolved, verdict.Resolved
	told.Revision, fresh.Revision = 3, 2
	require.False(t, d.hold(context.Background(), told))
	require.True(t, d.hold(context.Background(), fresh))
	require.Empty(t, d.muted.items)
}

func TestAnEndedMuteIsSaidAndMutesNothing(t *testing.T) {
	r := newRig(t, muteFor("gpu-1", -time.Minute)).start(t)
	r.fault(t, "gpu-1")
	require.Equal(t, []string{"gpu-1"}, r.next.ids())
	require.Equal(t, 1, r.said.FilterMessageSnippet("a mute has ended").Len())
}

func TestAMuteThatDoesNotFitIsAnError(t *testing.T) {
	good := map[string]any{"pattern": "gpu_lost", "culprit": map[string]any{"host": "a"}, "until": "2026-12-01T08:00:00Z", "reason": "x"}
	for name, tc := range map[string]struct {
		key   string
		value any
		want  string
	}{
		"unknown pattern": {"pattern", "gpu_lots", `mutes::0: pattern: there is no pattern "gpu_lots": did you mean "gpu_lost"?`},
		"no pattern":      {"pattern", "", "pattern is missing"},
		"unknown field":   {"culprit", map[string]any{"hots": "a"}, `mutes::0: culprit::hots: verdicts of gpu_lost name no "hots": did you mean "host"?`},
		"several values":  {"culprit", map[string]any{"host": []any{"a", "b"}}, "culprit::host: this is no single value"},
		"no end":          {"until", "", "mutes::0: until is missing: a mute has an end, write until: 2026-12-01T08:00:00Z"},
		"no time":         {"until", "tomorrow", `until: "tomorrow" is no time`},
		"a number":        {"until", 7, `until: "7" is no time`},
		"no reason":       {"reason", "", "reason is missing"},
		"a blank reason":  {"reason", " \t", "reason is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := map[string]any{}
			for key, value := range good {
				bad[key] = value
			}
			bad[tc.key] = tc.value
			config := createDefaultConfig()
			require.NoError(t, confmap.NewFromStringMap(map[string]any{"mutes": []any{bad}}).Unmarshal(config))
			require.ErrorContains(t, config.(*Config).Validate(), tc.want)
		})
	}
}

// What is said of a mute is said of one without a mistake: a mistaken one keeps nothing back.
func TestAMistakenMuteIsNoReasonToTakeOutAnother(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	good := Mute{Pattern: "gpu_lost", Culprit: map[string]any{"host": "a"}, Until: "2030-01-02T00:00:00Z", Reason: "board"}
	for name, other := range map[string]Mute{
		"no reason":     {Pattern: "gpu_lost", Until: "2031-01-01T00:00:00Z"},
		"unknown field": {Pattern: "gpu_lost", Culprit: map[string]any{"hots": "a"}, Until: "2031-01-01T00:00:00Z", Reason: "x"},
		"no end":        {Pattern: "gpu_lost", Culprit: map[string]any{"host": "a"}, Reason: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			config := createDefaultConfig().(*Config)
			config.Mutes = []Mute{other, good}
			require.Error(t, config.Validate())
			require.Empty(t, config.WithoutEffect(now))
		})
	}
	config := createDefaultConfig().(*Config)
	config.Mutes = []Mute{{Pattern: "gpu_lost", Until: "2030-01-02T00:00:00Z", Reason: "x"}, good}
	require.Equal(t, []string{"mutes::1: mutes::0 keeps the same back, until 2030-01-02T00:00:00Z: take this one out"}, config.WithoutEffect(now))
	require.Equal(t, []string{
		"mutes::0: it ended at 2030-01-02T00:00:00Z and mutes nothing: take it out",
		"mutes::1: it ended at 2030-01-02T00:00:00Z and mutes nothing: take it out",
	}, config.WithoutEffect(now.AddDate(0, 0, 1)), "at its end it is over")
}

// Other parameters after a restart: the open verdict goes on as the same.
func TestAnOpenVerdictSurvivesAChangeOfParameters(t *testing.T) {
	dir := t.TempDir()
	before := newRig(t, withStorage(dir)).start(t)
	before.fault(t, "gpu-1")
	before.stop(t)
	after := newRig(t, withStorage(dir), withConfig(func(c *Config) {
		c.Patterns = map[string]map[string]any{"test_pair": {"window": "2m"}}
	})).start(t)
	require.Equal(t, 1, after.stats().OpenVerdicts)
	require.Zero(t, after.stats().NotRestored)
	require.NoError(t, after.metrics.ConsumeMetrics(context.Background(), levels(after.clock.now(), "gpu-1")))
	after.clock.pass(time.Minute)
	after.delivered(t)
	require.Equal(t, before.next.verdicts[0].ID, after.next.verdicts[0].ID)
	require.Equal(t, 2, after.next.verdicts[0].Revision)
}

// Without quotes YAML makes a time of until and a number of a rank: both are as if quoted.
func TestAMuteIsReadAsThePagesWriteIt(t *testing.T) {
	for name, quote := range map[string]string{"as written": "", "quoted": `"`} {
		t.Run(name, func(t *testing.T) {
			read, err := confmap.NewRetrievedFromYAML([]byte(strings.ReplaceAll(`
mutes:
  - pattern: rank_exit
    culprit: {rank: '3'}
    until: '2026-12-01T08:00:00Z'
    reason: it is repaired`, "'", quote)))
			require.NoError(t, err)
			values, err := read.AsConf()
			require.NoError(t, err)
			config := createDefaultConfig().(*Config)
			require.NoError(t, values.Unmarshal(config))
			require.NoError(t, config.Validate())
			end := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
			v := verdict.Verdict{Pattern: "rank_exit", Culprit: map[string]string{"rank": "3"}}
			require.True(t, config.Mutes[0].covers(&v, end.Add(-time.Second)))
			require.False(t, config.Mutes[0].covers(&v, end))
			v.Culprit["rank"] = "4"
			require.False(t, config.Mutes[0].covers(&v, end.Add(-time.Second)))
		})
	}
}

// TestHostileMutesMuteNothing: whatever a configuration says, it is an error, or mutes
// nothing that it does not name.
func TestHostileMutesMuteNothing(t *testing.T) {
	deep := strings.Repeat("[", 1_000) + strings.Repeat("]", 1_000)
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for name := 'b'; name <= 'k'; name++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", name, name, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", name-1), 10), ", "))
	}
	for name, text := range map[string]string{
		"a culprit 1,000 deep":    "mutes: [{pattern: rank_exit, culprit: {rank: " + deep + "}, until: 2026-12-01T08:00:00Z, reason: x}]",
		"an end 1,000 deep":       "mutes: [{pattern: rank_exit, until: " + deep + ", reason: x}]",
		"an end that is a map":    "mutes: [{pattern: rank_exit, until: {a: b}, reason: x}]",
		"a bomb of aliases":       bomb + "mutes: [{pattern: rank_exit, culprit: {rank: *k}, until: 2026-12-01T08:00:00Z, reason: x}]",
		"no list":                 "mutes: rank_exit",
		"a list of nothing":       "mutes: [null, {}, [], 7]",
		"a key it does not know":  "mutes: [{pattern: rank_exit, until: 2026-12-01T08:00:00Z, reason: x, patterns: all}]",
		"a pattern of wildcards":  "mutes: [{pattern: '*', until: 2026-12-01T08:00:00Z, reason: x}]",
		"a value of wildcards":    "mutes: [{pattern: rank_exit, culprit: {rank: '*'}, until: 2026-12-01T08:00:00Z, reason: x}]",
		"a value that is empty":   "mutes: [{pattern: rank_exit, culprit: {rank: ''}, until: 2026-12-01T08:00:00Z, reason: x}]",
		"a value that is no rank": "mutes: [{pattern: rank_exit, culprit: {rank: .nan}, until: 2026-12-01T08:00:00Z, reason: x}]",
		"another's field":         "mutes: [{pattern: rank_exit, culprit: {pattern: rank_exit}, until: 2026-12-01T08:00:00Z, reason: x}]",
		"an end in the year 0":    "mutes: [{pattern: rank_exit, until: 0000-01-01T00:00:00Z, reason: x}]",
		"an end beyond all years": "mutes: [{pattern: rank_exit, until: 99999-01-01T00:00:00Z, reason: x}]",
		"a megabyte":              "mutes: [{pattern: " + strings.Repeat("x", 1<<20) + ", until: 2026-12-01T08:00:00Z, reason: x}]",
	} {
		t.Run(name, func(t *testing.T) {
			read, err := confmap.NewRetrievedFromYAML([]byte(text))
			if err != nil {
				return
			}
			values, err := read.AsConf()
			if err != nil {
				return
			}
			config := createDefaultConfig().(*Config)
			if only := confmap.NewFromStringMap(map[string]any{"mutes": values.Get("mutes")}); only.Unmarshal(config) != nil || config.Validate() != nil {
				return // as it should be
			}
			now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
			for _, v := range []verdict.Verdict{
				{Pattern: "rank_exit", Culprit: map[string]string{"rank": "3", "pattern": "rank_exit"}}, {Pattern: "gpu_lost", Culprit: map[string]string{"gpu": "a"}},
			} {
				for i := range config.Mutes {
					require.False(t, config.Mutes[i].covers(&v, now), "%s", v.Pattern)
				}
			}
		})
	}
}

// A job dies again and again, and its loop is muted. The death that makes it one is a part of it from its first revision: nobody reads of
// it as of a fault of its own, for which there is no mute.
func TestADeathOfAMutedLoopIsNoFaultOfItsOwn(t *testing.T) {
	r := newRig(t, withConfig(func(c *Config) {
		c.Mutes = []Mute{{Pattern: "crash_loop", Culprit: map[string]any{"job": "llm"}, Until: began.Add(time.Hour).Format(time.RFC3339), Reason: "we know"}}
	})).start(t)
	tell := func(n int64, event string, at time.Time) {
		ld := records(at, event, "none")
		resource := ld.ResourceLogs().At(0)
		require.NoError(t, resource.ScopeLogs().At(0).LogRecords().At(0).Attributes().FromRaw(map[string]any{
			"process.pid": 100 * n, "gen_ai.training.rank": 3, "gen_ai.training.rank_pid": 100 * n, "gen_ai.training.world_size": 1, "gen_ai.training.job_id": "llm",
			"gen_ai.training.rank_start_unix_nano": began.Add(time.Duration(n-1)*time.Minute + time.Second/2).UnixNano(), "tracecore.trust": "proven",
			"process.exit.code": 0, "process.exit.signal": 11, "process.exit.signal_name": "SIGSEGV",
		}))
		require.NoError(t, r.logs.ConsumeLogs(context.Background(), ld))
	}
	tell(1, "process.start", began.Add(time.Second))
	for n := int64(1); n <= 3; n++ {
		r.clock.pass(time.Minute)
		tell(n+1, "process.start", r.clock.now().Add(time.Second)) // it is known before the end of the last one is read
		tell(n, "process.exit", r.clock.now())
	}
	var told []string
	for _, v := range r.next.verdicts {
		told = append(told, strings.Join([]string{v.Pattern, string(v.Role), string(v.Status)}, " "))
	}
	require.Equal(t, []string{
		"rank_exit root_cause open", "rank_exit root_cause resolved", "rank_exit root_cause open", "rank_exit root_cause resolved",
		"rank_exit symptom resolved", "rank_exit symptom resolved", "rank_exit symptom resolved",
	}, told)
}
