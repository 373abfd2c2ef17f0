//go:build linux

package acceptance

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// TestAPortOfAnAdapterThatGoesDownIsNamed has the kernel's own driver of RDMA over Ethernet say
// that its port is active, down and active again, as the link of its interface is.
func TestAPortOfAnAdapterThatGoesDownIsNamed(t *testing.T) {
	privtest.Require(t)
	device, cable := startAdapter(t)
	state := t.TempDir()
	a := startAgent(t, state)
	// Nobody is told of a port that was never seen active. Which were is kept.
	require.Eventually(t, func() bool { return keeps(t, state, device) }, hosttest.Patience, 100*time.Millisecond)

	down := time.Now()
	require.NoError(t, netlink.LinkSetDown(cable))
	root := a.await(t, "the port", about("ib_link_down", "device", device))
	t.Logf("named after %s", time.Since(down))
	require.Equal(t, verdict.RootCause, root.Role)
	require.Equal(t, verdict.Open, root.Status)
	require.Equal(t, "1", root.Culprit["port"])
	require.Equal(t, "down", root.Culprit["state"])
	require.Contains(t, root.Headline, device)

	require.NoError(t, netlink.LinkSetUp(cable))
	a.await(t, "that the port is active again", func(v verdict.Verdict) bool {
		return v.ID == root.ID && v.Status == verdict.Resolved
	})
}

// startAdapter makes an adapter in software on one end of a cable, and returns the other end.
func startAdapter(t *testing.T) (device string, cable netlink.Link) {
	t.Helper()
	if _, err := os.Stat("/sys/module/rdma_rxe"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("this kernel has no rdma_rxe loaded")
	}
	name := func(kind string) string { return kind + strconv.Itoa(os.Getpid()) }
	near := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: name("far")}
	near.Name = name("near")
	require.NoError(t, netlink.LinkAdd(near))
	t.Cleanup(func() { require.NoError(t, netlink.LinkDel(near)) })
	cable, err := netlink.LinkByName(near.PeerName)
	require.NoError(t, err)
	require.NoError(t, errors.Join(netlink.LinkSetUp(near), netlink.LinkSetUp(cable)))
	device = name("rxe")
	require.NoError(t, netlink.RdmaLinkAdd(device, "rxe", near.Name))
	t.Cleanup(func() { require.NoError(t, netlink.RdmaLinkDel(device)) })
	port := filepath.Join("/sys/class/infiniband", device, "ports/1/state")
	require.Eventually(t, func() bool {
		said, err := os.ReadFile(port)
		return err == nil && bytes.Contains(said, []byte("ACTIVE"))
	}, hosttest.Patience, 10*time.Millisecond)
	return device, cable
}

// keeps reports whether a word is in one of the files of a folder.
func keeps(t *testing.T, folder, word string) bool {
	t.Helper()
	found := false
	require.NoError(t, filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && entry.IsDir() {
			return nil
		}
		content, err := os.ReadFile(file)
		found = found || bytes.Contains(content, []byte(word))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) {
			return nil
		}
		return err
	}))
	return found
}
