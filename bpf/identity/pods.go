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

// pods knows the pods of this node by name.
type pods struct {
	proc *procfs.FS
	now  func() time.Time

	mu      sync.Mutex         // guards what follows
	names   map[string]podName // by uid; those that the folder had when it was read
	changed time.Time          // when the folder last changed, zero if that may not be known yet
}

// podName is how a cluster calls a pod.
type podName struct{ namespace, name string }

// named is how a pod is called, nothing where the node does not tell it.
func (p *pods) named(uid string) podName {
	if p == nil || uid == "" || p.proc.Foreign() {
		return podName{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, there := p.names[uid]; there {
		return known
	}
	p.read()
	return p.names[uid]
}

// listing is one reading of the folder.
type listing struct {
	changed time.Time
	names   map[string]podName // nil: it has not changed
}

// read reads the folder again, if it has changed.
func (p *pods) read() {
	root, known, now := filepath.Join(p.proc.Root(), "1", "root"), p.changed, p.now()
	got, err := procfs.Patiently(p.proc, root+podLogs, func() (listing, error) { return list(root, known) })
	if err != nil || got.names == nil {
		return
	}
	p.names, p.changed = got.names, got.changed
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
	return listing{changed, podsOf(names)}, nil
}

// podsOf reads the names of folders. Neither a namespace nor the name of a pod has an
// underscore (RFC 1123).
func podsOf(folders []string) map[string]podName {
	names := map[string]podName{}
	for _, folder := range folders {
		parts := strings.Split(folder, "_")
		if len(parts) != 3 || !isNamespace(parts[0]) || !isPod(parts[1]) {
			continue
		}
		if uid := procfs.PodUID("pod" + parts[2]); uid != "" {
			names[uid] = podName{parts[0], parts[1]}
		}
	}
	return names
}

const labelBytes = "abcdefghijklmnopqrstuvwxyz0123456789-" // of RFC 1123

// isNamespace reports whether s is a label of RFC 1123, as a namespace is.
func isNamespace(s string) bool { return s != "" && len(s) <= 63 && strings.Trim(s, labelBytes) == "" }

// isPod reports whether s is labels with dots between them, as the name of a pod is.
func isPod(s string) bool {
	return s != "" && len(s) <= maxHostName && strings.Trim(s, labelBytes+".") == ""
}
