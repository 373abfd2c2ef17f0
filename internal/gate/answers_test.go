package gate

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

func busy(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }

// Who asks for all there is and does not read it holds up nobody: the others are answered,
// and no more answers are kept than are to be sent.
func TestWhoReadsSlowlyHoldsUpNobody(t *testing.T) {
	const most = 2
	large := bytes.Repeat([]byte("x"), 12<<20) // more than any socket holds
	made := make(chan struct{}, 8*most)
	server := httptest.NewServer(Answers(most, 16*most, hosttest.Patience, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(large)
			made <- struct{}{}
			return
		}
		w.Header().Set("X-Kind", "small")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("small"))
	}, busy))
	defer server.Close()
	var slow []net.Conn
	for range 8 * most {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		_, err = fmt.Fprint(c, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		slow = append(slow, c)
	}
	for range slow { // a later one would end a small answer
		<-made
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: hosttest.Patience}
	for range 4 * most {
		response, err := client.Get(server.URL)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusTeapot, response.StatusCode)
		require.Equal(t, "small", response.Header.Get("X-Kind"))
		require.Equal(t, "small", string(text))
	}
	ended := 0
	for _, c := range slow {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(hosttest.Patience)))
		if n, err := io.Copy(io.Discard, io.LimitReader(c, int64(len(large)))); err == nil && n < int64(len(large)) {
			ended++
		}
	}
	require.GreaterOrEqual(t, ended, 8*most-2*most, "the oldest gave way")
}

// What finds no turn is told so.
func TestQuestionsBeyondTheirTurn(t *testing.T) {
	hold, made := make(chan struct{}), make(chan struct{}, 1)
	server := httptest.NewServer(Answers(1, 8, time.Millisecond, func(http.ResponseWriter, *http.Request) {
		made <- struct{}{}
		<-hold
	}, busy))
	defer server.Close()
	first := make(chan error)
	go func() {
		for { // on a busy machine a millisecond can be over before the first turn
			response, err := http.Get(server.URL)
			if err == nil {
				err = response.Body.Close()
			}
			if err != nil || response.StatusCode != http.StatusServiceUnavailable {
				first <- err
				return
			}
		}
	}()
	<-made
	response, err := http.Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	close(hold)
	require.NoError(t, <-first)
}

// Questions without end leave the processor to others: after an answer its place rests.
func TestAPlaceRestsAfterAnAnswer(t *testing.T) {
	clock := time.Unix(0, 0)
	var free []func()
	var rested []time.Duration
	h := Answers(1, 8, 0, func(http.ResponseWriter, *http.Request) { clock = clock.Add(30 * time.Millisecond) }, busy).(*answers)
	h.patience = time.Minute
	h.now = func() time.Time { return clock }
	h.after = func(d time.Duration, f func()) { rested, free = append(rested, d), append(free, f) }
	ask := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Code
	}
	require.Equal(t, http.StatusOK, ask())
	require.Equal(t, []time.Duration{210 * time.Millisecond}, rested)
	h.patience = time.Millisecond
	require.Equal(t, http.StatusServiceUnavailable, ask(), "it rests")
	free[0]()
	h.patience = time.Minute
	require.Equal(t, http.StatusOK, ask())
	free[1]()
	h.next = func(http.ResponseWriter, *http.Request) { clock = clock.Add(time.Hour) }
	require.Equal(t, http.StatusOK, ask())
	require.Equal(t, longest, rested[2], "a file that was busy is no work")
}
