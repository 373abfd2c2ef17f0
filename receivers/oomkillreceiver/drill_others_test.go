//go:build !linux || !(amd64 || arm64)

package oomkillreceiver

// playDrillChild has nothing to play: there are no drills on this system.
func playDrillChild() {}
