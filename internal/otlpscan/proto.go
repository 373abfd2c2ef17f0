// Package otlpscan bounds what an OTLP message costs before anything decodes it. The
// decoders of the collector call themselves for each nested value and make a structure
// for each element: a message of 20 MB can take gigabytes, or all of the stack. A scan
// is one loop over the bytes. It holds a fixed stack and makes nothing.
package otlpscan

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// MaxNesting is how deep values may lie in values (arrays and maps of attributes and
// bodies). Nothing that the patterns read is deeper than two.
const MaxNesting = 32

// MaxValue is how many bytes one text, or one value of bytes, may have: as many as a whole message
// over gRPC. To copy one of 15 MB, as decoders do, took 45 ms (2 virtual CPUs, Linux 6.18,
// 2026-11-26). Go can stop no goroutine within a copy, so the whole process waited.
const MaxValue = 4 << 20

// Errors of a scan. None of them goes away when the sender tries again.
var (
	ErrTooDeep   = fmt.Errorf("values are nested more than %d deep", MaxNesting)
	ErrTooLong   = fmt.Errorf("a value has more than %d bytes; have the sender cut it, as OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT does in an SDK, or truncate_all of the transform processor in a collector", MaxValue)
	ErrTooCostly = errors.New("decoded it takes more memory than one request may; send smaller batches")
	ErrMalformed = errors.New("not an OTLP message")
)

// Signal is what a message exports.
type Signal uint8

// The signals.
const (
	Logs Signal = iota
	Metrics
	Traces
)

func (s Signal) String() string { return [...]string{"logs", "metrics", "traces"}[s] }

// maxLevels is the deepest stack: every level of nesting is a value, its list and a
// pair, below at most nine levels of request, resource, scope, record and attribute.
const maxLevels = 9 + 3*(MaxNesting+1)

// level is a message that the scan is inside of.
type level struct {
	kind kind
	end  int // position behind its last byte
}

// Proto returns how many bytes of memory the message takes at most, decoded, or why it
// must not be decoded. It gives up as soon as the cost is above maxCost.
func Proto(signal Signal, body []byte, maxCost int64) (int64, error) {
	s := scan{body: body, maxCost: maxCost}
	if err := s.enter([...]kind{logsRequest, metricsRequest, tracesRequest}[signal], len(body)); err != nil {
		return 0, err
	}
	for s.depth > 0 {
		if s.pos == s.top().end {
			s.leave()
			continue
		}
		if err := s.field(); err != nil {
			return s.cost, err
		}
	}
	return s.cost, nil
}

type scan struct {
	body          []byte
	pos           int
	stack         [maxLevels]level
	depth, values int
	cost, maxCost int64
}

func (s *scan) top() *level { return &s.stack[s.depth-1] }

func (s *scan) enter(k kind, end int) error {
	if k == anyValue {
		s.values++
	}
	if s.values > MaxNesting || s.depth == maxLevels {
		return ErrTooDeep
	}
	s.stack[s.depth] = level{k, end}
	s.depth++
	return s.charge(schema[k].cost)
}

func (s *scan) leave() {
	if s.top().kind == anyValue {
		s.values--
	}
	s.depth--
}

func (s *scan) charge(bytes int64) error {
	if s.cost += bytes; s.cost > s.maxCost {
		return ErrTooCostly
	}
	return nil
}

// field reads one field of the innermost message, and enters it where it is a message.
func (s *scan) field() error {
	rest := s.body[s.pos:s.top().end]
	number, wire, n := protowire.ConsumeTag(rest)
	if n < 0 {
		return ErrMalformed
	}
	if wire != protowire.BytesType {
		return s.scalar(number, wire, n, rest)
	}
	content, m := protowire.ConsumeBytes(rest[n:])
	if m < 0 {
		return ErrMalformed
	}
	s.pos += n + m
	if inner := schema[s.top().kind].inner(number); inner != leaf {
		s.pos -= len(content)
		return s.enter(inner, s.pos+len(content))
	}
	if len(content) > MaxValue {
		return ErrTooLong
	}
	return s.charge(perLeaf + schema[s.top().kind].perByte()*int64(len(content)))
}

// scalar passes a number. OTLP has no groups, so they are refused and not passed.
func (s *scan) scalar(number protowire.Number, wire protowire.Type, n int, rest []byte) error {
	if wire == protowire.StartGroupType || wire == protowire.EndGroupType {
		return ErrMalformed
	}
	m := protowire.ConsumeFieldValue(number, wire, rest[n:])
	if m < 0 {
		return ErrMalformed
	}
	s.pos += n + m
	return s.charge(perScalar)
}
