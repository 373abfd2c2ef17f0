package ncclsocketstall

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// hung are the records of four ranks of which rank 2 fell silent first, as these attributes have it.
func hung(does map[string]any) []*rule.Record {
	all := records(4, 2, 1)
	for _, r := range all {
		r.Attributes.PutStr("nccl.rank.activity", "idle")
		r.Attributes.PutStr("nccl.rank.silence", "overdue")
		if rule.Text(r.Attributes, "gen_ai.training.rank") != "2" {
			continue
		}
		for key, value := range does {
			if err := r.Attributes.PutEmpty(key).FromRaw(value); err != nil {
				panic(err)
			}
		}
	}
	return all
}

// fuseStall is the word of the probe of FUSE about a process.
func fuseStall(at, pid int64) *rule.Record {
	r := &rule.Record{Name: "fuse.stall", Time: at, Resource: pcommon.NewMap(), Attributes: pcommon.NewMap()}
	r.Resource.PutStr("host.name", "node-0")
	a := r.Attributes
	a.PutInt("process.pid", pid)
	a.PutStr("fuse.device", "0:52")
	a.PutStr("fuse.mount.point", "/data")
	a.PutStr("fuse.stall.id", "f1")
	a.PutInt("fuse.stall.age_ns", second)
	a.PutEmptySlice("fuse.stall.pids").AppendEmpty().SetInt(pid)
	return r
}

func child(syscall, channel, state string) map[string]any {
	return map[string]any{
		"nccl.rank.syscall": "poll", "nccl.rank.tree": []any{int64(212)}, "nccl.rank.child_name": "pt_data_worker", "nccl.rank.child_pid": 212, "nccl.rank.child_awaited": true,
		"nccl.rank.child_state": state, "nccl.rank.child_syscall": syscall, "nccl.rank.child_wait_channel": channel,
	}
}

func itself(syscall, channel, state string) map[string]any {
	return map[string]any{"nccl.rank.syscall": syscall, "nccl.rank.wait_channel": channel, "nccl.rank.state": state}
}

// TestAMountIsHeardFirst: a rank that waits for FUSE is told with the mount, which its probe names
// a moment later, and without it in the end. Nobody waits for that probe where another file system,
// or none, holds the rank.
func TestAMountIsHeardFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		does  map[string]any
		waits bool
		why   string
	}{
		"a worker opens a file": {child("openat", "request_wait_answer", "sleeping"), true,
			"it waits for its child process pt_data_worker (pid 212), which is blocked in a FUSE file system that does not answer (openat, request_wait_answer)"},
		"a worker was sent a signal meanwhile": {child("read", "request_wait_answer", "disk_sleep"), true,
			"it waits for its child process pt_data_worker (pid 212), which is blocked in a FUSE file system that does not answer (read, request_wait_answer)"},
		"a worker waits for a page": {child("", "folio_wait_bit_common", "disk_sleep"), true,
			"it waits for its child process pt_data_worker (pid 212), which is blocked in the kernel (the kernel, folio_wait_bit_common): a file system or a driver does not answer"},
		"the rank itself": {itself("stat", "request_wait_answer", "sleeping"), true,
			"its main thread is blocked in a FUSE file system that does not answer (stat, request_wait_answer), at 0 % CPU"},
		"the rank in a page fault": {itself("", "folio_wait_bit_common", "disk_sleep"), true,
			"its main thread is blocked in the kernel (the kernel, folio_wait_bit_common): a file system or a driver does not answer, at 0 % CPU"},
		"a worker on NFS": {child("read", "rpc_wait_bit_killable", "disk_sleep"), false,
			"it waits for its child process pt_data_worker (pid 212), which is blocked in the kernel (read, rpc_wait_bit_killable): a file system or a driver does not answer"},
		"a worker on Lustre": {child("read", "cl_sync_io_wait", "disk_sleep"), false,
			"it waits for its child process pt_data_worker (pid 212), which is blocked in the kernel (read, cl_sync_io_wait): a file system or a driver does not answer"},
		"a worker in a driver": {child("ioctl", "nv_wait", "disk_sleep"), false,
			"it waits for its child process pt_data_worker (pid 212), which is blocked in the kernel (ioctl, nv_wait): a file system or a driver does not answer"},
		"a worker asleep":      {child("clock_nanosleep", "hrtimer_nanosleep", "sleeping"), false, "it waits for its child process pt_data_worker (pid 212), which is asleep in clock_nanosleep, hrtimer_nanosleep"},
		"the rank on NFS":      {itself("write", "rpc_wait_bit_killable", "disk_sleep"), false, "its main thread is blocked in the kernel (write, rpc_wait_bit_killable): a file system or a driver does not answer, at 0 % CPU"},
		"the rank in a lock":   {itself("futex", "futex_do_wait", "sleeping"), false, "its main thread is asleep in futex, futex_do_wait, at 0 % CPU"},
		"the rank is stopped":  {itself("stat", "request_wait_answer", "stopped"), false, "its process is stopped (SIGSTOP or a debugger)"},
		"nobody looked inside": {itself("", "", "sleeping"), false, "its main thread is asleep, at 0 % CPU"},
	} {
		t.Run(name, func(t *testing.T) {
			now := began + second
			d := fresh()
			observe(d, hung(tc.does))
			first := d.Decide(now)
			require.Equal(t, tc.waits, len(first) == 0)
			if !tc.waits {
				require.Equal(t, tc.why, first[0].Attributes[attrWhy])
				return
			}
			require.Equal(t, now+int64(fixed.mounts), d.Due())
			require.Empty(t, d.Decide(now+second))
			late := d.Decide(now + int64(fixed.mounts))
			require.Len(t, late, 1)
			require.Equal(t, tc.why, late[0].Attributes[attrWhy])
			require.Equal(t, adviceFile, late[0].Attributes[attrAdvice])
			require.Greater(t, d.Due(), now+int64(time.Minute), "it is told")

			d = fresh() // and with the word of the probe
			observe(d, hung(tc.does))
			require.Empty(t, d.Decide(now))
			pid := int64(1002)
			if tc.does["nccl.rank.child_pid"] != nil {
				pid = 212
			}
			require.True(t, d.Observe(fuseStall(now+second/2, pid)))
			told := d.Decide(now + second/2)
			require.Len(t, told, 1)
			require.Equal(t, "0:52", told[0].Attributes[attrDevice])
			require.Contains(t, told[0].Attributes[attrWhy], "on /data does not return")
		})
	}
}

// TestWhoIsAnsweredMeanwhileIsNotTold: the daemon was slow, and the rank goes on.
func TestWhoIsAnsweredMeanwhileIsNotTold(t *testing.T) {
	d, now := fresh(), began+second
	observe(d, hung(child("openat", "request_wait_answer", "sleeping")))
	require.Empty(t, d.Decide(now))
	for _, r := range hung(map[string]any{"nccl.rank.activity": "io", "nccl.rank.silence": "usual"}) {
		r.Time += second
		d.Observe(r)
	}
	require.Empty(t, d.Decide(now+second))
	require.Empty(t, d.Decide(now+int64(fixed.mounts)+second))

	// The next wait for it begins anew.
	for _, r := range hung(child("openat", "request_wait_answer", "sleeping")) {
		r.Time += 10 * second
		d.Observe(r)
	}
	require.Empty(t, d.Decide(now+10*second))
	require.Len(t, d.Decide(now+10*second+int64(fixed.mounts)), 1)
}
