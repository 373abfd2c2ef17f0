package otlpreceiver

import (
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds what a zstd stream makes its decoder hold: the header of a frame
// may ask for 512 MiB, which the decoder makes before it reads on. Levels up to 19 of
// the reference encoder keep within it.
const maxWindow = 8 << 20

func newZstd(from io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
}

// zstdBody is confighttp's decoder with a bounded window.
func zstdBody(body io.ReadCloser) (io.ReadCloser, error) {
	decoder, err := newZstd(body)
	if err != nil {
		return nil, err
	}
	return decoder.IOReadCloser(), nil
}

// zstdMessages is configgrpc's decoder with a bounded window.
type zstdMessages struct{ largest int64 }

// Type is the name of the encoding on the wire.
func (zstdMessages) Type() string { return "zstd" }

// Do reads a message up to one byte more than the largest that gRPC takes.
func (z zstdMessages) Do(from io.Reader) ([]byte, error) {
	decoder, err := newZstd(from)
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	return io.ReadAll(io.LimitReader(decoder, z.largest+1))
}
