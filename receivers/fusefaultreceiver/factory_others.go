//go:build !linux || !(amd64 || arm64)

package fusefaultreceiver

import "errors"

// openSource refuses: what is in flight on a FUSE mount is read by a BPF program,
// which only Linux on amd64 and arm64 can run. The receiver still builds, so that
// one configuration and one set of tests serve every system.
func openSource(*Config) (source, machine, error) {
	return nil, nil, errors.New("the FUSE probe needs Linux on amd64 or arm64: remove the receiver, or set error_mode: ignore")
}
