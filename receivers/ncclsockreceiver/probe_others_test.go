//go:build !linux || !(amd64 || arm64)

package ncclsockreceiver

// playStandIn has nothing to play: there is no probe on this system.
func playStandIn() {}
