//go:build !linux || !(amd64 || arm64)

package check

import (
	"errors"
	"runtime"

	"github.com/tracecoreai/tracecore/bpf/probe"
)

// subjects are the same probes, none of which opens here.
func subjects() []subject {
	open := func() (handle, error) {
		return nil, errors.New("probes need Linux on amd64 or arm64, this is " + runtime.GOOS + " on " + runtime.GOARCH)
	}
	return []subject{
		{name: "kmsg", sees: seesKmsg, offers: offersKmsg(), open: open},
		{name: "oomkill", sees: seesOOMKill, offers: offersOOMKill(), open: open},
		{name: "identity", sees: seesIdentity, offers: offersIdentity(), open: open},
		{name: "fusefault", sees: seesFUSE, offers: offersFUSE(), open: open},
		{name: "ncclsock", sees: seesSockets, offers: offersSockets(), open: open},
		{name: "cudaoom", sees: seesCUDA, offers: offersCUDA(), open: open},
		{name: "ncclcall", sees: seesCalls, offers: offersCalls(), open: open},
		{name: "pyexception", sees: seesRaised, offers: offersRaised(), open: open},
		{name: "taskstack", sees: seesStacks, offers: offersStacks(), open: open},
	}
}

func attemptsOf(error) []probe.Attempt { return nil }
