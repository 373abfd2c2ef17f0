//go:build linux && (amd64 || arm64)

package identity

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

const (
	uidA = "0a1b2c3d-0001-4002-8003-0a1b2c3d4e5f"
	uidB = "0a1b2c3d-0001-4002-8003-0a1b2c3d4e60"
)

func podCgroup(uid string) string {
	return "/kubepods/burstable/pod" + uid + "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
}

// addPod is what the kubelet does for a pod.
func (p fakeProc) addPod(namespace, name, uid string) string {
	p.Helper()
	dir := filepath.Join(p.root, "1", "root", podLogs)
	require.NoError(p, os.MkdirAll(dir, 0o755))
	made := filepath.Join(dir, namespace+"_"+name+"_"+uid)
	require.NoError(p, os.Mkdir(made, 0o755))
	return made
}

// TestAPodIsOfItsNamespace: two pods of one user are of two domains, two users of one
// namespace are of one, and who only claims the id of a job is of its own.
func TestAPodIsOfItsNamespace(t *testing.T) {
	hosttest.Require(t, "the folders of the kubelet are root's")
	s := newScripted(t, Options{}, func(_ *Tracker, proc fakeProc, base uint64) {
		proc.addPod("team-a", "llama-0", uidA)
		proc.add(200, 1, base, "python", podCgroup(uidA), rank3()...)
	})
	require.Equal(t, "pods in namespace team-a", s.lookup(200, 0, 1).Domain)

	s.proc.addPod("team-b", "llama-0", uidB) // the kubelet makes it before the container
	s.proc.add(201, 1, s.ns(1), "python", podCgroup(uidB), rank3()...)
	s.proc.add(202, 1, s.ns(1), "python", podCgroup(uidA), rank3()...)
	s.proc.write(202, "status", "Uid:\t231072\t0\t0\t0\n")
	s.proc.add(203, 1, s.ns(1), "python", podCgroup("0a1b2c3d-0001-4002-8003-0a1b2c3d4e99"), rank3()...)
	for pid, want := range map[uint32]string{201: "pods in namespace team-b", 202: "pods in namespace team-a", 203: "pods of user 1000"} {
		s.exec(pid, 1, 1, 2, rank3()...)
		s.exit(pid, 1, 1, 3, 6)
		require.Equal(t, want, exitOf(t, s.exits, pid).Domain)
	}
}

// TestPodsOfOneJobMeetInOneJob: an operator of PyTorch jobs gives localhost to the first pod, and its name to the others. What
// runs in one pod alone stays apart, and so does a pod of that name in another namespace.
func TestPodsOfOneJobMeetInOneJob(t *testing.T) {
	hosttest.Require(t, "the folders of the kubelet are root's")
	env := func(rank int, addr string) []string {
		return []string{fmt.Sprint("RANK=", rank), "WORLD_SIZE=2", "MASTER_PORT=23456", "MASTER_ADDR=" + addr}
	}
	uids := make([]string, 4)
	s := newScripted(t, Options{}, func(_ *Tracker, proc fakeProc, base uint64) {
		for i, pod := range []struct{ namespace, name, addr string }{
			{"team-a", "llm-master-0", "localhost"}, {"team-a", "llm-worker-0", "llm-master-0"},
			{"team-a", "alone", "127.0.0.1"}, {"team-b", "llm-master-0", "localhost"},
		} {
			uids[i] = uidB[:len(uidB)-1] + fmt.Sprint(i)
			proc.addPod(pod.namespace, pod.name, uids[i])
			proc.add(uint32(200+i), 1, base, "python", podCgroup(uids[i]), env(i%2, pod.addr)...)
		}
	})
	of := func(pid uint32) jobKey {
		p := s.lookup(pid, 0, 1)
		return p.job()
	}
	require.Equal(t, "llm-master-0:23456/2", of(200).rendezvous)
	require.Equal(t, of(200), of(201))
	require.Equal(t, "alone:23456/2", of(202).rendezvous)
	require.Equal(t, of(200).rendezvous, of(203).rendezvous)
	require.NotEqual(t, of(200), of(203))
}

// TestNamespacesAreTheKubelets: a folder that others may write to, or that is none of the
// root of process 1, says nothing.
func TestNamespacesAreTheKubelets(t *testing.T) {
	hosttest.Require(t, "the folders of the kubelet are root's")
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, proc fakeProc, logs string)
		want  string
	}{
		"as the kubelet makes it": {func(*testing.T, fakeProc, string) {}, "team-a"},
		"none":                    {func(t *testing.T, _ fakeProc, logs string) { require.NoError(t, os.RemoveAll(logs)) }, ""},
		"all may write":           {func(t *testing.T, _ fakeProc, logs string) { require.NoError(t, os.Chmod(logs, 0o777)) }, ""},
		"a group may":             {func(t *testing.T, _ fakeProc, logs string) { require.NoError(t, os.Chmod(logs, 0o775)) }, ""},
		"another's":               {func(t *testing.T, _ fakeProc, logs string) { require.NoError(t, os.Chown(logs, 65534, 65534)) }, ""},
		"a link of the host": {func(t *testing.T, _ fakeProc, logs string) {
			require.NoError(t, os.Rename(logs, filepath.Join(filepath.Dir(logs), "elsewhere")))
			require.NoError(t, os.Symlink("/var/log/elsewhere", logs))
		}, "team-a"},
		"a link out of it": {func(t *testing.T, _ fakeProc, logs string) {
			outside := filepath.Join(t.TempDir(), "pods")
			require.NoError(t, os.Rename(logs, outside))
			require.NoError(t, os.Symlink(outside, logs))
		}, ""},
		"a file": {func(t *testing.T, _ fakeProc, logs string) {
			require.NoError(t, os.RemoveAll(logs))
			require.NoError(t, os.WriteFile(logs, nil, 0o600))
		}, ""},
		"a pipe": {func(t *testing.T, _ fakeProc, logs string) {
			require.NoError(t, os.RemoveAll(logs))
			require.NoError(t, unix.Mkfifo(logs, 0o600))
		}, ""},
		"other numbers of processes": {func(*testing.T, fakeProc, string) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			proc := newFakeProc(t)
			tc.spoil(t, proc, filepath.Dir(proc.addPod("team-a", "llama-0", uidA)))
			r := newReader(proc.root)
			r.SetForeign(name == "other numbers of processes")
			require.Equal(t, tc.want, r.pods.named(uidA).namespace)
		})
	}
}

// TestTheFolderIsReadAgainWhenItChanges, also when both changes have the same time.
func TestTheFolderIsReadAgainWhenItChanges(t *testing.T) {
	hosttest.Require(t, "the folders of the kubelet are root's")
	proc := newFakeProc(t)
	logs := filepath.Dir(proc.addPod("team-a", "llama-0", uidA))
	at := time.Now().Truncate(time.Second)
	r := newReader(proc.root)
	for i := range 3 {
		uid := fmt.Sprintf("%s%d", uidB[:len(uidB)-1], i)
		r.pods.now = func() time.Time { return at.Add(time.Millisecond) }
		require.NoError(t, os.Chtimes(logs, at, at))
		require.Empty(t, r.pods.named(uid).namespace)
		proc.addPod("team-b", fmt.Sprint("llama-", i), uid)
		require.NoError(t, os.Chtimes(logs, at, at))
		require.Equal(t, "team-b", r.pods.named(uid).namespace)
	}
	r.pods.now = func() time.Time { return at.Add(time.Minute) }
	require.Empty(t, r.pods.named("nobody").namespace)
	require.False(t, r.pods.changed.IsZero())
	proc.addPod("team-c", "late", uidB[:len(uidB)-1]+"9")
	require.NoError(t, os.Chtimes(logs, at, at))
	require.Empty(t, r.pods.named(uidB[:len(uidB)-1]+"9").namespace, "it is not read for every process")
	require.NoError(t, os.Chtimes(logs, at, at.Add(time.Second)))
	require.Equal(t, "team-c", r.pods.named(uidB[:len(uidB)-1]+"9").namespace)
}

func TestNamesOfFoldersAreReadAsTheKubeletWritesThem(t *testing.T) {
	const static = "0123456789abcdef0123456789abcdef"
	require.Equal(t, map[string]podName{uidA: {"team-a", "llama-0"}, static: {"kube-system", "etcd-node-1"}}, podsOf([]string{
		"team-a_llama-0_" + uidA, "kube-system_etcd-node-1_" + static,
		"", "_", "__", "team-b_llama-0", "team b_llama-0_" + uidB, "_llama-0_" + uidB, "team-b_llama_0_" + uidB, "team-b_llama-0_" + uidB + "_",
		"team-b_llama-0_nobody", "team-b\n_llama-0_" + uidB, "Team-B_llama-0_" + uidB,
	}))
}
