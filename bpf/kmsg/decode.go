package kmsg

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kinds of records in the ring, as in kmsg.bpf.c.
const (
	kindText  = 1
	kindNames = 2
)

// Layout of struct event, struct names and struct name in kmsg.bpf.c; a test
// compares them with the object.
const (
	offKind       = 0
	offCPU        = 4
	offTime       = 8
	offPID        = 16
	offTextBytes  = 20
	offStackBytes = 24
	offWriter     = 28
	offComm       = 32
	offStack      = 48
	offText       = 304

	offCount    = 4
	offNames    = 8
	offNameSize = 8
	offName     = 12
	nameBytes   = 68
	nameStride  = 80

	commBytes = 16
	maxFrames = 32
)

// decode takes in one record of the ring: an Event, which it fills in and reports
// as true, or names for later ones. clockOffset is what to add to the boot clock to
// get Unix time. It keeps no reference to raw.
func decode(raw []byte, clockOffset int64, known *names, e *Event) (bool, error) {
	if len(raw) < offNames {
		return false, fmt.Errorf("decode kernel-log event: %d bytes, the shortest record has %d", len(raw), offNames)
	}
	switch kind := binary.NativeEndian.Uint32(raw[offKind:]); kind {
	case kindText:
		return true, decodeText(raw, clockOffset, known, e)
	case kindNames:
		return false, decodeNames(raw, known)
	default:
		return false, fmt.Errorf("decode kernel-log event: unknown kind %d", kind)
	}
}

func decodeText(raw []byte, clockOffset int64, known *names, e *Event) error {
	if len(raw) < offText {
		return fmt.Errorf("decode kernel-log event: %d bytes, the header alone has %d", len(raw), offText)
	}
	order := binary.NativeEndian
	text := raw[offText:]
	length := order.Uint32(raw[offTextBytes:])
	stackBytes := order.Uint32(raw[offStackBytes:])
	// The ring rounds records up to 8 bytes only between them, so what came is
	// exactly what was put in: the text, or its first MaxText bytes.
	if uint32(len(text)) != min(length, MaxText) {
		return fmt.Errorf("decode kernel-log event: %d bytes of text, the header says %d", len(text), length)
	}
	if stackBytes > maxFrames*8 || stackBytes%8 != 0 {
		return fmt.Errorf("decode kernel-log event: %d bytes of stack, at most %d fit", stackBytes, maxFrames*8)
	}
	writer := Writer(raw[offWriter])
	if writer > WriterUserspace {
		return fmt.Errorf("decode kernel-log event: unknown writer %d", writer)
	}

	*e = Event{
		Time:      time.Unix(0, int64(order.Uint64(raw[offTime:]))+clockOffset),
		CPU:       order.Uint32(raw[offCPU:]),
		PID:       order.Uint32(raw[offPID:]),
		Comm:      validText(cString(raw[offComm : offComm+commBytes])),
		Writer:    writer,
		Truncated: length > MaxText,
		Text:      validText(bytes.TrimRight(text, "\n")),
	}
	frames := known.addresses[:stackBytes/8]
	for i := range frames {
		frames[i] = order.Uint64(raw[offStack+8*i:])
	}
	e.attribute(known.attribute(frames, e.Time))
	return nil
}

// attribute fills in what the return addresses tell: who wrote, and whether the
// current task was only interrupted by the writer. What the kernel's side said of
// the writer stands: it knew the record's facility.
func (e *Event) attribute(told attribution) {
	if e.Writer == WriterUnknown {
		e.Writer = told.writer
	}
	if e.Writer == told.writer {
		e.Origin = told.origin
	}
	if told.interrupted {
		e.PID, e.Comm = 0, ""
	}
}

func decodeNames(raw []byte, known *names) error {
	order := binary.NativeEndian
	count := order.Uint32(raw[offCount:])
	if count > maxFrames || len(raw) != offNames+int(count)*nameStride {
		return fmt.Errorf("decode names of kernel functions: %d bytes, the header says %d names", len(raw), count)
	}
	for entry := range slices.Chunk(raw[offNames:], nameStride) {
		var f Function // of a name that was cut, the module is not known
		if order.Uint32(entry[offNameSize:]) <= nameBytes {
			f = parseName(validText(cString(entry[offName:])))
		}
		known.learn(order.Uint64(entry), f)
	}
	return nil
}

func cString(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

// validText copies b into a string in which every byte that is not UTF-8 is
// replaced. Control characters stay: what to do with them is for who prints it.
func validText(b []byte) string {
	return strings.ToValidUTF8(string(b), "�")
}
