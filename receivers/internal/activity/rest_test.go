package activity

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// A rest is counted from one look to another: the one after three seconds, or after two of a rank that is stopped, may come
// some milliseconds early.
func TestALookThatComesAMomentEarlyIsInTime(t *testing.T) {
	for state, seconds := range map[socketstall.State]int{socketstall.Stopped: 2, socketstall.Sleeping: 3} {
		r := &Rest{}
		at := goes(r, noon, 0, 40).Add(-time.Second / 2) // when it went on last
		for second := 1; second <= seconds; second++ {
			require.NotEqual(t, socketstall.Overdue, r.Silence)
			r.Look(&Process{State: state, Inside: &Inside{Compared: true}}, at.Add(time.Duration(second)*time.Second-20*time.Millisecond))
		}
		require.Equal(t, socketstall.Overdue, r.Silence, state)
	}
}
