package otlpreceiver

import (
	"context"
	"net"
	"net/http"
	"net/netip"

	"go.opentelemetry.io/collector/client"

	"github.com/tracecoreai/tracecore/internal/peer"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// origin is who shares a limit: a user of this machine in a pod, a container or a Slurm job, or
// outside of them, an IPv4 address, the network of an IPv6
// host, for it has 2^64 addresses, or all that come through a Unix socket.
type origin struct {
	network netip.Prefix
	user    uint32
	tenant  string // where the user runs, as procfs.TenantOf
	local   bool   // over loopback, by a user that the kernel tells
	gone    bool   // over loopback, by one that it cannot tell any more
}

// originOf is that of an address. All of loopback is one where no user is known: a process of
// this machine may use each of its addresses.
func originOf(address net.Addr) origin {
	switch a := address.(type) {
	case peer.Addr:
		return origin{user: a.User, tenant: procfs.TenantOf(a.Cgroup), local: !a.Gone, gone: a.Gone}
	case *net.TCPAddr:
		return origin{network: peer.NetworkOf(a)}
	default:
		return origin{}
	}
}

// sender is that of the request of a context.
func sender(ctx context.Context) origin { return originOf(client.FromContext(ctx).Addr) }

// otherEnd is the key of the address of a connection in the contexts of its requests.
type otherEnd struct{}

// withOtherEnd is http.Server's ConnContext.
func withOtherEnd(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, otherEnd{}, c.RemoteAddr())
}

// withSender says who has sent a request, as gRPC's context does: confighttp knows addresses
// of IP alone, neither Unix sockets nor users.
func withSender(req *http.Request) *http.Request {
	address, ok := req.Context().Value(otherEnd{}).(net.Addr)
	if !ok {
		return req
	}
	info := client.FromContext(req.Context())
	info.Addr = address
	return req.WithContext(client.NewContext(req.Context(), info))
}
