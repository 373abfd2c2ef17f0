package ranks

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What GET /v1/ranks tells of one large job: ranks are ranges, and there is a line for each
// machine, none for each rank.
func TestTheStatesOfALargeJobAreSmall(t *testing.T) {
	const ranks, each = 16384, 8
	b := newBench(DefaultMost)
	size := func(most int) {
		t.Helper()
		text, err := json.Marshal(b.job(t))
		require.NoError(t, err)
		t.Logf("%d bytes", len(text))
		require.Less(t, len(text), most)
	}
	for rank := range ranks {
		b.tell(t, 0, "process.start", rank, of(rank, 0, nil))
	}
	require.Len(t, b.job(t).Nodes, ranks/each)
	size(90_000)
	j := b.jobs[jobKey{id: "llm"}]
	for rank, r := range j.ranks {
		r.rail = fmt.Sprint("eth", rank%each)
	}
	j.told.stale = true
	size(200_000)
	for rank := 0; rank < ranks; rank += 2 { // no two of one range fare alike
		b.tell(t, time.Minute, "process.exit", rank, of(rank, 0, attributes{"process.exit.signal_name": "SIGKILL", "process.exit.signal": 9}))
	}
	size(290_000)
}
