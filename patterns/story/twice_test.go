package story

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var others = regexp.MustCompile(`\d+ others like these`)

// An exporter that got no answer sends again: a record that comes twice is one.
func TestARecordThatComesTwiceIsOne(t *testing.T) {
	compared := 0
	each(t, func(t *testing.T, s told) {
		if s.Input.Kind == Flood || s.Input.OrderMatters != "" {
			return
		}
		once := byArrival(s.Input.arrivals())
		var twice []arrival
		for _, a := range once {
			again := a
			again.at = again.at.Add(time.Second)
			twice = append(twice, a, again)
		}
		twice = byArrival(twice)
		at := clock(twice, s.end(t).Add(time.Minute))
		want := s.tell(t, once, at, counted)
		compared += len(want)
		got := s.tell(t, twice, at, counted)
		for i := range got { // of what has left to make room nobody knows that it comes again
			got[i] = others.ReplaceAllString(got[i], "")
		}
		for i := range want {
			want[i] = others.ReplaceAllString(want[i], "")
		}
		require.Equal(t, want, got)
	})
	require.Greater(t, compared, 500, "the test sees something")
}
