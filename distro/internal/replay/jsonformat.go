package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/tracecoreai/tracecore/distro/internal/replay/kernelline"
)

// jsonFormat reads OTLP and kernel records in JSON, a document to a line or over
// several lines.
type jsonFormat struct {
	in     *file
	log    *kernelLog
	s      *stream
	emit   func(batch)
	byLine bool
	line   int

	ahead     []byte // a line that was read to find out
	aheadLong bool
}

func (j *jsonFormat) fill() error {
	document, at, err := j.next()
	where := fmt.Sprintf("%s:%d", j.in.name, at)
	if err != nil {
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			j.log.finish()
			return io.EOF
		}
		if j.byLine && errors.Is(err, errTooLong) {
			return damage(where, err)
		}
		j.log.finish()
		return fmt.Errorf("%s: %w", where, err)
	}
	if len(document) == 0 {
		return nil
	}
	return j.take(where, document)
}

// errTooLong is a document beyond the bound.
var errTooLong = fmt.Errorf("a document of more than %d MiB: split it", mostMessage>>20)

// next returns the next document and the line it begins at.
func (j *jsonFormat) next() (document []byte, line int, err error) {
	if !j.byLine {
		return j.document()
	}
	document, long := j.ahead, j.aheadLong
	j.ahead, j.aheadLong = nil, false
	if document == nil {
		document, long, err = readLine(j.in.r, mostMessage)
	}
	if err != nil {
		return nil, j.line, err
	}
	j.line++
	if long {
		return nil, j.line, errTooLong
	}
	return bytes.TrimSpace(document), j.line, nil
}

func (j *jsonFormat) take(where string, document []byte) error {
	kind, err := contentOf(document)
	if err != nil {
		return damage(where, fmt.Errorf("%w: %s", err, quote(document)))
	}
	switch kind {
	case journalJSON:
		line, err := parseJournal(document)
		if errors.Is(err, kernelline.ErrForeign) {
			return nil
		}
		if err == nil {
			err = j.log.add(line)
		}
		return damage(where, err)
	case dmesgJSON:
		lines, err := parseDmesg(document)
		for _, line := range lines {
			err = errors.Join(err, j.log.add(line))
		}
		return damage(where, err)
	}
	b, err := decodeOTLP(kind, document)
	return j.s.take(where, b, err, j.emit)
}

// document reads up to the end of the next object, whatever lines it is on.
func (j *jsonFormat) document() (document []byte, line int, err error) {
	var d depth
	begins := j.line + 1
	for {
		c, err := j.in.r.ReadByte()
		if err != nil {
			if errors.Is(err, io.EOF) && len(document) > 0 {
				return nil, begins, fmt.Errorf("the document that begins here is cut off: %w", io.ErrUnexpectedEOF)
			}
			return nil, begins, err
		}
		if c == '\n' {
			j.line++
		}
		if len(document) == 0 {
			if c == ' ' || c == '\n' || c == '\r' || c == '\t' {
				continue
			}
			begins = j.line + 1
		}
		if len(document) == mostMessage {
			return nil, begins, errTooLong
		}
		document = append(document, c)
		if c != '{' && len(document) == 1 {
			return nil, begins, fmt.Errorf("%q between two documents", c)
		}
		if d.ends(c) {
			return document, begins, nil
		}
	}
}

// depth follows the braces of a JSON object.
type depth struct {
	level           int
	inText, escaped bool
}

// ends reports whether c closes the object.
func (d *depth) ends(c byte) bool {
	switch {
	case d.escaped:
		d.escaped = false
	case d.inText:
		d.inText, d.escaped = c != '"', c == '\\'
	case c == '"':
		d.inText = true
	case c == '{' || c == '[':
		d.level++
	case c == '}' || c == ']':
		d.level--
		return d.level == 0
	}
	return false
}
