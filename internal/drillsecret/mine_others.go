//go:build !linux

package drillsecret

import "io/fs"

// mine reports false: drills need Linux.
func mine(fs.FileInfo) bool { return false }
