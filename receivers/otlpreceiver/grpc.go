package otlpreceiver

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/tracecoreai/tracecore/internal/memorylimit"
)

// startGRPC serves gRPC, where it is configured.
func (r *otlpReceiver) startGRPC(ctx context.Context, host component.Host) error {
	if !r.config.Protocols.GRPC.HasValue() {
		return nil
	}
	config := r.config.Protocols.GRPC.Get()
	server, err := config.ToServer(ctx, host.GetExtensions(), r.settings.TelemetrySettings, r.grpcOptions(config)...)
	if err != nil {
		return err
	}
	for _, x := range r.exporters {
		server.RegisterService(r.describe(x), nil)
	}
	inner, err := r.listen(ctx, host, config.NetAddr)
	if err != nil {
		return err
	}
	r.grpc.stop = func(context.Context) error { server.GracefulStop(); return nil }
	r.serve(host, func() error { return server.Serve(r.bounded(inner)) }, grpc.ErrServerStopped)
	return nil
}

// grpcOptions bound what is not decoded yet. A message is in memory before its codec
// sees it, so the number of messages on their way is bounded.
func (r *otlpReceiver) grpcOptions(config *configgrpc.ServerConfig) []configgrpc.ToServerOption {
	largest := int64(4 << 20) // gRPC's own default
	if config.MaxRecvMsgSizeMiB > 0 {
		largest = int64(config.MaxRecvMsgSizeMiB) << 20
	}
	messages := &shares{size: max(memorylimit.Budget(messageShare), largest)}
	begin := func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		var from origin
		if p, ok := peer.FromContext(ctx); ok {
			from = originOf(p.Addr)
		}
		if !messages.take(from, largest) {
			return nil, r.tryLater(ctx)
		}
		// The stream's end, or that of its time, gives the place back.
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		context.AfterFunc(ctx, func() { cancel(); messages.giveBack(from, largest) })
		return ctx, nil
	}
	var options []configgrpc.ToServerOption
	for _, option := range []grpc.ServerOption{
		grpc.InTapHandle(begin), grpc.ConnectionTimeout(handshakeTimeout), grpc.ForceServerCodecV2(rawCodec{}),
		grpc.RPCDecompressor(zstdMessages{largest}), //nolint:staticcheck // the registry that is to replace it is one for the whole process, and configgrpc's unbounded decoder is in it
	} {
		options = append(options, configgrpc.WithGrpcServerOption(option))
	}
	return options
}

// describe is the service of one signal. Its handler gets the bytes of the message,
// after authentication.
func (r *otlpReceiver) describe(x exporter) *grpc.ServiceDesc {
	handle := func(ctx context.Context, message any) (any, error) {
		return r.export(ctx, &r.grpc, x, inProto, message.([]byte))
	}
	return &grpc.ServiceDesc{ServiceName: x.service, Methods: []grpc.MethodDesc{{
		MethodName: "Export",
		Handler: func(server any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			var body []byte
			if err := read(&body); err != nil {
				return nil, err
			}
			if intercept == nil {
				return handle(ctx, body)
			}
			return intercept(ctx, body, &grpc.UnaryServerInfo{Server: server, FullMethod: "/" + x.service + "/Export"}, handle)
		},
	}}}
}

// rawCodec leaves messages as the bytes that they are.
type rawCodec struct{}

// Name is that of the encoding on the wire.
func (rawCodec) Name() string { return "proto" }

// Marshal takes an encoded response.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	body, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("a response is bytes, not %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(body)}, nil
}

// Unmarshal gives the bytes of a request.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	body, ok := v.(*[]byte)
	if !ok {
		return errors.New("a request is read as bytes")
	}
	*body = data.Materialize()
	return nil
}
