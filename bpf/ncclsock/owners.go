//go:build linux && (amd64 || arm64)

package ncclsock

import "slices"

// chosen appends the processes to look at, in ascending order and each once, and
// says how many were too many. A process that two fds or two owners share is then
// reported for the lowest.
func chosen(into, owners []uint32, most uint32) (_ []uint32, over int) {
	into = append(into, owners...)
	slices.Sort(into)
	into = slices.Compact(into)
	if len(into) > 0 && into[0] == 0 { // no process has the id 0
		into = into[1:]
	}
	if len(into) > int(most) {
		over = len(into) - int(most)
		into = into[:most]
	}
	return into, over
}
