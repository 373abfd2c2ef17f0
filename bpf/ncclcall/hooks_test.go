//go:build linux && (amd64 || arm64)

package ncclcall

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Before Linux 5.15 all libraries share a slot. A file of one user whose calls are stepped over caps
// no call of others.
func TestWhatIsSteppedOverIsKnownByTheFileOfAProcess(t *testing.T) {
	usual := &attachment{nccl: true, users: []Process{{PID: 1, Owner: "user 1"}}}
	stepped := &attachment{nccl: true, stepped: true, users: []Process{{PID: 2, Owner: "user 2"}}}
	h := &hooks{libraries: map[*attachment]bool{usual: true, stepped: true}}
	w := newWorld()
	for range 12 {
		w.slots = h.slots()
		w.call(1, 0, 1, 0, 20)
		w.call(2, 0, 2, 0, 20)
		w.after(time.Second)
	}
	require.Equal(t, map[uint32]Limit{2: NoCalls}, w.after(time.Second))

	delete(h.libraries, usual)
	require.True(t, h.slots()[0].stepped)
}
