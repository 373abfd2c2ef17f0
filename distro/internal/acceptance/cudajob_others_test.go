//go:build linux && !(amd64 || arm64)

package acceptance

// playCUDAJob has nothing to play: there is no such job on this machine.
func playCUDAJob() {}
