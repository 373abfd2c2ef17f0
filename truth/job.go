//go:build linux

package main

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tracecoreai/tracecore/internal/hostnet"
)

//go:embed train.py
var train []byte

// style is how a launcher tells a process which rank it is.
type style struct {
	name string
	env  func(j *job, rank int) []string
	id   bool // the job has an id that its processes carry
}

func styles() []style {
	plain := func(j *job, rank int) []string {
		return []string{
			fmt.Sprint("RANK=", rank), fmt.Sprint("LOCAL_RANK=", rank), fmt.Sprint("WORLD_SIZE=", j.world),
			"MASTER_ADDR=" + j.host(0), fmt.Sprint("MASTER_PORT=", j.port),
		}
	}
	return []style{
		{"with JOB_ID", func(j *job, rank int) []string { return append(plain(j, rank), "JOB_ID="+j.id) }, true},
		{"without an id", plain, false},
		{"torchrun", func(j *job, rank int) []string {
			return append(plain(j, rank), "TORCHELASTIC_RUN_ID=none", fmt.Sprint("TORCHELASTIC_RESTART_COUNT=", j.starts), "GROUP_RANK=0",
				fmt.Sprint("ROLE_RANK=", rank), "TORCHELASTIC_USE_AGENT_STORE=False")
		}, false},
		{"Slurm", func(j *job, rank int) []string {
			return []string{
				fmt.Sprint("SLURM_PROCID=", rank), fmt.Sprint("SLURM_LOCALID=", rank), fmt.Sprint("SLURM_NTASKS=", j.world), "SLURM_JOB_ID=" + j.number,
			}
		}, true},
		{"Open MPI", func(j *job, rank int) []string {
			return []string{
				fmt.Sprint("OMPI_COMM_WORLD_RANK=", rank), fmt.Sprint("OMPI_COMM_WORLD_LOCAL_RANK=", rank), fmt.Sprint("OMPI_COMM_WORLD_SIZE=", j.world),
				"PMIX_NAMESPACE=prterun-truth-" + j.number + "@1", fmt.Sprint("PMIX_RANK=", rank),
			}
		}, true},
		{"mp.spawn", func(*job, int) []string { return []string{"TRUTH_SPAWNS=1"} }, false},
	}
}

// job is a real training job, a process a rank, each on a host of its own.
type job struct {
	root    string // a Debian with PyTorch
	id      string
	number  string // the same as a number
	world   int
	port    int
	starts  int
	began   time.Time // the last start
	how     style
	network *hostnet.Network
	ranks   []*rank
	words   io.Writer
	chance  *rand.Rand
	started func(pid int)   // is called with each rank
	named   func(id string) // and with what the job is called
}

// fresh makes it another job.
func (j *job) fresh() {
	n := j.chance.IntN(1_000_000)
	j.id, j.number, j.port, j.starts = fmt.Sprint("job-", n), fmt.Sprint(n), 20_000+j.chance.IntN(10_000), 0
}

// shell runs a script in its root as a launcher does, on the first host.
func (j *job) shell(text string, env ...string) error {
	var cmd *exec.Cmd
	err := j.network.Within(0, func() error {
		cmd = exec.Command("/bin/bash", "-c", text)
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: j.root}
		cmd.Dir, cmd.Env, cmd.Stderr = "/", append(env, "PATH=/usr/bin:/bin"), j.words
		return cmd.Start()
	})
	if err != nil {
		return err
	}
	return cmd.Wait()
}

// rank is one process of it, seen from outside.
type rank struct {
	cmd    *exec.Cmd
	pid    atomic.Int64 // another process than that, where a launcher starts it
	told   io.WriteCloser
	ready  chan struct{} // closed once it trains
	trains sync.Once
	ended  chan struct{} // closed once it has ended
	done   chan string   // orders carried out
	steps  atomic.Int64
}

func (j *job) host(rank int) string { return hostnet.Address(rank).String() }

// start starts the ranks, again if they ran before, and waits until they train. late is
// the rank that begins so much later, -1 for none.
func (j *job) start(late int, by time.Duration) error {
	if err := j.begin(late, "TRUTH_LATE="+fmt.Sprint(by.Seconds())); err != nil {
		return err
	}
	limit := time.NewTimer(3*time.Minute + by)
	defer limit.Stop()
	for i, r := range j.ranks {
		select {
		case <-r.ready:
		case <-r.ended:
			return errors.Join(fmt.Errorf("rank %d ended before it trained", i), j.end())
		case <-limit.C:
			return errors.Join(fmt.Errorf("rank %d does not train after %s", i, 3*time.Minute+by), j.end())
		}
	}
	return nil
}

// begin starts the ranks. One of them has more in its environment, -1 for none.
func (j *job) begin(one int, more string) (err error) {
	j.ranks = nil
	for _, id := range []string{j.id, j.number, "prterun-truth-" + j.number + "@1", fmt.Sprintf("%s:%d/%d", j.host(0), j.port, j.world)} {
		j.named(id)
	}
	if j.network == nil {
		if j.network, err = hostnet.New(j.world); err != nil {
			return err
		}
	}
	for r := range j.world {
		var env []string
		if r == one {
			env = []string{more}
		}
		if err := j.network.Within(r, func() error { return j.launch(r, env) }); err != nil {
			return errors.Join(fmt.Errorf("start rank %d: %w", r, err), j.end())
		}
	}
	j.starts++
	j.began = time.Now()
	return nil
}

func (j *job) launch(number int, env []string) error {
	r := &rank{ready: make(chan struct{}), ended: make(chan struct{}), done: make(chan string, 64)}
	r.cmd = exec.Command("/usr/bin/python3", "-u", "/train.py")
	r.cmd.Dir = "/"
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: j.root, Setpgid: true}
	r.cmd.Env = append(append(j.how.env(j, number), env...), "PATH=/usr/bin:/bin", "HOME=/tmp", "OMP_NUM_THREADS=1", "USE_LIBUV=0", "GLOO_SOCKET_IFNAME=eth0",
		fmt.Sprint("TRUTH_RANK=", number), fmt.Sprint("TRUTH_WORLD=", j.world), fmt.Sprintf("TRUTH_MASTER=%s:%d", j.host(0), j.port))
	r.cmd.Stderr = j.words
	var err error
	if r.told, err = r.cmd.StdinPipe(); err != nil {
		return err
	}
	said, err := r.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.cmd.Start(); err != nil {
		return err
	}
	r.pid.Store(int64(r.cmd.Process.Pid))
	go r.hear(said, j.started)
	go func() { // its workers may keep the pipe, so it is the process that is waited for
		_, _ = r.cmd.Process.Wait() // how it ended is what tracecore has to say
		close(r.ended)
	}()
	j.ranks = append(j.ranks, r)
	j.started(r.cmd.Process.Pid)
	return nil
}

func (r *rank) hear(said io.Reader, started func(pid int)) {
	for lines := bufio.NewScanner(said); lines.Scan(); {
		switch word, rest, _ := strings.Cut(lines.Text(), " "); word {
		case "ready":
			if pid, err := strconv.Atoi(rest); err == nil {
				r.pid.Store(int64(pid))
				started(pid)
			}
			r.trains.Do(func() { close(r.ready) })
		case "step":
			if n, err := strconv.ParseInt(rest, 10, 64); err == nil {
				r.steps.Store(n)
			}
		case "done":
			select {
			case r.done <- rest:
			default: // nobody waits for that many
			}
		}
	}
}

// order tells a rank what to do before its next step.
func (j *job) order(rank int, words ...string) error {
	_, err := fmt.Fprintln(j.ranks[rank].told, strings.Join(words, " "))
	return err
}

// carried waits until a rank has carried out its oldest order.
func (j *job) carried(rank int, within time.Duration) error {
	select {
	case <-j.ranks[rank].done:
		return nil
	case <-j.ranks[rank].ended:
		return fmt.Errorf("rank %d ended", rank)
	case <-time.After(within):
		return fmt.Errorf("rank %d does not carry out its order within %s", rank, within)
	}
}

func (j *job) pid(rank int) int { return int(j.ranks[rank].pid.Load()) }

func (j *job) signal(rank int, s syscall.Signal) error { return syscall.Kill(j.pid(rank), s) }

// moves waits until each rank completes steps again.
func (j *job) moves(within time.Duration) error {
	before := make([]int64, j.world)
	for i, r := range j.ranks {
		before[i] = r.steps.Load()
	}
	limit := time.NewTimer(within)
	defer limit.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		moved := true
		for i, r := range j.ranks {
			moved = moved && r.steps.Load() != before[i]
		}
		if moved {
			return nil
		}
		select {
		case <-again.C:
		case <-limit.C:
			return fmt.Errorf("the job makes no step within %s", within)
		}
	}
}

// over waits until all ranks have ended.
func (j *job) over(within time.Duration) error {
	limit := time.NewTimer(within)
	defer limit.Stop()
	for i, r := range j.ranks {
		select {
		case <-r.ended:
		case <-limit.C:
			return fmt.Errorf("rank %d lives after %s", i, within)
		}
	}
	return nil
}

// finish lets the job end well.
func (j *job) finish() error {
	for r := range j.world {
		if err := j.order(r, "stop"); err != nil {
			return err
		}
	}
	return j.over(time.Minute)
}

// end kills what is left of the job.
func (j *job) end() error {
	for _, r := range j.ranks {
		if err := syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return j.over(time.Minute)
}

func (j *job) close() error {
	err := j.end()
	if j.network != nil {
		err = errors.Join(err, j.network.Close())
		j.network = nil
	}
	return err
}

// furnish puts what the ranks need into the root: the caller has a mount namespace of its
// own, in which the mounts end with it.
func furnish(root string) error {
	if err := os.WriteFile(filepath.Join(root, "train.py"), train, 0o600); err != nil {
		return err
	}
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"proc", "proc", "proc", 0}, {"/dev", "dev", "", syscall.MS_BIND | syscall.MS_REC}, {"tmpfs", "tmp", "tmpfs", 0},
	} {
		if err := syscall.Mount(m.source, filepath.Join(root, m.target), m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s in %s: %w", m.target, root, err)
		}
	}
	return nil
}
