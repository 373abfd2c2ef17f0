//go:build !unix

package ncclfrreceiver

import "io/fs"

const plainly = 0

// inode is not told here: size, time and content tell files apart.
func inode(fs.FileInfo) uint64 { return 0 }
