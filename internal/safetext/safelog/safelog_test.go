package safelog_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tracecoreai/tracecore/internal/safetext/safelog"
	"github.com/tracecoreai/tracecore/internal/safetext/safetexttest"
)

type named string

func (n named) String() string { return string(n) }

type broken struct{}

func (*broken) Error() string { panic("no error") }

type object struct{ text string }

func (o object) MarshalLogObject(e zapcore.ObjectEncoder) error {
	e.AddString("text", o.text)
	return nil
}

// TestNoFieldLetsHostileTextThrough tries each kind of field, in both encodings of the
// collector.
func TestNoFieldLetsHostileTextThrough(t *testing.T) {
	const hostile = safetexttest.Hostile
	config := zap.NewProductionEncoderConfig()
	for name, encoder := range map[string]zapcore.Encoder{"console": zapcore.NewConsoleEncoder(config), "json": zapcore.NewJSONEncoder(config)} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			logger := zap.New(zapcore.NewCore(encoder, zapcore.AddSync(&out), zap.InfoLevel), safelog.Option())
			logger.Named(hostile).With(zap.String("with", hostile)).Warn("message "+hostile,
				zap.String("string", hostile), zap.Error(errors.Join(errors.New(hostile), errors.New("second"))), zap.NamedError("broken", (*broken)(nil)),
				zap.Stringer("stringer", named(hostile)), zap.ByteString("bytes", []byte(hostile)), zap.Strings("strings", []string{hostile}),
				zap.Object("object", object{hostile}), zap.Any("map", map[string]any{hostile: hostile}), zap.Reflect("function", func() {}),
				zap.String(hostile, "key"), zap.Int("count", 7))
			logger.Debug("below the level")
			text := out.String()
			require.Equal(t, byte('\n'), text[len(text)-1])
			if name == "console" {
				text = string(bytes.ReplaceAll([]byte(text), []byte("\t"), []byte(" "))) // between columns
			}
			safetexttest.RequireSafe(t, text[:len(text)-1])
			require.Contains(t, text, "second")
			require.Contains(t, text, "7")
			require.NotContains(t, text, "below")
		})
	}
}
