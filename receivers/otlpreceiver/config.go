package otlpreceiver

import (
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

// Limits of time. A client speaks at once when it has connected, says the whole request soon, and
// does not hold a connection that it does not use.
const (
	handshakeTimeout = 5 * time.Second  // first byte, TLS, HTTP/2 preface, headers
	requestTimeout   = 30 * time.Second // a request, from its headers to its answer
	idleTimeout      = 5 * time.Minute
	pingAfter        = 30 * time.Second
	pingTimeout      = 10 * time.Second
)

// bufferSize is that of each gRPC connection for reading, and for writing. The
// collector's own half MiB is for few senders, and an open connection holds it.
const bufferSize = 16 << 10

// maxStreams is how many requests of one connection may be under way.
const maxStreams = 16

// createDefaultConfig has limits of time where the collector's receiver has none.
// An operator sets them as those of the collector's receiver.
func createDefaultConfig() component.Config {
	config := otlpreceiver.NewFactory().CreateDefaultConfig().(*otlpreceiver.Config)
	grpc := *config.Protocols.GRPC.GetOrInsertDefault()
	grpc.ReadBufferSize, grpc.WriteBufferSize = bufferSize, bufferSize
	grpc.MaxConcurrentStreams = maxStreams
	keepalive := configgrpc.NewDefaultKeepaliveServerConfig()
	parameters := keepalive.ServerParameters.Get()
	parameters.MaxConnectionIdle = idleTimeout
	parameters.Time, parameters.Timeout = pingAfter, pingTimeout
	grpc.Keepalive = configoptional.Some(keepalive)

	http := *config.Protocols.HTTP.GetOrInsertDefault()
	http.ServerConfig.ReadHeaderTimeout = handshakeTimeout
	http.ServerConfig.ReadTimeout = requestTimeout
	http.ServerConfig.WriteTimeout = 2 * requestTimeout
	http.ServerConfig.IdleTimeout = idleTimeout

	config.Protocols.GRPC, config.Protocols.HTTP = configoptional.Default(grpc), configoptional.Default(http)
	return config
}
