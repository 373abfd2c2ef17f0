//go:build !unix

package ncclfrreceiver

import "io/fs"

const plainly = 0

// identify tells nothing here: size, time and content tell files apart.
func identify(fs.FileInfo) (device, inode uint64, owner uint32) { return 0, 0, 0 }
