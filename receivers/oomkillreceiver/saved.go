package oomkillreceiver

import (
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/killlog"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/metadata"
)

// fromLog is the origin of a kill that was read from a saved kernel log.
const fromLog = "kernel_log"

// Translator makes of the saved kernel-log lines of one host the records that the
// receiver makes of live kills, without what a log does not say: the rank and its
// job, the parent, swap, and the process that asked for memory. It is not safe for
// concurrent use.
type Translator struct {
	reader  killlog.Reader
	convert *converter
}

// NewTranslator returns a translator of a host's lines.
func NewTranslator(hostName string) *Translator {
	builder := metadata.NewLogsBuilder(metadata.DefaultLogsBuilderConfig(), receiver.Settings{})
	return &Translator{convert: newConverter(builder, record.Host{Name: hostName})}
}

// Translate returns the record of the kill that one more line tells of; it may be
// empty.
func (t *Translator) Translate(at time.Time, text string) plog.Logs {
	e, ok := t.reader.Line(at, strings.ToValidUTF8(text, "\ufffd"))
	if !ok {
		return plog.NewLogs()
	}
	return t.convert.logged(&e)
}

// logged makes a record of a kill that a log tells of.
func (c *converter) logged(e *oomkill.Event) plog.Logs {
	c.begin(e, nil, record.Claimed, e.Time).OomkillOrigin(fromLog)
	return c.builder.Emit()
}
