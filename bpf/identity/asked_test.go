//go:build linux && (amd64 || arm64)

package identity

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRanksThatWereAskedToEndAndLive: who asks all ranks ends the job, also before one of them has ended.
func TestRanksThatWereAskedToEndAndLive(t *testing.T) {
	const signalled = 60
	for name, tc := range map[string]struct {
		by    *signals
		asks  uint32  // how many of three
		after float64 // the signal
		want  []Others
	}{
		"all, by SIGTERM":                   {askedBy(70, sigTERM, signalled), 3, 2, []Others{{Lived: 2, Asked: 2}, {Lived: 2, Asked: 2}, {Lived: 2, Asked: 2}}},
		"all, by the notice of a scheduler": {askedBy(70, sigUSR1, signalled), 3, 2, []Others{{Lived: 2, Asked: 2}, {Lived: 2, Asked: 2}, {Lived: 2, Asked: 2}}},
		"one":                               {askedBy(70, sigINT, signalled), 1, 2, []Others{{Lived: 2}}},
		"the others may be asked yet":       {askedBy(70, sigTERM, signalled), 1, 0.5, nil},
		"long ago":                          {askedBy(70, sigTERM, signalled), 3, 121, nil},
		"it ends of that":                   {askedBy(70, sigKILL, signalled), 3, 2, nil},
		"nobody":                            {nil, 3, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w, source := newWrapperTest(t), &askedScript{newScript(), map[uint32]*signals{}}
			w.source = source
			var lines []signalledLine
			for r := range uint32(3) {
				environ := []string{fmt.Sprint("RANK=", r), "WORLD_SIZE=3", "JOB_ID=job"}
				lines = append(lines, signalledLine{line: line{0, "exec", 20 + r, 1, 0, "python", environ}}, signalledLine{line: line{1, "exec", 30 + r, 20 + r, 0, "nvidia-smi", environ}})
			}
			playInto(w.Tracker, lines)
			for r := range tc.asks {
				source.to[20+r], source.to[30+r] = tc.by, tc.by
			}
			var others []Others
			for _, a := range w.askedBefore(scriptNS(signalled + tc.after)) {
				require.Equal(t, []any{int(tc.by.asked.signal), uint32(70), RelationOther}, []any{a.Signal.Number, a.Signal.Sender.PID, a.Signal.Sender.Relation})
				require.True(t, a.Leads())
				others = append(others, a.Others)
			}
			require.Equal(t, tc.want, others)
		})
	}
}
