//go:build linux && (amd64 || arm64)

package identityextension

import (
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/pin"
)

func openTracker(opts identity.Options) (tracker, error) {
	if opts.Pin == "" {
		_, _ = pin.Forget(pin.Root, identity.Name) // it does no harm; tracecore unpin says why it stays
	}
	t, err := identity.Open(opts)
	if err != nil {
		return nil, err // not t: a nil *Tracker would make a tracker that is not nil
	}
	return t, nil
}
