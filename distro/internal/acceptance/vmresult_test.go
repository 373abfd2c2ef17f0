//go:build linux

package acceptance

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fault is one that a test made, to be told in the table of the test machines
// (vmtests/RESULTS.md).
type fault struct {
	probe, name string
	cause       time.Time
	delay       time.Duration // 0: no verdict named it
}

// cause notes that the fault happens now. What becomes of it is recorded when
// the test ends: named with the delay that verdict noted, or missed.
func cause(t *testing.T, probe, name string) *fault {
	t.Helper()
	f := &fault{probe: probe, name: name, cause: time.Now()}
	t.Cleanup(func() { f.record(t) })
	return f
}

// named notes that the verdict was seen now.
func (f *fault) named() { f.namedAfter(f.cause) }

// namedAfter is named for a fault whose moment the kernel told.
func (f *fault) namedAfter(moment time.Time) { f.delay = max(time.Since(moment), time.Nanosecond) }

// record appends to the file that the test machines collect; elsewhere there is none.
func (f *fault) record(t *testing.T) {
	name := os.Getenv("TRACECORE_RESULTS")
	if name == "" {
		return
	}
	line := map[string]any{"probe": f.probe, "fault": f.name, "result": "missed"}
	if f.delay > 0 && !t.Failed() {
		line["result"], line["delay_ms"] = "named", float64(f.delay.Microseconds())/1000
	}
	text, err := json.Marshal(line)
	require.NoError(t, err)
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	defer file.Close()
	_, err = file.Write(append(text, '\n'))
	require.NoError(t, err)
}
