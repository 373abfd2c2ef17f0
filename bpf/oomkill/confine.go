//go:build linux && (amd64 || arm64)

package oomkill

import "errors"

// Confine moves a process into a throw-away memory cgroup with room for limit bytes
// more than nothing: what it holds already stays charged where it is. The function
// it returns removes the cgroup once the process is gone. It needs root.
func Confine(pid int, limit uint64) (remove func() error, err error) {
	group, err := newDrillCgroup(limit)
	if err != nil {
		return nil, err
	}
	if err := group.add(pid); err != nil {
		return nil, errors.Join(err, group.remove())
	}
	return group.remove, nil
}
