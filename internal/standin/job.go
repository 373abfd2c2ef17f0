//go:build linux

package standin

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"github.com/tracecoreai/tracecore/internal/hostnet"
)

// Job is a stand-in job that runs.
type Job struct {
	o       Options
	network *hostnet.Network // nil on loopback
	store   *os.File         // the socket of rank 0's store
	master  *net.TCPAddr
	ranks   []*process
	once    sync.Once
	err     error
}

// process is one rank, seen from outside.
type process struct {
	cmd       *exec.Cmd
	orders    io.WriteCloser
	listening chan string
	steps     atomic.Int64
	obeyed    atomic.Int64
	last      atomic.Value // the last line on standard error
	said      sync.WaitGroup
}

// Start starts a job, whose ranks are this program again: its main must call
// IsChild and Child.
func Start(o Options) (_ *Job, err error) {
	j := &Job{o: o.withDefaults()}
	if strings.ContainsFunc(j.o.JobID, unicode.IsSpace) {
		return nil, fmt.Errorf("start a stand-in job: job id %q: an id is one word, white space makes it none", j.o.JobID)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start a stand-in job: %w", err), j.Close())
		}
	}()
	if j.o.Namespaces {
		if j.network, err = hostnet.New(j.o.Size); err != nil {
			return nil, err
		}
	}
	if err := j.within(0, j.openStore); err != nil {
		return nil, err
	}
	for r := range j.o.Size {
		if err := j.within(r, func() error { return j.launch(r) }); err != nil {
			return nil, err
		}
	}
	return j, j.introduce()
}

// within runs fn in the namespace of a rank.
func (j *Job) within(rank int, fn func() error) error {
	if j.network == nil {
		return fn()
	}
	return j.network.Within(rank, fn)
}

// address is where a rank listens.
func (j *Job) address(rank int) net.IP {
	if j.network == nil {
		return net.IPv4(127, 0, 0, 1)
	}
	return hostnet.Address(rank)
}

// openStore opens rank 0's store here, so that its port is known to all ranks
// before the first begins.
func (j *Job) openStore() error {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: j.address(0)})
	if err != nil {
		return err
	}
	defer listener.Close()
	j.master = listener.Addr().(*net.TCPAddr)
	j.store, err = listener.File()
	return err
}

func (j *Job) launch(rank int) error {
	told, err := json.Marshal(part{
		Library: j.o.Library, Rank: rank, Size: j.o.Size, Phase: j.o.Phase, Busy: j.o.Busy, ChunkBytes: j.o.ChunkBytes, BufferBytes: j.o.BufferBytes, Address: j.address(rank).String(),
	})
	if err != nil {
		return err
	}
	p := &process{cmd: exec.Command("/proc/self/exe"), listening: make(chan string, 1)}
	p.cmd.Args = []string{processName}
	if j.o.Shell != "" {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		p.cmd = exec.Command("bash", "-c", j.o.Shell, program)
	}
	p.cmd.Env = append([]string{
		variable + "=" + string(told), "RANK=" + strconv.Itoa(rank), "LOCAL_RANK=" + strconv.Itoa(rank), "WORLD_SIZE=" + strconv.Itoa(j.o.Size),
		"MASTER_ADDR=" + j.master.IP.String(), "MASTER_PORT=" + strconv.Itoa(j.master.Port), "JOB_ID=" + j.o.JobID,
	}, j.o.Env...)
	if rank == 0 {
		p.cmd.ExtraFiles = []*os.File{j.store}
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if p.orders, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.said.Go(func() { p.hear(stdout) })
	p.said.Go(func() { p.hearErrors(stderr) })
	j.ranks = append(j.ranks, p)
	return nil
}

func (p *process) hear(out io.Reader) {
	defer close(p.listening)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch what, value, _ := strings.Cut(lines.Text(), " "); what {
		case sayListening:
			select {
			case p.listening <- value:
			default: // a shell has started it again: its job is over
			}
		case saySteps:
			n, _ := strconv.ParseInt(value, 10, 64)
			p.steps.Store(n)
		case sayObeys:
			n, _ := strconv.ParseInt(value, 10, 64)
			p.obeyed.Store(n)
		}
	}
}

func (p *process) hearErrors(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.last.Store(lines.Text())
	}
}

// introduce tells all ranks where the others listen; they begin.
func (j *Job) introduce() error {
	addresses, pids := make([]string, len(j.ranks)), make([]string, len(j.ranks))
	for r, p := range j.ranks {
		address, ok := <-p.listening
		if !ok {
			return fmt.Errorf("rank %d ended before it listened: %v: does main call standin.Child?", r, p.last.Load())
		}
		addresses[r], pids[r] = address, strconv.Itoa(p.cmd.Process.Pid)
	}
	for r := range j.ranks {
		if err := j.tell(r, orderPeers, strings.Join(addresses, ",")+" "+strings.Join(pids, ",")); err != nil {
			return err
		}
	}
	return nil
}

func (j *Job) tell(rank int, order, argument string) error {
	if _, err := fmt.Fprintln(j.ranks[rank].orders, order, argument); err != nil {
		return fmt.Errorf("order %s to rank %d: %w", order, rank, err)
	}
	return nil
}

// PID is the process of a rank, or of its shell, in our pid namespace.
func (j *Job) PID(rank int) uint32 { return uint32(j.ranks[rank].cmd.Process.Pid) }

// Steps is how many collectives a rank has completed.
func (j *Job) Steps(rank int) int64 { return j.ranks[rank].steps.Load() }

// Obeyed is how many orders the main thread of a rank has begun to do.
func (j *Job) Obeyed(rank int) int64 { return j.ranks[rank].obeyed.Load() }

// Error is the last that a rank said on standard error, "" when nothing.
func (j *Job) Error(rank int) string {
	last, _ := j.ranks[rank].last.Load().(string)
	return last
}

// Signal sends a signal to a rank: SIGSTOP, SIGCONT, SIGKILL.
func (j *Job) Signal(rank int, signal syscall.Signal) error {
	return j.ranks[rank].cmd.Process.Signal(signal)
}

// Sleep lets the main thread of a rank sleep for good, from its next phase on,
// while its I/O thread lives.
func (j *Job) Sleep(rank int) error { return j.tell(rank, orderSleep, "") }

// Leave lets a rank close its connections to the others in its next phase, as destroy_process_group() does, and live on.
func (j *Job) Leave(rank int) error { return j.tell(rank, orderLeave, "") }

// StopReading lets a rank read nothing more from its sockets.
func (j *Job) StopReading(rank int) error { return j.tell(rank, orderDeaf, "") }

// Compute makes the next phase of a rank this long.
func (j *Job) Compute(rank int, d time.Duration) error { return j.tell(rank, orderCompute, d.String()) }

// ComputeInChild lets a child process of a rank compute for so long in its next phase, while
// its main thread waits for it.
func (j *Job) ComputeInChild(rank int, d time.Duration) error {
	return j.tell(rank, orderChild, d.String())
}

// Worker is the child that computes for a rank, once it has executed its program: before, its
// parent waits for that in vfork(2) and not for its end. 0: there is none.
func (j *Job) Worker(rank int) int {
	pid := j.PID(rank)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // the main thread starts it
	if err != nil {
		return 0
	}
	for child := range strings.FieldsSeq(string(children)) {
		if line, err := os.ReadFile("/proc/" + child + "/cmdline"); err == nil && string(line) == childName+"\x00" {
			worker, _ := strconv.Atoi(child)
			return worker
		}
	}
	return 0
}

// ComputeInThread lets another thread of a rank do that.
func (j *Job) ComputeInThread(rank int, d time.Duration) error {
	return j.tell(rank, orderThread, d.String())
}

// WriteFile lets the main thread of a rank write so many bytes to a file that is there, in
// one system call.
func (j *Job) WriteFile(rank, bytes int, path string) error {
	return j.tell(rank, orderWrite, fmt.Sprint(bytes, " ", path))
}

// ReadFile lets the main thread of a rank read a file in its next phase, and is
// where a stalled mount holds it.
func (j *Job) ReadFile(rank int, path string) error { return j.tell(rank, orderRead, path) }

// TouchFile is ReadFile through a memory map.
func (j *Job) TouchFile(rank int, path string) error { return j.tell(rank, orderTouch, path) }

// Grow lets a rank take memory until the kernel kills it for it: it needs a limit
// (oomkill.Confine).
func (j *Job) Grow(rank int) error { return j.tell(rank, orderGrow, "") }

// Limit lets a rank send at most so many bytes a second, 0: as many as it can.
func (j *Job) Limit(rank int, bytesPerSecond int64) error {
	return j.tell(rank, orderRate, strconv.FormatInt(bytesPerSecond, 10))
}

// Drop lets the network swallow what one rank sends to another. The job must
// have namespaces.
func (j *Job) Drop(from, to int) error {
	if j.network == nil {
		return errors.New("drop packets: the ranks share a loopback interface: start the job with Namespaces")
	}
	return j.network.Drop(from, to)
}

// Heal undoes every Drop.
func (j *Job) Heal() error { return j.network.Heal() }

// Close ends the job and removes all of it.
func (j *Job) Close() error {
	j.once.Do(func() {
		var errs []error
		for _, p := range j.ranks {
			_ = p.orders.Close() // it may have ended by itself
			if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				errs = append(errs, err)
			}
		}
		for _, p := range j.ranks {
			p.said.Wait()
			var exit *exec.ExitError
			if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
				errs = append(errs, err)
			}
		}
		if j.store != nil {
			errs = append(errs, j.store.Close())
		}
		if j.network != nil {
			errs = append(errs, j.network.Close())
		}
		j.err = errors.Join(errs...)
	})
	return j.err
}
