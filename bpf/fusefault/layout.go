//go:build linux && (amd64 || arm64)

package fusefault

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// layout is where FUSE's own structures have their fields on this kernel, in bytes, and
// where the kernel's fault handler lies.
type layout struct {
	faultCode [codePieces][2]uint64 // from, to; zeroes: not known

	requestFlags, requestHeader, requestError uint32
	requestQueue                              uint32
	requestMount, requestMountOr              uint32 // the second is tried when the first is no mount
	mountConnection, mountSuper               uint32
	requestChannel, channelConnection         uint32 // the first is 0 where a request has its mount
	connectionDevice, connectionChannel       uint32
	deviceConnection                          uint32
}

const codePieces = 4 // of fusefault.bpf.c

// linux510 is fs/fuse/fuse_i.h of Linux 5.10 on 64 bits: the one kernel of ours
// whose modules have no BTF (that came with 5.11, 36e68442d1af). The structure
// did not change in its stable series; the pointer to the mount stands behind
// argbuf, which only a kernel with CONFIG_VIRTIO_FS has.
var linux510 = layout{
	requestFlags: 48, requestHeader: 56, requestError: 100, requestQueue: 120,
	requestMount: 136, requestMountOr: 144,
	mountConnection: 0, mountSuper: 16, // a reference count stood between them
	deviceConnection: 0,
}

func findLayout() (layout, error) { return kerninfo.Types(layoutIn) }

// layoutIn reads BTF, of the kernel or of its module fuse.
func layoutIn(types *btf.Cache) (layout, error) {
	spec, err := types.Kernel()
	if err != nil {
		return layout{}, fmt.Errorf("read kernel BTF: %w", err)
	}
	found, err := layoutOf(spec)
	if !errors.Is(err, btf.ErrNotFound) {
		return found, err
	}
	module, err := types.Module("fuse")
	if err == nil {
		return layoutOf(module)
	}
	if strings.HasPrefix(kerninfo.Release(), "5.10.") {
		return linux510, nil
	}
	return layout{}, &ladder.Problem{
		Outcome: probe.Unsupported,
		Reason:  "this kernel says nothing of the types of its module fuse",
		Hint:    "use a kernel built with CONFIG_DEBUG_INFO_BTF_MODULES, or one that has FUSE built in",
		Err:     err,
	}
}

// layoutOf knows two shapes: a request that points to its mount, and (7.1 or 7.2) one
// that points to a channel between connection and daemon. BTF says which.
func layoutOf(spec *btf.Spec) (layout, error) {
	var l layout
	err := l.read(spec, map[string]*uint32{
		"fuse_req.flags": &l.requestFlags, "fuse_req.in.h": &l.requestHeader, "fuse_req.out.h.error": &l.requestError,
		"fuse_req.waitq.head": &l.requestQueue,
	})
	if err != nil {
		return layout{}, err
	}
	ofMount := l.read(spec, map[string]*uint32{
		"fuse_req.fm": &l.requestMount, "fuse_mount.fc": &l.mountConnection, "fuse_mount.sb": &l.mountSuper,
		"fuse_dev.fc": &l.deviceConnection,
	})
	if ofMount == nil {
		return l, nil
	}
	ofChannel := l.read(spec, map[string]*uint32{
		"fuse_req.chan": &l.requestChannel, "fuse_chan.conn": &l.channelConnection, "fuse_conn.dev": &l.connectionDevice,
		"fuse_conn.chan": &l.connectionChannel,
		"fuse_dev.chan":  &l.deviceConnection,
	})
	if ofChannel == nil {
		return l, nil
	}
	return layout{}, errors.Join(ofMount, ofChannel)
}

func (l *layout) read(spec *btf.Spec, fields map[string]*uint32) error {
	for field, into := range fields {
		name, path, _ := strings.Cut(field, ".")
		var structure *btf.Struct
		if err := spec.TypeByName(name, &structure); err != nil {
			return fmt.Errorf("find struct %s in BTF: %w", name, err)
		}
		offset, err := offsetOf(structure, strings.Split(path, "."))
		if err != nil {
			return fmt.Errorf("find %s in BTF: %w", field, err)
		}
		*into = offset
	}
	return nil
}

// offsetOf follows the names of members into nested structures.
func offsetOf(t btf.Type, path []string) (uint32, error) {
	structure, ok := btf.UnderlyingType(t).(*btf.Struct)
	if !ok {
		return 0, fmt.Errorf("%v is no structure", t)
	}
	for _, member := range structure.Members {
		if member.Name != path[0] {
			continue
		}
		if len(path) == 1 {
			return member.Offset.Bytes(), nil
		}
		inner, err := offsetOf(member.Type, path[1:])
		return member.Offset.Bytes() + inner, err
	}
	return 0, fmt.Errorf("no member %s", path[0])
}

// fuseLoaded reports whether the kernel knows FUSE now: built in, or its module
// is loaded. /proc/filesystems has lines of "nodev<tab>fuse".
func fuseLoaded() bool {
	raw, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return true // let the hooks say
	}
	for line := range strings.Lines(string(raw)) {
		if strings.TrimSpace(strings.TrimPrefix(line, "nodev")) == "fuse" {
			return true
		}
	}
	return false
}
