//go:build !linux

package drill

// IsChild reports false: drills need Linux.
func IsChild() bool { return false }

// Child is never called where IsChild reports false.
func Child() int { return 1 }
