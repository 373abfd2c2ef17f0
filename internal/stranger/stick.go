//go:build linux

package stranger

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sticks has the kernel look at a medium of a stranger for each text: a btrfs file system
// with the text for a label, which the kernel prints. udev asks it to when a stick is put in.
// Without btrfs or loop devices the route is refused.
func sticks(tb testing.TB, texts []string) []Attack {
	tb.Helper()
	device, err := attach(tb)
	if err != nil {
		return []Attack{{Route: Stick, Refused: err.Error()}}
	}
	var all []Attack
	for i, text := range texts {
		a := Attack{Route: Stick, Text: text[:min(len(text), labelBytes-1)], PID: uint32(os.Getpid())}
		if _, err := device.WriteAt(superblock(a.Text, i), superblockAt); err != nil {
			tb.Fatalf("write a superblock of btrfs: %v", err)
		}
		if err := scan(device.Name()); err != nil {
			a.Refused = err.Error()
		}
		all = append(all, a)
	}
	return all
}

// attach makes a loop device, until the test ends.
func attach(tb testing.TB) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, err
	}
	const size = 1 << 20
	backing, err := os.Create(filepath.Join(tb.TempDir(), "stick"))
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	if err := backing.Truncate(size); err != nil {
		return nil, err
	}
	loop, err := os.OpenFile("/dev/loop"+strconv.Itoa(number), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	tb.Cleanup(func() {
		_ = unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0)
		loop.Close()
	})
	return loop, unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(backing.Fd()))
}

// Where things stand in a superblock of btrfs (include/uapi/linux/btrfs_tree.h, struct
// btrfs_super_block).
const (
	superblockAt = 64 << 10
	fsidAt       = 0x20
	bytenrAt     = 0x30
	magicAt      = 0x40
	devicesAt    = 0x88
	deviceAt     = 0xc9
	deviceUUIDAt = deviceAt + 0x42
	deviceFSIDAt = deviceAt + 0x52
	labelAt      = 0x12b
	labelBytes   = 256
)

// superblock is as much of one as the kernel reads before it prints the label.
func superblock(label string, number int) []byte {
	s := make([]byte, 4096)
	// The kernel tells of a file system that it has not seen before.
	id := fmt.Appendf(nil, "%06d%010d", number, os.Getpid())
	for _, at := range []int{fsidAt, deviceUUIDAt, deviceFSIDAt} {
		copy(s[at:], id)
	}
	binary.LittleEndian.PutUint64(s[bytenrAt:], superblockAt)
	copy(s[magicAt:], "_BHRfS_M")
	binary.LittleEndian.PutUint64(s[devicesAt:], 2) // of a single one newer kernels remember nothing
	binary.LittleEndian.PutUint64(s[deviceAt:], 1)
	copy(s[labelAt:labelAt+labelBytes-1], label)
	return s
}

// scan asks btrfs what is on a device.
func scan(device string) error {
	control, err := os.OpenFile("/dev/btrfs-control", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer control.Close()
	const scanDevice = 0x50009404 // BTRFS_IOC_SCAN_DEV
	var volume struct {
		_    int64
		name [4088]byte
	}
	copy(volume.name[:], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), scanDevice, uintptr(unsafe.Pointer(&volume))); errno != 0 {
		return fmt.Errorf("scan %s: %w", device, errno)
	}
	return nil
}
