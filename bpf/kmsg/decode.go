package kmsg

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// Layout of struct event in kmsg.bpf.c; a test compares it with the object.
const (
	offTime       = 0
	offCPU        = 8
	offPID        = 12
	offTextBytes  = 16
	offStackBytes = 20
	offWriter     = 24
	offComm       = 32
	offStack      = 48
	offText       = 304

	commBytes = 16
	maxFrames = 32
)

// decode turns one ring record into an Event. clockOffset is what to add to the
// boot clock to get Unix time, code says which kernel functions the return
// addresses of the record belong to. It keeps no reference to raw.
func decode(raw []byte, clockOffset int64, code kernelCode, e *Event) error {
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
	if stackBytes > 0 {
		var frames [maxFrames]uint64
		n := stackBytes / 8
		for i := range n {
			frames[i] = order.Uint64(raw[offStack+8*i:])
		}
		attribute(e, code, frames[:n])
	}
	return nil
}

// attribute fills in what the return addresses tell: who wrote, and whether the
// current task was only interrupted by the writer.
func attribute(e *Event, code kernelCode, frames []uint64) {
	var interrupted bool
	e.Writer, interrupted = code.writer(frames)
	if interrupted {
		e.PID, e.Comm = 0, ""
	}
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
