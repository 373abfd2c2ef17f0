//go:build linux && (amd64 || arm64)

package identity

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// podLogs has a folder for each pod of a node: <namespace>_<name>_<uid>. The kubelet makes
// it before the first container of the pod (kubernetes, pkg/kubelet/kuberuntime,
// BuildPodLogsDirectory). Only its names are read. No API server is asked.
const podLogs = "/var/log/pods"

// maxPods bounds the folders that are read: a kubelet runs 110 pods by default.
const maxPods = 4096

// settled is how long ago a folder must have changed for its time to show the next change:
// the kernel's coarse clock stands still for up to 10 ms.
const settled = time.Second

// pods knows the namespaces of the pods of this node.
type pods struct {
	proc *procfs.FS
	now  func() time.Time

	mu      sync.Mutex        // guards what follows
	spaces  map[string]string // of a pod, by its uid; those that the folder had when it was read
	changed time.Time         // when the folder last changed, zero if that may not be known yet
}

// namespace is that of a pod, "" where the node does not tell it.
func (p *pods) namespace(uid string) string {
	if p == nil || uid == "" || p.proc.Foreign() {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if space := p.spaces[uid]; space != "" {
		return space
	}
	p.read()
	return p.spaces[uid]
}

// listing is one reading of the folder.
type listing struct {
	changed time.Time
	spaces  map[string]string // nil: it has not changed
}

// read reads the folder again, if it has changed.
func (p *pods) read() {
	root, known, now := filepath.Join(p.proc.Root(), "1", "root"), p.changed, p.now()
	got, err := procfs.Patiently(p.proc, root+podLogs, func() (listing, error) { return list(root, known) })
	if err != nil || got.spaces == nil {
		return
	}
	p.spaces, p.changed = got.spaces, got.changed
	if now.Sub(got.changed) < settled {
		p.changed = time.Time{}
	}
}

// list reads the folder below the root of process 1: links in it stay inside of it. It
// is believed if none but root can make a folder there.
func list(root string, known time.Time) (listing, error) {
	host, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return listing{}, err
	}
	defer host.Close()
	fd, err := unix.Openat2(int(host.Fd()), podLogs, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return listing{}, &fs.PathError{Op: "open", Path: root + podLogs, Err: err}
	}
	folder := os.NewFile(uintptr(fd), root+podLogs)
	defer folder.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return listing{}, &fs.PathError{Op: "stat", Path: folder.Name(), Err: err}
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 {
		return listing{}, fmt.Errorf("%s: others than root can write there", folder.Name())
	}
	changed := time.Unix(st.Mtim.Unix())
	if changed.Equal(known) {
		return listing{}, nil
	}
	names, err := folder.Readdirnames(maxPods)
	if err != nil && len(names) == 0 {
		names = nil // it is empty
	}
	return listing{changed, spacesOf(names)}, nil
}

// spacesOf reads the names of folders. Neither a namespace nor the name of a pod has an
// underscore (RFC 1123).
func spacesOf(names []string) map[string]string {
	spaces := map[string]string{}
	for _, name := range names {
		parts := strings.Split(name, "_")
		if len(parts) != 3 || !isNamespace(parts[0]) {
			continue
		}
		if uid := procfs.PodUID("pod" + parts[2]); uid != "" {
			spaces[uid] = parts[0]
		}
	}
	return spaces
}

// isNamespace reports whether s is a label of RFC 1123, as a namespace is.
func isNamespace(s string) bool {
	const label = "abcdefghijklmnopqrstuvwxyz0123456789-"
	return s != "" && len(s) <= 63 && strings.Trim(s, label) == ""
}
