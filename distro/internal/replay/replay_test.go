package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// outcome is what became of a replay.
type outcome struct {
	Result
	verdicts []verdict.Verdict
	bad      []string
	notes    []string
}

// played replays files of a folder, given by name, in the order of the names.
func played(t *testing.T, o Options, files map[string][]byte) outcome {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return playedPaths(t, o, dir)
}

func playedPaths(t *testing.T, o Options, paths ...string) outcome {
	t.Helper()
	var got outcome
	rules, err := library()
	require.NoError(t, err)
	o.Rules = rules
	if o.Lateness == 0 {
		o.Lateness = 15 * time.Second
	}
	o.Show = func(verdicts []verdict.Verdict) error {
		for _, incident := range verdict.Incidents(verdicts) {
			got.verdicts = append(got.verdicts, incident...)
		}
		return nil
	}
	o.Bad = func(err error) { got.bad = append(got.bad, err.Error()) }
	o.Note = func(err error) { got.notes = append(got.notes, err.Error()) }
	o.Report = func(Progress) {}
	got.Result, err = Run(context.Background(), paths, o)
	require.NoError(t, err)
	return got
}

// library is read once: the tests replay a hundred times.
var library = sync.OnceValues(patterns.Library)

var began = time.Date(2026, 11, 21, 7, 2, 29, 0, time.UTC)

// lost is an OTLP record of a GPU that fell off the bus.
func lost(logs plog.Logs, gpu string, at time.Time) {
	resource := logs.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", "node-1")
	record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName("gpu.lost")
	record.SetTimestamp(pcommon.NewTimestampFromTime(at))
	record.SetObservedTimestamp(pcommon.NewTimestampFromTime(at.Add(time.Millisecond)))
	record.Attributes().PutStr("gpu.id", gpu)
}

func oneLost(gpu string, at time.Time) plog.Logs {
	logs := plog.NewLogs()
	lost(logs, gpu, at)
	return logs
}

func jsonOf(t *testing.T, logs plog.Logs) []byte {
	t.Helper()
	text, err := (&plog.JSONMarshaler{}).MarshalLogs(logs)
	require.NoError(t, err)
	return text
}

func protoOf(t *testing.T, logs plog.Logs) []byte {
	t.Helper()
	message, err := (&plog.ProtoMarshaler{}).MarshalLogs(logs)
	require.NoError(t, err)
	return message
}

func framed(messages ...[]byte) []byte {
	var out []byte
	for _, m := range messages {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(m))), m...)
	}
	return out
}

func lines(parts ...[]byte) []byte { return append(bytes.Join(parts, []byte("\n")), '\n') }

func zstded(t *testing.T, plain []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	defer w.Close()
	return w.EncodeAll(plain, nil)
}

func gzipped(t *testing.T, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(plain)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestEveryFormOfOTLPIsRead(t *testing.T) {
	a, b := oneLost("0000:0a:00.0", began), oneLost("0000:0b:00.0", began.Add(time.Second))
	both := lines(jsonOf(t, a), jsonOf(t, b))
	pretty := []byte(strings.ReplaceAll(string(lines(jsonOf(t, a), jsonOf(t, b))), `{"`, "{\n  \""))
	for name, content := range map[string][]byte{
		"lines":                       both,
		"lines without a last end":    bytes.TrimSpace(both),
		"lines with DOS ends":         bytes.ReplaceAll(both, []byte("\n"), []byte("\r\n")),
		"documents":                   pretty,
		"protobuf":                    framed(protoOf(t, a), protoOf(t, b)),
		"compressed lines":            zstded(t, both),
		"compressed in two frames":    append(zstded(t, lines(jsonOf(t, a))), zstded(t, lines(jsonOf(t, b)))...),
		"gzipped lines":               gzipped(t, both),
		"compressed protobuf":         zstded(t, framed(protoOf(t, a), protoOf(t, b))),
		"protobuf compressed by each": framed(zstded(t, protoOf(t, a)), zstded(t, protoOf(t, b))),
		"JSON compressed by each":     framed(zstded(t, jsonOf(t, a)), zstded(t, jsonOf(t, b))),
	} {
		t.Run(name, func(t *testing.T) {
			got := played(t, Options{}, map[string][]byte{"recording": content})
			require.Empty(t, got.bad)
			require.Equal(t, uint64(2), got.Records)
			require.Len(t, got.verdicts, 2)
			require.Equal(t, "0000:0a:00.0", got.verdicts[0].Culprit["gpu"])
			require.Equal(t, began, got.verdicts[0].Onset.UTC())
			require.Equal(t, "0000:0b:00.0", got.verdicts[1].Culprit["gpu"])
		})
	}
}

// errorsOf is a counter of uncorrected memory errors.
func errorsOf(gpu string, value int64, at time.Time) pmetric.Metrics {
	metrics := pmetric.NewMetrics()
	resource := metrics.ResourceMetrics().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", "node-1")
	m := resource.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("hw.errors")
	sum := m.SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	point := sum.DataPoints().AppendEmpty()
	point.SetIntValue(value)
	point.SetTimestamp(pcommon.NewTimestampFromTime(at))
	point.Attributes().PutStr("hw.type", "gpu")
	point.Attributes().PutStr("error.type", "uncorrected")
	point.Attributes().PutStr("gpu.id", gpu)
	return metrics
}

func TestMetricsAreReadAndTracesCounted(t *testing.T) {
	const gpu = "0000:0a:00.0"
	traces := ptrace.NewTraces()
	span := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetTraceID([16]byte{1})
	span.SetStartTimestamp(1)
	for name, marshal := range map[string]struct {
		metrics func(pmetric.Metrics) ([]byte, error)
		traces  func(ptrace.Traces) ([]byte, error)
		join    func(...[]byte) []byte
	}{
		"json":     {(&pmetric.JSONMarshaler{}).MarshalMetrics, (&ptrace.JSONMarshaler{}).MarshalTraces, lines},
		"protobuf": {(&pmetric.ProtoMarshaler{}).MarshalMetrics, (&ptrace.ProtoMarshaler{}).MarshalTraces, framed},
	} {
		t.Run(name, func(t *testing.T) {
			var messages [][]byte
			for i := range 3 {
				m, err := marshal.metrics(errorsOf(gpu, int64(i*i), began.Add(time.Duration(i)*10*time.Second)))
				require.NoError(t, err)
				messages = append(messages, m)
			}
			m, err := marshal.traces(traces)
			require.NoError(t, err)
			got := played(t, Options{}, map[string][]byte{"recording": marshal.join(append(messages, m)...)})
			require.Empty(t, got.bad)
			require.Equal(t, uint64(1), got.Other)
			require.Len(t, got.verdicts, 1)
			require.Equal(t, "hbm_ecc", got.verdicts[0].Pattern)
		})
	}
}

// TestFilesAreMergedByEventTime: an Xid in one file, the death of the process in
// another, files in either order of names.
func TestFilesAreMergedByEventTime(t *testing.T) {
	death := plog.NewLogs()
	resource := death.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", "node-1")
	record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName("process.exit")
	record.SetTimestamp(pcommon.NewTimestampFromTime(began.Add(time.Second)))
	for key, value := range map[string]any{"process.pid": 42, "gen_ai.training.rank": 3, "process.exit.signal": 6, "process.exit.code": 0, "process.exit.signal_name": "SIGABRT"} {
		require.NoError(t, record.Attributes().PutEmpty(key).FromRaw(value))
	}
	xid := fmt.Sprintf("%s node-1 kernel: NVRM: Xid (PCI:0000:65:00): 79, pid=42, name=python, GPU has fallen off the bus.\n", began.Format("2006-01-02T15:04:05.000000-0700"))
	// An hour later the log goes on: whatever comes after that line is late.
	xid += fmt.Sprintf("%s node-1 kernel: NVRM: Xid (PCI:0000:66:00): 79, GPU has fallen off the bus.\n", began.Add(time.Hour).Format("2006-01-02T15:04:05.000000-0700"))
	for name, files := range map[string]map[string][]byte{
		"the log first": {"a": []byte(xid), "b": jsonOf(t, death)},
		"the log last":  {"b": []byte(xid), "a": jsonOf(t, death)},
	} {
		t.Run(name, func(t *testing.T) {
			got := played(t, Options{}, files)
			require.Empty(t, got.bad)
			require.Zero(t, got.Engine.Late)
			require.Equal(t, []string{"gpu_lost", "rank_exit", "gpu_lost"}, names(got.verdicts))
			require.Equal(t, got.verdicts[0].IncidentID, got.verdicts[1].IncidentID)
		})
	}
}

func names(verdicts []verdict.Verdict) []string {
	var out []string
	for _, v := range verdicts {
		out = append(out, v.Pattern)
	}
	return out
}

// TestADocumentOfAWholeDayHasNothingLate: grouped by resource, each in order.
func TestADocumentOfAWholeDayHasNothingLate(t *testing.T) {
	logs := plog.NewLogs()
	for i := range 24 {
		lost(logs, fmt.Sprintf("0000:%02x:00.0", i), began.Add(time.Duration(i*7%24)*time.Hour))
	}
	got := played(t, Options{}, map[string][]byte{"day.json": jsonOf(t, logs)})
	require.Len(t, got.verdicts, 24)
	require.Zero(t, got.Engine.Late)
	require.Zero(t, got.Engine.Ahead)
}

func TestTheSameFilesGiveTheSameVerdicts(t *testing.T) {
	files := map[string][]byte{
		"a.json": lines(jsonOf(t, oneLost("0000:0a:00.0", began)), jsonOf(t, oneLost("0000:0b:00.0", began.Add(time.Minute)))),
		"b.bin":  framed(protoOf(t, oneLost("0000:0c:00.0", began)), protoOf(t, oneLost("0000:0d:00.0", began.Add(time.Minute)))),
		"c.log":  []byte("2026-11-21T07:02:29+0000 node-1 kernel: NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.\n"),
	}
	first := played(t, Options{}, files)
	require.Len(t, first.verdicts, 5)
	for range 3 {
		require.Equal(t, first.verdicts, played(t, Options{}, files).verdicts)
	}
}

// TestDamageCostsWhatItDamaged: the file and place are named, what can be read
// is, and another file goes on whatever comes.
func TestDamageCostsWhatItDamaged(t *testing.T) {
	a, b := oneLost("0000:0a:00.0", began), oneLost("0000:0b:00.0", began.Add(time.Second))
	whole := jsonOf(t, a)
	deep := []byte{}
	for range 3000 { // AnyValue{array_value: ArrayValue{values: AnyValue{...}}}
		deep = field(1, field(5, deep))
	}
	for name, tt := range map[string]struct {
		content  []byte
		says     string
		verdicts int
	}{
		"a truncated last line":          {lines(whole, jsonOf(t, b)[:40]), "x:2: ", 1},
		"a truncated first line":         {lines(jsonOf(t, b)[:40], whole), "x:1: ", 1},
		"one truncated line":             {whole[:len(whole)-5], "x:1: ", 0},
		"junk between lines":             {lines(whole, []byte("\x00\xff\xfejunk"), jsonOf(t, b)), "x:2: ", 2},
		"other JSON between lines":       {lines(whole, []byte(`{"level":"info"}`), jsonOf(t, b)), "neither OTLP nor a kernel log", 2},
		"a document cut off":             {[]byte("{\n\"resourceLogs\": [\n{"), "x:1: the document that begins here is cut off", 0},
		"text behind a document":         {append([]byte("{\n\"resourceLogs\": []\n}\n"), "junk"...), "x:4: 'j' between two documents", 0},
		"wrong types":                    {lines([]byte(`{"resourceLogs":7}`), whole), "x:1: ", 1},
		"protobuf cut off":               {framed(protoOf(t, a), protoOf(t, b))[:len(framed(protoOf(t, a)))+20], "x: byte", 1},
		"a length cut off":               {append(framed(protoOf(t, a)), 0, 0), "x: byte", 1},
		"a frame of junk":                {framed([]byte("\xff\xff\xffjunk"), protoOf(t, a)), "x: byte 0: no OTLP protobuf", 1},
		"a length beyond everything":     {[]byte("\x04\xff\xff\xff\xff"), "x: byte 0: a message of", 0},
		"zeros":                          {make([]byte, 4096), "x: byte 0: a message of 0 bytes", 0},
		"protobuf nested without end":    {framed(field(1, field(2, field(2, field(5, deep)))), protoOf(t, a)), "nested deeper", 1},
		"a zstd frame that is damaged":   {framed(append(zstded(t, protoOf(t, a))[:12], 0xff, 0xff, 0xff, 0xff), protoOf(t, b)), "zstd", 1},
		"a zstd bomb in a frame":         {framed(zstded(t, make([]byte, mostMessage+1)), protoOf(t, b)), "zstd", 1},
		"a gzip stream cut off":          {gzipped(t, lines(whole, bytes.Repeat([]byte("{}\n"), 1<<16)))[:300], "unexpected EOF", 1},
		"a program":                      {[]byte("\x7fELF\x02\x01\x01"), "unknown format", 0},
		"a text":                         {[]byte("Dear operator,\nall is well.\n"), "unknown format", 0},
		"a kernel log with a text in it": {[]byte("[    1.000000] NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.\nDear operator,\n[    2.000000] x\n"), "x:2: no line of a kernel log: \"Dear operator,\"", 1},
		"a journal record of nonsense":   {lines([]byte(`{"__REALTIME_TIMESTAMP":"soon","_TRANSPORT":"kernel","MESSAGE":"x"}`), whole), "x:1: journal record: __REALTIME_TIMESTAMP", 1},
		"dmesg with a time of nonsense":  {[]byte(`{"dmesg":[{"time":1e99,"msg":"x"}]}`), "no number of seconds", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := played(t, Options{}, map[string][]byte{"x": tt.content, "y": jsonOf(t, oneLost("0000:0f:00.0", began))})
			require.Contains(t, strings.Join(got.bad, "\n"), tt.says)
			require.Equal(t, 1, got.Unread)
			require.Len(t, got.verdicts, tt.verdicts+1, "%v", got.bad)
		})
	}
}

// field is a length-delimited protobuf field.
func field(number byte, content []byte) []byte {
	out := binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(content)))
	return append(out, content...)
}

func TestDamageInEveryLineIsToldInAFew(t *testing.T) {
	got := played(t, Options{}, map[string][]byte{"x": bytes.Repeat([]byte("{\"resourceLogs\":7}\n"), 10_000)})
	require.Len(t, got.bad, 4)
	require.Contains(t, got.bad[3], "further damage in this file is left out")
	require.Equal(t, 1, got.Unread)
}

func TestALineBeyondTheBoundIsSkipped(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 64 MiB")
	}
	huge := append([]byte(`{"resourceLogs":[],"x":"`), bytes.Repeat([]byte("a"), mostMessage)...)
	got := played(t, Options{}, map[string][]byte{"x.zst": zstded(t, lines(huge, jsonOf(t, oneLost("0000:0a:00.0", began))))})
	require.Len(t, got.bad, 1)
	require.Contains(t, got.bad[0], "x.zst:1: a document of more than 64 MiB")
	require.Len(t, got.verdicts, 1)
}

func TestPathsThatAreNoFiles(t *testing.T) {
	got := playedPaths(t, Options{}, filepath.Join(t.TempDir(), "nosuch"), os.DevNull, t.TempDir())
	require.Len(t, got.bad, 3)
	require.Contains(t, got.bad[0], "nosuch")
	require.Contains(t, got.bad[1], "the folder has no file", "one that is not mounted says nothing")
	require.Contains(t, got.bad[2], "neither file nor folder")
	require.Equal(t, 3, got.Unread)
}

func TestStandardInputIsAFile(t *testing.T) {
	got := playedPaths(t, Options{Stdin: bytes.NewReader(jsonOf(t, oneLost("0000:0a:00.0", began)))}, Stdin)
	require.Empty(t, got.bad)
	require.Len(t, got.verdicts, 1)
}

func TestAnEmptyFileIsARecordingOfNothing(t *testing.T) {
	got := played(t, Options{}, map[string][]byte{"x": nil, "y": []byte("\n\n")})
	require.Empty(t, got.verdicts)
	require.Len(t, got.bad, 1, "a file of empty lines is no recording")
}

// TestManyShortFilesAreClosedAsTheyAreRead opens more files than may be open.
func TestManyShortFilesAreClosedAsTheyAreRead(t *testing.T) {
	files := map[string][]byte{}
	for i := range mostOpen + 100 {
		files[fmt.Sprintf("%05d", i)] = jsonOf(t, oneLost(fmt.Sprintf("%04x:01:00.0", i), began))
	}
	got := played(t, Options{}, files)
	require.Empty(t, got.bad)
	require.Len(t, got.verdicts, mostOpen+100)
}

func TestVerdictsBeyondTheBoundAreShownEarly(t *testing.T) {
	shown := 0
	l := ledger{show: func(verdicts []verdict.Verdict) error { shown += len(verdicts); return nil }}
	for i := range 10 {
		l.add([]verdict.Verdict{{ID: fmt.Sprint(i), Revision: 1}})
	}
	l.add([]verdict.Verdict{{ID: "0", Revision: 2}})
	require.NoError(t, l.flush(10))
	require.Zero(t, shown)
	require.NoError(t, l.flush(9))
	require.Equal(t, 5, shown)
	require.Contains(t, l.entries, "0", "it changed last")
	require.NoError(t, l.flush(0))
	require.Equal(t, 10, shown)
	require.Equal(t, 10, l.count)
}

// A recording may hold what a whole fleet said at one moment, more than an agent has room for.
func TestLimitsFollowTheSizeOfTheRecording(t *testing.T) {
	const hosts = 6_000
	logs := plog.NewLogs()
	for i := range hosts {
		lost(logs, "0000:65:00.0", began.Add(time.Duration(i)*time.Microsecond))
		logs.ResourceLogs().At(i).Resource().Attributes().PutStr("host.name", fmt.Sprint("node-", i))
	}
	text, err := (&plog.JSONMarshaler{}).MarshalLogs(logs)
	require.NoError(t, err)
	got := played(t, Options{}, map[string][]byte{"fleet.json": append(text, '\n')})
	require.Empty(t, got.bad)
	require.Equal(t, hosts, got.Verdicts)
	require.Len(t, got.verdicts, hosts)
	require.Zero(t, got.Engine.EvictedVerdicts+got.Engine.EvictedWaiting+got.Engine.EvictedRecent)
}

func TestRoomIsBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "huge")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Equal(t, 5_000, roomFor([]string{file, "none"}).OpenVerdicts)
	require.NoError(t, os.Truncate(file, 1<<40))
	require.Equal(t, mostRoom*5_000, roomFor([]string{file}).OpenVerdicts)
	require.Equal(t, mostRoom*5_000, roomFor([]string{Stdin}).OpenVerdicts)
}
