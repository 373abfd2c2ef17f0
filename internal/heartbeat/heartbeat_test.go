package heartbeat_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
)

// told is a record with all that it needs.
func told() (pcommon.Map, plog.LogRecord) {
	resource, record := pcommon.NewMap(), plog.NewLogRecord()
	resource.PutStr("host.name", "node-1")
	record.SetEventName(heartbeat.Event)
	record.SetTimestamp(pcommon.NewTimestampFromTime(ten))
	a := record.Attributes()
	a.PutStr("service.instance.id", "x")
	a.PutInt("tracecore.agent.sequence", 1)
	a.PutInt("tracecore.agent.start_unix_nano", ten.Add(-time.Hour).UnixNano())
	return resource, record
}

func TestABrokenRecordIsNone(t *testing.T) {
	resource, record := told()
	_, ok := heartbeat.Read(resource, record)
	require.True(t, ok)
	for name, breaks := range map[string]func(pcommon.Map, plog.LogRecord){
		"another event":    func(_ pcommon.Map, r plog.LogRecord) { r.SetEventName("foreign." + heartbeat.Event) },
		"no host":          func(resource pcommon.Map, _ plog.LogRecord) { resource.Clear() },
		"host is a number": func(resource pcommon.Map, _ plog.LogRecord) { resource.PutInt("host.name", 7) },
		"no time":          func(_ pcommon.Map, r plog.LogRecord) { r.SetTimestamp(0) },
		"no instance":      func(_ pcommon.Map, r plog.LogRecord) { r.Attributes().Remove("service.instance.id") },
		"number zero":      func(_ pcommon.Map, r plog.LogRecord) { r.Attributes().PutInt("tracecore.agent.sequence", 0) },
		"started later": func(_ pcommon.Map, r plog.LogRecord) {
			r.SetTimestamp(pcommon.NewTimestampFromTime(ten.Add(-2 * time.Hour)))
		},
		"started never": func(_ pcommon.Map, r plog.LogRecord) {
			r.Attributes().PutInt("tracecore.agent.start_unix_nano", -1<<62)
		},
		"lost less than all": func(_ pcommon.Map, r plog.LogRecord) { r.Attributes().PutInt("tracecore.agent.dropped", -1) },
	} {
		t.Run(name, func(t *testing.T) {
			resource, record := told()
			breaks(resource, record)
			_, ok := heartbeat.Read(resource, record)
			require.False(t, ok)
		})
	}
}

func TestWhatIsReadIsBounded(t *testing.T) {
	resource, record := told()
	list := record.Attributes().PutEmptySlice("tracecore.agent.receivers")
	for range 1000 {
		one := list.AppendEmpty().SetEmptyMap()
		one.PutStr("name", strings.Repeat("\x1b[2J", 1000))
		one.PutStr("state", heartbeat.Fails)
		one.PutStr("error", strings.Repeat("e", 100_000))
	}
	list.AppendEmpty().SetInt(1)
	record.Attributes().PutStr("tracecore.agent.probes", "no list")
	beat, ok := heartbeat.Read(resource, record)
	require.True(t, ok)
	require.Len(t, beat.Receivers, heartbeat.MostComponents)
	require.LessOrEqual(t, len(beat.Receivers[0].Error), heartbeat.MaxError)
	require.NotContains(t, beat.Receivers[0].Name, "\x1b")
	require.Empty(t, beat.Probes)
}

// FuzzRead: whatever an agent sends, its record is taken or not, and the book answers.
func FuzzRead(f *testing.F) {
	_, record := told()
	ld := plog.NewLogs()
	record.CopyTo(ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty())
	seed, err := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
	require.NoError(f, err)
	f.Add(seed)
	f.Fuzz(func(t *testing.T, text []byte) {
		ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(text)
		if err != nil {
			return
		}
		b := heartbeat.NewBook(ten)
		resource, _ := told()
		for _, rl := range ld.ResourceLogs().All() {
			for _, sl := range rl.ScopeLogs().All() {
				for n, lr := range sl.LogRecords().All() {
					if beat, ok := heartbeat.Read(resource, lr); ok {
						b.Hear(beat, ten.Add(time.Duration(n)*time.Minute))
					}
				}
			}
		}
		agents, counts := b.Agents(ten.Add(time.Hour))
		require.Equal(t, len(agents), counts.All())
		b.Looked("node-1", []string{"gpu"}, ten, ten.Add(time.Hour), ten.Add(time.Hour))
	})
}
