package otlpreceiver

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A body holds what it is long, where the sender says it, and at most twice that where he does
// not; what he only says is not reserved.
func TestABodyHoldsWhatItIsLong(t *testing.T) {
	for name, size := range map[string]int{"empty": 0, "small": 100, "first read": firstRead, "slice": slice, "slice and one": slice + 1, "large": 5<<20 + 7} {
		t.Run(name, func(t *testing.T) {
			sent := make([]byte, size)
			for i := range sent {
				sent[i] = byte(rand.Uint32())
			}
			r := &otlpReceiver{budget: &shares{size: 1 << 30}}
			for _, said := range []int64{int64(size), -1} {
				req := httptest.NewRequest("POST", "/v1/logs", io.NopCloser(bytes.NewReader(sent)))
				req.ContentLength = said
				body, held, err := r.readBody(req)
				require.NoError(t, err)
				require.True(t, bytes.Equal(sent, body))
				require.EqualValues(t, cap(body), held)
				require.Equal(t, held, r.budget.all())
				most := max(firstRead, 2*size)
				if said > 0 {
					most = size + 1
				}
				require.LessOrEqual(t, int(held), most)
				r.budget.giveBack(origin{}, held)
			}
		})
	}
}

// Who says that he sends much, and sends little, holds little.
func TestWhatIsOnlySaidIsNotReserved(t *testing.T) {
	r := &otlpReceiver{budget: &shares{size: 1 << 30}}
	sent, sender := io.Pipe()
	req := httptest.NewRequest("POST", "/v1/logs", sent)
	req.ContentLength = 100 << 20
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = r.readBody(req)
	}()
	_, err := sender.Write(make([]byte, 20_000)) // returns when it is read
	require.NoError(t, err)
	require.LessOrEqual(t, r.budget.all(), int64(4*20_000))
	require.NoError(t, sender.Close())
	<-done
}
