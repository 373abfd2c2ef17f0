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

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hostnet"
)

//go:embed train.py
var train []byte

// style is how a launcher tells a process which rank it is.
type style struct {
	name string
	env  func(j *job, rank int) []string
	id   bool // the job has an id that its processes carry
	// starts is the command of a real launcher, which starts all ranks on one host; nil where
	// this program starts each on a host of its own.
	starts func(j *job) []string
	given  func(j *job) []string // what that launcher has in its environment, nil for nothing
	script string                // of a shell with the rank in its environment, which starts the rank
	batch  func(j *job) []string // the environment of the batch script that starts the job, nil where none does
}

func styles() []style {
	meeting := func(j *job) []string {
		return []string{"MASTER_ADDR=" + j.host(0), fmt.Sprint("MASTER_PORT=", j.port), fmt.Sprint("WORLD_SIZE=", j.world)}
	}
	plain := func(j *job, rank int) []string {
		return append(meeting(j), fmt.Sprint("RANK=", rank), fmt.Sprint("LOCAL_RANK=", rank))
	}
	lightning := func(j *job, rank int) []string {
		return append(meeting(j), "NODE_RANK=0", fmt.Sprint("LOCAL_RANK=", rank))
	}
	elastic := func(j *job, rank int) []string {
		return append(plain(j, rank), "TORCHELASTIC_RUN_ID=none", fmt.Sprint("TORCHELASTIC_RESTART_COUNT=", j.starts-1), "GROUP_RANK=0",
			fmt.Sprint("ROLE_RANK=", rank), "TORCHELASTIC_USE_AGENT_STORE=False")
	}
	// A pod of Kubeflow's training operator has this whether its command is torchrun or a training.
	pod := func(j *job, rank int) []string {
		return append(meeting(j), fmt.Sprint("RANK=", rank))
	}
	torchrun := func(j *job) []string {
		return []string{
			"/usr/bin/python3", "/torchrun.py", fmt.Sprint("--nproc-per-node=", j.world), "--nnodes=1", "--node-rank=0", "--max-restarts=0",
			"--master-addr=" + j.host(0), fmt.Sprint("--master-port=", j.port), "/train.py",
		}
	}
	// What srun starts has these: a rank, or a daemon of mpirun, whose ranks have them, too.
	step := func(j *job, task, tasks int) []string {
		return []string{
			"SLURM_JOB_ID=" + j.number, "SLURM_STEP_ID=0", fmt.Sprint("SLURM_STEP_NUM_TASKS=", tasks), fmt.Sprint("SLURM_NTASKS=", tasks),
			fmt.Sprint("SLURM_PROCID=", task), fmt.Sprint("SLURM_LOCALID=", task),
		}
	}
	openMPI := func(j *job, rank int) []string {
		return []string{
			fmt.Sprint("OMPI_COMM_WORLD_RANK=", rank), fmt.Sprint("OMPI_COMM_WORLD_LOCAL_RANK=", rank), fmt.Sprint("OMPI_COMM_WORLD_SIZE=", j.world),
			"PMIX_NAMESPACE=prterun-truth-" + j.number + "@1", fmt.Sprint("PMIX_RANK=", rank),
		}
	}
	return []style{
		{name: "with JOB_ID", id: true, env: func(j *job, rank int) []string { return append(plain(j, rank), "JOB_ID="+j.id) }},
		{name: "without an id", env: plain},
		{name: "launch script", id: true, script: "ls / > /dev/null; grep -q nothing /etc/hostname; python3 -u /train.py; exit $?", env: func(j *job, rank int) []string { return append(plain(j, rank), "JOB_ID="+j.id) }},
		{name: "in a thread", id: true, env: func(j *job, rank int) []string { return append(plain(j, rank), "JOB_ID="+j.id, "TRUTH_THREAD=1") }},
		{name: "as torchrun", env: elastic},
		{
			name: "as torchrun, one a pod", env: pod,
			script: "LOCAL_RANK=0 TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 python3 -u /train.py || exit 1",
		},
		{
			name: "as Slurm", id: true, env: func(j *job, rank int) []string { return step(j, rank, j.world) },
			batch: func(j *job) []string {
				return []string{"SLURM_JOB_ID=" + j.number, "SLURM_PROCID=0", "SLURM_LOCALID=0", fmt.Sprint("SLURM_NTASKS=", j.world)}
			},
		},
		{name: "as Open MPI under Slurm", id: true, env: func(j *job, rank int) []string { return append(step(j, 0, 1), openMPI(j, rank)...) }},
		{name: "as Open MPI", id: true, env: openMPI},
		{name: "mp.spawn", env: func(*job, int) []string { return []string{"TRUTH_SPAWNS=1"} }},
		{name: "torchrun", env: elastic, starts: torchrun},
		{name: "torchrun in a pod", env: elastic, starts: torchrun, given: func(j *job) []string { return pod(j, 0) }},
		{
			name: "as Lightning", env: lightning, starts: func(*job) []string { return []string{"/usr/bin/python3", "-u", "/train.py"} },
			given: func(j *job) []string { return append(meeting(j)[:2], "TRUTH_LEADS=1") },
		},
		{name: "mpirun", id: true, env: openMPI, starts: func(j *job) []string {
			return []string{"/usr/bin/mpirun", "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE", "-np", fmt.Sprint(j.world), "/usr/bin/python3", "-u", "/train.py"}
		}},
	}
}

// torchrun is torchrun without libuv, which Debian's PyTorch is built without.
const torchrun = `import functools
import torch.distributed
from torch.distributed.elastic.rendezvous import static_tcp_rendezvous
static_tcp_rendezvous.TCPStore = functools.partial(torch.distributed.TCPStore, use_libuv=False)
from torch.distributed.run import main
main()
`

// job is a real training job, a process a rank, each on a host of its own.
type job struct {
	root    string // a Debian with PyTorch
	id      string
	number  string // the same as a number
	world   int
	port    int
	starts  int       // the one that runs included
	began   time.Time // the last start
	how     style
	network *hostnet.Network
	ranks   []*rank
	real    *launcher // nil where this program starts the ranks
	words   io.Writer
	chance  *rand.Rand
	pause   time.Duration // in each step
	lane    int           // of so many lanes, whose jobs have other names and ports
	lanes   int
	started func(pid int)   // is called with each rank
	named   func(id string) // and with what the job is called
}

// fresh makes it another job.
func (j *job) fresh() {
	n := j.chance.IntN(1_000_000)*j.lanes + j.lane
	const ports = 2 // a real torchrun takes the next one, too
	j.id, j.number, j.starts = fmt.Sprint("job-", n), fmt.Sprint(n), 0
	j.pause = time.Duration(30+j.chance.IntN(120)) * time.Millisecond
	j.port = 20_000 + ports*(j.chance.IntN(10_000/ports/j.lanes)*j.lanes+j.lane)
}

// shell runs a script in its root as a launcher does, on the first host.
func (j *job) shell(text string, env ...string) error {
	cmd, err := j.beside(text, env)
	if err != nil {
		return err
	}
	return cmd.Wait()
}

// beside starts such a script.
func (j *job) beside(text string, env []string) (*exec.Cmd, error) {
	cmd := exec.Command("/bin/bash", "-c", text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: j.root}
	cmd.Dir, cmd.Env, cmd.Stderr = "/", append(env, "PATH=/usr/bin:/bin"), j.words
	return cmd, j.network.Within(0, cmd.Start)
}

// submit starts the batch script, which waits for its job. Its last command fails, however the job ended.
func (j *job) submit() error {
	cmd, err := j.beside(fmt.Sprintf("tail --pid=%d -f /dev/null; grep -q nothing /etc/hostname", j.ranks[0].cmd.Process.Pid), j.how.batch(j))
	if err != nil {
		return fmt.Errorf("start the batch script: %w", err)
	}
	j.started(cmd.Process.Pid)
	go func() { _ = cmd.Wait() }() // it fails
	return nil
}

// rank is one process of it, seen from outside.
type rank struct {
	cmd    *exec.Cmd    // nil where a launcher starts it
	pid    atomic.Int64 // another process than that, where a launcher or the rank itself starts it
	told   io.WriteCloser
	said   io.Closer     // nil where the end of the process closes it
	ready  chan struct{} // closed once it trains
	trains sync.Once
	ended  chan struct{} // closed once it has ended
	ends   sync.Once
	done   chan string // orders carried out
	steps  atomic.Int64
}

func newRank() *rank {
	return &rank{ready: make(chan struct{}), ended: make(chan struct{}), done: make(chan string, 64)}
}

func (r *rank) end() { r.ends.Do(func() { close(r.ended) }) }

// launcher is a real one, which starts all ranks.
type launcher struct {
	cmd   *exec.Cmd
	pipes string        // folder of the pipes by which ranks are told and say something
	ended chan struct{} // closed once it has ended
}

func (j *job) host(rank int) string { return hostnet.Address(rank).String() }

// start starts the ranks, again if they ran before, and waits until they train. late is
// the rank that begins so much later, -1 for none.
func (j *job) start(late int, by time.Duration) error {
	if err := j.begin(late, "TRUTH_LATE="+fmt.Sprint(by.Seconds())); err != nil {
		return err
	}
	if late >= 0 { // before that rank nobody trains
		j.began = j.began.Add(by)
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
	if j.real != nil { // it has ended with its ranks
		if err := j.end(); err != nil {
			return err
		}
	}
	j.ranks = nil
	for _, id := range []string{j.id, j.number, "prterun-truth-" + j.number + "@1", fmt.Sprintf("%s:%d/%d", j.host(0), j.port, j.world)} {
		j.named(id)
	}
	if j.network == nil {
		if j.network, err = hostnet.New(j.world); err != nil {
			return err
		}
	}
	j.starts++
	if j.how.starts != nil {
		err = j.network.Within(0, func() error { return j.launchAll(one, more) })
	} else {
		err = j.launchEach(one, more)
	}
	if err == nil && j.how.batch != nil {
		err = j.submit()
	}
	if err != nil {
		return errors.Join(err, j.end())
	}
	j.began = time.Now()
	return nil
}

func (j *job) launchEach(one int, more string) error {
	for r := range j.world {
		var env []string
		if r == one {
			env = []string{more}
		}
		if err := j.network.Within(r, func() error { return j.launch(r, env) }); err != nil {
			return fmt.Errorf("start rank %d: %w", r, err)
		}
	}
	return nil
}

// again starts one rank once more, as the kubelet does with the container of a pod.
func (j *job) again(number int) error {
	ranks := j.ranks
	j.ranks = nil
	err := j.network.Within(number, func() error { return j.launch(number, nil) })
	begun := j.ranks
	j.ranks = ranks
	if err != nil {
		return fmt.Errorf("start rank %d again: %w", number, err)
	}
	j.ranks[number] = begun[0]
	return nil
}

// environment is what all ranks have, however they are started.
func (j *job) environment() []string {
	return []string{
		"PATH=/usr/bin:/bin", "HOME=/tmp", "OMP_NUM_THREADS=1", "USE_LIBUV=0", "GLOO_SOCKET_IFNAME=eth0", fmt.Sprint("TRUTH_WORLD=", j.world),
		fmt.Sprint("TRUTH_PAUSE=", j.pause.Seconds()),
		fmt.Sprintf("TRUTH_MASTER=%s:%d", j.host(0), j.port),
	}
}

func (j *job) launch(number int, env []string) error {
	r := newRank()
	r.cmd = exec.Command("/usr/bin/python3", "-u", "/train.py")
	if j.how.script != "" {
		r.cmd = exec.Command("/bin/bash", "-c", j.how.script)
	}
	r.cmd.Dir = "/"
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: j.root, Setpgid: true}
	r.cmd.Env = append(append(append(j.how.env(j, number), env...), j.environment()...), fmt.Sprint("TRUTH_RANK=", number))
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
		r.end()
	}()
	j.ranks = append(j.ranks, r)
	j.started(r.cmd.Process.Pid)
	return nil
}

// launchAll has a real launcher start all ranks on the first host.
func (j *job) launchAll(one int, more string) error {
	l := &launcher{pipes: fmt.Sprintf("/tmp/truth-%s-%d", j.number, j.starts), ended: make(chan struct{})}
	folder := filepath.Join(j.root, l.pipes)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	for r := range j.world {
		one, err := j.piped(filepath.Join(folder, fmt.Sprint(r)))
		if err != nil {
			return err
		}
		j.ranks = append(j.ranks, one)
	}
	args := j.how.starts(j)
	l.cmd = exec.Command(args[0], args[1:]...)
	l.cmd.Dir = "/"
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: j.root, Setpgid: true}
	l.cmd.Env = append(j.environment(), "TRUTH_FIFOS="+l.pipes, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	if j.how.given != nil {
		l.cmd.Env = append(l.cmd.Env, j.how.given(j)...)
	}
	if one >= 0 {
		l.cmd.Env = append(l.cmd.Env, fmt.Sprint("TRUTH_ONE=", one), more)
	}
	l.cmd.Stdout, l.cmd.Stderr = j.words, j.words
	if err := l.cmd.Start(); err != nil {
		return err
	}
	j.real = l
	j.started(l.cmd.Process.Pid)
	ranks := j.ranks
	go func() {
		_, _ = l.cmd.Process.Wait()
		close(l.ended)
		for _, r := range ranks {
			if r.pid.Load() == 0 { // it never trained
				r.end()
			}
		}
	}()
	return nil
}

// piped is a rank that is told and heard by named pipes.
func (j *job) piped(name string) (*rank, error) {
	r := newRank()
	var ends [2]*os.File
	for i, end := range [...]string{".in", ".out"} {
		if err := syscall.Mkfifo(name+end, 0o600); err != nil {
			return nil, err
		}
		var err error
		if ends[i], err = os.OpenFile(name+end, os.O_RDWR, 0); err != nil { // both: nobody waits for the other end
			return nil, err
		}
	}
	r.told, r.said = ends[0], ends[1]
	go r.hear(ends[1], func(pid int) {
		j.started(pid)
		j.learn(pid)
		go func() {
			outlast(pid)
			r.end()
		}()
	})
	return r, nil
}

// learn reads what a launcher has called the job.
func (j *job) learn(pid int) {
	environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // nothing: it has ended
	for variable := range strings.SplitSeq(string(environ), "\x00") {
		if id, is := strings.CutPrefix(variable, "PMIX_NAMESPACE="); is {
			j.named(id)
		}
	}
}

// outlast waits for the end of a process that is no child of this one.
func outlast(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1) //nolint:gosec // a descriptor
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
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

// end kills what is left of the job, its launcher first.
func (j *job) end() error {
	var errs []error
	kill := func(pid int) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	if j.real != nil {
		started := below(j.real.cmd.Process.Pid, 0) // some may not have said who they are
		kill(-j.real.cmd.Process.Pid)
		for _, pid := range started {
			kill(pid)
		}
	}
	for _, r := range j.ranks {
		switch pid := int(r.pid.Load()); {
		case r.cmd != nil:
			kill(-r.cmd.Process.Pid)
		case pid > 0:
			kill(pid)
			kill(-pid) // its group, if it leads one
		}
	}
	errs = append(errs, j.over(time.Minute), j.hangUp())
	return errors.Join(errs...)
}

// hangUp closes the pipes to ranks that a launcher started.
func (j *job) hangUp() error {
	if j.real == nil {
		return nil
	}
	<-j.real.ended // it was killed
	for _, r := range j.ranks {
		_ = r.told.Close() // twice does no harm
		_ = r.said.Close()
	}
	pipes := filepath.Join(j.root, j.real.pipes)
	j.real = nil
	return os.RemoveAll(pipes)
}

func (j *job) close() error {
	err := j.end()
	if j.network != nil {
		err = errors.Join(err, j.network.Close())
		j.network = nil
	}
	return err
}

// apart reports whether each rank has a host of its own.
func (j *job) apart() bool { return j.how.starts == nil }

// furnish puts what the ranks need into the root: the caller has a mount namespace of its
// own, in which the mounts end with it.
func furnish(root string) error {
	for name, text := range map[string][]byte{"train.py": train, "torchrun.py": []byte(torchrun)} {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o600); err != nil {
			return err
		}
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
