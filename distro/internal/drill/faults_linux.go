package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/internal/standin"
)

// All returns the drills that can be made here.
func All() []Drill {
	return []Drill{
		{Name: "xid", act: xid, Short: "a marked Xid 79 line for a GPU that does not exist is written to the kernel log, " +
			"and the process it names dies by SIGABRT"},
		{Name: "oom", act: oom, Short: "a child is killed by the kernel at the limit of a throw-away memory cgroup"},
		{Name: "fuse", act: fuse, Short: "a child hangs on a throw-away FUSE file system, which nobody else sees, whose daemon is stopped"},
		{Name: "socket", act: socket, Short: "one of two ranks of a stand-in job on loopback is stopped"},
	}
}

// gpu is no GPU's address: PCI domain ffff and bus ff, device 1f, the last that
// the notation has.
const gpu = "ffff:ff:1f"

// xid writes what NVIDIA's driver writes when a GPU falls off the bus, marked as
// a drill, and lets the process it names die as a rank would.
func xid(ctx context.Context, w *watcher) error {
	r, err := StartRank(w.proof.rank()...)
	if err != nil {
		return err
	}
	defer r.Stop()
	line := fmt.Sprintf("NVRM: Xid (PCI:%s): 79, pid=%d, name=%s, GPU has fallen off the bus. [tracecore drill: no real fault]", gpu, r.PID(), childComm)
	at := time.Now()
	if err := writeKmsg(line); err != nil {
		return err
	}
	pid := uint32(r.PID())
	if err := w.expect(ctx, step{did: "wrote to /dev/kmsg: " + line, at: at, pid: pid, pattern: "gpu_lost"}); err != nil {
		return err
	}
	at, err = r.Abort()
	if err != nil {
		return err
	}
	return w.expect(ctx, step{did: fmt.Sprintf("process %d, rank 3, died by SIGABRT", pid), at: at, pid: pid, pattern: "rank_exit"})
}

// writeKmsg writes one record to the kernel log, at level debug so that no
// console shows it. A fresh descriptor has its own rate limit
// (kernel.printk_devkmsg=ratelimit).
func writeKmsg(line string) error {
	f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write the kernel log: %w; run as root, in Kubernetes in a privileged container", err)
	}
	_, err = f.WriteString("<15>" + line + "\n")
	return errors.Join(err, f.Close())
}

// hold is how long the victim lives before it takes memory: its rank must be
// known by then. Identity reads a process when it starts; this is for a machine
// under load.
const hold = 200 * time.Millisecond

// oom has the kernel kill a child of ours, and nothing else.
func oom(ctx context.Context, w *watcher) error {
	victim, err := oomkill.Drill(ctx, oomkill.DrillOptions{Env: w.proof.rank(), Hold: hold})
	if err != nil {
		return err
	}
	did := fmt.Sprintf("the kernel killed process %d (%s) at the limit of %d MiB of cgroup %s",
		victim.PID, victim.Comm, victim.LimitBytes>>20, victim.CgroupPath)
	return w.expect(ctx, step{did: did, pid: victim.PID, pattern: "host_oom_kill"})
}

// fuse stops the daemon of a file system of ours and lets a child wait for it.
func fuse(ctx context.Context, w *watcher) (err error) {
	d, err := fusefault.StartDrill(fusefault.DrillOptions{Env: w.proof.rank()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	did := fmt.Sprintf("stopped process %d, the daemon of the FUSE file system on %s, which process %d, rank 3, reads", d.DaemonPID, d.MountPoint, d.VictimPID)
	device := fmt.Sprintf("%d:%d", d.Device.Major, d.Device.Minor)
	return w.expect(ctx, step{did: did, at: d.Began, pid: d.VictimPID, device: device, pattern: "fuse_stall"})
}

// stopped is the rank of the stand-in job that the drill stops.
const stopped = 1

// socket stops one of two ranks that send each other data.
func socket(ctx context.Context, w *watcher) (err error) {
	job, err := standin.Start(standin.Options{Size: 2, JobID: jobID, Phase: 50 * time.Millisecond, Env: []string{w.proof.variable()}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	if err := works(ctx, job); err != nil {
		return err
	}
	at := time.Now()
	if err := job.Signal(stopped, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop rank %d: %w", stopped, err)
	}
	did := fmt.Sprintf("stopped process %d, rank %d of a stand-in job of two ranks on loopback", job.PID(stopped), stopped)
	return w.expect(ctx, step{did: did, at: at, pid: job.PID(stopped), pattern: "nccl_socket_stall"})
}

// works waits until each rank of a job has done something.
func works(ctx context.Context, job *standin.Job) error {
	const steps = 20
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for job.Steps(0) < steps || job.Steps(1) < steps {
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return fmt.Errorf("the stand-in job does not get on: rank 0: %q, rank 1: %q; it needs the loopback interface (ip link set lo up)", job.Error(0), job.Error(1))
		}
	}
	return nil
}
