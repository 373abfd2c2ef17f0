package patterndetectorprocessor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/tracecoreai/tracecore/patterns/verdict"
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

var errForeign = errors.New("not written by this version, or damaged")

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
		return nil, errForeign
	}
	if binary.BigEndian.Uint32(sealed[end:]) != crc32.Checksum(sealed[:end], castagnoli) {
		return nil, errForeign
	}
	return sealed[len(magic):end], nil
}

// signal says what the payload of an entry is.
type signal byte

const (
	signalNone    signal = iota // time passed, nothing arrived
	signalLogs                  // OTLP logs in protobuf
	signalMetrics               // OTLP metrics in protobuf
)

// entry is one call of the engine that changed its state: to make it again is
// to have the state again.
type entry struct {
	advanced time.Time // the last time given to Advance before the records
	signal   signal
	payload  []byte
	made     []revision // the verdicts that came out of it
}

// revision names one statement of one verdict.
type revision struct {
	id     string
	number int
}

func revisionsOf(verdicts []verdict.Verdict) []revision {
	made := make([]revision, len(verdicts))
	for i := range verdicts {
		made[i] = revision{verdicts[i].ID, verdicts[i].Revision}
	}
	return made
}

func (e *entry) encode() []byte {
	b := make([]byte, 0, 32+len(e.payload)+len(e.made)*48)
	b = binary.AppendVarint(b, e.advanced.UnixNano())
	b = append(b, byte(e.signal))
	b = binary.AppendUvarint(b, uint64(len(e.made)))
	for _, r := range e.made {
		b = binary.AppendUvarint(b, uint64(len(r.id)))
		b = append(b, r.id...)
		b = binary.AppendUvarint(b, uint64(r.number))
	}
	return seal(entryMagic, append(b, e.payload...))
}

func decodeEntry(sealed []byte) (entry, error) {
	b, err := unseal(entryMagic, sealed)
	if err != nil {
		return entry{}, err
	}
	r := reader{rest: b}
	e := entry{advanced: time.Unix(0, r.varint()).UTC(), signal: signal(r.byte())}
	for range r.uvarint() {
		e.made = append(e.made, revision{id: string(r.bytes(r.uvarint())), number: int(r.uvarint())})
		if r.short {
			break // a count without what it counts
		}
	}
	if r.short || e.signal > signalMetrics {
		return entry{}, fmt.Errorf("journal entry: %w", errForeign)
	}
	e.payload = r.rest
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
