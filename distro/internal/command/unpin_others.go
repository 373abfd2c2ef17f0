//go:build !linux

package command

import "errors"

func forgetPins(string) (int, error) { return 0, errors.New("nothing is pinned outside Linux") }
