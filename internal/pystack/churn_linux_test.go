package pystack

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

var churn = flag.Int("churn", 1000, "stacks that are taken of a program that never holds still")

// TestNoWrongStackIsBelieved looks at functions that call each other at random: fN is
// called by fN-1 alone, so a stack that is none is seen.
func TestNoWrongStackIsBelieved(t *testing.T) {
	hosttest.NotShort(t, "it takes stacks for some seconds")
	noWrongStackIsBelieved(t, hostPython(t), *churn)
}

func noWrongStackIsBelieved(t *testing.T, py python, wanted int) {
	t.Helper()
	j := start(t, py, "churn.py")
	p := open(t, j.pid)
	torn, deepest, looks := 0, 0, 0
	for end := time.Now().Add(hosttest.Patience); looks < wanted || deepest <= 5 && time.Now().Before(end); looks++ { // it may have had no CPU yet
		s, err := p.Stacks(Options{})
		require.NoError(t, err)
		require.Len(t, s.Threads, 1)
		one := s.Threads[0]
		require.True(t, one.Main)
		if one.Torn {
			torn++
			require.Error(t, one.Err)
			require.Empty(t, one.Frames)
			continue
		}
		require.Empty(t, wrong(one.Frames), "%v", one.Frames)
		deepest = max(deepest, len(one.Frames))
	}
	t.Logf("%d stacks of a program that never holds still, %d frames at most: 0 wrong and believed, %d given up", looks, deepest, torn)
	require.Less(t, torn, looks, "nothing was read at all")
	require.Greater(t, deepest, 5)
}

// wrong says what in a stack of churn.py is impossible, "" where all of it can be.
func wrong(frames []Frame) string {
	if n := len(frames); n < 2 || frames[n-2].Function != "main" || frames[n-1].Function != "<module>" {
		return "it does not begin in main"
	}
	for i, f := range frames[:len(frames)-2] {
		number, err := strconv.Atoi(strings.TrimPrefix(f.Function, "f"))
		caller := "main"
		if number > 0 {
			caller = fmt.Sprintf("f%d", number-1)
		}
		first := 2 + 6*number // the line of its def
		switch {
		case err != nil || f.File != "churn.py":
			return fmt.Sprintf("frame %d is of no such function", i)
		case frames[i+1].Function != caller:
			return fmt.Sprintf("frame %d is called by %s", i, frames[i+1].Function)
		case f.Line < first || f.Line > first+5:
			return fmt.Sprintf("frame %d is in line %d, its function in %d to %d", i, f.Line, first, first+5)
		case i > 0 && f.Line != first+4:
			return fmt.Sprintf("frame %d calls another in line %d, not in %d", i, f.Line, first+4)
		}
	}
	return ""
}

func BenchmarkStacks(b *testing.B) {
	j := start(b, hostPython(b), "scene.py", "seven")
	settle(b, j)
	reader := New(procfs.Open("").WithPatience(hosttest.Patience))
	p, err := reader.Open(j.pid)
	require.NoError(b, err)
	defer p.Close()
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			one, err := New(procfs.Open("")).Open(j.pid)
			require.NoError(b, err)
			require.NoError(b, one.Close())
		}
	})
	b.Run("open, known file", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			one, err := reader.Open(j.pid)
			require.NoError(b, err)
			require.NoError(b, one.Close())
		}
	})
	for name, o := range map[string]Options{"seven threads": {}, "main thread": {OnlyMain: true}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			frames := 0
			for b.Loop() {
				s, err := p.Stacks(o)
				require.NoError(b, err)
				frames = 0
				for _, t := range s.Threads {
					require.False(b, t.Torn)
					frames += len(t.Frames)
				}
			}
			b.ReportMetric(float64(frames), "frames/op")
		})
	}
	b.Run("main chain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := p.PlaceOf(j.pid)
			require.NoError(b, err)
		}
	})
}
