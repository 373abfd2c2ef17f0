//go:build linux && (amd64 || arm64)

package pyexception

import (
	"fmt"
	"strconv"
	"strings"
)

// argument is one argument of an exception.
type argument struct {
	value  bpfValue
	number int64
	text   string
	cut    bool
}

// message is what an exception was made with. What the interpreter would call to display
// it, __str__, cannot be called from outside; that of its own classes is repeated here.
type message struct {
	class               string
	count               uint32 // of the arguments
	osError, group      bool
	first, second, file argument
	cut, unread         bool
	tail                string // the end of a first argument that is longer
	gap                 bool   // and between the two there is more
}

// messageOf reads the arguments of an exception of a record.
func messageOf(r *bpfEvent, i int) (*message, error) {
	x := &r.Exception[i]
	m := &message{class: text(x.Type[:]), count: x.Arguments, osError: x.OsError != 0}
	for _, one := range []struct {
		into        *argument
		value       uint32
		number      int64
		length      uint64
		size, width uint32
		bytes       []byte
	}{
		{&m.first, x.Message.Value, x.Message.Number, x.Message.Text.Length, x.Message.Text.Size, x.Message.Text.Width, raw(x.MessageBytes[:])},
		{&m.second, x.Detail.Value, x.Detail.Number, x.Detail.Text.Length, x.Detail.Text.Size, x.Detail.Text.Width, raw(x.DetailBytes[:])},
		{&m.file, x.File.Value, x.File.Number, x.File.Text.Length, x.File.Text.Size, x.File.Text.Width, raw(x.FileBytes[:])},
	} {
		if bpfValue(one.value) >= bpfValueVALUES {
			return nil, fmt.Errorf("pyexception record: a value of kind %d", one.value)
		}
		one.into.value, one.into.number = bpfValue(one.value), one.number
		var err error
		if one.into.text, one.into.cut, err = textOf(one.length, one.size, one.width, one.bytes); err != nil {
			return nil, err
		}
	}
	if next := i + 1; next < int(r.Exceptions) {
		m.group = bpfRelation(r.Exception[next].Relation) == bpfRelationRELATION_MEMBER
	}
	m.cut = m.first.cut
	if err := m.readTail(r, i); err != nil {
		return nil, err
	}
	m.unread = m.first.value == bpfValueVALUE_ABSENT || m.first.value == bpfValueVALUE_OTHER || m.first.value == bpfValueVALUE_LIST
	return m, nil
}

// readTail reads the end of a long first argument.
func (m *message) readTail(r *bpfEvent, i int) error {
	x := &r.Exception[i]
	size, width, length := x.TailSize, x.Message.Text.Width, x.Message.Text.Length
	if size == 0 {
		return nil
	}
	if !m.cut || width == 0 {
		return fmt.Errorf("pyexception record: an end of %d bytes of a text that has none", size)
	}
	rest := length - uint64(x.Message.Text.Size/width)
	if uint64(size/width) > rest {
		return fmt.Errorf("pyexception record: an end of %d bytes of a text of %d characters", size, length)
	}
	var err error
	m.tail, m.gap, err = textOf(rest, size, width, raw(x.TailBytes[:]))
	return err
}

// end is the end of the message where that is the first argument, and longer.
func (m *message) end() (tail string, gap bool) {
	if m.String() != m.first.text {
		return "", false
	}
	return m.tail, m.gap
}

// String is the message as the interpreter's own classes make it (Objects/exceptions.c).
func (m *message) String() string {
	switch {
	case m.osError && m.count >= 2 && m.first.value == bpfValueVALUE_NUMBER && m.second.value == bpfValueVALUE_TEXT:
		s := fmt.Sprintf("[Errno %d] %s", m.first.number, m.second.text)
		if m.file.value == bpfValueVALUE_TEXT {
			s += ": " + quoted(m.file)
		}
		return s
	case m.group && m.second.value == bpfValueVALUE_LIST:
		s := "s"
		if m.second.number == 1 {
			s = ""
		}
		return fmt.Sprintf("%s (%d sub-exception%s)", m.first.text, m.second.number, s)
	case m.class == "KeyError" && m.count == 1 && m.first.value == bpfValueVALUE_TEXT:
		return quoted(m.first)
	case m.count >= 2 && m.second.shown() != "" && m.first.value != bpfValueVALUE_TEXT:
		return m.first.shown() + ", " + m.second.shown()
	}
	return m.first.shown()
}

func (a argument) shown() string {
	switch a.value {
	case bpfValueVALUE_TEXT:
		return a.text
	case bpfValueVALUE_NUMBER:
		return strconv.FormatInt(a.number, 10)
	}
	return ""
}

// quoted is nearly repr(): enough to see where the text ends.
func quoted(a argument) string {
	if a.cut {
		return "'" + a.text + "…'"
	}
	return "'" + strings.ReplaceAll(a.text, "'", `\'`) + "'"
}
