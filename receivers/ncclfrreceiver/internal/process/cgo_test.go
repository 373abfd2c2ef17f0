//go:build cgo

package process

const cgo = true
