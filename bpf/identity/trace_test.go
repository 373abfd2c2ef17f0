package identity

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func sampleTrace() Trace {
	return Trace{
		TraceID: [16]byte{0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36},
		SpanID:  [8]byte{0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7}, Flags: 1,
	}
}

func TestTraceparentOfARankIsRead(t *testing.T) {
	for name, text := range map[string]string{
		"version 0":                 traceparent,
		"a later version":           "cc" + traceparent[2:],
		"a later version with more": "cc" + traceparent[2:] + "-what-the-future-will-be-like",
	} {
		t.Run(name, func(t *testing.T) {
			l := parseEnviron(block("RANK=1", "WORLD_SIZE=8", "TRACEPARENT="+text))
			require.Equal(t, sampleTrace(), l.trace)
			require.Zero(t, l.badValues)
		})
	}
	require.Equal(t, noLaunch(), parseEnviron(block("TRACEPARENT="+traceparent)), "of what is no rank it is not read")
	require.Equal(t, noLaunch(), parseEnviron(block("TRACEPARENT=nonsense")), "nor counted")
}

func TestInvalidTraceparentIsIgnoredAndCounted(t *testing.T) {
	for name, text := range map[string]string{
		"empty":                     "",
		"text":                      "trace me",
		"short":                     traceparent[:54],
		"version 0 with more":       traceparent + "-00",
		"more without a dash":       "cc" + traceparent[2:] + "00",
		"version ff":                "ff" + traceparent[2:],
		"capitals":                  strings.ToUpper(traceparent),
		"no digit in the trace":     strings.Replace(traceparent, "4b", "4g", 1),
		"no digit in the flags":     traceparent[:53] + "0x",
		"no dash":                   strings.ReplaceAll(traceparent, "-", "_"),
		"no trace":                  "00-" + strings.Repeat("0", 32) + traceparent[35:],
		"no span":                   traceparent[:36] + strings.Repeat("0", 16) + "-01",
		"a later version, too long": "cc" + traceparent[2:] + "-" + strings.Repeat("x", 512),
		"white space":               " " + traceparent,
	} {
		t.Run(name, func(t *testing.T) {
			l := parseEnviron(block("RANK=1", "WORLD_SIZE=8", "TRACEPARENT="+text))
			require.Equal(t, launch{rank: 1, localRank: Unknown, worldSize: 8, badValues: 1}, l)
		})
	}
}

func TestAWorkerHasTheTraceOfItsRank(t *testing.T) {
	own := launch{rank: 1, localRank: Unknown, worldSize: 8, trace: sampleTrace()}
	rank, _ := derive(facts{pid: 10, startNS: 1, launch: own}, nil)
	require.Equal(t, sampleTrace(), rank.Trace)
	worker, _ := derive(facts{pid: 11, parentPID: 10, startNS: 2, launch: noLaunch()}, rank)
	require.Equal(t, sampleTrace(), worker.Trace, "a DataLoader worker")

	later := own
	later.trace.SpanID[0] = 7
	program, _ := derive(facts{pid: 12, parentPID: 10, startNS: 3, launch: later}, rank)
	require.Equal(t, later.trace, program.Trace, "a program that was given a span of its own")

	rank.demote()
	require.False(t, rank.Trace.Known(), "a launcher is no rank")
}

func FuzzTraceparent(f *testing.F) {
	f.Add([]byte(traceparent))
	f.Add([]byte("cc" + traceparent[2:] + "-more"))
	f.Fuzz(func(t *testing.T, text []byte) {
		trace, ok := parseTraceparent(text)
		if !ok {
			return
		}
		require.True(t, trace.Known())
		require.NotZero(t, trace.SpanID)
		again, ok := parseTraceparent([]byte(trace.String()))
		require.True(t, ok)
		require.Equal(t, trace, again)
	})
}
