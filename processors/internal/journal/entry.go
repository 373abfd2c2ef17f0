package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// Stored values begin with these bytes and end with a checksum, so that bytes
// of another program, another version or a torn write are told from our own.
const (
	headMagic    = "TCPDh\x01"
	stateMagic   = "TCPDs\x01"
	entryMagic   = "TCPDj\x01"
	verdictMagic = "TCPDv\x01"
	boundsMagic  = "TCPDb\x01"
)

// ErrForeign says that stored bytes cannot be used.
var ErrForeign = errors.New("not written by this version, or damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal frames a value for storage.
func seal(magic string, value []byte) []byte {
	sealed := make([]byte, 0, len(magic)+len(value)+crc32.Size)
	sealed = append(append(sealed, magic...), value...)
	return binary.BigEndian.AppendUint32(sealed, crc32.Checksum(sealed, castagnoli))
}

// unseal checks a stored value and returns what was sealed.
func unseal(magic string, sealed []byte) ([]byte, error) {
	end := len(sealed) - crc32.Size
	if end < len(magic) || string(sealed[:len(magic)]) != magic {
		return nil, ErrForeign
	}
	if binary.BigEndian.Uint32(sealed[end:]) != crc32.Checksum(sealed[:end], castagnoli) {
		return nil, ErrForeign
	}
	return sealed[len(magic):end], nil
}

// Signal says what the payload of an entry is.
type Signal byte

// The signals.
const (
	SignalNone    Signal = iota // time passed, nothing arrived
	SignalLogs                  // OTLP logs in protobuf
	SignalMetrics               // OTLP metrics in protobuf
)

// Entry is one call that changed the state: to make it again is to have the state
// again.
type Entry struct {
	Advanced time.Time // the last time given to Advance before the records
	Signal   Signal
	Payload  []byte
	Made     []Revision // what it led to
}

// Revision names one statement that left.
type Revision struct {
	ID     string
	Number int
}

// Encode makes the stored bytes of an entry.
func (e *Entry) Encode() []byte {
	b := make([]byte, 0, 32+len(e.Payload)+len(e.Made)*48)
	b = binary.AppendVarint(b, e.Advanced.UnixNano())
	b = append(b, byte(e.Signal))
	b = binary.AppendUvarint(b, uint64(len(e.Made)))
	for _, r := range e.Made {
		b = binary.AppendUvarint(b, uint64(len(r.ID)))
		b = append(b, r.ID...)
		b = binary.AppendUvarint(b, uint64(r.Number))
	}
	return seal(entryMagic, append(b, e.Payload...))
}

// DecodeEntry reads the stored bytes of an entry.
func DecodeEntry(sealed []byte) (Entry, error) {
	b, err := unseal(entryMagic, sealed)
	if err != nil {
		return Entry{}, err
	}
	r := reader{rest: b}
	e := Entry{Advanced: time.Unix(0, r.varint()).UTC(), Signal: Signal(r.byte())}
	for range r.uvarint() {
		e.Made = append(e.Made, Revision{ID: string(r.bytes(r.uvarint())), Number: int(r.uvarint())})
		if r.short {
			break // a count without what it counts
		}
	}
	if r.short || e.Signal > SignalMetrics {
		return Entry{}, fmt.Errorf("journal entry: %w", ErrForeign)
	}
	e.Payload = r.rest
	return e, nil
}

// reader takes values off a byte slice; short says that there were too few.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n int) {
	if n <= 0 {
		r.short, r.rest = true, nil
		return
	}
	r.rest = r.rest[n:]
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	r.take(n)
	return v
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.take(n)
	return v
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.short = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.short, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}
