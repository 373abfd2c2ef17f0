//go:build linux

package standin

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// IsChild reports whether this process is a rank of a stand-in job.
func IsChild() bool { return os.Getenv(variable) != "" }

// Child plays a rank until it is killed or its parent is gone, and returns the
// exit code. Call it first thing in main.
func Child() int {
	if d, err := time.ParseDuration(os.Getenv(childVariable)); err == nil {
		burn(d)
		return 0
	}
	// A main thread in a page fault would hold up the collector of garbage, and
	// with it the other threads, which in the real job live on.
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(8)
	err := onMainThread(play)
	fmt.Fprintln(os.Stderr, "stand-in rank:", err)
	return 1
}

// onMainThread runs fn on the first thread of the process, whose state is what
// /proc shows for the process.
func onMainThread(fn func() error) error {
	found := make(chan error)
	var running atomic.Bool
	for !running.Load() {
		go func() {
			runtime.LockOSThread() // and never unlocked: the others are in the way
			if unix.Gettid() != unix.Getpid() {
				for !running.Load() {
					time.Sleep(time.Millisecond)
				}
				return
			}
			running.Store(true)
			found <- fn()
		}()
		time.Sleep(time.Millisecond)
	}
	return <-found
}

// rank is a process of the job. The main thread computes and asks the transport
// for collectives.
type rank struct {
	part
	orders    chan [2]string // for the main thread
	obeyed    int            // of them
	peers     []string       // addresses of all ranks
	pids      []string
	began     chan struct{}
	rate      atomic.Int64
	deaf      atomic.Bool
	transport transport
	store     net.Listener // of rank 0
}

// transport is one library's way of moving data.
type transport interface {
	// connect joins the rank with its peers.
	connect() error
	// allReduce returns when this rank has all that it needs.
	allReduce() error
	// leave closes the connections to the others.
	leave() error
}

func play() error {
	r := &rank{orders: make(chan [2]string, 16), began: make(chan struct{})}
	if err := json.Unmarshal([]byte(os.Getenv(variable)), &r.part); err != nil {
		return err
	}
	listener, err := net.Listen("tcp4", net.JoinHostPort(r.Address, "0"))
	if err != nil {
		return err
	}
	go r.listen()
	fmt.Println(sayListening, listener.Addr())
	<-r.began
	if err := r.meet(); err != nil {
		return err
	}
	if r.transport = newRing(r, listener); r.Library == Gloo {
		r.transport = newMesh(r, listener)
	}
	if err := r.transport.connect(); err != nil {
		return err
	}
	return r.train()
}

// listen takes orders. The end of standard input is the end of the parent.
func (r *rank) listen() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		order, argument, _ := strings.Cut(lines.Text(), " ")
		switch order {
		case orderPeers:
			addresses, pids, _ := strings.Cut(argument, " ")
			r.peers, r.pids = strings.Split(addresses, ","), strings.Split(pids, ",")
			close(r.began)
		case orderDeaf:
			r.deaf.Store(true)
		case orderRate:
			n, _ := strconv.ParseInt(argument, 10, 64)
			r.rate.Store(n)
		default:
			r.orders <- [2]string{order, argument}
		}
	}
	r.endAll()
	os.Exit(0) //nolint:forbidigo // this is the main of a rank process
}

// endAll kills the other ranks: one that is stopped cannot see the end itself.
func (r *rank) endAll() {
	for _, text := range r.pids {
		pid, err := strconv.Atoi(text)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && string(line) == processName+"\x00" {
			_ = unix.Kill(pid, unix.SIGKILL) // gone is as good
		}
	}
}

// meet opens the store of rank 0, or connects to it: a connection that is quiet
// from then on, as that of PyTorch is.
func (r *rank) meet() error {
	address := net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT"))
	if r.Rank != 0 {
		_, err := net.Dial("tcp4", address)
		return err
	}
	store, err := net.FileListener(os.NewFile(3, "store"))
	if err != nil {
		return err
	}
	r.store = store
	go func() {
		for {
			if _, err := store.Accept(); err != nil {
				return
			}
		}
	}()
	return nil
}

// train computes and reduces, for ever.
func (r *rank) train() error {
	for step := 1; ; step++ {
		if err := r.compute(); err != nil {
			return err
		}
		if err := r.transport.allReduce(); err != nil {
			return err
		}
		fmt.Println(saySteps, step)
	}
}

// compute is one phase, or what was ordered instead.
func (r *rank) compute() error {
	select {
	case o := <-r.orders:
		r.obeyed++
		fmt.Println(sayObeys, r.obeyed)
		return r.obey(o[0], o[1])
	default:
	}
	if r.Phase > 0 {
		r.work(time.Duration(rand.Int64N(int64(r.Phase))))
	}
	return nil
}

func (r *rank) obey(order, argument string) error {
	switch order {
	case orderSleep:
		for {
			time.Sleep(time.Hour)
		}
	case orderLeave:
		if err := r.transport.leave(); err != nil {
			return err
		}
		return r.obey(orderSleep, "")
	case orderCompute:
		d, err := time.ParseDuration(argument)
		if err != nil {
			return err
		}
		r.work(d)
		return nil
	case orderChild:
		return computeInChild(argument)
	case orderThread:
		d, err := time.ParseDuration(argument)
		if err != nil {
			return err
		}
		done := make(chan struct{})
		go func() { burn(d); close(done) }()
		<-done
		return nil
	case orderWrite:
		return write(argument)
	case orderRead:
		_, err := os.ReadFile(argument)
		return err
	case orderTouch:
		return touch(argument)
	case orderGrow:
		return grow()
	}
	return fmt.Errorf("order %q: unknown", order)
}

// mostMemory is where growing ends, should nobody have set a limit.
const mostMemory = 1 << 30

// grow takes memory, a page of each MiB at a time, until somebody minds.
func grow() error {
	const piece = 1 << 20
	var held [][]byte
	for len(held) < mostMemory/piece {
		memory := make([]byte, piece)
		for i := 0; i < piece; i += os.Getpagesize() {
			memory[i] = 1
		}
		held = append(held, memory)
	}
	return fmt.Errorf("took %d MiB and was not killed: give the rank a memory limit", len(held))
}

// work computes on the CPU, or sleeps while a GPU would.
func (r *rank) work(d time.Duration) {
	if !r.Busy {
		time.Sleep(d)
		return
	}
	burn(d)
}

// burn computes on the CPU.
func burn(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		for n := 1.0; n < 1e4; n++ {
			burnt.Store(uint64(n / (n + 1) * 1e9))
		}
	}
}

// burnt is where computing goes, so that the compiler keeps it.
var burnt atomic.Uint64

// computeInChild lets a child compute, as a worker of a data loader or a compiler does. It
// dies with the rank: its parent is the main thread, which lives as long.
func computeInChild(d string) error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{childName}
	cmd.Env = append(os.Environ(), childVariable+"="+d)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

// childName is the whole command line of a process that computes for a rank.
const childName = "stand-in-worker"

// write writes "bytes path" in one system call: a file system that answers slowly holds the
// main thread in it.
func write(argument string) error {
	size, path, _ := strings.Cut(argument, " ")
	n, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, n))
	return errors.Join(err, file.Close())
}

// touch maps a file and reads a byte of each page, as a dataset is read.
func touch(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	data, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	for i := 0; i < len(data); i += os.Getpagesize() {
		burnt.Add(uint64(data[i]))
	}
	return unix.Munmap(data)
}

// pace waits so that n bytes a time keep to the rate.
func (r *rank) pace(n int) {
	if rate := r.rate.Load(); rate > 0 {
		time.Sleep(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
	}
}
