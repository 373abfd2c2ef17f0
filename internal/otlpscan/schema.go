package otlpscan

import "google.golang.org/protobuf/encoding/protowire"

// kind is a type of message in opentelemetry-proto 1.x.
type kind uint8

const (
	leaf kind = iota // no message, or one that decoders pass over
	logsRequest
	metricsRequest
	tracesRequest
	resourceLogs
	resourceMetrics
	resourceSpans
	scopeLogs
	scopeMetrics
	scopeSpans
	logRecord
	metric
	span
	resource
	scope
	entityRef
	points // gauge and sum
	histogram
	exponentialHistogram
	summary
	numberPoint
	histogramPoint
	exponentialPoint
	buckets
	summaryPoint
	quantile
	exemplar
	spanEvent
	spanLink
	status
	keyValue
	anyValue
	arrayValue
	keyValueList
	kinds
)

// Costs of what is no message, in bytes. A repeated number is eight bytes of a slice
// that doubles; a string is its header and its bytes.
const (
	perScalar = 16
	perLeaf   = 32
)

// shape says what a message costs beside its fields, and which fields are messages.
type shape struct {
	cost   int64 // its structure, its place in a slice that doubles, in bytes
	fields fields
	packed bool // its bytes are packed numbers: eight bytes of memory for one of a varint
}

// inner is the message in a field. Field 1000 is the place of field 2 before
// opentelemetry-proto 0.15; decoders still read it.
func (s *shape) inner(number protowire.Number) kind {
	if number == 1000 {
		number = 2
	}
	if number < 0 || int(number) >= len(s.fields) {
		return leaf
	}
	return s.fields[number]
}

func (s *shape) perByte() int64 {
	if s.packed {
		return 16
	}
	return 1
}

// fields has the message in each field by its number.
type fields = [16]kind

// schema has each message. The sizes are those of pdata 1.65 on 64 bits, rounded up;
// a fuzz test compares the sum with what decoding takes.
var schema = [kinds]shape{
	logsRequest:          {64, fields{1: resourceLogs}, false},
	metricsRequest:       {64, fields{1: resourceMetrics}, false},
	tracesRequest:        {64, fields{1: resourceSpans}, false},
	resourceLogs:         {192, fields{1: resource, 2: scopeLogs}, false},
	resourceMetrics:      {192, fields{1: resource, 2: scopeMetrics}, false},
	resourceSpans:        {192, fields{1: resource, 2: scopeSpans}, false},
	scopeLogs:            {192, fields{1: scope, 2: logRecord}, false},
	scopeMetrics:         {192, fields{1: scope, 2: metric}, false},
	scopeSpans:           {192, fields{1: scope, 2: span}, false},
	logRecord:            {192, fields{5: anyValue, 6: keyValue}, false},
	metric:               {160, fields{5: points, 7: points, 9: histogram, 10: exponentialHistogram, 11: summary, 12: keyValue}, false},
	span:                 {320, fields{9: keyValue, 11: spanEvent, 13: spanLink, 15: status}, false},
	resource:             {64, fields{1: keyValue, 3: entityRef}, false},
	scope:                {64, fields{3: keyValue}, false},
	entityRef:            {128, fields{}, false},
	points:               {64, fields{1: numberPoint}, false},
	histogram:            {64, fields{1: histogramPoint}, false},
	exponentialHistogram: {64, fields{1: exponentialPoint}, false},
	summary:              {64, fields{1: summaryPoint}, false},
	numberPoint:          {160, fields{5: exemplar, 7: keyValue}, false},
	histogramPoint:       {256, fields{8: exemplar, 9: keyValue}, true},
	exponentialPoint:     {384, fields{1: keyValue, 8: buckets, 9: buckets, 11: exemplar}, false},
	buckets:              {64, fields{}, true},
	summaryPoint:         {160, fields{6: quantile, 7: keyValue}, false},
	quantile:             {64, fields{}, false},
	exemplar:             {256, fields{7: keyValue}, false},
	spanEvent:            {128, fields{3: keyValue}, false},
	spanLink:             {160, fields{4: keyValue}, false},
	status:               {32, fields{}, false},
	keyValue:             {128, fields{2: anyValue}, false},
	anyValue:             {64, fields{5: arrayValue, 6: keyValueList}, false},
	arrayValue:           {48, fields{1: anyValue}, false},
	keyValueList:         {48, fields{1: keyValue}, false},
}
