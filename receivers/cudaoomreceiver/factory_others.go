//go:build !linux || !(amd64 || arm64)

package cudaoomreceiver

import "errors"

// openSource refuses: refusals are read by a BPF program, which only Linux on amd64
// and arm64 can run. The receiver still builds, so that one configuration and one
// set of tests serve every system.
func openSource(int) (source, error) {
	return nil, errors.New("the CUDA memory probe needs Linux on amd64 or arm64: remove the receiver, or set error_mode: ignore")
}
