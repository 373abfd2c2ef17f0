//go:build linux && (amd64 || arm64)

package identityextension

import "github.com/tracecoreai/tracecore/bpf/identity"

func openTracker(opts identity.Options) (tracker, error) {
	t, err := identity.Open(opts)
	if err != nil {
		return nil, err // not t: a nil *Tracker would make a tracker that is not nil
	}
	return t, nil
}
