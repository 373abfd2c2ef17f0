//go:build gpu && linux && (amd64 || arm64)

package acceptance

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// These tests need a machine with an NVIDIA GPU, its driver, and a python3 with PyTorch and CuPy
// (`make gpu`). What elsewhere is a stand-in is real here: the driver that writes Xids and refuses
// memory, NVML, and NCCL.

//go:embed testdata/gpu.py
var gpuProgram string

// gpuJob is a job whose ranks share the first GPU.
type gpuJob struct {
	name string
	pythonJob
}

// startGPUJob starts one and waits until its ranks are ready for orders.
func startGPUJob(t *testing.T, name, does string, size int) *gpuJob {
	t.Helper()
	program := filepath.Join(t.TempDir(), "gpu.py")
	require.NoError(t, os.WriteFile(program, []byte(gpuProgram), 0o600))
	_, port, _ := strings.Cut(hosttest.FreeAddress(t), ":")
	j := &gpuJob{name: name}
	for rank := range size {
		cmd := exec.Command("python3", program, does)
		cmd.Env = append(os.Environ(), fmt.Sprint("RANK=", rank), "LOCAL_RANK=0", fmt.Sprint("WORLD_SIZE=", size), "JOB_ID="+name,
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, "NCCL_SOCKET_IFNAME=lo")
		cmd.Stderr = os.Stderr
		j.ranks = append(j.ranks, startPythonRank(t, cmd))
	}
	for _, r := range j.ranks {
		require.True(t, r.enters(t.Context().Done()))
	}
	return j
}

func (j *gpuJob) pid(rank int) int { return j.ranks[rank].cmd.Process.Pid }

func (j *gpuJob) verdicts(t *testing.T, a agent) (all []verdict.Verdict) {
	for _, v := range a.verdicts(t) {
		if v.Culprit["job"] == j.name && v.Severity != verdict.Info {
			all = append(all, v)
		}
	}
	return all
}

// becomesKnown lets the ranks make steps until their pauses are known. Each waits for an order then.
func (j *gpuJob) becomesKnown(t *testing.T, a agent) {
	t.Helper()
	j.run("go")
	time.Sleep(15 * time.Second)
	require.Empty(t, j.verdicts(t, a), "a healthy job")
	j.halt()
	for _, r := range j.ranks {
		require.True(t, r.enters(t.Context().Done()))
	}
}

// gpuAgent is one that reads the GPU, for the whole test.
func gpuAgent(t *testing.T, flags ...string) agent {
	t.Helper()
	privtest.Require(t)
	helper, err := exec.LookPath("tracecore-gpu")
	require.NoError(t, err, "put tracecore-gpu (`make build`) into PATH")
	a := startAgent(t, t.TempDir(), append([]string{"--set=receivers.gpu.helper=" + helper, "--set=receivers.ncclcall.look_interval=1s", "--set=receivers.stacks.look_interval=1s"}, flags...)...)
	ready := regexp.MustCompile(`otelcol_receiver_gpu_state\{[^}]*state="ready"[^}]*\} 1\n`)
	require.Eventually(t, func() bool { return ready.MatchString(fetch(a.metrics)) }, hosttest.Patience, 20*time.Millisecond, "the GPU is not read: %s", a.Stderr)
	return a
}

// TestAFaultIsProvenOnARealGPU: the driver writes it, for a program that writes where nothing is. The
// same text from a process is a claim.
func TestAFaultIsProvenOnARealGPU(t *testing.T) {
	a := gpuAgent(t, "--set=receivers.gpu.events={gpu.xid: {enabled: false}}") // the kernel log alone tells
	job := startGPUJob(t, "illegal", "illegal", 1)
	pid := strconv.Itoa(job.pid(0))
	job.ranks[0].goes("go")
	made := cause(t, "kmsg", "Xid 31")
	v := a.await(t, "the Xid", func(v verdict.Verdict) bool {
		return v.Pattern == "xid_impact" && v.Culprit["pid"] == pid
	})
	made.named()
	t.Logf("named after %v: %s", made.delay.Round(time.Millisecond), v.Headline)
	gpu := v.Culprit["gpu"]
	require.Regexp(t, `^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.0$`, gpu)
	require.Contains(t, v.Headline, "Xid 31")
	proven := false
	for _, e := range v.Evidence {
		t.Logf("evidence: %s, %s: %s", e.Source, e.Trust, e.Shows)
		proven = proven || e.Source == "gpu.xid" && e.Trust == verdict.Proven
	}
	require.True(t, proven, "the driver's own line")
	require.Equal(t, "0", v.Culprit["rank"])

	made = cause(t, "kmsg", "Xid 79 of a process")
	writeKmsg(t, fmt.Sprintf("NVRM: Xid (PCI:%s): 79, pid=%d, name=python3, GPU has fallen off the bus.", strings.TrimSuffix(gpu, ".0"), os.Getpid()))
	v = a.await(t, "the word of a process", about("gpu_lost", "gpu", gpu))
	made.named()
	require.NotEqual(t, verdict.Full, v.Confidence)
	for _, e := range v.Evidence {
		t.Logf("evidence: %s, %s: %s", e.Source, e.Trust, e.Shows)
		require.NotEqual(t, verdict.Proven, e.Trust, e.Shows)
	}
}

// TestRefusedMemoryIsExplainedOnARealGPU: all of it was allocated within a second, and the figures are those of
// the moment.
func TestRefusedMemoryIsExplainedOnARealGPU(t *testing.T) {
	a := gpuAgent(t)
	job := startGPUJob(t, "memory", "memory", 1)
	require.Eventually(t, func() bool { return watchesOne.MatchString(fetch(a.metrics)) }, hosttest.Patience, 20*time.Millisecond, "nobody watches libcuda")
	job.ranks[0].goes("go")
	made := cause(t, "cudaoom", "GPU memory")
	v := a.await(t, "the refusal", func(v verdict.Verdict) bool {
		return about("cuda_oom", "job", job.name)(v) && v.Confidence == verdict.Full
	})
	made.named()
	t.Logf("named after %v: %s", made.delay.Round(time.Millisecond), v.Headline)
	require.Equal(t, "0", v.Culprit["rank"])
	require.Contains(t, v.Headline, "is used up by rank 0")
	for _, w := range job.verdicts(t, a) {
		require.NotContains(t, w.Headline, "though", "more was free than was asked")
	}
}

// TestWhoHoldsUpTheOthersIsNamedOnARealGPU: two ranks of PyTorch and NCCL, and one that does not go on.
func TestWhoHoldsUpTheOthersIsNamedOnARealGPU(t *testing.T) {
	a := gpuAgent(t)
	const standstill = "nccl_hang|nccl_socket_stall"
	for _, fault := range []struct {
		name, order string
		make        func(pid int) error
		pattern     string // sockets or calls tell of a standstill first
		says        string
	}{
		{"asleep", "sleep 600", nil, standstill, `rank 1 .*has not called AllReduce #\d+ \(262,144 x fp32\), which rank 0 has called: .* at gpu\.py:\d+ in save_checkpoint < train`},
		{"spinning", "spin 600", nil, standstill, `rank 1 .*gpu\.py:\d+ in spin < train`},
		{"stopped", "", func(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }, standstill, `rank 1 .*its process is stopped`},
		{"raises", "fail", nil, "rank_exit", `rank 1 .*ValueError: bad batch 3 at gpu\.py:\d+`},
		{"killed", "", func(pid int) error { return exec.Command("/bin/sh", "-c", fmt.Sprint("kill -9 ", pid)).Run() }, "rank_exit", `rank 1 .*SIGKILL.*, sent by sh`},
	} {
		t.Run(fault.name, func(t *testing.T) {
			job := startGPUJob(t, fault.name, "train", 2)
			job.becomesKnown(t, a)
			made := cause(t, "ncclcall", "real NCCL, "+fault.name)
			if fault.make != nil {
				require.NoError(t, fault.make(job.pid(1)))
			}
			job.ranks[0].goes("go")
			if fault.order != "" {
				job.ranks[1].goes(fault.order)
			}
			v := a.await(t, fault.name, func(v verdict.Verdict) bool {
				return strings.Contains(fault.pattern, v.Pattern) && v.Culprit["job"] == fault.name && v.Role == verdict.RootCause && v.Severity != verdict.Info
			})
			made.named()
			t.Logf("named after %v: %s", made.delay.Round(time.Millisecond), v.Headline)
			require.Equal(t, "1", v.Culprit["rank"])
			v = a.await(t, fault.name+", complete", func(w verdict.Verdict) bool {
				return w.ID == v.ID && regexp.MustCompile(fault.says).MatchString(w.Headline)
			})
			t.Logf("complete after %v: %s", time.Since(made.cause).Round(time.Millisecond), v.Headline)
			require.Equal(t, verdict.RootCause, v.Role)
		})
	}
}

// TestAGPUIsAWitnessOnARealGPU: while its rank stands, the record says whether a kernel runs on it.
func TestAGPUIsAWitnessOnARealGPU(t *testing.T) {
	records := filepath.Join(t.TempDir(), "records.json")
	a := gpuAgent(t, "--set=exporters.file={path: "+records+"}", "--set=service.pipelines.logs/gpu={receivers: [gpu], exporters: [file]}")
	for _, tc := range []struct{ order, state, says string }{
		{"kernel 90", "busy", `rank 0 .*gpu\.py:\d+ in waits`},
		{"sleep 90", "idle", `rank 0 .*gpu\.py:\d+ in save_checkpoint < waits`},
	} {
		t.Run(tc.state, func(t *testing.T) {
			job := startGPUJob(t, "gpu-"+tc.state, "waits", 2)
			job.becomesKnown(t, a)
			made := cause(t, "gpu", "its GPU is "+tc.state)
			job.ranks[1].goes("go")
			job.ranks[0].goes(tc.order)
			pid := int64(job.pid(0))
			var told map[string]any
			require.Eventually(t, func() bool { told = activityOf(t, records, pid); return told != nil }, hosttest.Patience, 100*time.Millisecond, "no gpu.activity of rank 0: %s", a.Stderr)
			made.named()
			t.Logf("told after %v: %v", made.delay.Round(time.Millisecond), told)
			require.Equal(t, tc.state, told["gpu.activity.state"])
			require.Equal(t, false, told["gpu.activity.shared"], "it alone is on the GPU")
			v := a.await(t, "rank 0 waits", func(v verdict.Verdict) bool {
				return v.Culprit["job"] == job.name && regexp.MustCompile(tc.says).MatchString(v.Headline)
			})
			t.Logf("headline: %s", v.Headline)
		})
	}
}

// activityOf is the first gpu.activity of a process among the records in a file, nil for none yet.
func activityOf(t *testing.T, file string, pid int64) map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // the rest of it is on its way
		}
		logs, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs([]byte(line))
		require.NoError(t, err)
		for _, of := range logs.ResourceLogs().All() {
			for _, in := range of.ScopeLogs().All() {
				for _, r := range in.LogRecords().All() {
					if owner, _ := r.Attributes().Get("process.pid"); r.EventName() == "gpu.activity" && owner.Int() == pid {
						return r.Attributes().AsRaw()
					}
				}
			}
		}
	}
	return nil
}
