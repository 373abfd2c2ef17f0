package gate

import (
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

// Another user of the machine connects more often than there are connections, from several
// addresses of loopback. A connection that was there before is answered.
func TestConnectionsOfAUserTakeNoneOfAnother(t *testing.T) {
	hosttest.Require(t, "acts as another user")
	const most, stranger = 8, 65534
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Listener = Share(server.Listener, most)
	server.Start()
	defer server.Close()
	address := server.Listener.Addr().String()
	own, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer own.Close()
	var others []net.Conn
	for i := range 3 * most {
		c, err := hosttest.DialAs(t.Context(), stranger, fmt.Sprintf("127.0.0.%d", 1+i%4), address)
		require.NoError(t, err)
		defer c.Close()
		others = append(others, c)
	}
	require.NoError(t, others[0].SetReadDeadline(time.Now().Add(hosttest.Patience)))
	_, err = others[0].Read(make([]byte, 1))
	require.Error(t, err, "it gave way")
	require.NoError(t, own.SetDeadline(time.Now().Add(hosttest.Patience)))
	_, err = io.WriteString(own, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	_, err = own.Read(make([]byte, 1))
	require.NoError(t, err)
}
