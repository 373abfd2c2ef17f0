//go:build !unix

package command

// lockState does nothing where flock(2) is missing: the storage extension's own
// lock still refuses a second process, in its own words.
func lockState(string) (release func(), err error) { return func() {}, nil }
