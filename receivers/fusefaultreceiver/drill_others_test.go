//go:build !linux || !(amd64 || arm64)

package fusefaultreceiver

// playDrillChild has nothing to play: there are no drills on this system.
func playDrillChild() {}
