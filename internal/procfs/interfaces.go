package procfs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
)

// maxRoutes bounds a routing table: one line is 128 bytes, and a node of Kubernetes has a
// route for each of its pods.
const maxRoutes = 1 << 20

// errNoInterface: nothing says which one it is.
var errNoInterface = errors.New("no interface, or several")

// Interface is the network interface that has a local address of a process, as its network
// namespace names it. Of IPv4 /proc says no addresses of interfaces: it is the one whose own
// network has the address, or the only one of the routing table. An error where none or several
// fit.
func (f *FS) Interface(pid uint32, local netip.Addr) (name string, err error) {
	of, read := "if_inet6", withAddress
	if local = local.Unmap(); local.Is4() {
		of, read = "route", withNetwork
	}
	file, err := f.of(pid, maxRoutes, "net", of)
	if err != nil {
		return "", err
	}
	if name = read(file.Content, local); name == "" || file.Cut {
		return "", fmt.Errorf("interface of %s of process %d: %w", local, pid, errNoInterface)
	}
	return strings.ToValidUTF8(name, "\ufffd"), nil // its namespace may be a user's, who names it
}

// withAddress reads if_inet6: address, index, prefix, scope, flags and name (if6_seq_show(),
// net/ipv6/addrconf.c).
func withAddress(content []byte, local netip.Addr) (name string) {
	address := local.As16()
	want := hex.EncodeToString(address[:])
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) == 6 && fields[0] == want {
			if name != "" && name != fields[5] {
				return ""
			}
			name = fields[5]
		}
	}
	return name
}

// severalInterfaces is the name of none: it has a slash (dev_valid_name(), net/core/dev.c).
const severalInterfaces = "/"

// noInterface is that of a route which swallows packets or refuses them.
const noInterface = "*"

// withNetwork reads route: interface, destination, gateway, flags, references, uses, metric and
// mask, addresses as numbers of this machine (fib_route_seq_show(), net/ipv4/fib_trie.c).
func withNetwork(content []byte, local netip.Addr) string {
	address := local.As4()
	want := binary.NativeEndian.Uint32(address[:])
	names := map[string]bool{}
	best, narrowest, only := "", -1, ""
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 || fields[0] == "Iface" || fields[0] == noInterface {
			continue
		}
		only, names[fields[0]] = fields[0], true
		destination, notNetwork := strconv.ParseUint(fields[1], 16, 32)
		gateway, notGateway := strconv.ParseUint(fields[2], 16, 32)
		mask, notMask := strconv.ParseUint(fields[7], 16, 32)
		if errors.Join(notNetwork, notGateway, notMask) != nil {
			continue
		}
		narrow := bits.OnesCount64(mask)
		switch {
		case gateway != 0 || mask == 0 || uint64(want)&mask != destination || narrow < narrowest:
		case narrow == narrowest && fields[0] != best:
			best = severalInterfaces
		default:
			best, narrowest = fields[0], narrow
		}
	}
	switch {
	case best == severalInterfaces:
		return ""
	case narrowest >= 0:
		return best
	case len(names) == 1:
		return only
	}
	return ""
}
