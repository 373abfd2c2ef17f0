package gate

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func listenAt(address string) func(context.Context) (net.Listener, error) {
	return func(ctx context.Context) (net.Listener, error) {
		return new(net.ListenConfig).Listen(ctx, "tcp", address)
	}
}

func TestAnAddressThatIsTakenIsWaitedFor(t *testing.T) {
	squatter, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := squatter.Addr().String()
	taken, back := 0, make(chan struct{}, 1)
	ctx, started := context.WithCancel(t.Context())
	l, err := Patient(ctx, listenAt(address), func(err error) { taken++; require.ErrorIs(t, err, syscall.EADDRINUSE) }, func() { back <- struct{}{} })
	started() // the context of a start ends with the start
	require.NoError(t, err)
	require.Equal(t, 1, taken)
	require.NotNil(t, l.Addr())
	accepted := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.Close()
		}
		accepted <- err
	}()
	require.NoError(t, squatter.Close())
	<-back
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, <-accepted)
	require.Equal(t, address, l.Addr().String())
	require.NoError(t, l.Close())
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestWhoStopsWaitsForNoAddress(t *testing.T) {
	squatter, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer squatter.Close()
	l, err := Patient(t.Context(), listenAt(squatter.Addr().String()), func(error) {}, func() {})
	require.NoError(t, err)
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-accepted, net.ErrClosed)
}

func TestWhatIsNoTakenAddressIsTheCallers(t *testing.T) {
	_, err := Patient(t.Context(), listenAt("256.0.0.1:1"), func(error) { t.Error("it is not taken") }, func() {})
	require.Error(t, err)
}
