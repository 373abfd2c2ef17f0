package statelog

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// A segment file is a row of frames. A frame is one batch:
//
//	magic    4 bytes
//	length   4 bytes, of the payload
//	sequence 8 bytes, of the batch among all of this log
//	sum      4 bytes, CRC-32C over the salt of the file, length, sequence and payload
//	payload  operations: kind, length of the key, key, and of a set: length of the value, value
//
// Numbers are little-endian, lengths inside the payload are varints. The salt is in
// the name of the file: bytes that somebody else made us store cannot pass for a
// frame where damage makes the reader look for the next one.
const (
	magic      = "TCf1"
	headerSize = 20
	// mostPayload bounds a batch. The largest known are snapshots, of some MiB.
	mostPayload = 64 << 20

	kindSet    = 1
	kindDelete = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(value []byte) uint32 { return crc32.Checksum(value, castagnoli) }

func frameSum(salt uint64, numbers, payload []byte) uint32 {
	sum := checksum(binary.LittleEndian.AppendUint64(nil, salt))
	return crc32.Update(crc32.Update(sum, castagnoli, numbers), castagnoli, payload)
}

// encodeFrame makes the bytes of a batch.
func encodeFrame(salt, sequence uint64, ops []Op) []byte {
	b := make([]byte, headerSize, headerSize+sizeOf(ops))
	for _, op := range ops {
		if op.Delete {
			b = append(b, kindDelete)
		} else {
			b = append(b, kindSet)
		}
		b = binary.AppendUvarint(b, uint64(len(op.Key)))
		b = append(b, op.Key...)
		if !op.Delete {
			b = binary.AppendUvarint(b, uint64(len(op.Value)))
			b = append(b, op.Value...)
		}
	}
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-headerSize))
	binary.LittleEndian.PutUint64(b[8:], sequence)
	binary.LittleEndian.PutUint32(b[16:], frameSum(salt, b[4:16], b[headerSize:]))
	return b
}

// sizeOf is at least what the payload of a batch takes.
func sizeOf(ops []Op) (n int) {
	for _, op := range ops {
		n += 1 + 2*binary.MaxVarintLen32 + len(op.Key) + len(op.Value)
	}
	return n
}

// stored is an operation as a frame has it; at is where its value is in the file.
type stored struct {
	Op
	at int
}

// decodePayload gives the operations of a payload whose frame begins at a place in
// its file; false where it is none.
func decodePayload(payload []byte, at int) ([]stored, bool) {
	var ops []stored
	rest := payload
	text := func() ([]byte, bool) {
		n, used := binary.Uvarint(rest)
		if used <= 0 || n > uint64(len(rest)-used) {
			return nil, false
		}
		taken := rest[used : used+int(n)]
		rest = rest[used+int(n):]
		return taken, true
	}
	for len(rest) > 0 {
		kind := rest[0]
		rest = rest[1:]
		key, ok := text()
		if !ok || kind != kindSet && kind != kindDelete {
			return nil, false
		}
		op := stored{Op: Op{Key: string(key), Delete: kind == kindDelete}}
		if kind == kindSet {
			if op.Value, ok = text(); !ok {
				return nil, false
			}
			op.at = at + headerSize + len(payload) - len(rest) - len(op.Value)
		}
		ops = append(ops, op)
	}
	return ops, true
}

// outcome is what was found in a segment beside its frames.
type outcome struct {
	leftOut int  // bytes that belong to no frame
	torn    bool // all of them are the begin of a last frame: its write was not finished
}

// scan gives the frames of a segment in order and leaves out what is damaged.
func scan(data []byte, salt uint64, give func(sequence uint64, ops []stored)) (found outcome) {
	s := scanner{data: data, salt: salt, budget: 4*len(data) + 1<<20}
	for at := 0; at < len(data); {
		if size, sequence, ops := s.frame(at); size > 0 {
			give(sequence, ops)
			at += size
			continue
		}
		next := s.next(at + 1)
		found.leftOut += next - at
		found.torn = next == len(data) && found.leftOut == next-at && s.unfinished(at)
		at = next
	}
	return found
}

// scanner looks for frames. budget bounds the bytes that are summed in vain, so
// that a segment full of what looks like frames costs no more than a few readings.
type scanner struct {
	data   []byte
	salt   uint64
	budget int
}

// frame reads the frame at a place; size is 0 where there is none.
func (s *scanner) frame(at int) (size int, sequence uint64, ops []stored) {
	rest := s.data[at:]
	if len(rest) < headerSize || string(rest[:4]) != magic {
		return 0, 0, nil
	}
	length := uint64(binary.LittleEndian.Uint32(rest[4:]))
	if length > mostPayload || length > uint64(len(rest)-headerSize) {
		return 0, 0, nil
	}
	payload := rest[headerSize : headerSize+int(length)]
	if frameSum(s.salt, rest[4:16], payload) != binary.LittleEndian.Uint32(rest[16:]) {
		s.budget -= int(length)
		return 0, 0, nil
	}
	ops, ok := decodePayload(payload, at)
	if !ok {
		return 0, 0, nil
	}
	return headerSize + int(length), binary.LittleEndian.Uint64(rest[8:]), ops
}

// next returns where the next frame begins, or the end.
func (s *scanner) next(from int) int {
	for s.budget > 0 {
		i := bytes.Index(s.data[from:], []byte(magic))
		if i < 0 {
			break
		}
		from += i
		if size, _, _ := s.frame(from); size > 0 {
			return from
		}
		from++
	}
	return len(s.data)
}

// unfinished says whether the data end inside the frame at a place.
func (s *scanner) unfinished(at int) bool {
	rest := s.data[at:]
	if len(rest) < headerSize {
		return bytes.HasPrefix([]byte(magic), rest[:min(len(rest), len(magic))])
	}
	return string(rest[:4]) == magic && uint64(binary.LittleEndian.Uint32(rest[4:])) > uint64(len(rest)-headerSize)
}
