package kernellog

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata/lines.txt")

var loadMeanings = sync.OnceValues(catalogue.Load)

func newTestParser(t testing.TB) *Parser {
	meanings, err := loadMeanings()
	require.NoError(t, err)
	return NewParser(meanings)
}

var start = time.Unix(1_700_000_000, 0)

// shown is a fault as testdata/lines.txt has it.
type shown struct {
	Event       string          `json:"event"`
	Class       catalogue.Class `json:"class"`
	Severity    string          `json:"severity"`
	State       string          `json:"state,omitempty"`
	Waits       bool            `json:"waits,omitempty"`
	Application bool            `json:"application,omitempty"`
	Injected    bool            `json:"injected,omitempty"`
	PID         uint32          `json:"pid,omitempty"`
	Name        string          `json:"name,omitempty"`
	Attributes  map[string]any  `json:"attributes"`
}

func show(t *testing.T, f Fault) string {
	s := shown{
		Event: f.Key.Event, Class: f.Class, Severity: string(f.Severity), State: f.State, Waits: f.Waits(),
		Application: f.ApplicationCaused, Injected: f.Key.Injected, PID: f.OwnerPID, Name: f.OwnerName, Attributes: f.Event.Attributes().AsRaw(),
	}
	text := &strings.Builder{}
	encoder := json.NewEncoder(text)
	encoder.SetEscapeHTML(false)
	require.NoError(t, encoder.Encode(s))
	return "=> " + strings.TrimSpace(text.String())
}

// TestLineShapes runs each case of testdata/lines.txt through a parser of its
// own. A line is followed by the faults it reports ("=> {…}") or by "=> benign"
// or "=> unrecognized". What only waited for more comes last.
func TestLineShapes(t *testing.T) {
	const file = "testdata/lines.txt"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var rewritten strings.Builder
	for i, section := range strings.Split(string(text), "## ")[1:] {
		name, body, _ := strings.Cut(section, "\n")
		t.Run(name, func(t *testing.T) {
			want, got := playSection(t, body)
			if !*update {
				require.Equal(t, want, got)
			}
			if i > 0 {
				rewritten.WriteString("\n")
			}
			rewritten.WriteString("## " + name + "\n" + got)
		})
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(rewritten.String()), 0o600))
	}
}

func playSection(t *testing.T, body string) (want, got string) {
	p := newTestParser(t)
	var result strings.Builder
	for text := range strings.Lines(body) {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		want += text + "\n"
		if strings.HasPrefix(text, "=> ") {
			continue
		}
		result.WriteString(text + "\n")
		event := kmsg.Event{Time: start, PID: 99, Writer: kmsg.WriterKernel, Text: strings.ReplaceAll(text, `\n`, "\n")}
		faults, outcome := p.Parse(nil, &event)
		for _, f := range faults {
			result.WriteString(show(t, f) + "\n")
			require.Equal(t, Reported, outcome)
			require.Equal(t, start, f.Time)
		}
		if len(faults) == 0 {
			result.WriteString("=> " + string(outcome) + "\n")
		}
	}
	for _, f := range p.Expire(nil, start.Add(time.Hour)) {
		result.WriteString(show(t, f) + "\n")
	}
	return want, result.String()
}
