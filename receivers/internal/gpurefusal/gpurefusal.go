// Package gpurefusal tells, within one process, that GPU memory was refused just now. The
// receiver that sees refusals tells it, and the one that reads GPUs hears it: who held the
// memory is known only while the process that was refused still lives. Both are components
// of one collector that know nothing of each other, so the signal is one of the process.
package gpurefusal

import (
	"slices"
	"sync"
)

// listeners are those who hear.
var listeners struct {
	sync.Mutex
	all []chan struct{}
}

// Tell tells all who hear. It never waits: who has not heard the last one yet hears one.
func Tell() {
	listeners.Lock()
	defer listeners.Unlock()
	for _, one := range listeners.all {
		select {
		case one <- struct{}{}:
		default:
		}
	}
}

// Hear returns a channel on which refusals are told from now on, until stop is called.
func Hear() (told <-chan struct{}, stop func()) {
	one := make(chan struct{}, 1)
	listeners.Lock()
	defer listeners.Unlock()
	listeners.all = append(listeners.all, one)
	return one, func() {
		listeners.Lock()
		defer listeners.Unlock()
		listeners.all = slices.DeleteFunc(listeners.all, func(other chan struct{}) bool { return other == one })
	}
}
