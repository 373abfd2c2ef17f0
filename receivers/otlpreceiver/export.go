package otlpreceiver

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tracecoreai/tracecore/internal/otlpscan"
)

// encoding is how a message is written.
type encoding bool

const (
	inProto encoding = false
	inJSON  encoding = true
)

// request is a message of any signal, that a decoder fills.
type request interface {
	UnmarshalProto([]byte) error
	UnmarshalJSON([]byte) error
}

func decode(r request, e encoding, body []byte) error {
	if e == inJSON {
		return r.UnmarshalJSON(body)
	}
	return r.UnmarshalProto(body)
}

// response answers a request; it is empty.
type response interface {
	MarshalProto() ([]byte, error)
	MarshalJSON() ([]byte, error)
}

func encode(r response, e encoding) ([]byte, error) {
	if e == inJSON {
		return r.MarshalJSON()
	}
	return r.MarshalProto()
}

// exporter takes the decoded messages of one signal to the next consumer.
type exporter struct {
	signal   otlpscan.Signal
	service  string // of gRPC
	consume  func(ctx context.Context, transport *transport, decode func(request) error) error
	response response
}

func logsExporter(next consumer.Logs) exporter {
	consume := func(ctx context.Context, t *transport, decode func(request) error) error {
		r := plogotlp.NewExportRequest()
		if err := decode(r); err != nil {
			return err
		}
		n := r.Logs().LogRecordCount()
		if n == 0 {
			return nil
		}
		ctx = t.report.StartLogsOp(ctx)
		err := next.ConsumeLogs(ctx, r.Logs())
		t.report.EndLogsOp(ctx, "protobuf", n, err)
		return err
	}
	return exporter{otlpscan.Logs, "opentelemetry.proto.collector.logs.v1.LogsService", consume, plogotlp.NewExportResponse()}
}

func metricsExporter(next consumer.Metrics) exporter {
	consume := func(ctx context.Context, t *transport, decode func(request) error) error {
		r := pmetricotlp.NewExportRequest()
		if err := decode(r); err != nil {
			return err
		}
		n := r.Metrics().DataPointCount()
		if n == 0 {
			return nil
		}
		ctx = t.report.StartMetricsOp(ctx)
		err := next.ConsumeMetrics(ctx, r.Metrics())
		t.report.EndMetricsOp(ctx, "protobuf", n, err)
		return err
	}
	return exporter{otlpscan.Metrics, "opentelemetry.proto.collector.metrics.v1.MetricsService", consume, pmetricotlp.NewExportResponse()}
}

func tracesExporter(next consumer.Traces) exporter {
	consume := func(ctx context.Context, t *transport, decode func(request) error) error {
		r := ptraceotlp.NewExportRequest()
		if err := decode(r); err != nil {
			return err
		}
		n := r.Traces().SpanCount()
		if n == 0 {
			return nil
		}
		ctx = t.report.StartTracesOp(ctx)
		err := next.ConsumeTraces(ctx, r.Traces())
		t.report.EndTracesOp(ctx, "protobuf", n, err)
		return err
	}
	return exporter{otlpscan.Traces, "opentelemetry.proto.collector.trace.v1.TraceService", consume, ptraceotlp.NewExportResponse()}
}

// export scans a message, decodes it and hands it on. Its errors are those of gRPC.
func (r *otlpReceiver) export(ctx context.Context, t *transport, x exporter, e encoding, body []byte) ([]byte, error) {
	from := sender(ctx)
	leave, err := r.turns.enter(ctx, from, len(body))
	if err != nil {
		return nil, r.tryLater(ctx)
	}
	defer leave()
	cost, err := scan(x.signal, e, body, r.budget.maxCost())
	if err != nil {
		r.refuse(ctx, reasonOf(err))
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if !r.budget.take(from, cost) {
		return nil, r.tryLater(ctx)
	}
	defer r.budget.giveBack(from, cost)
	err = x.consume(ctx, t, func(into request) error {
		defer leave() // consumers may wait
		if err := decode(into, e, body); err != nil {
			return undecodable(err)
		}
		return nil
	})
	if err != nil {
		return nil, answer(err)
	}
	return encode(x.response, e)
}

func scan(signal otlpscan.Signal, e encoding, body []byte, maxCost int64) (int64, error) {
	if e == inJSON {
		return otlpscan.JSON(body, maxCost)
	}
	return otlpscan.Proto(signal, body, maxCost)
}

func reasonOf(err error) reason {
	switch {
	case errors.Is(err, otlpscan.ErrTooDeep):
		return tooDeep
	case errors.Is(err, otlpscan.ErrTooLong):
		return tooLong
	case errors.Is(err, otlpscan.ErrTooCostly):
		return tooCostly
	default:
		return malformed
	}
}

// tryLater is the answer to a request for which there is no memory now. The sender tries
// again.
func (r *otlpReceiver) tryLater(ctx context.Context) error {
	r.refuse(ctx, busy)
	return status.Error(codes.Unavailable, "the requests under way take all memory that requests of this sender may; try again")
}

// undecodable is the answer to a message that a decoder does not understand.
func undecodable(err error) error { return status.Error(codes.InvalidArgument, err.Error()) }

// answer is the status of a consumer's error: the sender tries again, unless the error
// is permanent.
func answer(err error) error {
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	if consumererror.IsPermanent(err) {
		return status.Error(codes.Internal, err.Error())
	}
	return status.Error(codes.Unavailable, err.Error())
}
