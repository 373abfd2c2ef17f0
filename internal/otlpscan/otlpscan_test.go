package otlpscan

import (
	"bytes"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/protobuf/encoding/protowire"
)

const unbounded = math.MaxInt64

// nestedProto is a log record whose body is this many values in each other.
func nestedProto(depth int, list protowire.Number) []byte {
	// Inside out, written from the back: a value's length stands before it.
	reversed := []byte{}
	prepend := func(b []byte) {
		for i := len(b) - 1; i >= 0; i-- {
			reversed = append(reversed, b[i])
		}
	}
	wrap := func(number protowire.Number) {
		head := protowire.AppendTag(nil, number, protowire.BytesType)
		prepend(protowire.AppendVarint(head, uint64(len(reversed))))
	}
	for range depth - 1 {
		if list == 6 {
			wrap(2) // value of the pair
		}
		wrap(1)    // of the list
		wrap(list) // of the value
	}
	for _, number := range []protowire.Number{5, 2, 2, 1} {
		wrap(number)
	}
	for i, j := 0, len(reversed)-1; i < j; i, j = i+1, j-1 {
		reversed[i], reversed[j] = reversed[j], reversed[i]
	}
	return reversed
}

func nestedJSON(depth int, open, shut string) []byte {
	return []byte(`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":` +
		strings.Repeat(open, depth-1) + `{}` + strings.Repeat(shut, depth-1) + `}]}]}]}`)
}

func TestNestingIsBoundedAndWhatIsDecodedIsCounted(t *testing.T) {
	for _, list := range []protowire.Number{5, 6} {
		body := nestedProto(MaxNesting, list)
		_, err := Proto(Logs, body, unbounded)
		require.NoError(t, err)
		require.NoError(t, plogotlp.NewExportRequest().UnmarshalProto(body), "the test writes real OTLP")
		for _, depth := range []int{MaxNesting + 1, 1_000_000, 2_000_000} {
			_, err = Proto(Logs, nestedProto(depth, list), unbounded)
			require.ErrorIs(t, err, ErrTooDeep)
		}
	}
	for open, shut := range map[string]string{`{"arrayValue":{"values":[`: `]}}`, `{"kvlistValue":{"values":[{"value":`: `}]}}`} {
		body := nestedJSON(MaxNesting, open, shut)
		_, err := JSON(body, unbounded)
		require.NoError(t, err)
		require.NoError(t, plogotlp.NewExportRequest().UnmarshalJSON(body))
		for _, depth := range []int{2 * MaxNesting, 1_000_000} {
			_, err = JSON(nestedJSON(depth, open, shut), unbounded)
			require.ErrorIs(t, err, ErrTooDeep)
		}
	}
}

// TestDepthHidesNowhere nests where a scan could forget to look.
func TestDepthHidesNowhere(t *testing.T) {
	nested := nestedProto(1000, 5)
	value := nested[bytes.IndexByte(nested, 0x2a):] // the record's field 5
	_, n := protowire.ConsumeVarint(value[1:])
	value = value[1+n:]
	wrap := func(content []byte, numbers ...protowire.Number) []byte {
		for _, number := range numbers {
			content = protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
		}
		return content
	}
	attribute := wrap(value, 2)
	for name, c := range map[string]struct {
		signal Signal
		body   []byte
	}{
		"attribute of a record":     {Logs, wrap(attribute, 6, 2, 2, 1)},
		"attribute of the resource": {Logs, wrap(attribute, 1, 1, 1)},
		"attribute of the scope":    {Logs, wrap(attribute, 3, 1, 2, 1)},
		"where 0.14 had scopes":     {Logs, wrap(attribute, 6, 2, 1000, 1)},
		"second body":               {Logs, wrap(append(wrap(nil, 5), wrap(value, 5)...), 2, 2, 1)},
		"gauge":                     {Metrics, wrap(attribute, 7, 1, 5, 2, 2, 1)},
		"sum":                       {Metrics, wrap(attribute, 7, 1, 7, 2, 2, 1)},
		"histogram":                 {Metrics, wrap(attribute, 9, 1, 9, 2, 2, 1)},
		"exponential histogram":     {Metrics, wrap(attribute, 1, 1, 10, 2, 2, 1)},
		"summary":                   {Metrics, wrap(attribute, 7, 1, 11, 2, 2, 1)},
		"exemplar":                  {Metrics, wrap(attribute, 7, 5, 1, 5, 2, 2, 1)},
		"metadata of a metric":      {Metrics, wrap(attribute, 12, 2, 2, 1)},
		"span":                      {Traces, wrap(attribute, 9, 2, 2, 1)},
		"event of a span":           {Traces, wrap(attribute, 3, 11, 2, 2, 1)},
		"link of a span":            {Traces, wrap(attribute, 4, 13, 2, 2, 1)},
	} {
		_, err := Proto(c.signal, c.body, unbounded)
		require.ErrorIs(t, err, ErrTooDeep, name)
		require.NoError(t, decodeProto(c.signal, c.body), name)
	}
}

func TestCostStopsEmptyElementsAndLargeStrings(t *testing.T) {
	empty := bytes.Repeat([]byte{0x12, 0}, 100_000) // records of no bytes
	body := protowire.AppendBytes([]byte{0x12}, empty)
	body = protowire.AppendBytes([]byte{0x0a}, body)
	_, err := Proto(Logs, body, 1<<20)
	require.ErrorIs(t, err, ErrTooCostly)
	_, err = JSON([]byte(`{"resourceLogs":[`+strings.Repeat("{},", 100_000)+`{}]}`), 1<<20)
	require.ErrorIs(t, err, ErrTooCostly)
	_, err = JSON([]byte(`{"a":"`+strings.Repeat("x", MaxValue)), MaxValue-1)
	require.ErrorIs(t, err, ErrTooCostly)
}

// TestOneValueIsBounded, wherever it is, and however many more come beside it.
func TestOneValueIsBounded(t *testing.T) {
	for name, put := range map[string]func(lr plog.LogRecord, resource pcommon.Map, text string){
		"body":       func(lr plog.LogRecord, _ pcommon.Map, text string) { lr.Body().SetStr(text) },
		"attribute":  func(lr plog.LogRecord, _ pcommon.Map, text string) { lr.Attributes().PutStr("k", text) },
		"key":        func(lr plog.LogRecord, _ pcommon.Map, text string) { lr.Attributes().PutStr(text, "v") },
		"event name": func(lr plog.LogRecord, _ pcommon.Map, text string) { lr.SetEventName(text) },
		"bytes": func(lr plog.LogRecord, _ pcommon.Map, text string) {
			lr.Attributes().PutEmptyBytes("k").FromRaw([]byte(text))
		},
		"attribute of the resource": func(_ plog.LogRecord, resource pcommon.Map, text string) { resource.PutStr("k", text) },
		"in a list": func(lr plog.LogRecord, _ pcommon.Map, text string) {
			lr.Attributes().PutEmptySlice("k").AppendEmpty().SetStr(text)
		},
	} {
		for size, want := range map[int]error{MaxValue: nil, MaxValue + 1: ErrTooLong} {
			logs := plog.NewLogs()
			resource := logs.ResourceLogs().AppendEmpty()
			lr := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
			put(lr, resource.Resource().Attributes(), strings.Repeat("x", size))
			lr.Attributes().PutStr("beside", strings.Repeat("y", MaxValue))
			r := plogotlp.NewExportRequestFromLogs(logs)
			body, err := r.MarshalProto()
			require.NoError(t, err)
			_, err = Proto(Logs, body, unbounded)
			require.ErrorIs(t, err, want, "%s of %d", name, size)
			if name == "bytes" {
				continue // base64 in JSON
			}
			body, err = r.MarshalJSON()
			require.NoError(t, err)
			_, err = JSON(body, unbounded)
			require.ErrorIs(t, err, want, "%s of %d in JSON", name, size)
		}
	}
}

func TestGroupsAreNoOTLP(t *testing.T) {
	_, err := Proto(Logs, bytes.Repeat([]byte{0x0b}, 1000), unbounded)
	require.ErrorIs(t, err, ErrMalformed)
}

func decodeProto(signal Signal, body []byte) error {
	switch signal {
	case Logs:
		return plogotlp.NewExportRequest().UnmarshalProto(body)
	case Metrics:
		return pmetricotlp.NewExportRequest().UnmarshalProto(body)
	default:
		return ptraceotlp.NewExportRequest().UnmarshalProto(body)
	}
}

func decodeJSON(signal Signal, body []byte) error {
	switch signal {
	case Logs:
		return plogotlp.NewExportRequest().UnmarshalJSON(body)
	case Metrics:
		return pmetricotlp.NewExportRequest().UnmarshalJSON(body)
	default:
		return ptraceotlp.NewExportRequest().UnmarshalJSON(body)
	}
}

// allocated is how many bytes a call allocates, with what it throws away.
func allocated(call func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// slack is what decoding and measuring cost whatever is decoded.
const slack = 64 << 10

func TestCostIsWhatDecodingTakes(t *testing.T) {
	for _, signal := range []Signal{Logs, Metrics, Traces} {
		t.Run(signal.String(), func(t *testing.T) {
			body := sample(t, signal, 1000, false)
			cost, err := Proto(signal, body, unbounded)
			require.NoError(t, err)
			took := allocated(func() { require.NoError(t, decodeProto(signal, body)) })
			require.LessOrEqual(t, took, cost+slack)
			require.Greater(t, 4*took, cost, "no honest batch is refused for a cost it does not have")

			body = sample(t, signal, 1000, true)
			cost, err = JSON(body, unbounded)
			require.NoError(t, err)
			took = allocated(func() { require.NoError(t, decodeJSON(signal, body)) })
			require.LessOrEqual(t, took, cost+slack)
			require.Greater(t, 16*took, cost)
		})
	}
}

// FuzzProto decodes what a scan lets pass: it takes no more memory than the scan said.
func FuzzProto(f *testing.F) {
	for _, signal := range []Signal{Logs, Metrics, Traces} {
		f.Add(uint8(signal), sample(f, signal, 2, false))
	}
	f.Add(uint8(Logs), nestedProto(10, 5))
	f.Add(uint8(Logs), nestedProto(10, 6))
	f.Fuzz(func(t *testing.T, signal uint8, body []byte) {
		s := Signal(signal % 3)
		cost, err := Proto(s, body, 16<<20)
		if err != nil {
			return
		}
		require.LessOrEqual(t, allocated(func() { _ = decodeProto(s, body) }), cost+slack)
	})
}

// FuzzJSON is FuzzProto for JSON.
func FuzzJSON(f *testing.F) {
	for _, signal := range []Signal{Logs, Metrics, Traces} {
		f.Add(uint8(signal), sample(f, signal, 2, true))
	}
	f.Add(uint8(Logs), nestedJSON(10, `{"arrayValue":{"values":[`, `]}}`))
	f.Fuzz(func(t *testing.T, signal uint8, body []byte) {
		s := Signal(signal % 3)
		cost, err := JSON(body, 16<<20)
		if err != nil {
			return
		}
		require.LessOrEqual(t, allocated(func() { _ = decodeJSON(s, body) }), cost+slack)
	})
}

// sample is a message with every kind of element, n of each.
func sample(tb testing.TB, signal Signal, n int, asJSON bool) []byte {
	tb.Helper()
	var body []byte
	var err error
	switch signal {
	case Logs:
		r := plogotlp.NewExportRequestFromLogs(sampleLogs(n))
		body, err = marshal(asJSON, r.MarshalProto, r.MarshalJSON)
	case Metrics:
		r := pmetricotlp.NewExportRequestFromMetrics(sampleMetrics(n))
		body, err = marshal(asJSON, r.MarshalProto, r.MarshalJSON)
	default:
		r := ptraceotlp.NewExportRequestFromTraces(sampleTraces(n))
		body, err = marshal(asJSON, r.MarshalProto, r.MarshalJSON)
	}
	require.NoError(tb, err)
	return body
}

func marshal(asJSON bool, proto, json func() ([]byte, error)) ([]byte, error) {
	if asJSON {
		return json()
	}
	return proto()
}

func fill(m pcommon.Map) {
	for _, key := range []string{"a", "b", "c"} {
		m.PutStr(key, "value")
	}
	m.PutInt("int", 1)
	m.PutEmptyBytes("bytes").FromRaw([]byte("bytes"))
	m.PutEmptySlice("slice").AppendEmpty().SetEmptyMap().PutDouble("double", 1.5)
}

func sampleLogs(n int) plog.Logs {
	logs := plog.NewLogs()
	resource := logs.ResourceLogs().AppendEmpty()
	fill(resource.Resource().Attributes())
	scope := resource.ScopeLogs().AppendEmpty()
	fill(scope.Scope().Attributes())
	for range n {
		record := scope.LogRecords().AppendEmpty()
		record.Body().SetStr("body")
		record.SetEventName("event")
		fill(record.Attributes())
		scope.LogRecords().AppendEmpty()
	}
	return logs
}

func sampleMetrics(n int) pmetric.Metrics {
	metrics := pmetric.NewMetrics()
	scope := metrics.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty()
	for range n {
		gauge := scope.Metrics().AppendEmpty().SetEmptyGauge().DataPoints().AppendEmpty()
		gauge.SetIntValue(1)
		fill(gauge.Attributes())
		fill(gauge.Exemplars().AppendEmpty().FilteredAttributes())
		scope.Metrics().AppendEmpty().SetEmptySum().DataPoints().AppendEmpty().SetDoubleValue(1)
		histogram := scope.Metrics().AppendEmpty().SetEmptyHistogram().DataPoints().AppendEmpty()
		histogram.BucketCounts().FromRaw(make([]uint64, 20))
		histogram.ExplicitBounds().FromRaw(make([]float64, 19))
		exponential := scope.Metrics().AppendEmpty().SetEmptyExponentialHistogram().DataPoints().AppendEmpty()
		exponential.Positive().BucketCounts().FromRaw(make([]uint64, 100))
		summary := scope.Metrics().AppendEmpty().SetEmptySummary().DataPoints().AppendEmpty()
		summary.QuantileValues().AppendEmpty().SetValue(1)
	}
	return metrics
}

func sampleTraces(n int) ptrace.Traces {
	traces := ptrace.NewTraces()
	scope := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
	for range n {
		s := scope.Spans().AppendEmpty()
		s.SetName("span")
		fill(s.Attributes())
		fill(s.Events().AppendEmpty().Attributes())
		fill(s.Links().AppendEmpty().Attributes())
		s.Status().SetMessage("status")
	}
	return traces
}

func BenchmarkProto(b *testing.B) {
	body := sample(b, Logs, 200, false)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := Proto(Logs, body, unbounded); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecode is what BenchmarkProto is to be compared with.
func BenchmarkDecode(b *testing.B) {
	body := sample(b, Logs, 200, false)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if err := decodeProto(Logs, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkJSON(b *testing.B) {
	body := sample(b, Logs, 200, true)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := JSON(body, unbounded); err != nil {
			b.Fatal(err)
		}
	}
}
