package gate

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// elsewhere is a listener to which 127.0.0.9 is 10.0.0.9: an owner of its own.
type elsewhere struct{ net.Listener }

type from struct {
	net.Conn
	address *net.TCPAddr
}

func (l elsewhere) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	at := *c.RemoteAddr().(*net.TCPAddr)
	at.IP = net.IPv4(10, 0, 0, at.IP.To4()[3])
	return from{c, &at}, nil
}

func (c from) RemoteAddr() net.Addr { return c.address }

// dialFrom connects from 127.0.0.host.
func dialFrom(host byte) func(context.Context, string, string) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}
	return dialer.DialContext
}

// served answers from so many connections, one question at a time.
func served(t *testing.T, most int, answer http.HandlerFunc) (address string, h *answers) {
	t.Helper()
	h = Answers(1, most, hosttest.Patience, answer, busy).(*answers)
	server := httptest.NewUnstartedServer(h)
	address = server.Listener.Addr().String()
	server.Listener = Share(elsewhere{server.Listener}, most)
	server.Config.ConnContext = InContext
	server.Start()
	t.Cleanup(server.Close)
	return address, h
}

// Somebody asks without end, on three times as many connections as there are. Another is
// answered each time.
func TestWhoAsksWithoutEndStarvesNobody(t *testing.T) {
	const most, asked = 4, 50
	address, _ := served(t, most, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Millisecond)
		_, _ = w.Write([]byte("{}"))
	})
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	for range 3 * most {
		others.Go(func() {
			for ctx.Err() == nil {
				if c, err := dialFrom(2)(ctx, "tcp", address); err == nil {
					_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
					_ = c.SetReadDeadline(time.Now().Add(hosttest.Patience))
					_, _ = c.Read(make([]byte, 1))
					_ = c.Close()
				}
			}
		})
	}
	defer others.Wait()
	defer stop()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialFrom(3)}, Timeout: hosttest.Patience}
	for range asked {
		response, err := client.Get("http://" + address)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
	}
}

// Connections that ask nothing take no answer from those that asked before, of the same address;
// questions beyond those that may wait are told so.
func TestAQuestionIsAnsweredBesideConnectionsWithout(t *testing.T) {
	const most = 8
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	address, h := served(t, most, func(w http.ResponseWriter, _ *http.Request) {
		<-hold
		_, _ = w.Write([]byte("{}"))
	})
	dial := func(text string) net.Conn {
		c, err := dialFrom(2)(t.Context(), "tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(hosttest.Patience)))
		_, err = io.WriteString(c, text)
		require.NoError(t, err)
		return c
	}
	answered := func(c net.Conn) int {
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	const question = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	defer release()
	var asked []net.Conn
	for i := range 1 + most/2 {
		asked = append(asked, dial(question))
		require.Eventually(t, func() bool {
			h.making.mu.Lock()
			defer h.making.mu.Unlock()
			return h.making.free == 0 && h.making.waits == i
		}, hosttest.Patience, time.Millisecond)
	}
	require.Equal(t, http.StatusServiceUnavailable, answered(dial(question)))
	for range 3 * most {
		dial("")
	}
	release()
	for i, c := range asked {
		require.Equal(t, http.StatusOK, answered(c), fmt.Sprint("question ", i))
	}
}

// Owners take turns, and he for whom most wait gives way.
func TestOwnersTakeTurns(t *testing.T) {
	x := newTurns(1, 4)
	require.True(t, <-x.enter("a"))
	a := []chan bool{x.enter("a"), x.enter("a"), x.enter("a"), x.enter("a")}
	require.False(t, <-x.enter("a"), "who came last, of one owner")
	b := x.enter("b")
	require.False(t, <-a[3], "the last of the owner that has most")
	over, end := context.WithCancel(t.Context())
	end()
	require.False(t, x.wait(over, "b"))
	require.False(t, <-a[2], "another of the owner that has most")
	c := x.enter("b")
	x.leave()
	require.True(t, <-a[0])
	x.leave()
	require.True(t, <-b, "not behind all that came before")
	x.leave()
	require.True(t, <-a[1])
	require.True(t, x.remove("b", c))
	require.False(t, x.remove("b", c))
	x.leave()
	require.Equal(t, 1, x.free)
	require.Empty(t, x.queues)
	require.Empty(t, x.rotation)
}
