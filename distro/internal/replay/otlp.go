package replay

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// errOther is returned for what is well formed and holds nothing that patterns
// look at: traces and profiles.
var errOther = errors.New("neither logs nor metrics")

// topKeys are the members of a JSON document that tell what it is.
var topKeys = map[string]content{
	"resourceLogs": otlpLogs, "resource_logs": otlpLogs,
	"resourceMetrics": otlpMetrics, "resource_metrics": otlpMetrics,
	"resourceSpans": otlpOther, "resource_spans": otlpOther,
	"resourceProfiles": otlpOther, "resource_profiles": otlpOther,
	"dmesg": dmesgJSON, "__REALTIME_TIMESTAMP": journalJSON, "__CURSOR": journalJSON, "MESSAGE": journalJSON,
}

// content is what one JSON document holds.
type content int

const (
	unknownContent content = iota
	otlpLogs
	otlpMetrics
	otlpOther
	dmesgJSON
	journalJSON
)

// contentOf finds the first member of an object that tells what it is.
func contentOf(document []byte) (content, error) {
	d := json.NewDecoder(bytes.NewReader(document))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return unknownContent, errors.Join(err, errors.New("no JSON object"))
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return unknownContent, err
		}
		if name, ok := key.(string); ok && topKeys[name] != unknownContent {
			return topKeys[name], nil
		}
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return unknownContent, err
		}
	}
	return unknownContent, errors.New("JSON, but neither OTLP nor a kernel log as dmesg --json or journalctl -o json writes it")
}

// decodeOTLP reads one OTLP message in JSON.
func decodeOTLP(kind content, document []byte) (batch, error) {
	switch kind {
	case otlpLogs:
		logs, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(document)
		if err != nil {
			return batch{}, fmt.Errorf("OTLP logs: %w", err)
		}
		return ofLogs(logs), nil
	case otlpMetrics:
		metrics, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(document)
		if err != nil {
			return batch{}, fmt.Errorf("OTLP metrics: %w", err)
		}
		return ofMetrics(metrics), nil
	default:
		return batch{}, errOther
	}
}

// mostDepth is how deep messages of one protobuf message may be nested. OTLP
// itself needs about ten; values can hold lists of values, and the decoder
// follows them on the stack.
const mostDepth = 200

// decodeProto reads one OTLP message in protobuf. The message does not say which
// signal it is; the wire types of the innermost records do (a log record begins
// with a fixed64 time, a metric with a name, a span with an id and later a
// fixed64 time), so the wrong decoder refuses.
func decodeProto(message []byte) (batch, error) {
	if deeper(message, mostDepth) {
		return batch{}, fmt.Errorf("protobuf nested deeper than %d messages", mostDepth)
	}
	logs, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(message)
	if err == nil {
		return ofLogs(logs), nil
	}
	if metrics, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(message); err == nil {
		return ofMetrics(metrics), nil
	}
	if _, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(message); err == nil {
		return batch{}, errOther
	}
	return batch{}, fmt.Errorf("no OTLP protobuf: %w", err)
}

// deeper reports whether a message nests deeper than most. A text can look like
// a message, but hardly a deep one: each level must fit its length.
func deeper(message []byte, most int) bool {
	if most == 0 {
		return true
	}
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return false
		}
		var field []byte
		if field, message, n = nextField(tag, message[n:]); n < 0 {
			return false
		}
		if len(field) > 1 && deeper(field, most-1) {
			return true
		}
	}
	return false
}

// nextField takes one field off a message: its bytes when it is length-delimited.
// n is negative when it is no field (protobuf encoding: wire types 0, 1, 2, 5).
func nextField(tag uint64, message []byte) (field, rest []byte, n int) {
	var size uint64
	switch tag & 7 {
	case 0:
		_, n := binary.Uvarint(message)
		if n <= 0 {
			return nil, nil, -1
		}
		return nil, message[n:], n
	case 1:
		size = 8
	case 5:
		size = 4
	case 2:
		length, n := binary.Uvarint(message)
		if n <= 0 || length > uint64(len(message)-n) {
			return nil, nil, -1
		}
		message = message[n:]
		return message[:length], message[length:], n
	default:
		return nil, nil, -1
	}
	if size > uint64(len(message)) {
		return nil, nil, -1
	}
	return nil, message[size:], int(size)
}

// decodeFrame reads what a length-prefixed frame of the file exporter holds:
// protobuf or JSON, each perhaps compressed by itself.
func (o *opener) decodeFrame(message []byte) (batch, error) {
	if bytes.HasPrefix(message, zstdMagic) {
		plain, err := o.unzstd(message)
		if err != nil {
			return batch{}, err
		}
		message = plain
	}
	if len(message) > 0 && message[0] == '{' {
		kind, err := contentOf(message)
		if err != nil {
			return batch{}, err
		}
		return decodeOTLP(kind, message)
	}
	return decodeProto(message)
}

// unzstd decompresses one message, within the bound of a message.
func (o *opener) unzstd(message []byte) ([]byte, error) {
	if o.zstd == nil {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(mostMessage))
		if err != nil {
			return nil, err
		}
		o.zstd = d
	}
	plain, err := o.zstd.DecodeAll(message, nil)
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return plain, nil
}

// quote shows the beginning of what could not be understood.
func quote(data []byte) string {
	const most = 40
	if len(data) > most {
		return fmt.Sprintf("%q…", data[:most])
	}
	return fmt.Sprintf("%q", strings.TrimSpace(string(data)))
}
