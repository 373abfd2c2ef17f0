package ncclfrreceiver

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/extensions/filestorageextension"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/flightrecorder"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/metadata"
)

var update = flag.Bool("update", false, "write golden files")

const dumps = "internal/flightrecorder/testdata/"

var began = time.Date(2026, 11, 21, 5, 4, 10, 0, time.UTC)

// sink keeps records; it refuses with err while that is set.
type sink struct {
	mu      sync.Mutex
	err     error
	records []plog.LogRecord
	files   []map[string]any // what is said of files that are refused
	refused int
}

func (*sink) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (s *sink) ConsumeLogs(_ context.Context, logs plog.Logs) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		s.refused++
		return s.err
	}
	for _, r := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
		if r.EventName() == metadata.EventNcclFrRefused {
			s.files = append(s.files, r.Attributes().AsRaw())
			continue
		}
		kept := plog.NewLogRecord()
		r.CopyTo(kept)
		s.records = append(s.records, kept)
	}
	return nil
}

func (s *sink) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// said are the bodies of the records so far.
func (s *sink) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	bodies := []string{}
	for _, r := range s.records {
		bodies = append(bodies, r.Body().Str())
	}
	return bodies
}

// rig is a receiver whose clock the test moves.
type rig struct {
	t         *testing.T
	dir       string
	sink      *sink
	now       time.Time
	mu        sync.Mutex
	ticks     chan time.Time
	host      host
	config    *Config
	telemetry *componenttest.Telemetry
	receiver  *flightRecorder
	dumps     dumpReader
	cost      time.Duration // of each reading
}

// here reads dumps in this process, and counts. With err it fails.
type here struct {
	limits flightrecorder.Limits
	mu     sync.Mutex
	read   int
	err    error
}

func (h *here) reads() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.read
}

func (h *here) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

func (h *here) Read(_ context.Context, data []byte) (*flightrecorder.Digest, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.read++
	if h.err != nil {
		return nil, h.err
	}
	return flightrecorder.Read(data, h.limits)
}

func (*here) Close() {}

type host map[component.ID]component.Component

func (h host) GetExtensions() map[component.ID]component.Component { return h }

func newRig(t *testing.T) *rig {
	r := &rig{t: t, dir: t.TempDir(), sink: &sink{}, now: began, ticks: make(chan time.Time), host: host{}, telemetry: componenttest.NewTelemetry()}
	r.config = createDefaultConfig().(*Config)
	r.config.Include = []string{r.dir}
	t.Cleanup(func() { _ = r.telemetry.Shutdown(context.Background()) })
	return r
}

// make makes the receiver without starting it.
func (r *rig) make() {
	settings := receivertest.NewNopSettings(metadata.Type)
	settings.ID, settings.TelemetrySettings = component.NewID(metadata.Type), r.telemetry.NewTelemetrySettings()
	made, err := newReceiver(settings, r.config, r.sink, clock{
		now: func() time.Time {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.now
		},
		ticks: func(time.Duration) (<-chan time.Time, func()) { return r.ticks, func() {} },
		since: func(time.Time) time.Duration { return r.cost },
	})
	require.NoError(r.t, err)
	if r.dumps == nil {
		r.dumps = &here{limits: r.config.limits()}
	}
	made.dumps = r.dumps
	made.patience = time.Millisecond
	made.roots.proc.WithPatience(hosttest.Patience)
	r.receiver = made
	r.t.Cleanup(func() { require.NoError(r.t, made.Shutdown(context.Background())) })
}

func (r *rig) start() *rig {
	r.make()
	require.NoError(r.t, r.receiver.Start(r.t.Context(), r.host))
	r.look(0)
	return r
}

// look lets time pass; when the second tick is taken, the round of the first is
// over.
func (r *rig) look(after time.Duration) {
	r.pass(after)
	r.ticks <- r.now
	r.ticks <- r.now
}

// pass lets time pass, also during a round.
func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

// write puts bytes there, as if written now. A round that goes on sees them whole or not.
func (r *rig) write(name string, data []byte) {
	made := filepath.Join(r.t.TempDir(), "file")
	require.NoError(r.t, os.WriteFile(made, data, 0o644))
	require.NoError(r.t, os.Chtimes(made, r.now, r.now))
	require.NoError(r.t, os.Rename(made, filepath.Join(r.dir, name)))
}

func (r *rig) put(name, dump string) {
	data, err := os.ReadFile(dumps + dump)
	require.NoError(r.t, err)
	r.write(name, data)
}

// refusals are the counted refusals by reason.
func (r *rig) refusals() map[string]int64 {
	counted := map[string]int64{}
	metric, err := r.telemetry.GetMetric("otelcol_receiver_ncclfr_files_refused")
	if err != nil {
		return counted
	}
	for _, point := range metric.Data.(metricdata.Sum[int64]).DataPoints {
		reason, _ := point.Attributes.Value("reason")
		counted[reason.AsString()] += point.Value
	}
	return counted
}

const waits, finished = "rank 0 waits in gloo:all_reduce #6 of default_pg", "rank 2 finished gloo:all_reduce #5 of default_pg and waits in none"

func TestEachDumpIsReadOnce(t *testing.T) {
	r := newRig(t)
	r.put("nccl_trace_rank_0", "missing/rank_0.pickle")
	r.start()
	require.Equal(t, []string{waits}, r.sink.said())
	r.put("nccl_trace_rank_2", "missing/rank_2.pickle")
	r.look(time.Second)
	r.look(time.Second)
	require.Equal(t, []string{waits, finished}, r.sink.said())

	r.put("nccl_trace_rank_0", "missing/rank_0.pickle")
	r.put("moved_rank_0", "missing/rank_0.pickle")
	r.look(time.Second)
	require.Len(t, r.sink.said(), 2, "the same content under a new time or name")

	r.put("nccl_trace_rank_0", "healthy/rank_0.pickle")
	r.look(time.Second)
	require.Equal(t, []string{waits, finished, "rank 0 finished gloo:all_reduce #6 of default_pg and waits in none"}, r.sink.said(), "a new dump in the old file")
}

func TestADumpIsReadWhenItIsWhole(t *testing.T) {
	for _, dump := range []string{"missing/rank_0.pickle", "missing/rank_0.json"} {
		t.Run(dump, func(t *testing.T) {
			data, err := os.ReadFile(dumps + dump)
			require.NoError(t, err)
			r := newRig(t).start()
			for _, n := range []int{0, 1, len(data) / 2, len(data) - 1} {
				r.write("rank_0", data[:n])
				r.look(time.Second)
				require.Empty(t, r.sink.said())
			}
			r.write("rank_0", data)
			r.look(time.Second)
			require.Equal(t, []string{waits}, r.sink.said())
			require.Empty(t, r.refusals())
		})
	}
}

func TestADumpCutShortIsGivenUp(t *testing.T) {
	r := newRig(t).start()
	r.write("rank_0", []byte("\x80\x02}"))
	r.look(time.Second)
	require.Empty(t, r.refusals())
	r.look(2 * time.Minute)
	r.look(time.Second)
	require.Equal(t, map[string]int64{"truncated": 1}, r.refusals())
}

func TestWhatIsNoDumpIsRefusedOnceAndCounted(t *testing.T) {
	r := newRig(t)
	r.config.MaxFileSize = 4096
	r.write("rank_1", []byte("\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R."))
	r.write("rank_2", []byte("# a script\n"))
	r.write("rank_3", make([]byte, 4097))
	r.put("trace", "missing/rank_0.pickle")
	r.put("rank_5", "missing/rank_0.pickle")
	require.NoError(t, os.Chtimes(filepath.Join(r.dir, "rank_5"), began.Add(-2*time.Hour), began.Add(-2*time.Hour)))
	require.NoError(t, syscall.Mkfifo(filepath.Join(r.dir, "rank_6.pipe"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(r.dir, "rank_7"), 0o700))
	r.start()
	r.look(time.Second)
	require.Equal(t, map[string]int64{"hostile": 1, "not_a_dump": 1, "too_large": 1, "no_rank": 1, "too_old": 1}, r.refusals())
	require.Empty(t, r.sink.said())
	r.put("rank_2", "missing/rank_2.pickle")
	r.look(time.Second)
	require.Equal(t, []string{finished}, r.sink.said(), "a good dump in the place of a bad file")
}

func TestADumpThatNobodyTookIsHandedAgain(t *testing.T) {
	r := newRig(t)
	r.sink.refuse(errors.New("queue is full"))
	r.put("rank_0", "missing/rank_0.pickle")
	r.start()
	require.Empty(t, r.sink.said())
	r.sink.refuse(nil)
	r.look(time.Second)
	r.look(time.Second)
	require.Equal(t, []string{waits}, r.sink.said())

	r.sink.refuse(consumererror.NewPermanent(errors.New("no")))
	r.put("rank_2", "missing/rank_2.pickle")
	r.look(time.Second)
	r.look(time.Second)
	require.Equal(t, 1, permanent(r))
}

func permanent(r *rig) int {
	metric, err := r.telemetry.GetMetric("otelcol_receiver_ncclfr_records_dropped")
	require.NoError(r.t, err)
	return int(metric.Data.(metricdata.Sum[int64]).DataPoints[0].Value)
}

func TestEachDumpIsReadOnceAcrossRestarts(t *testing.T) {
	keep, id := t.TempDir(), component.MustNewID("file_storage")
	var files string
	var all []string
	for range 2 {
		r := newRig(t)
		if files == "" {
			files = r.dir
			r.put("rank_0", "missing/rank_0.pickle")
			r.write("rank_1", []byte("no dump"))
		}
		r.config.Include, r.config.Storage = []string{files}, &id
		r.host[id] = fileStorage(t, keep)
		r.start()
		require.NoError(t, r.receiver.Shutdown(t.Context()))
		require.NoError(t, r.host[id].Shutdown(t.Context()))
		all = append(all, r.sink.said()...)
		if len(all) > 0 {
			require.Equal(t, []string{waits}, all)
		}
	}
	require.Equal(t, []string{waits}, all)
}

func fileStorage(t *testing.T, dir string) component.Component {
	factory := filestorageextension.NewFactory()
	config := factory.CreateDefaultConfig().(*filestorageextension.Config)
	config.Directory = dir
	made, err := factory.Create(context.Background(), extensiontest.NewNopSettings(factory.Type()), config)
	require.NoError(t, err)
	require.NoError(t, made.Start(context.Background(), componenttest.NewNopHost()))
	return made
}

func TestAFullMemoryForgetsTheOldest(t *testing.T) {
	s := newSeen(2)
	for i, path := range []string{"a", "b", "c"} {
		require.NoError(t, s.put(t.Context(), mark{Path: path, Print: fingerprint{Size: int64(i)}, Hash: [16]byte{byte(i + 1)}}))
	}
	require.False(t, s.done("a", fingerprint{Size: 0}))
	require.False(t, s.knows([16]byte{1}))
	require.True(t, s.done("b", fingerprint{Size: 1}))
	require.True(t, s.done("c", fingerprint{Size: 2}))
	require.False(t, s.done("c", fingerprint{Size: 3}))
	require.Len(t, s.byPath, 2)
	require.Len(t, s.byHash, 2)
}

// ranks is an identity extension that knows these processes.
type ranks struct {
	component.StartFunc
	component.ShutdownFunc
	identity.Resolver
	processes []identity.Process
}

func (r ranks) Ranks() []identity.Process { return r.processes }

func TestJobAndProcessOfTheRank(t *testing.T) {
	id := component.MustNewID("identity")
	living := identity.Process{PID: 42, Rank: 0, LocalRank: 0, WorldSize: 4, JobID: "llm"}
	worker := living
	worker.PID, worker.Inherited = 43, true
	other := living
	other.PID, other.JobID = 44, "second"
	for name, tc := range map[string]struct {
		processes    []identity.Process
		job, pattern string
		want         map[string]any
	}{
		"nothing known":             {nil, "", "", map[string]any{"gen_ai.training.rank": int64(0)}},
		"a living rank":             {[]identity.Process{living, worker}, "", "", map[string]any{"gen_ai.training.rank": int64(0), "gen_ai.training.job_id": "llm", "gen_ai.training.world_size": int64(4), "process.pid": int64(42), "gen_ai.training.local_rank": int64(0)}},
		"two jobs with such a rank": {[]identity.Process{living, other}, "", "", map[string]any{"gen_ai.training.rank": int64(0)}},
		"configured":                {nil, "mine", "", map[string]any{"gen_ai.training.rank": int64(0), "gen_ai.training.job_id": "mine"}},
		"from the path":             {nil, "mine", `/([^/]+)/rank_\d+$`, map[string]any{"gen_ai.training.rank": int64(0), "gen_ai.training.job_id": "001"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.config.Identity, r.config.JobID, r.config.JobPattern = &id, tc.job, tc.pattern
			r.host[id] = ranks{processes: tc.processes}
			r.put("rank_0", "missing/rank_0.pickle")
			r.start()
			require.Len(t, r.sink.said(), 1)
			got := map[string]any{}
			for key, v := range r.sink.records[0].Attributes().AsRaw() {
				if strings.HasPrefix(key, "gen_ai.") || strings.HasPrefix(key, "process.") {
					got[key] = v
				}
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// TestGoldenRecords holds the records of each set of real dumps, and of those that
// PyTorch's analyzer was asked about. The join's tests read the same files.
func TestGoldenRecords(t *testing.T) {
	for from, to := range map[string]string{dumps: "testdata/golden", "testdata/analyzer/": "testdata/analyzer"} {
		sets, err := os.ReadDir(from)
		require.NoError(t, err)
		for _, set := range sets {
			if !set.IsDir() {
				continue
			}
			name := set.Name()
			t.Run(name, func(t *testing.T) {
				got := plog.NewLogs()
				for _, path := range Find([]string{from + name}) {
					if filepath.Ext(path) != ".json" {
						readAsWritten(t, path).ResourceLogs().MoveAndAppendTo(got.ResourceLogs())
					}
				}
				requireGolden(t, filepath.Join(to, name+".otlp.json"), got)
			})
		}
	}
}

func requireGolden(t *testing.T, golden string, got plog.Logs) {
	text, err := (&plog.JSONMarshaler{}).MarshalLogs(got)
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o755))
		require.NoError(t, os.WriteFile(golden, append(text, '\n'), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(text))
}

// readAsWritten reads a dump of testdata as if it had been written twenty
// seconds after its last entry, to /fr.
func readAsWritten(t *testing.T, path string) plog.Logs {
	logs, err := ReadFile(path, "")
	require.NoError(t, err)
	written := began
	for _, r := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
		if newest, found := r.Attributes().Get("nccl.fr.newest_unix_nano"); found {
			written = time.Unix(0, newest.Int()).Add(20 * time.Second)
		}
	}
	for _, r := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
		r.SetTimestamp(pcommon.NewTimestampFromTime(written))
		r.SetObservedTimestamp(r.Timestamp())
		r.Attributes().PutStr("nccl.fr.file", "/fr/"+filepath.Base(path))
		r.Attributes().PutStr("nccl.fr.run", "/fr/rank_")
	}
	return logs
}

// TestPickleAndJSONSayTheSame compares the two forms of each real dump; JSON has
// no stacks.
func TestPickleAndJSONSayTheSame(t *testing.T) {
	for _, path := range Find([]string{dumps + "*/*.json"}) {
		text, pickled := readAsWritten(t, path), readAsWritten(t, strings.TrimSuffix(path, ".json")+".pickle")
		for _, logs := range []plog.Logs{text, pickled} {
			for _, r := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
				r.Attributes().Remove("nccl.fr.file")
				if list, found := r.Attributes().Get("nccl.fr.operations"); found {
					for _, op := range list.Slice().All() {
						op.Map().Remove("code")
					}
				}
			}
		}
		require.NoError(t, plogtest.CompareLogs(pickled, text, plogtest.IgnoreLogRecordsOrder(), plogtest.IgnoreTimestamp(), plogtest.IgnoreObservedTimestamp()), path)
	}
}

// TestEverythingEmittedStandsInTheMetadata finds attributes that documentation.md
// does not list.
func TestEverythingEmittedStandsInTheMetadata(t *testing.T) {
	documented, err := os.ReadFile("documentation.md")
	require.NoError(t, err)
	for _, path := range Find([]string{dumps + "*/*"}) {
		logs, err := ReadFile(path, "llm")
		require.NoError(t, err)
		for _, r := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
			for key := range r.Attributes().All() {
				require.Contains(t, string(documented), key)
			}
		}
	}
}

func TestReadFileSaysWhatIsWrong(t *testing.T) {
	_, err := ReadFile(filepath.Join(t.TempDir(), "rank_0"), "")
	require.ErrorIs(t, err, os.ErrNotExist)
	path := filepath.Join(t.TempDir(), "rank_0")
	require.NoError(t, os.WriteFile(path, []byte("text"), 0o600))
	_, err = ReadFile(path, "")
	require.ErrorContains(t, err, path+": not a Flight Recorder dump")
}

func TestRankInTheName(t *testing.T) {
	for path, want := range map[string]struct {
		rank int
		run  string
	}{
		"/tmp/nccl_trace_rank_12":       {12, "/tmp/nccl_trace_rank_"},
		"/fr/job7/rank_3.pickle":        {3, "/fr/job7/rank_"},
		"/fr/rank_3.json.gz":            {3, "/fr/rank_"},
		"/fr/7":                         {7, "/fr/"},
		"/fr/node4_rank_3.pickle":       {3, "/fr/node4_rank_"},
		"/fr/trace":                     {-1, "/fr/trace"},
		"/fr/rank_99999999999999999999": {-1, "/fr/rank_99999999999999999999"},
		"/fr/rank_3.tmp~":               {-1, "/fr/rank_3.tmp~"},
	} {
		rank, run := splitRank(path)
		require.Equal(t, want.rank, rank, path)
		require.Equal(t, want.run, run, path)
	}
}

func TestShutdownBeforeStartAndTwice(t *testing.T) {
	made, err := newReceiver(receivertest.NewNopSettings(metadata.Type), createDefaultConfig().(*Config), consumertest.NewNop(), realClock)
	require.NoError(t, err)
	require.NoError(t, made.Shutdown(t.Context()))
	require.NoError(t, made.Shutdown(t.Context()))
}

func TestExtensionsThatAreNotThere(t *testing.T) {
	id := component.MustNewID("none")
	for setting, set := range map[string]func(*Config){
		"identity": func(c *Config) { c.Identity = &id },
		"storage":  func(c *Config) { c.Storage = &id },
	} {
		config := createDefaultConfig().(*Config)
		set(config)
		made, err := newReceiver(receivertest.NewNopSettings(metadata.Type), config, consumertest.NewNop(), realClock)
		require.NoError(t, err)
		require.ErrorContains(t, made.Start(t.Context(), componenttest.NewNopHost()), setting+` "none"`)
		require.NoError(t, made.Shutdown(t.Context()))
	}
}

func TestConfig(t *testing.T) {
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	identityID, storageID := component.MustNewID("identity"), component.MustNewID("file_storage")
	all := &Config{
		LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), Include: []string{"/shared/fr", "/tmp/nccl_trace_rank_*"},
		PollInterval: 5 * time.Second, GiveUpAfter: 2 * time.Minute, MaxAge: 24 * time.Hour, MaxFileSize: 1 << 20, MaxValues: 1000, MaxFiles: 100,
		JobID: "llm", JobPattern: "/jobs/([^/]+)/", Shared: true, Identity: &identityID, Storage: &storageID,
	}
	for name, tc := range map[string]struct {
		want     *Config
		problems []string
	}{
		"":                      {want: createDefaultConfig().(*Config)},
		"all":                   {want: all},
		"nothing":               {problems: []string{"include names nothing to read"}},
		"bad_glob":              {problems: []string{"/tmp/[a", "close its brackets"}},
		"zero":                  {problems: []string{"poll_interval must be greater than zero", "max_values must be"}},
		"bad_pattern":           {problems: []string{"job_pattern"}},
		"pattern_without_group": {problems: []string{"put brackets around the job id"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := createDefaultConfig()
			section, err := file.Sub(component.NewIDWithName(metadata.Type, name).String())
			require.NoError(t, err)
			require.NoError(t, section.Unmarshal(config))
			if len(tc.problems) == 0 {
				require.NoError(t, confmap.Validate(config))
				require.Equal(t, tc.want, config)
			}
			for _, problem := range tc.problems {
				require.ErrorContains(t, confmap.Validate(config), problem)
			}
		})
	}
}
