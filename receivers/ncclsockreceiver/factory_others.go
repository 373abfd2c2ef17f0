//go:build !linux || !(amd64 || arm64)

package ncclsockreceiver

import "errors"

// openSource refuses: sockets are read by a BPF iterator, which only Linux on
// amd64 and arm64 can run. The receiver still builds, so that one configuration
// and one set of tests serve every system.
func openSource(_, _ uint32) (source, error) {
	return nil, errors.New("the socket probe needs Linux on amd64 or arm64: remove the receiver, or set error_mode: ignore")
}
