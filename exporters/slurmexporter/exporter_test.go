package slurmexporter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/exporters/slurmexporter/internal/metadata"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// store is a storage that outlives an exporter.
type store map[string][]byte

func (s store) Get(_ context.Context, key string) ([]byte, error) { return s[key], nil }
func (s store) Set(_ context.Context, key string, value []byte) error {
	s[key] = value
	return nil
}
func (s store) Delete(context.Context, string) error               { return nil }
func (s store) Batch(context.Context, ...*storage.Operation) error { return nil }
func (s store) Close(context.Context) error                        { return nil }

// rig is one exporter; the test makes its rounds.
type rig struct {
	*drains
	telemetry *componenttest.Telemetry
	clock     time.Time
}

func start(t *testing.T, c *cluster, disk store, change func(*Config)) *rig {
	t.Helper()
	config := createDefaultConfig().(*Config)
	config.Mode, config.Scontrol, config.Timeout = modeAct, c.scontrol.path, c.scontrol.timeout
	config.Breaker.Nodes, config.Breaker.Percent = 20, 100
	if change != nil {
		change(config)
	}
	r := &rig{telemetry: componenttest.NewTelemetry(), clock: time.Now()}
	set := exportertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = r.telemetry.NewTelemetrySettings()
	var err error
	r.drains, err = newDrains(config, set, func() time.Time { return r.clock })
	require.NoError(t, err)
	require.NoError(t, r.prepare(t.Context(), disk))
	require.NoError(t, r.turns.Load(t.Context(), nil))
	require.NoError(t, r.round(t.Context()))
	t.Cleanup(func() { require.NoError(t, r.telemetry.Shutdown(context.Background())) })
	return r
}

// lost is a GPU that is lost.
func lost(host, id string) verdicts.Found {
	return verdicts.Found{Proven: true, Verdict: verdict.Verdict{
		ID: id, IncidentID: id, Pattern: "gpu_lost", Role: verdict.RootCause, Status: verdict.Open, Confidence: verdict.Full, Severity: verdict.Critical, Revision: 1,
		Onset: time.Now(), Updated: time.Now(), Headline: "GPU " + id + " has fallen off the bus", Remediation: "Drain the node.", Culprit: map[string]string{"host": host},
		Evidence: []verdict.Evidence{{Name: "xid", Time: time.Now(), Count: 1, Source: "gpu.xid", Shows: "Xid 79"}},
	}}
}

func but(f verdicts.Found, change func(*verdicts.Found)) verdicts.Found {
	f.Revision++
	change(&f)
	return f
}

func over(f verdicts.Found) verdicts.Found {
	return but(f, func(f *verdicts.Found) {
		now := time.Now()
		f.Status, f.Resolved = verdict.Resolved, &now
	})
}

func (r *rig) send(t *testing.T, all ...verdicts.Found) {
	t.Helper()
	require.NoError(t, r.consume(t.Context(), verdicts.Write(all)))
}

// outcomes are the counts of verdicts.
func (r *rig) outcomes(t *testing.T) map[string]int64 {
	t.Helper()
	metric, err := r.telemetry.GetMetric("otelcol_exporter_slurm_verdicts")
	require.NoError(t, err)
	all := map[string]int64{}
	for _, point := range metric.Data.(metricdata.Sum[int64]).DataPoints {
		outcome, _ := point.Attributes.Value("outcome")
		all[outcome.AsString()] = point.Value
	}
	return all
}

// TestSlurm is the same for the stand-in and for a controller of Slurm.
func TestSlurm(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *cluster{"stand-in": newStandIn, "slurmctld": newReal} {
		t.Run(name, func(t *testing.T) {
			c := open(t)
			disk := store{}
			r := start(t, c, disk, nil)

			// Drained with a reason, and back when the last cause ends, also after a restart.
			r.send(t, lost("gpu-1.example.com", "a"), lost("GPU-1", "b"))
			require.Equal(t, "tracecore: gpu_lost/a: GPU a has fallen off the bus | gpu_lost/b: GPU b has fallen off the bus", c.at(t, "gpu-1").reason)
			require.Equal(t, []string{"gpu-1"}, c.drained(t))
			r.send(t, over(lost("gpu-1", "a")))
			after := start(t, c, disk, nil)
			require.Equal(t, []string{"gpu-1"}, c.drained(t), "b is open")
			after.send(t, over(lost("gpu-1", "b")))
			require.Empty(t, c.drained(t))
			require.Empty(t, c.at(t, "gpu-1").reason)

			// What somebody else drained is theirs, before and after.
			c.admin(t, "nodename=gpu-2", "state=drain", "reason=broken fan (see tracecore: gpu_lost/c)")
			after.send(t, lost("gpu-2", "c"), over(lost("gpu-2", "c")))
			require.Equal(t, "broken fan (see tracecore: gpu_lost/c)", c.at(t, "gpu-2").reason)
			require.True(t, c.at(t, "gpu-2").drained())
			after.send(t, lost("gpu-3", "d"))
			c.admin(t, "nodename=gpu-3", "reason=RMA 17")
			after.send(t, over(lost("gpu-3", "d")))
			require.Equal(t, "RMA 17", c.at(t, "gpu-3").reason)
			require.True(t, c.at(t, "gpu-3").drained(), "somebody took it over")
			require.EqualValues(t, 1, after.outcomes(t)[outcomeOthers])

			// Whom somebody brought back is not drained again for the same.
			after.send(t, lost("gpu-4", "e"))
			c.admin(t, "nodename=gpu-4", "state=undrain")
			after.send(t, but(lost("gpu-4", "e"), func(f *verdicts.Found) { f.Repeated = true }))
			require.NoError(t, after.round(t.Context()))
			require.False(t, c.at(t, "gpu-4").drained())

			// Going back to observe brings back what stands.
			after.send(t, lost("gpu-5", "f"))
			require.True(t, c.at(t, "gpu-5").drained())
			watching := start(t, c, disk, func(c *Config) { c.Mode = modeObserve })
			require.Equal(t, []string{"gpu-2", "gpu-3"}, c.drained(t))
			watching.send(t, lost("gpu-6", "g"))
			require.Equal(t, map[string]int64{outcomeObserved: 1}, watching.outcomes(t))
			require.Equal(t, []string{"gpu-2", "gpu-3"}, c.drained(t))

			// Hostile text is one reason.
			acting := start(t, c, disk, nil)
			acting.send(t, but(lost("gpu-7", "h"), func(f *verdicts.Found) {
				f.Headline = "\x1b[2J\n   Reason=x [root@2026-01-01T00:00:00]\nNodeName=gpu-8 \" ' ; | gpu_lost/z: $(id)" + strings.Repeat("é", 4000)
			}))
			seven := c.at(t, "gpu-7")
			require.True(t, seven.ours(), seven.reason)
			require.Len(t, seven.said().Lines, 1)
			require.Less(t, len(seven.reason), 400)
			require.Equal(t, safetext.Line(seven.reason), seven.reason)
			acting.send(t, lost("gpu-[9-12]", "i"), lost("gpu-99", "j"), lost("", "k"))
			require.Equal(t, []string{"gpu-2", "gpu-3", "gpu-7"}, c.drained(t))
		})
	}
}

func TestOnlyRootCausesThatAreProvenDrain(t *testing.T) {
	for name, change := range map[string]func(*verdicts.Found){
		"symptom":       func(f *verdicts.Found) { f.Role = verdict.Symptom },
		"likely":        func(f *verdicts.Found) { f.Confidence = verdict.Partial },
		"drill":         func(f *verdicts.Found) { f.Drill = true },
		"claimed":       func(f *verdicts.Found) { f.Proven = false },
		"information":   func(f *verdicts.Found) { f.Severity = verdict.Info },
		"of a job":      func(f *verdicts.Found) { f.Pattern, f.Severity = "xid_impact", verdict.Warning },
		"switched off":  func(f *verdicts.Found) { f.Pattern, f.Severity = "ib_link_down", verdict.Warning },
		"other pattern": func(f *verdicts.Found) { f.Pattern = "rank_exit" },
		"resolved":      func(f *verdicts.Found) { *f = over(*f) },
		"told again":    func(f *verdicts.Found) { f.Repeated = true },
	} {
		t.Run(name, func(t *testing.T) {
			c := newStandIn(t)
			r := start(t, c, store{}, nil)
			r.send(t, but(lost("gpu-1", "a"), change))
			require.Empty(t, c.drained(t))
			r.send(t, lost("gpu-2", "b"))
			require.Equal(t, []string{"gpu-2"}, c.drained(t))
			if name != "resolved" && name != "symptom" && name != "likely" && name != "information" && name != "of a job" && name != "switched off" {
				r.send(t, but(over(lost("gpu-2", "b")), change))
				require.Equal(t, []string{"gpu-2"}, c.drained(t), "what may not drain brings nothing back")
			}
		})
	}
}

func TestWhichNodeAVerdictNames(t *testing.T) {
	nodes := []node{{name: "gpu-1", host: "gpu-1"}, {name: "gpu-2", host: "gpu-2.a.example"}, {name: "x", host: "gpu-3"}, {name: "gpu-3", host: "y"}, {name: "gpu-[4-9]", host: "z"}}
	for named, want := range map[string]string{
		"gpu-1": "gpu-1", "GPU-1": "gpu-1", "gpu-1.a.example": "gpu-1", "gpu-2": "gpu-2", "gpu-2.a.example": "gpu-2",
		"gpu-2.b.example": "", "gpu-3": "", "gpu-3.a.example": "", "gpu-[4-9]": "", "gpu": "", "": "",
	} {
		got := ""
		if n := find(nodes, named); n != nil {
			got = n.name
		}
		require.Equal(t, want, got, named)
	}
}

func TestBreakerHoldsBack(t *testing.T) {
	c, disk := newStandIn(t), store{}
	three := func(c *Config) { c.Breaker.Nodes = 3 }
	r := start(t, c, disk, three)
	for i := range 6 {
		r.send(t, lost(fmt.Sprintf("gpu-%d", i+1), fmt.Sprint(i)))
	}
	require.Equal(t, []string{"gpu-1", "gpu-2", "gpu-3"}, c.drained(t))
	require.Equal(t, map[string]int64{outcomeApplied: 3, outcomeHeldBack: 3}, r.outcomes(t))

	// A restart, and nodes that are back, make no room; a held cause that ends is forgotten.
	r.send(t, over(lost("gpu-1", "0")), over(lost("gpu-2", "1")), over(lost("gpu-6", "5")))
	after := start(t, c, disk, three)
	require.Equal(t, []string{"gpu-3"}, c.drained(t))
	after.clock = after.clock.Add(61 * time.Minute)
	require.NoError(t, after.round(t.Context()))
	require.Equal(t, []string{"gpu-3", "gpu-4", "gpu-5"}, c.drained(t))

	share := newStandIn(t)
	s := start(t, share, store{}, func(c *Config) { c.Breaker.Percent = 10 })
	for i := range 4 {
		s.send(t, lost(fmt.Sprintf("gpu-%d", i+1), fmt.Sprint(i)))
		s.clock = s.clock.Add(2 * time.Hour) // what stands counts however old it is
	}
	require.Equal(t, []string{"gpu-1", "gpu-2"}, share.drained(t))
}

// A disk that was lost is made up for by the reasons in Slurm.
func TestLostBookIsMadeUpForByReasons(t *testing.T) {
	c := newStandIn(t)
	two := func(c *Config) { c.Breaker.Nodes = 2 }
	start(t, c, store{}, two).send(t, lost("gpu-1", "a"), lost("gpu-2", "b"))
	r := start(t, c, store{keyBook: []byte("{spoilt")}, two)
	r.send(t, lost("gpu-3", "c"), over(lost("gpu-1", "a")))
	require.Equal(t, []string{"gpu-2"}, c.drained(t))
}

func TestABootEndsWhatItCures(t *testing.T) {
	c, disk := newStandIn(t), store{}
	boot := func(at time.Time) func(*fakeNode) {
		return func(n *fakeNode) { n.Boot = at.UTC().Format(timeFormat) }
	}
	c.set(t, "gpu-1", boot(time.Now().Add(-time.Hour)))
	r := start(t, c, disk, nil)
	hot := but(lost("gpu-2", "b"), func(f *verdicts.Found) { f.Pattern = "thermal_throttle" })
	c.set(t, "gpu-2", boot(time.Now().Add(-time.Hour)))
	r.send(t, lost("gpu-1", "a"), hot)
	require.Equal(t, []string{"gpu-1", "gpu-2"}, c.drained(t))
	for _, name := range []string{"gpu-1", "gpu-2"} {
		c.set(t, name, boot(time.Now().Add(time.Minute)))
	}
	after := start(t, c, disk, nil)
	require.Equal(t, []string{"gpu-2"}, c.drained(t), "a boot cools nothing")
	after.send(t, lost("gpu-1", "a"))
	require.EqualValues(t, 1, after.outcomes(t)[outcomeOtherBoot], "it was seen before the boot")
	require.Equal(t, []string{"gpu-2"}, c.drained(t))
}

func TestSilenceClearsNothingAndIsTold(t *testing.T) {
	c, disk := newStandIn(t), store{}
	stale := func(c *Config) { c.Stale = 30 * time.Minute }
	r := start(t, c, disk, stale)
	r.send(t, lost("gpu-1", "a"))
	again := but(lost("gpu-1", "a"), func(f *verdicts.Found) { f.Repeated = true })
	for range 3 {
		r.clock = r.clock.Add(20 * time.Minute)
		r.send(t, again)
		require.NoError(t, r.round(t.Context()))
	}
	require.NotContains(t, c.at(t, "gpu-1").reason, "confirmed")
	r.clock = r.clock.Add(31 * time.Minute)
	require.NoError(t, r.round(t.Context()))
	require.True(t, c.at(t, "gpu-1").drained())
	require.Contains(t, c.at(t, "gpu-1").reason, "| (nobody has confirmed this for 30m0s)")
	r.send(t, again)
	require.NoError(t, r.round(t.Context()))
	require.Equal(t, "tracecore: gpu_lost/a: GPU a has fallen off the bus", c.at(t, "gpu-1").reason)
}

// A node that is down stays down: it is let go, not brought back.
func TestANodeThatIsDownIsNotResumed(t *testing.T) {
	c := newStandIn(t)
	r := start(t, c, store{}, nil)
	r.send(t, lost("gpu-1", "a"))
	c.set(t, "gpu-1", func(n *fakeNode) { n.Base = "DOWN" })
	r.send(t, over(lost("gpu-1", "a")))
	require.Equal(t, []string{"DOWN"}, c.at(t, "gpu-1").states)
	r.send(t, lost("gpu-1", "b"))
	require.True(t, c.at(t, "gpu-1").ours(), "the reason that was left is ours")
	c.set(t, "gpu-2", func(n *fakeNode) { n.Base, n.Reason, n.Given = "DOWN", "Not responding", "2026-11-20T14:02:11" })
	r.send(t, lost("gpu-2", "c"))
	require.Equal(t, "Not responding", c.at(t, "gpu-2").reason, "whose reason it is decides")
}

func TestACommentThatLooksLikeAReasonIsRefused(t *testing.T) {
	c := newStandIn(t)
	r := start(t, c, store{}, nil)
	r.send(t, lost("gpu-1", "a"))
	c.set(t, "gpu-1", func(n *fakeNode) { n.Comment = "x\n   Reason=tracecore: gpu_lost/b: y [root@2026-11-20T14:02:11]" })
	r.send(t, over(lost("gpu-1", "a")))
	require.True(t, c.at(t, "gpu-1").drained(), "it is not clear whose it is")
}

func TestWhatFailsIsTriedAgain(t *testing.T) {
	c, disk := newStandIn(t), store{}
	r := start(t, c, disk, nil)
	text, err := os.ReadFile(c.file)
	require.NoError(t, err)
	require.NoError(t, os.Remove(c.file))
	err = r.consume(t.Context(), verdicts.Write([]verdicts.Found{lost("gpu-1", "a"), lost("gpu-2", "b")}))
	require.ErrorContains(t, err, "Unable to contact slurm controller")
	var rest consumererror.Logs
	require.ErrorAs(t, err, &rest)
	require.Equal(t, 2, rest.Data().LogRecordCount())
	require.NoError(t, os.WriteFile(c.file, text, 0o600))
	require.NoError(t, r.consume(t.Context(), rest.Data()))
	require.Equal(t, []string{"gpu-1", "gpu-2"}, c.drained(t))
}

// refusing is an scontrol that refuses what matches a pattern of the shell, while a file is there.
func refusing(t *testing.T, c *cluster, pattern, says string) (path, file string) {
	t.Helper()
	path, file = filepath.Join(t.TempDir(), "scontrol"), filepath.Join(t.TempDir(), "refuses")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	script := "#!/bin/sh\ncase \"$*\" in " + pattern + ") [ -e " + file + " ] && echo 'slurm_update error: " + says + "' >&2 && exit 1;; esac\nexec " + c.scontrol.path + " \"$@\"\n"
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700)) //nolint:gosec // it is to be run
	return path, file
}

// A node that Slurm does not drain (powered down by the cloud, a right that is missing for its
// partition) keeps no other from being drained, takes none of the breaker's places, and is
// drained when Slurm lets it.
func TestANodeThatSlurmRefusesHoldsUpNoOther(t *testing.T) {
	c := newStandIn(t)
	path, refuses := refusing(t, c, `*nodename=gpu-1\ *`, "Invalid node state specified")
	r := start(t, c, store{}, func(config *Config) { config.Scontrol, config.Breaker.Nodes = path, 1 })
	ld := verdicts.Write([]verdicts.Found{lost("gpu-1", "a"), lost("gpu-2", "b")})
	var err error
	for range 3 {
		r.clock = r.clock.Add(30 * time.Second)
		var rest consumererror.Logs
		if err = r.consume(t.Context(), ld); errors.As(err, &rest) {
			ld = rest.Data()
		}
	}
	require.NoError(t, err)
	require.Equal(t, []string{"gpu-2"}, c.drained(t))
	require.NoError(t, r.round(t.Context()))
	require.Equal(t, []string{"gpu-2"}, c.drained(t), "it has the one place")
	require.NoError(t, os.Remove(refuses))
	r.clock = r.clock.Add(2 * time.Hour)
	require.NoError(t, r.round(t.Context()))
	require.Equal(t, []string{"gpu-1", "gpu-2"}, c.drained(t))
}

// A right that is missing is no trouble of single nodes, until a node is changed.
func TestASlurmThatRefusesAllIsAway(t *testing.T) {
	c := newStandIn(t)
	path, refuses := refusing(t, c, `update\ *`, "Access/permission denied")
	r := start(t, c, store{}, func(config *Config) { config.Scontrol, config.Breaker.Nodes = path, len(names()) })
	for _, node := range names() {
		for range 3 {
			if r.consume(t.Context(), verdicts.Write([]verdicts.Found{lost(node, node)})) == nil {
				break
			}
		}
	}
	r.clock = r.clock.Add(time.Hour)
	require.Equal(t, r.clock, r.turns.Heard(time.Time{}))
	require.NoError(t, os.Remove(refuses))
	require.NoError(t, r.round(t.Context()))
	back := r.clock
	r.clock = r.clock.Add(time.Hour)
	require.Equal(t, back, r.turns.Heard(time.Time{}))
}

func TestAScontrolThatHangsIsEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scontrol")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nsleep 600\n"), 0o700)) //nolint:gosec // it is to be run
	s := scontrol{path, 50 * time.Millisecond}
	_, err := s.nodes(t.Context())
	require.ErrorContains(t, err, "no answer within 50ms")
}

// captured.txt is what scontrol 22.05.8 of Debian 12 printed.
func TestCapturedOutputIsRead(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "captured.txt"))
	require.NoError(t, err)
	nodes := parse(string(text))
	require.Len(t, nodes, 3)
	require.Equal(t, node{
		name: "gpu-17", host: "gpu-17", states: []string{"IDLE", "DRAIN", "NOT_RESPONDING"},
		reason: `tracecore: gpu_lost/5b1e6f0c: GPU 0000:65 has "fallen" off = the bus | hbm_ecc/x: é`, since: time.Date(2026, 11, 23, 18, 52, 1, 0, time.UTC),
	}, nodes[0])
	require.True(t, nodes[0].ours())
	require.True(t, nodes[1].others())
	require.True(t, nodes[2].unclear)
}

func FuzzParse(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("testdata", "captured.txt"))
	require.NoError(f, err)
	f.Add(string(text))
	f.Fuzz(func(t *testing.T, text string) {
		for _, n := range parse(text) {
			if n.ours() && n.others() {
				t.Fatal("it cannot be both")
			}
		}
	})
}

func TestWholeExporterDrains(t *testing.T) {
	c := newStandIn(t)
	factory := NewFactory()
	config := factory.CreateDefaultConfig().(*Config)
	config.Mode, config.Scontrol, config.Timeout = modeAct, c.scontrol.path, c.scontrol.timeout
	e, err := factory.CreateLogs(t.Context(), exportertest.NewNopSettings(metadata.Type), config)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, e.ConsumeLogs(t.Context(), plog.NewLogs()))
	require.NoError(t, e.ConsumeLogs(t.Context(), verdicts.Write([]verdicts.Found{lost("gpu-1", "a")})))
	require.Eventually(t, func() bool { return c.at(t, "gpu-1").drained() }, c.scontrol.timeout, 10*time.Millisecond)
	require.NoError(t, e.Shutdown(t.Context()))
}

func TestConfig(t *testing.T) {
	config := func(change func(*Config)) error {
		c := createDefaultConfig().(*Config)
		change(c)
		return c.Validate()
	}
	require.NoError(t, config(func(*Config) {}))
	id := component.MustNewID("file_storage")
	require.NoError(t, config(func(c *Config) { c.Mode = modeAct; c.QueueConfig.Get().StorageID = &id }))
	for problem, change := range map[string]func(*Config){
		`mode is "drain"`:                 func(c *Config) { c.Mode = "drain" },
		"mode act needs it":               func(c *Config) { c.Mode = modeAct },
		"give the whole path":             func(c *Config) { c.Scontrol = "scontrol" },
		"patterns: name one":              func(c *Config) { c.Patterns = nil },
		"min_severity":                    func(c *Config) { c.MinSeverity = "fatal" },
		"timeout: must be above 0":        func(c *Config) { c.Timeout = 0 },
		"refresh: must be 1s":             func(c *Config) { c.Refresh = 0 },
		"stale: must be 0 or":             func(c *Config) { c.Stale = time.Second },
		"num_consumers: must be 1":        func(c *Config) { c.QueueConfig.Get().NumConsumers = 2 },
		"breaker: nodes: must be 1":       func(c *Config) { c.Breaker.Nodes = 0 },
		"breaker: percent: must be 1":     func(c *Config) { c.Breaker.Percent = 101 },
		"breaker: window: must be 1m or ": func(c *Config) { c.Breaker.Window = time.Second },
	} {
		require.ErrorContains(t, config(change), problem)
	}
}
