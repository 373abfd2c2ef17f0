//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"
)

// passes is a file system whose files the kernel reads and writes past the daemon.
type passes struct{ fuse.RawFileSystem }

func (passes) Open(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.OpenFlags, out.BackingID = fuse.FOPEN_PASSTHROUGH|fuse.FOPEN_NONSEEKABLE, 7
	return fuse.OK
}

func (p passes) Create(cancel <-chan struct{}, _ *fuse.CreateIn, _ string, out *fuse.CreateOut) fuse.Status {
	return p.Open(cancel, nil, &out.OpenOut)
}

func (passes) Writev(_ <-chan struct{}, in *fuse.WriteIn, _ [][]byte) (uint32, fuse.Status) {
	return in.Size, fuse.OK
}

// What reads and writes past the daemon has no speed that it could set.
func TestADiskServesItsFilesItself(t *testing.T) {
	s := &slowed{RawFileSystem: passes{}}
	var opened fuse.OpenOut
	require.Equal(t, fuse.OK, s.Open(nil, &fuse.OpenIn{}, &opened))
	var created fuse.CreateOut
	require.Equal(t, fuse.OK, s.Create(nil, &fuse.CreateIn{}, "x", &created))
	for _, out := range []fuse.OpenOut{opened, created.OpenOut} {
		require.Equal(t, fuse.OpenOut{OpenFlags: fuse.FOPEN_NONSEEKABLE}, out)
	}
	s.rate.Store(1000)
	began := time.Now()
	n, status := s.Writev(nil, &fuse.WriteIn{Size: 50}, [][]byte{make([]byte, 50)})
	require.Equal(t, fuse.OK, status)
	require.EqualValues(t, 50, n)
	require.GreaterOrEqual(t, time.Since(began), 50*time.Millisecond)
}
