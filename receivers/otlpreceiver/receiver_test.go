package otlpreceiver

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/pdata/testdata"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcencoding "google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/otlpscan"
	"github.com/tracecoreai/tracecore/receivers/otlpreceiver/internal/metadata"
)

// bench is a receiver on loopback and what came through it.
type bench struct {
	grpc, http string // addresses
	logs       *consumertest.LogsSink
	metrics    *consumertest.MetricsSink
	traces     *consumertest.TracesSink
	telemetry  *componenttest.Telemetry
}

// start starts a receiver whose process may use so much memory.
func start(t *testing.T, memory int64, next consumer.Logs, change ...func(*otlpreceiver.Config)) bench {
	t.Helper()
	before := debug.SetMemoryLimit(memory)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	b := bench{
		grpc: hosttest.FreeAddress(t), http: hosttest.FreeAddress(t), logs: new(consumertest.LogsSink),
		metrics: new(consumertest.MetricsSink), traces: new(consumertest.TracesSink), telemetry: componenttest.NewTelemetry(),
	}
	if next == nil {
		next = b.logs
	}
	factory := newFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	config.Protocols.GRPC.GetOrInsertDefault().NetAddr.Endpoint = b.grpc
	config.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = b.http
	for _, c := range change {
		c(config)
	}
	settings := receivertest.NewNopSettings(metadata.Type)
	settings.TelemetrySettings = b.telemetry.NewTelemetrySettings()
	logs, err := factory.CreateLogs(t.Context(), settings, config, next)
	require.NoError(t, err)
	metrics, err := factory.CreateMetrics(t.Context(), settings, config, b.metrics)
	require.NoError(t, err)
	traces, err := factory.CreateTraces(t.Context(), settings, config, b.traces)
	require.NoError(t, err)
	for _, r := range []interface {
		Start(context.Context, component.Host) error
	}{logs, metrics, traces} {
		require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	}
	t.Cleanup(func() {
		for _, r := range []interface{ Shutdown(context.Context) error }{logs, metrics, traces} {
			require.NoError(t, r.Shutdown(context.Background()))
		}
	})
	return b
}

// refused is how many refusals the receiver counts for a reason.
func (b bench) refused(t *testing.T, why reason) int64 {
	t.Helper()
	m, err := b.telemetry.GetMetric("otelcol_receiver_otlp_refused")
	if err != nil {
		return 0
	}
	var n int64
	for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
		if value, _ := point.Attributes.Value("reason"); value.AsString() == string(why) {
			n += point.Value
		}
	}
	return n
}

func (b bench) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(b.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(math.MaxInt32)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// post sends a body over HTTP and returns the status and the answer.
func (b bench) post(t *testing.T, path string, body io.Reader, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+b.http+path, body)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(said)
}

const (
	roomy     = 4 << 30
	protoType = "application/x-protobuf"
	jsonType  = "application/json"
)

func TestEverySignalComesInByEveryWay(t *testing.T) {
	b := start(t, roomy, nil)
	logs, metrics, traces := testdata.GenerateLogs(3), testdata.GenerateMetrics(3), testdata.GenerateTraces(3)
	c := b.dial(t)
	lr, mr, tr := plogotlp.NewExportRequestFromLogs(logs), pmetricotlp.NewExportRequestFromMetrics(metrics), ptraceotlp.NewExportRequestFromTraces(traces)
	_, err := plogotlp.NewGRPCClient(c).Export(t.Context(), lr)
	require.NoError(t, err)
	_, err = pmetricotlp.NewGRPCClient(c).Export(t.Context(), mr)
	require.NoError(t, err)
	_, err = ptraceotlp.NewGRPCClient(c).Export(t.Context(), tr)
	require.NoError(t, err)
	for path, r := range map[string]interface {
		MarshalProto() ([]byte, error)
		MarshalJSON() ([]byte, error)
	}{"/v1/logs": lr, "/v1/metrics": mr, "/v1/traces": tr} {
		body, err := r.MarshalProto()
		require.NoError(t, err)
		resp, said := b.post(t, path, bytes.NewReader(body), "Content-Type", protoType)
		require.Equal(t, http.StatusOK, resp.StatusCode, said)
		require.Equal(t, protoType, resp.Header.Get("Content-Type"))
		body, err = r.MarshalJSON()
		require.NoError(t, err)
		resp, said = b.post(t, path, bytes.NewReader(body), "Content-Type", jsonType)
		require.Equal(t, http.StatusOK, resp.StatusCode, said)
	}
	require.Len(t, b.logs.AllLogs(), 3)
	for _, got := range b.logs.AllLogs() {
		require.Equal(t, logs, got)
	}
	require.Len(t, b.metrics.AllMetrics(), 3)
	require.Len(t, b.traces.AllTraces(), 3)
	require.Zero(t, b.refused(t, malformed))
}

// nested is OTLP whose body is this many arrays in each other.
func nested(depth int) plog.Logs {
	logs := plog.NewLogs()
	value := logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body()
	for range depth {
		value = value.SetEmptySlice().AppendEmpty()
	}
	return logs
}

func TestNestedValuesAreRefusedBeforeTheyAreDecoded(t *testing.T) {
	b := start(t, roomy, nil)
	r := plogotlp.NewExportRequestFromLogs(nested(1000))
	_, err := plogotlp.NewGRPCClient(b.dial(t)).Export(t.Context(), r)
	require.Equal(t, codes.InvalidArgument, status.Code(err), err)
	require.ErrorContains(t, err, "nested more than 32 deep")
	require.EqualValues(t, 1, b.refused(t, tooDeep))

	body, err := r.MarshalProto()
	require.NoError(t, err)
	resp, said := b.post(t, "/v1/logs", bytes.NewReader(body), "Content-Type", protoType)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	require.Contains(t, said, "nested more than 32 deep")

	// 20 MB that stay within the configured size: the decoder's stack would overflow.
	deep := `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":` + strings.Repeat(`{"arrayValue":{"values":[`, 700_000)
	resp, _ = b.post(t, "/v1/logs", strings.NewReader(deep), "Content-Type", jsonType)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	require.EqualValues(t, 3, b.refused(t, tooDeep))
	require.Zero(t, b.logs.LogRecordCount())
}

// TestALongValueIsRefused with what to do about it; what is as long as one may be is taken.
func TestALongValueIsRefused(t *testing.T) {
	b := start(t, roomy, nil)
	long := func(bytes int) plogotlp.ExportRequest {
		logs := testdata.GenerateLogs(1)
		logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Body().SetStr(strings.Repeat("x", bytes))
		return plogotlp.NewExportRequestFromLogs(logs)
	}
	for size, want := range map[int]int{otlpscan.MaxValue: http.StatusOK, otlpscan.MaxValue + 1: http.StatusBadRequest, 15 << 20: http.StatusBadRequest} {
		for _, as := range []struct {
			media   string
			marshal func() ([]byte, error)
		}{{protoType, long(size).MarshalProto}, {jsonType, long(size).MarshalJSON}} {
			body, err := as.marshal()
			require.NoError(t, err)
			resp, said := b.post(t, "/v1/logs", bytes.NewReader(body), "Content-Type", as.media)
			require.Equal(t, want, resp.StatusCode, said)
			require.Equal(t, want != http.StatusOK, strings.Contains(said, "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"))
		}
	}
	require.EqualValues(t, 4, b.refused(t, tooLong))
	require.Equal(t, 2, b.logs.LogRecordCount())
}

func TestCompressedBodiesAreBoundedAsTheyGrow(t *testing.T) {
	b := start(t, roomy, nil)
	var mebibyte bytes.Buffer
	z := gzip.NewWriter(&mebibyte)
	_, err := z.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	bomb := bytes.Repeat(mebibyte.Bytes(), 200) // members in a row are one text
	resp, said := b.post(t, "/v1/logs", bytes.NewReader(bomb), "Content-Type", protoType, "Content-Encoding", "gzip")
	require.Equal(t, http.StatusBadRequest, resp.StatusCode, said)
	require.EqualValues(t, 1, b.refused(t, tooCostly))

	// A frame of 20 bytes that asks its decoder for a window of 512 MiB.
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 19 << 3, 0x01, 0x00, 0x00}
	resp, said = b.post(t, "/v1/logs", bytes.NewReader(frame), "Content-Type", protoType, "Content-Encoding", "zstd")
	require.Equal(t, http.StatusBadRequest, resp.StatusCode, said)
	require.Contains(t, said, "window size exceeded")
	// gRPC's frame says "compressed" and how long it is.
	err = b.dial(t).Invoke(t.Context(), "/opentelemetry.proto.collector.logs.v1.LogsService/Export", frame, new([]byte),
		grpc.ForceCodecV2(rawCodec{}), grpc.UseCompressor(asItIs(t, "zstd")))
	require.ErrorContains(t, err, "window size exceeded")

	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	require.NoError(t, err)
	body, err := plogotlp.NewExportRequestFromLogs(testdata.GenerateLogs(2)).MarshalProto()
	require.NoError(t, err)
	resp, said = b.post(t, "/v1/logs", bytes.NewReader(encoder.EncodeAll(body, nil)), "Content-Type", protoType, "Content-Encoding", "zstd")
	require.Equal(t, http.StatusOK, resp.StatusCode, said)
	require.Equal(t, 2, b.logs.LogRecordCount())
}

// asItIs has the client send a message that is compressed already.
func asItIs(t *testing.T, name string) string {
	t.Helper()
	before := grpcencoding.GetCompressor(name)
	grpcencoding.RegisterCompressor(sentAsItIs{name})
	t.Cleanup(func() { grpcencoding.RegisterCompressor(before) })
	return name
}

type sentAsItIs struct{ name string }

func (s sentAsItIs) Name() string                               { return s.name }
func (sentAsItIs) Compress(w io.Writer) (io.WriteCloser, error) { return nopCloser{w}, nil }
func (sentAsItIs) Decompress(io.Reader) (io.Reader, error) {
	return nil, errors.New("not by the registry")
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// TestRequestsBeyondTheMemoryAreToldToComeBack holds one request in the consumer: a
// second that does not fit beside it is refused, and taken afterwards.
func TestRequestsBeyondTheMemoryAreToldToComeBack(t *testing.T) {
	begun, release := make(chan struct{}, 1), make(chan struct{})
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error { begun <- struct{}{}; <-release; return nil })
	require.NoError(t, err)
	b := start(t, 64<<20, next) // requests may hold 16 MiB
	body := message(t, 5<<20)
	done := make(chan int)
	go func() {
		resp, err := http.Post("http://"+b.http+"/v1/logs", protoType, bytes.NewReader(body))
		if err != nil {
			done <- 0
			return
		}
		done <- resp.StatusCode
		_ = resp.Body.Close()
	}()
	<-begun
	resp, said := b.post(t, "/v1/logs", bytes.NewReader(body), "Content-Type", protoType)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, said)
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	require.EqualValues(t, 1, b.refused(t, busy))
	close(release)
	require.Equal(t, http.StatusOK, <-done)
	resp, said = b.post(t, "/v1/logs", bytes.NewReader(body), "Content-Type", protoType)
	require.Equal(t, http.StatusOK, resp.StatusCode, said)

	resp, _ = b.post(t, "/v1/logs", bytes.NewReader(message(t, 9<<20)), "Content-Type", protoType)
	require.NotEqual(t, http.StatusOK, resp.StatusCode, "more than half of what all requests may hold")
}

func TestConsumersErrorsSayWhetherToTryAgain(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		grpc codes.Code
		http int
	}{
		"again":  {fmt.Errorf("full"), codes.Unavailable, http.StatusServiceUnavailable},
		"never":  {consumererror.NewPermanent(fmt.Errorf("bad")), codes.Internal, http.StatusInternalServerError},
		"itself": {status.Error(codes.ResourceExhausted, "slow down"), codes.ResourceExhausted, http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, roomy, consumertest.NewErr(c.err))
			r := plogotlp.NewExportRequestFromLogs(testdata.GenerateLogs(1))
			_, err := plogotlp.NewGRPCClient(b.dial(t)).Export(t.Context(), r)
			require.Equal(t, c.grpc, status.Code(err))
			body, err := r.MarshalJSON()
			require.NoError(t, err)
			resp, said := b.post(t, "/v1/logs", bytes.NewReader(body), "Content-Type", jsonType)
			require.Equal(t, c.http, resp.StatusCode)
			require.Contains(t, said, `"code":`)
		})
	}
}

func TestWhatIsNoOTLPIsRefused(t *testing.T) {
	b := start(t, roomy, nil)
	for want, headers := range map[int][]string{
		http.StatusUnsupportedMediaType: {"Content-Type", "text/plain"},
		http.StatusBadRequest:           {"Content-Type", protoType},
	} {
		resp, _ := b.post(t, "/v1/logs", strings.NewReader("\x0b\x0b"), headers...)
		require.Equal(t, want, resp.StatusCode)
	}
	require.EqualValues(t, 1, b.refused(t, malformed))
	resp, err := http.Get("http://" + b.http + "/v1/logs")
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
	require.Error(t, b.dial(t).Invoke(t.Context(), "/opentelemetry.proto.collector.logs.v1.LogsService/Other", nil, nil))
}

// TestSilentConnectionsAreClosed says nothing, or begins and does not go on.
func TestSilentConnectionsAreClosed(t *testing.T) {
	b := start(t, roomy, nil, func(c *otlpreceiver.Config) {
		c.Protocols.HTTP.Get().ServerConfig.ReadHeaderTimeout = 50 * time.Millisecond
		c.Protocols.HTTP.Get().ServerConfig.ReadTimeout = 100 * time.Millisecond
	})
	for name, c := range map[string]struct{ address, says string }{
		"HTTP, silent":          {b.http, ""},
		"HTTP, half a header":   {b.http, "POST /v1/logs HT"},
		"HTTP, half a body":     {b.http, "POST /v1/logs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"},
		"gRPC, silent":          {b.grpc, ""},
		"gRPC, half a greeting": {b.grpc, "PRI * HTTP/2.0\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", c.address)
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, c.says)
			require.NoError(t, err)
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(hosttest.Patience)))
			_, err = io.Copy(io.Discard, conn)
			require.False(t, os.IsTimeout(err), "the server closes it")
		})
	}
}

// TestConnectionsAreCapped opens more than the memory is for: those beyond are closed
// at once, and a place that is given back is taken anew.
func TestConnectionsAreCapped(t *testing.T) {
	const places = 8
	b := start(t, places*perSender*connectionCost/connectionShare, nil)
	var held []net.Conn
	for range places {
		conn, err := net.Dial("tcp", b.http)
		require.NoError(t, err)
		held = append(held, conn)
		defer conn.Close()
	}
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", b.http)
		if err != nil {
			return false
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // of an open connection
		_, err = conn.Read(make([]byte, 1))
		return !os.IsTimeout(err)
	}, hosttest.Patience, time.Millisecond)
	require.Eventually(t, func() bool { return b.refused(t, connections) > 0 }, hosttest.Patience, time.Millisecond)
	for _, conn := range held {
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + b.http + "/v1/logs")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	}, hosttest.Patience, time.Millisecond)
}

func TestAnIPv6HostIsOneSender(t *testing.T) {
	at := func(s string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(s), Port: 1} }
	require.Equal(t, originOf(at("2001:db8::1")), originOf(at("2001:db8::2:3:4:5")))
	require.NotEqual(t, originOf(at("2001:db8::1")), originOf(at("2001:db8:0:1::1")))
	require.NotEqual(t, originOf(at("10.0.0.1")), originOf(at("10.0.0.2")))
	require.Equal(t, originOf(at("10.0.0.1")), originOf(at("::ffff:10.0.0.1")))
	require.Equal(t, originOf(&net.UnixAddr{Name: "a"}), originOf(&net.UnixAddr{Name: "b"}))
}

// TestHalfMessagesOfGRPCAreBounded begins requests and does not end them: those beyond
// the memory for messages are told to come back.
func TestHalfMessagesOfGRPCAreBounded(t *testing.T) {
	b := start(t, 64<<20, nil) // messages may hold 8 MiB: two of 4 MiB
	c := b.dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open := func() grpc.ClientStream {
		s, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/opentelemetry.proto.collector.logs.v1.LogsService/Export")
		require.NoError(t, err)
		return s
	}
	told := make(chan error, 3)
	for range 3 { // which of them finds no memory is not said
		s := open()
		go func() { told <- s.RecvMsg(nil) }()
	}
	require.Equal(t, codes.Unavailable, status.Code(<-told))
	require.Positive(t, b.refused(t, busy))
	cancel()
	require.Eventually(t, func() bool {
		_, err := plogotlp.NewGRPCClient(c).Export(t.Context(), plogotlp.NewExportRequestFromLogs(testdata.GenerateLogs(1)))
		return err == nil
	}, hosttest.Patience, time.Millisecond)
}
