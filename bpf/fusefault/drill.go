//go:build linux && (amd64 || arm64)

package fusefault

import (
	"errors"
	"fmt"
	"time"

	"github.com/tracecoreai/tracecore/bpf/fusefault/hangfs"
)

// DrillOptions shape the process that will hang.
type DrillOptions struct {
	Env []string // its whole environment, as in "RANK=3", "WORLD_SIZE=8"
}

// Drill is a throw-away FUSE file system with a process that hangs on it.
type Drill struct {
	DaemonPID, VictimPID uint32
	Device               Device
	MountPoint           string    // in the mount namespace of the victim and the daemon
	Began                time.Time // when the victim was let go; zero before

	fs     *hangfs.FS
	victim *hangfs.Visitor
}

// IsDrillChild reports whether this process was started by a Drill or by Fire. A
// main (and a TestMain) whose program uses them must ask this first and then do
// nothing else:
//
//	if fusefault.IsDrillChild() {
//		os.Exit(fusefault.DrillChild())
//	}
func IsDrillChild() bool { return hangfs.IsChild() }

// DrillChild is the whole life of such a process; it returns the exit code.
func DrillChild() int { return hangfs.Child() }

// StartDrill mounts a FUSE file system in a mount namespace of its own, stops its
// daemon (SIGSTOP), and lets a child wait there in a read and in a page fault until
// Release or Close. Nobody else can see the mount or hang on it. It needs root.
//
// Close takes everything away. Should this process be killed before, the kernel
// does: the children die with it, and the mount with the last of them.
func StartDrill(opts DrillOptions) (*Drill, error) {
	d, err := prepareDrill(opts)
	if err != nil {
		return nil, err
	}
	if err := d.fs.Stop(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.Began = time.Now()
	if err := d.victim.Go(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// prepareDrill has everything ready and nothing hanging.
func prepareDrill(opts DrillOptions) (*Drill, error) {
	fs, err := hangfs.Start(hangfs.Options{Private: true, Source: "tracecore-drill", Subtype: "tracecore"})
	if err != nil {
		return nil, fmt.Errorf("make a FUSE file system for the drill: %w", err)
	}
	d := &Drill{fs: fs, DaemonPID: uint32(fs.PID()), MountPoint: fs.Dir()}
	d.Device.Major, d.Device.Minor = fs.Device()
	if d.victim, err = fs.Visit(hangfs.Visit{Env: opts.Env, Accesses: hangs()}); err != nil {
		return nil, errors.Join(fmt.Errorf("start the drill's victim: %w", err), fs.Close())
	}
	d.VictimPID = uint32(d.victim.PID())
	return d, nil
}

// Release lets the daemon go on: the victim's waits end.
func (d *Drill) Release() error { return d.fs.Continue() }

// Close ends daemon and victim and takes the mount away. Closing twice is fine.
func (d *Drill) Close() error { return d.fs.Close() }
