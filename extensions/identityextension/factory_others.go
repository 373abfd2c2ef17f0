//go:build !linux || !(amd64 || arm64)

package identityextension

import (
	"errors"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// openTracker refuses: processes are watched by BPF programs and read from
// Linux's /proc. The extension still builds, so that one configuration and one
// set of tests serve every system.
func openTracker(identity.Options) (tracker, error) {
	return nil, errors.New("processes can be watched on Linux on amd64 or arm64 only: remove the extension, or set error_mode: ignore")
}
