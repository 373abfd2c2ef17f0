//go:build !linux || !(amd64 || arm64)

package kmsg

import "time"

var started = time.Now()

// Now is the present moment. There is no boot clock and no probe here: what needs a moment
// still builds.
func Now() Moment { return Moment(time.Since(started)) }
