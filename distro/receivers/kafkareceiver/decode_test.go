package kafkareceiver

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/kafkareceiver"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/otlpscan"
)

// nested is a value in so many lists.
func nested(v pcommon.Value, depth int) {
	for range depth {
		v = v.SetEmptySlice().AppendEmpty()
	}
	v.SetStr("x")
}

func record(depth int) plog.Logs {
	ld := plog.NewLogs()
	nested(ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body(), depth)
	return ld
}

func sample(depth int) pmetric.Metrics {
	md := pmetric.NewMetrics()
	nested(md.ResourceMetrics().AppendEmpty().Resource().Attributes().PutEmpty("a"), depth)
	return md
}

func span(depth int) ptrace.Traces {
	td := ptrace.NewTraces()
	nested(td.ResourceSpans().AppendEmpty().Resource().Attributes().PutEmpty("a"), depth)
	return td
}

// lookup is a component that looks up its encoding as contrib's receiver does.
type lookup struct {
	component.ShutdownFunc
	encoding string
	found    component.Component
}

func (l *lookup) Start(_ context.Context, host component.Host) error {
	l.found = host.GetExtensions()[component.MustNewID(l.encoding)]
	return nil
}

type everything interface {
	plog.Unmarshaler
	pmetric.Unmarshaler
	ptrace.Unmarshaler
}

func decoderOf(t *testing.T, encoding string) everything {
	inner := &lookup{encoding: encoding}
	r, err := decode(inner, encoding, nil)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	return inner.found.(everything)
}

// TestMessagesAreBoundedBeforeTheyAreDecoded in each encoding and signal.
func TestMessagesAreBoundedBeforeTheyAreDecoded(t *testing.T) {
	type messages struct {
		logs, metrics, traces func(depth int) ([]byte, error)
	}
	for encoding, make := range map[string]messages{
		inProto: {
			func(depth int) ([]byte, error) { return (&plog.ProtoMarshaler{}).MarshalLogs(record(depth)) },
			func(depth int) ([]byte, error) { return (&pmetric.ProtoMarshaler{}).MarshalMetrics(sample(depth)) },
			func(depth int) ([]byte, error) { return (&ptrace.ProtoMarshaler{}).MarshalTraces(span(depth)) },
		},
		inJSON: {
			func(depth int) ([]byte, error) { return (&plog.JSONMarshaler{}).MarshalLogs(record(depth)) },
			func(depth int) ([]byte, error) { return (&pmetric.JSONMarshaler{}).MarshalMetrics(sample(depth)) },
			func(depth int) ([]byte, error) { return (&ptrace.JSONMarshaler{}).MarshalTraces(span(depth)) },
		},
	} {
		d := decoderOf(t, encoding)
		for signal, one := range map[string]struct {
			message func(int) ([]byte, error)
			decode  func([]byte) (int, error)
		}{
			"logs": {make.logs, func(m []byte) (int, error) {
				ld, err := d.UnmarshalLogs(m)
				if err != nil {
					return 0, err
				}
				return ld.ResourceLogs().Len(), nil
			}},
			"metrics": {make.metrics, func(m []byte) (int, error) {
				md, err := d.UnmarshalMetrics(m)
				if err != nil {
					return 0, err
				}
				return md.ResourceMetrics().Len(), nil
			}},
			"traces": {make.traces, func(m []byte) (int, error) {
				td, err := d.UnmarshalTraces(m)
				if err != nil {
					return 0, err
				}
				return td.ResourceSpans().Len(), nil
			}},
		} {
			t.Run(encoding+" "+signal, func(t *testing.T) {
				plain, err := one.message(3)
				require.NoError(t, err)
				resources, err := one.decode(plain)
				require.NoError(t, err)
				require.Equal(t, 1, resources)
				deep, err := one.message(3 * otlpscan.MaxNesting)
				require.NoError(t, err)
				_, err = one.decode(deep)
				require.ErrorIs(t, err, otlpscan.ErrTooDeep)
			})
		}
	}
}

// TestAMessageThatCostsTooMuchIsRefused: a bound that is small shows it with little memory.
func TestAMessageThatCostsTooMuchIsRefused(t *testing.T) {
	ld := record(0)
	ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Body().SetStr(strings.Repeat("x", 1<<16))
	message, err := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
	require.NoError(t, err)
	_, err = proto{decoder{most: 1 << 12}}.UnmarshalLogs(message)
	require.ErrorIs(t, err, otlpscan.ErrTooCostly)
	message, err = (&plog.JSONMarshaler{}).MarshalLogs(ld)
	require.NoError(t, err)
	_, err = json{decoder{most: 1 << 12}}.UnmarshalLogs(message)
	require.ErrorIs(t, err, otlpscan.ErrTooCostly)
}

// TestOtherEncodingsAreRefused by the whole factory, and OTLP is not.
func TestOtherEncodingsAreRefused(t *testing.T) {
	f := bounded()
	settings := receivertest.NewNopSettings(f.Type())
	for _, encoding := range []string{"json", "raw", "text", "jaeger_json", "zipkin_thrift", "otlp_proto/mine", ""} {
		c := f.CreateDefaultConfig().(*kafkareceiver.Config)
		c.Logs.Encoding, c.Metrics.Encoding, c.Traces.Encoding = encoding, encoding, encoding
		_, err := f.CreateLogs(t.Context(), settings, c, consumertest.NewNop())
		require.ErrorContains(t, err, "otlp_proto")
		_, err = f.CreateMetrics(t.Context(), settings, c, consumertest.NewNop())
		require.ErrorContains(t, err, "otlp_proto")
		_, err = f.CreateTraces(t.Context(), settings, c, consumertest.NewNop())
		require.ErrorContains(t, err, "otlp_proto")
	}
	r, err := f.CreateLogs(t.Context(), settings, f.CreateDefaultConfig(), consumertest.NewNop())
	require.NoError(t, err)
	require.IsType(t, receiving{}, r)
}

// TestContribsReceiverDecodesByOurDecoder: a message that is too deep is left out, and the
// one behind it is handed on. By contrib's decoder both would be.
func TestContribsReceiverDecodesByOurDecoder(t *testing.T) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "otlp_logs"))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	for _, depth := range []int{3 * otlpscan.MaxNesting, 1} {
		message, err := (&plog.ProtoMarshaler{}).MarshalLogs(record(depth))
		require.NoError(t, err)
		require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "otlp_logs", Value: message}).FirstErr())
	}
	f := NewFactory()
	c := f.CreateDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(map[string]any{
		"brokers": broker.ListenAddrs(), "initial_offset": "earliest",
		"message_marking": map[string]any{"after": true, "on_permanent_error": true},
	}).Unmarshal(c))
	sink := &arrived{first: make(chan plog.Logs, 2)}
	r, err := f.CreateLogs(t.Context(), receivertest.NewNopSettings(f.Type()), c, sink)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	defer func() { require.NoError(t, r.Shutdown(context.Background())) }()
	select {
	case ld := <-sink.first:
		body := ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Body()
		require.Equal(t, `["x"]`, body.AsString(), "the message before it is too deep")
	case <-time.After(hosttest.Patience):
		t.Fatal("no message came")
	}
}

type arrived struct {
	consumertest.Consumer
	first chan plog.Logs
}

func (*arrived) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (a *arrived) ConsumeLogs(_ context.Context, ld plog.Logs) error {
	copied := plog.NewLogs()
	ld.CopyTo(copied)
	select {
	case a.first <- copied:
	default:
	}
	return nil
}
