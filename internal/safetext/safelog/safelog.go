// Package safelog makes every text of a logger safe to show: components quote names,
// paths and errors that strangers wrote.
package safelog

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tracecoreai/tracecore/internal/safetext"
)

// Option makes a logger safe.
func Option() zap.Option {
	return zap.WrapCore(func(next zapcore.Core) zapcore.Core { return core{next} })
}

// core gives the next one safe texts alone.
type core struct{ zapcore.Core }

// With implements zapcore.Core.
func (c core) With(fields []zapcore.Field) zapcore.Core { return core{c.Core.With(safe(fields))} }

// Check implements zapcore.Core.
func (c core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	// The next core may sample: it is asked, and this one writes.
	if c.Core.Check(entry, nil) != nil {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	entry.Message, entry.LoggerName = safetext.Line(entry.Message), safetext.Line(entry.LoggerName)
	return c.Core.Write(entry, safe(fields))
}

func safe(fields []zapcore.Field) []zapcore.Field {
	out := make([]zapcore.Field, 0, len(fields))
	for _, f := range fields {
		out = append(out, field(f))
	}
	return out
}

func field(f zapcore.Field) zapcore.Field {
	f.Key = safetext.Line(f.Key)
	switch f.Type {
	case zapcore.StringType:
		f.String = safetext.Line(f.String)
	case zapcore.ErrorType:
		return zap.String(f.Key, text(f.Interface))
	case zapcore.StringerType:
		return zap.String(f.Key, text(f.Interface))
	case zapcore.ByteStringType, zapcore.BinaryType:
		return zap.String(f.Key, safetext.Line(string(f.Interface.([]byte))))
	case zapcore.ArrayMarshalerType, zapcore.ObjectMarshalerType, zapcore.ReflectType:
		return zap.Reflect(f.Key, value(f))
	}
	return f
}

// text is an error, or what makes a text of itself; a nil one of either may panic.
func text(v any) (s string) {
	defer func() {
		if r := recover(); r != nil {
			s = safetext.Line(fmt.Sprintf("<%T: %v>", v, r))
		}
	}()
	if err, ok := v.(error); ok {
		// An error of several has a line for each.
		return safetext.Line(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return safetext.Line(v.(fmt.Stringer).String())
}

// value is what a field encodes to, as JSON.
func value(f zapcore.Field) any {
	encoder := zapcore.NewMapObjectEncoder()
	f.AddTo(encoder)
	encoded, err := safetext.Marshal(encoder.Fields[f.Key])
	if err != nil {
		return safetext.Line(fmt.Sprint(encoder.Fields[f.Key]))
	}
	return json.RawMessage(encoded)
}
