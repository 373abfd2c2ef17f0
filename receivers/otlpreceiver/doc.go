// Package otlpreceiver takes OTLP over gRPC and HTTP: the collector's receiver, with
// every byte, element, level and connection bounded before it costs memory. It has the
// configuration of the collector's receiver, its servers and its decoders; between
// them stands a scan of the message.
package otlpreceiver

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
