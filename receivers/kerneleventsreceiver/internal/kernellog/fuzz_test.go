package kernellog

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
)

// FuzzParse feeds hostile text, twice, so that the second pass meets what the
// first left remembered.
func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("testdata/lines.txt")
	require.NoError(f, err)
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte("=>")) && !bytes.HasPrefix(line, []byte("##")) {
			f.Add(strings.TrimSpace(string(line)), uint32(1))
		}
	}
	meanings, err := catalogue.Load()
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string, writer uint32) {
		p := NewParser(meanings)
		var faults []Fault
		for pass := range 2 {
			event := kmsg.Event{Time: start.Add(time.Duration(pass) * time.Second), PID: writer, Text: text}
			var outcome Outcome
			before := len(faults)
			faults, outcome = p.Parse(faults, &event)
			require.Contains(t, []Outcome{Unrecognized, Benign, Reported}, outcome)
			require.True(t, outcome == Reported || len(faults) == before || strings.Contains(text, "[Hardware Error]"))
		}
		for _, fault := range p.Expire(faults, start.Add(time.Hour)) {
			checkFault(t, fault, len(text))
		}
		require.False(t, p.Pending())
	})
}

// checkFault holds for every fault whatever the line was.
func checkFault(t *testing.T, f Fault, size int) {
	require.NotEmpty(t, f.Key.Event)
	require.NotEmpty(t, f.Class)
	require.NotZero(t, f.Severity.Number())
	attributes := f.Event.Attributes().AsRaw()
	for _, value := range attributes {
		require.LessOrEqual(t, len(fmt.Sprint(value)), 3*size+64) // strings.ToLower makes U+FFFD of a byte that is no text
	}
	if id, known := attributes["gpu.id"]; known {
		require.Regexp(t, `^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$`, id)
	}
}
