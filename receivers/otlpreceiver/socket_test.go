//go:build unix

package otlpreceiver

import (
	"bytes"
	"context"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/confignet"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/testdata"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tracecoreai/tracecore/receivers/otlpreceiver/internal/metadata"
)

// onSockets starts a receiver on Unix sockets in a folder and returns how it is stopped.
func onSockets(t *testing.T, folder string, next consumer.Logs) (stop func(), err error) {
	t.Helper()
	factory := newFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	config.Protocols.GRPC.GetOrInsertDefault().NetAddr = confignet.AddrConfig{Transport: confignet.TransportTypeUnix, Endpoint: filepath.Join(folder, "grpc")}
	config.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr = confignet.AddrConfig{Transport: confignet.TransportTypeUnix, Endpoint: filepath.Join(folder, "http")}
	r, err := factory.CreateLogs(t.Context(), receivertest.NewNopSettings(metadata.Type), config, next)
	require.NoError(t, err)
	if err := r.Start(t.Context(), componenttest.NewNopHost()); err != nil {
		return nil, err
	}
	return func() { require.NoError(t, r.Shutdown(context.Background())) }, nil
}

// TestAUnixSocketIsThisUsersAlone, whatever the umask; a request through it comes from
// this machine, and its file goes with the receiver.
func TestAUnixSocketIsThisUsersAlone(t *testing.T) {
	before := unix.Umask(0)
	t.Cleanup(func() { unix.Umask(before) })
	folder := t.TempDir()
	var from []net.Addr
	next, err := consumer.NewLogs(func(ctx context.Context, _ plog.Logs) error {
		from = append(from, client.FromContext(ctx).Addr)
		return nil
	})
	require.NoError(t, err)
	stop, err := onSockets(t, folder, next)
	require.NoError(t, err)
	names, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, names, 2, "the names that they were made under are gone")
	for _, name := range names {
		info, err := name.Info()
		require.NoError(t, err)
		require.Equal(t, fs.ModeSocket|0o600, info.Mode())
	}

	request := plogotlp.NewExportRequestFromLogs(testdata.GenerateLogs(1))
	c, err := grpc.NewClient("unix://"+filepath.Join(folder, "grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	_, err = plogotlp.NewGRPCClient(c).Export(t.Context(), request)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	body, err := request.MarshalProto()
	require.NoError(t, err)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(folder, "http"))
	}}
	resp, err := (&http.Client{Transport: transport}).Post("http://agent/v1/logs", protoType, bytes.NewReader(body))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
	transport.CloseIdleConnections()
	require.Len(t, from, 2)
	for _, address := range from {
		require.IsType(t, &net.UnixAddr{}, address)
	}

	stop()
	names, err = os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, names)
}

// TestASocketTakesThePlaceOfALeftoverAlone: what a killed process left is taken over; what
// is no socket, or is in use, stays.
func TestASocketTakesThePlaceOfALeftoverAlone(t *testing.T) {
	path := func(folder string) string { return filepath.Join(folder, "grpc") }
	for name, tt := range map[string]struct {
		lies func(t *testing.T, folder string)
		says string
	}{
		"a leftover": {func(t *testing.T, folder string) {
			l, err := net.Listen("unix", path(folder))
			require.NoError(t, err)
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			require.NoError(t, l.Close())
		}, ""},
		"a file": {func(t *testing.T, folder string) {
			require.NoError(t, os.WriteFile(path(folder), nil, 0o600))
		}, "something else lies there"},
		"a link": {func(t *testing.T, folder string) {
			require.NoError(t, os.Symlink("/dev/null", path(folder)))
		}, "something else lies there"},
		"in use": {func(t *testing.T, folder string) {
			l, err := net.Listen("unix", path(folder))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close()) })
		}, "another process listens there"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			tt.lies(t, folder)
			before, err := os.Lstat(path(folder))
			require.NoError(t, err)
			stop, err := onSockets(t, folder, consumertest.NewNop())
			if tt.says == "" {
				require.NoError(t, err)
				stop()
				return
			}
			require.ErrorContains(t, err, tt.says)
			after, err := os.Lstat(path(folder))
			require.NoError(t, err)
			require.True(t, os.SameFile(before, after))
		})
	}
}

func TestASocketThatCannotBeSaysWhatToDo(t *testing.T) {
	for path, says := range map[string]string{
		"@tracecore":                            "use the path of a file",
		filepath.Join(t.TempDir(), "none", "s"): "make its folder",
	} {
		_, err := listen(t.Context(), confignet.AddrConfig{Transport: confignet.TransportTypeUnix, Endpoint: path})
		require.ErrorContains(t, err, says)
	}
}
