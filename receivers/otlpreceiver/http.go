package otlpreceiver

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"runtime"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tracecoreai/tracecore/internal/gate"
	"github.com/tracecoreai/tracecore/internal/otlpscan"
)

// contentTypes are those of OTLP over HTTP.
var contentTypes = map[string]encoding{"application/x-protobuf": inProto, "application/json": inJSON}

// startHTTP serves HTTP, where it is configured.
func (r *otlpReceiver) startHTTP(ctx context.Context, host component.Host) error {
	if !r.config.Protocols.HTTP.HasValue() {
		return nil
	}
	config := r.config.Protocols.HTTP.Get()
	routes := http.NewServeMux()
	for _, x := range r.exporters {
		routes.Handle(path(config, x.signal), r.handler(x))
	}
	server, err := config.ServerConfig.ToServer(ctx, host.GetExtensions(), r.settings.TelemetrySettings, routes,
		confighttp.WithErrorHandler(writeError), confighttp.WithDecoder("zstd", zstdBody))
	if err != nil {
		return err
	}
	server.ConnContext = withOtherEnd
	server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams}
	listen, err := gate.BelowTLS(ctx, &config.ServerConfig, []string{http2.NextProtoTLS, "http/1.1"}, func(ctx context.Context) (net.Listener, error) {
		inner, err := r.listen(ctx, host, config.ServerConfig.NetAddr)
		if err != nil {
			return nil, err
		}
		return r.bounded(inner), nil
	})
	if err != nil {
		return err
	}
	r.http.stop = server.Shutdown
	r.serve(host, func() error { return server.Serve(listen) }, http.ErrServerClosed)
	return nil
}

func path(config *otlpreceiver.HTTPConfig, signal otlpscan.Signal) string {
	return string([...]otlpreceiver.SanitizedURLPath{
		otlpscan.Logs: config.LogsURLPath, otlpscan.Metrics: config.MetricsURLPath, otlpscan.Traces: config.TracesURLPath,
	}[signal])
}

// handler takes requests of one signal.
func (r *otlpReceiver) handler(x exporter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		e, known := contentType(req)
		switch {
		case req.Method != http.MethodPost:
			http.Error(w, "405 method not allowed, supported: [POST]", http.StatusMethodNotAllowed)
			return
		case !known:
			http.Error(w, "415 unsupported media type, supported: [application/json, application/x-protobuf]", http.StatusUnsupportedMediaType)
			return
		}
		req = withSender(req)
		body, held, err := r.readBody(req)
		defer r.budget.giveBack(sender(req.Context()), held)
		var said []byte
		if err == nil {
			said, err = r.export(req.Context(), &r.http, x, e, body)
		}
		if err != nil {
			writeStatus(w, e, status.Convert(err), httpStatus(status.Code(err)))
			return
		}
		write(w, e, http.StatusOK, said)
	})
}

func contentType(req *http.Request) (encoding, bool) {
	kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	e, known := contentTypes[kind]
	return e, known
}

// firstRead is the memory that a request has before it says anything.
const firstRead = 4 << 10

// slice is how much of a body is read, or copied, before others have their turn. Bodies that
// come as fast as they are read would else compute for 10 ms each (forcePreemptNS of Go's
// scheduler), and what reads the kernel would wait behind all of them.
const slice = 64 << 10

// readBody reads a body, decompressed, and reserves what it holds before it grows. The
// server ends a body that is larger than the configuration allows. held is what the
// caller gives back, also when reading fails.
func (r *otlpReceiver) readBody(req *http.Request) (body []byte, held int64, err error) {
	from := sender(req.Context())
	if !r.budget.room(from, max(req.ContentLength, 0)) {
		return nil, 0, r.tryLater(req.Context())
	}
	for {
		if len(body) == cap(body) {
			more := max(firstRead, cap(body))
			if left := req.ContentLength - int64(len(body)); left > 0 {
				more = min(3*more, int(left)+1) // it ends with the byte that is not there
			}
			if !r.budget.take(from, int64(more)) {
				return nil, held, r.tryLater(req.Context())
			}
			held += int64(more)
			body = moved(body, len(body)+more)
		}
		n, err := req.Body.Read(body[len(body):min(len(body)+slice, cap(body))])
		body = body[:len(body)+n]
		if len(body) >= slice {
			runtime.Gosched()
		}
		if errors.Is(err, io.EOF) {
			return body, held, nil
		}
		if err != nil {
			return nil, held, r.unreadable(req.Context(), err)
		}
	}
}

// moved is body with more room. What is copied at once ends no sooner when the garbage
// collector asks all to stop, so it is little.
func moved(body []byte, room int) []byte {
	larger := make([]byte, len(body), room)
	for at := 0; at < len(body); at += slice {
		copy(larger[at:], body[at:min(at+slice, len(body))])
	}
	return larger
}

// unreadable is the answer to a body that does not end, or is no compressed stream.
func (r *otlpReceiver) unreadable(ctx context.Context, err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		r.refuse(ctx, tooCostly)
	} else {
		r.refuse(ctx, malformed)
	}
	return status.Error(codes.InvalidArgument, err.Error())
}

// httpStatus is the table of the OTLP specification, "Failures": 503 and 429 are tried
// again.
func httpStatus(code codes.Code) int {
	switch code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss:
		return http.StatusServiceUnavailable
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.Unimplemented:
		return http.StatusNotFound
	default:
		return http.StatusInternalServerError
	}
}

// writeError answers what the server itself refuses: authentication, compression.
func writeError(w http.ResponseWriter, req *http.Request, message string, code int) {
	e, known := contentType(req)
	if !known {
		e = inJSON
	}
	grpcCode := map[int]codes.Code{
		http.StatusBadRequest: codes.InvalidArgument, http.StatusUnauthorized: codes.Unauthenticated, http.StatusForbidden: codes.PermissionDenied,
	}[code]
	if grpcCode == codes.OK {
		grpcCode = codes.Unknown
	}
	writeStatus(w, e, status.New(grpcCode, message), code)
}

// writeStatus writes an error as OTLP says it: a google.rpc.Status in the encoding of
// the request.
func writeStatus(w http.ResponseWriter, e encoding, s *status.Status, code int) {
	marshal := proto.Marshal
	if e == inJSON {
		marshal = protojson.Marshal
	}
	body, err := marshal(s.Proto())
	if err != nil {
		code = http.StatusInternalServerError
	}
	if code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	write(w, e, code, body)
}

func write(w http.ResponseWriter, e encoding, code int, body []byte) {
	w.Header().Set("Content-Type", map[encoding]string{inProto: "application/x-protobuf", inJSON: "application/json"}[e])
	w.WriteHeader(code)
	_, _ = w.Write(body) // who does not read the answer does not get it
}
