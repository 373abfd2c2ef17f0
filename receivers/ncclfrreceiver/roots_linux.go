package ncclfrreceiver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

var errForeignOwner = errors.New("it is another user's, the rank cannot have written it")

// able says why ranks' own roots cannot be looked into, nil where they can.
func (*roots) able() error {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return fmt.Errorf("openat2: %w: it needs Linux 5.6; name the dumps in include", err)
	}
	return unix.Close(fd)
}

// placeOf tells the root of a process from others.
func (r *roots) placeOf(pid uint32, domain string) (place, error) {
	mount, err := r.proc.Namespace(pid, "mnt")
	if err != nil {
		return place{}, err
	}
	root := r.file(pid, "root")
	return patiently(r, domain, root, func() (place, error) {
		var st unix.Stat_t
		if err := unix.Stat(root, &st); err != nil {
			return place{}, err
		}
		return place{root: fileID{uint64(st.Dev), st.Ino}, mount: mount}, nil //nolint:unconvert // 32 bits on some systems
	})
}

func (r *roots) file(pid uint32, name string) string {
	return filepath.Join(r.proc.Root(), strconv.FormatUint(uint64(pid), 10), name)
}

// find looks at a dump without reading it. A folder that does not answer is asked once,
// for all ranks that see it.
func (r *roots) find(w *written, at place) (fingerprint, error) {
	folder := fmt.Sprintf("%v %s", at, filepath.Dir(w.path))
	return patiently(r, w.process.Domain, folder, func() (fingerprint, error) {
		file, err := r.pinned(w)
		if err != nil {
			return fingerprint{}, err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return fingerprint{}, err
		}
		return fingerprintOf(info), nil
	})
}

// read reads a dump that was found.
func (r *roots) read(c candidate, most int64) (content, error) {
	return patiently(r, c.owner.folder, c.path, func() (content, error) {
		pinned, err := r.pinned(c.written)
		if err != nil {
			return content{}, err
		}
		defer pinned.Close()
		file, err := procfs.OpenPinned(pinned)
		if err != nil {
			return content{}, err
		}
		return readOpen(file, most)
	})
}

// pinned holds on to the file of a dump without opening it: a plain file of the rank's user.
func (r *roots) pinned(w *written) (*os.File, error) {
	file, err := r.proc.Pin(w.through, w.path)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(file.Fd()), &st); err == nil && st.Uid != w.uid {
		err = errForeignOwner
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
