package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// All views count the same: events and metrics by their names, and not pieces of evidence.
func TestWhatFeedsAPatternIsCountedByName(t *testing.T) {
	early, late := time.Unix(100, 0).UTC(), time.Unix(200, 0).UTC()
	patterns, never := FedOf([]Feed{
		{Pattern: "b", Evidence: "one", Reads: []string{"gpu.xid"}, Last: &early},
		{Pattern: "b", Evidence: "other", Reads: []string{"gpu.xid"}, Last: &late},
		{Pattern: "b", Evidence: "third", Reads: []string{"gpu.lost"}},
		{Pattern: "a", Evidence: "shared", Reads: []string{"gpu.xid", "hw.errors"}},
	})
	require.Equal(t, []Fed{{Pattern: "a", Came: 1, All: 2}, {Pattern: "b", Came: 1, All: 2, Last: late}}, patterns)
	require.Equal(t, []string{"gpu.lost", "hw.errors"}, never)
}
