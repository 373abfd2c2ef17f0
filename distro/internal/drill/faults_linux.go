package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tracecoreai/tracecore/bpf/oomkill"
)

// All returns the drills that can be made here.
func All() []Drill {
	return []Drill{
		{Name: "xid", act: xid, Short: "a marked Xid 79 line for a GPU that does not exist is written to the kernel log, " +
			"and the process it names dies by SIGABRT"},
		{Name: "oom", act: oom, Short: "a child is killed by the kernel at the limit of a throw-away memory cgroup"},
	}
}

// rank is the environment of a drill's child: a rank that no real job has, of a
// job whose name says what it is.
func rank() []string {
	return []string{"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=3", "JOB_ID=tracecore-drill"}
}

// gpu is no GPU's address: PCI domain ffff and bus ff, device 1f, the last that
// the notation has.
const gpu = "ffff:ff:1f"

// xid writes what NVIDIA's driver writes when a GPU falls off the bus, marked as
// a drill, and lets the process it names die as a rank would.
func xid(ctx context.Context, w *watcher) error {
	r, err := StartRank(rank()...)
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
	if err := w.expect(ctx, step{"wrote to /dev/kmsg: " + line, at, pid, "gpu_lost"}); err != nil {
		return err
	}
	at, err = r.Abort()
	if err != nil {
		return err
	}
	return w.expect(ctx, step{fmt.Sprintf("process %d, rank 3, died by SIGABRT", pid), at, pid, "rank_exit"})
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
	victim, err := oomkill.Drill(ctx, oomkill.DrillOptions{Env: rank(), Hold: hold})
	if err != nil {
		return err
	}
	did := fmt.Sprintf("the kernel killed process %d (%s) at the limit of %d MiB of cgroup %s",
		victim.PID, victim.Comm, victim.LimitBytes>>20, victim.CgroupPath)
	return w.expect(ctx, step{did, time.Time{}, victim.PID, "host_oom_kill"})
}
