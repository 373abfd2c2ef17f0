package kafkareceiver

import (
	"context"
	"fmt"
	"maps"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/tracecoreai/tracecore/internal/memorylimit"
	"github.com/tracecoreai/tracecore/internal/otlpscan"
)

// messageShare is what one message may cost, decoded, of the memory limit. Partitions are
// read side by side.
const messageShare = 1. / 16

// The encodings that there are.
const (
	inProto = "otlp_proto"
	inJSON  = "otlp_json"
)

// receiving is a receiver that finds our decoders under the names of its encodings: it
// asks the extensions before it takes its own.
type receiving struct{ component.Component }

// decode makes inner decode by our decoders. An encoding that we have none for is refused:
// contrib's bound nothing.
func decode(inner component.Component, encoding string, err error) (component.Component, error) {
	if err == nil && encoding != inProto && encoding != inJSON {
		err = fmt.Errorf("encoding %q: write %s or %s, other encodings are not bounded before they are decoded", encoding, inProto, inJSON)
	}
	if err != nil {
		return nil, err
	}
	return receiving{inner}, nil
}

// Start implements component.Component.
func (r receiving) Start(ctx context.Context, host component.Host) error {
	return r.Component.Start(ctx, decoders{host})
}

// decoders is a host whose extensions have our decoders among them.
type decoders struct{ component.Host }

// GetExtensions implements component.Host.
func (d decoders) GetExtensions() map[component.ID]component.Component {
	all := map[component.ID]component.Component{}
	maps.Copy(all, d.Host.GetExtensions())
	most := memorylimit.Budget(messageShare)
	all[component.MustNewID(inProto)] = proto{decoder{most: most}}
	all[component.MustNewID(inJSON)] = json{decoder{most: most}}
	return all
}

// decoder looks at a message before it is decoded.
type decoder struct {
	component.StartFunc
	component.ShutdownFunc
	most int64
}

// proto decodes Protobuf.
type proto struct{ decoder }

func (p proto) scan(signal otlpscan.Signal, message []byte) error {
	_, err := otlpscan.Proto(signal, message, p.most)
	return err
}

// UnmarshalLogs implements plog.Unmarshaler.
func (p proto) UnmarshalLogs(message []byte) (plog.Logs, error) {
	if err := p.scan(otlpscan.Logs, message); err != nil {
		return plog.Logs{}, err
	}
	return (&plog.ProtoUnmarshaler{}).UnmarshalLogs(message)
}

// UnmarshalMetrics implements pmetric.Unmarshaler.
func (p proto) UnmarshalMetrics(message []byte) (pmetric.Metrics, error) {
	if err := p.scan(otlpscan.Metrics, message); err != nil {
		return pmetric.Metrics{}, err
	}
	return (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(message)
}

// UnmarshalTraces implements ptrace.Unmarshaler.
func (p proto) UnmarshalTraces(message []byte) (ptrace.Traces, error) {
	if err := p.scan(otlpscan.Traces, message); err != nil {
		return ptrace.Traces{}, err
	}
	return (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(message)
}

// json decodes JSON.
type json struct{ decoder }

func (j json) scan(message []byte) error {
	_, err := otlpscan.JSON(message, j.most)
	return err
}

// UnmarshalLogs implements plog.Unmarshaler.
func (j json) UnmarshalLogs(message []byte) (plog.Logs, error) {
	if err := j.scan(message); err != nil {
		return plog.Logs{}, err
	}
	return (&plog.JSONUnmarshaler{}).UnmarshalLogs(message)
}

// UnmarshalMetrics implements pmetric.Unmarshaler.
func (j json) UnmarshalMetrics(message []byte) (pmetric.Metrics, error) {
	if err := j.scan(message); err != nil {
		return pmetric.Metrics{}, err
	}
	return (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(message)
}

// UnmarshalTraces implements ptrace.Unmarshaler.
func (j json) UnmarshalTraces(message []byte) (ptrace.Traces, error) {
	if err := j.scan(message); err != nil {
		return ptrace.Traces{}, err
	}
	return (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(message)
}
