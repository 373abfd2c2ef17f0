//go:build !cgo

package process

const cgo = false
