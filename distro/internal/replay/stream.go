package replay

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/tracecoreai/tracecore/distro/internal/replay/kernelline"
)

// partial is a part of an input that cannot be read, and that others follow.
type partial struct{ err error }

func (p partial) Error() string { return p.err.Error() }

func (p partial) Unwrap() error { return p.err }

// damage marks an error as partial, and says where it is.
func damage(where string, err error) error {
	if err == nil {
		return nil
	}
	return partial{fmt.Errorf("%s: %w", where, err)}
}

// format reads one kind of file.
type format interface {
	// fill reads on and emits the batches it finds. io.EOF ends the file, a
	// partial error does not, any other does.
	fill() error
}

// opener knows how to read files.
type opener struct {
	Options
	count func(bytes int)
	zstd  *zstd.Decoder // of frames that are compressed one by one
	other uint64        // messages that hold nothing patterns look at
}

// stream is one file whose next batch is known.
type stream struct {
	o      *opener
	in     *file // nil once it is read to its end
	format format
	queue  []batch
	after  int64 // last event time so far: that of batches without one
}

// errUnknown says what is read.
var errUnknown = errors.New("unknown format: replay reads OTLP as the file exporter writes it (JSON or protobuf) and saved kernel logs (dmesg, journalctl -k), each as it is or compressed (gzip, zstd), and Flight Recorder dumps as PyTorch writes them; of a kernel log save what `dmesg` or `journalctl -k -o json` prints")

// open finds out what a file is.
func (o *opener) open(path string) (*stream, error) {
	in, err := open(path, o.Stdin, o.count)
	if err != nil {
		return nil, err
	}
	s := &stream{o: o, in: in}
	if s.format, err = o.formatOf(in, s); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", in.name, err), in.close())
	}
	return s, nil
}

func (o *opener) formatOf(in *file, s *stream) (format, error) {
	const enough = 4096
	head, err := in.r.Peek(enough)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, err
	}
	emit := func(b batch) { s.queue = append(s.queue, b.split(o.Lateness)...) }
	warn := func(err error) { o.Note(fmt.Errorf("%s: %w", in.name, err)) }
	log := newKernelLog(o.hostOf(in.name), o.Boot, emit, warn)
	text := bytes.TrimLeft(head, "\r\n\t \ufeff")
	switch {
	case len(head) == 0:
		return empty{}, nil
	case head[0] <= mostMessage>>24:
		return &frames{in: in, s: s, emit: emit}, nil
	case isDump(head):
		return o.dumpFormat(in, emit)
	case len(text) > 0 && text[0] == '{':
		return newJSONFormat(in, log, s, emit)
	case o.isKernelLog(head):
		return &textLog{in: in, times: o.times(), log: log}, nil
	}
	return nil, fmt.Errorf("%w; it begins with %s", errUnknown, quote(head))
}

type empty struct{}

func (empty) fill() error { return io.EOF }

func (o *opener) times() kernelline.Times { return kernelline.Times{Zone: o.Zone, Year: o.Year} }

// isKernelLog reports whether the first line that says anything is a record.
func (o *opener) isKernelLog(head []byte) bool {
	for line := range strings.Lines(string(head)) {
		line = strings.TrimRight(line, "\r\n")
		_, err := o.times().Parse(line)
		switch {
		case line == "", errors.Is(err, kernelline.ErrNotice):
			continue
		default: // what lacks a year is one: its lines say what to do
			return err == nil || errors.Is(err, kernelline.ErrForeign) || errors.Is(err, kernelline.ErrNoYear)
		}
	}
	return false
}

// hostOf names the host of a log that does not: what the operator said, or the
// file's name up to its first dot.
func (o *opener) hostOf(path string) string {
	if o.Host != "" {
		return o.Host
	}
	name := filepath.Base(path)
	if short, _, _ := strings.Cut(name, "."); short != "" {
		return short
	}
	return name
}

// frames reads messages that a length of four bytes, big-endian, stands before
// (fileexporter, file_writer.go: exportMessageAsBuffer).
type frames struct {
	in     *file
	s      *stream
	emit   func(batch)
	offset int64
}

func (f *frames) fill() error {
	var prefix [4]byte
	where := fmt.Sprintf("%s: byte %d", f.in.name, f.offset)
	if n, err := io.ReadFull(f.in.r, prefix[:]); err != nil {
		if n == 0 && errors.Is(err, io.EOF) {
			return io.EOF
		}
		return fmt.Errorf("%s: a message is cut off: %w", where, err)
	}
	size := binary.BigEndian.Uint32(prefix[:])
	if size == 0 || size > mostMessage {
		return fmt.Errorf("%s: a message of %d bytes: the file is damaged here, or no recording in protobuf", where, size)
	}
	message, err := io.ReadAll(io.LimitReader(f.in.r, int64(size)))
	if err == nil && len(message) < int(size) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("%s: a message is cut off: %w", where, err)
	}
	f.offset += int64(len(prefix)) + int64(size)
	b, err := f.s.o.decodeFrame(message)
	return f.s.take(where, b, err, f.emit)
}

// take emits a decoded batch, or says what was wrong with it.
func (s *stream) take(where string, b batch, err error, emit func(batch)) error {
	switch {
	case errors.Is(err, errOther):
		s.o.other++
		return nil
	case err != nil:
		return damage(where, err)
	case b.records > 0:
		emit(b)
	}
	return nil
}

// head returns the next batch without taking it, nil at the end. bad is told of
// what cannot be read. A file that ends with it is closed.
func (s *stream) head(bad func(error)) *batch {
	for s.in != nil && (len(s.queue) == 0 || s.in.ended()) {
		s.fill(bad)
	}
	if len(s.queue) == 0 {
		return nil
	}
	b := &s.queue[0]
	if b.first == 0 {
		b.first, b.last = s.after, s.after
	}
	return b
}

// fill reads on, and closes the file at its end.
func (s *stream) fill(bad func(error)) {
	err := s.format.fill()
	if err == nil {
		return
	}
	if told := unlessEOF(err); told != nil {
		bad(told)
	}
	if onlyPartial(err) {
		return
	}
	if err := s.in.close(); err != nil {
		bad(err)
	}
	s.in = nil
}

func onlyPartial(err error) bool {
	var p partial
	return errors.As(err, &p) && !errors.Is(err, io.EOF)
}

// unlessEOF is the part of an error that an operator must know.
func unlessEOF(err error) error {
	var p partial
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil
	}
	return err
}

// pop takes the head.
func (s *stream) pop() batch {
	b := s.queue[0]
	s.queue[0] = batch{}
	s.queue = s.queue[1:]
	s.after = b.last
	return b
}

func (s *stream) close() error {
	if s.in == nil {
		return nil
	}
	err := s.in.close()
	s.in = nil
	return err
}

// newJSONFormat tells lines of JSON from documents over several lines. A first
// line that is no whole document and is followed by one that begins another is a
// damaged line.
func newJSONFormat(in *file, log *kernelLog, s *stream, emit func(batch)) (format, error) {
	j := &jsonFormat{in: in, log: log, s: s, emit: emit}
	first, long, err := readLine(in.r, mostMessage)
	for err == nil && len(bytes.TrimSpace(first)) == 0 {
		j.line++
		first, long, err = readLine(in.r, mostMessage)
	}
	if err != nil {
		return nil, err
	}
	next, err := in.r.Peek(1)
	if json.Valid(first) || long || errors.Is(err, io.EOF) || len(next) == 1 && next[0] == '{' {
		j.ahead, j.aheadLong, j.byLine = first, long, true
		return j, nil
	}
	in.r = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(append(first, '\n')), in.r), buffer)
	return j, nil
}

// utcUnless is the zone that times without one are in.
func utcUnless(zone *time.Location) *time.Location {
	if zone == nil {
		return time.UTC
	}
	return zone
}
