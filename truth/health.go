//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// kinds are all that a trial can be.
func kinds() []kind {
	return append(faults(), health()...)
}

func health() []kind {
	during := func(order string, from, to int) func(*trial) (int, error) {
		return func(t *trial) (int, error) {
			t.begin()
			return t.does(t.rank, order, t.seconds(from, to))
		}
	}
	loads := func(order string) func(*trial) (int, error) {
		return func(t *trial) (int, error) { return t.loads(order, t.seconds(8, 14)) }
	}
	all := []kind{
		{name: "steps", cause: "nothing but steps", do: func(t *trial) (int, error) {
			t.begin()
			time.Sleep(t.seconds(8, 15))
			return running, t.moves(30 * time.Second)
		}},
		{name: "evaluation in the main thread", cause: "one rank computes, the others wait", do: during("compute", 8, 16)},
		{name: "evaluation in a thread", cause: "one rank computes in a thread that its main thread joins", do: during("thread", 8, 16)},
		{name: "evaluation in a DataLoader worker", cause: "a worker of one rank computes", do: during("loader", 8, 16)},
		{name: "compilation", cause: "a program that one rank started computes", do: during("program", 8, 16)},
		{name: "one call", cause: "one rank computes in one call of compiled code for 40 s or more", do: during("onecall", 40, 50)},
		{name: "short pause", cause: "one rank sleeps for a second", do: during("sleep", 1, 2)},
		{name: "checkpoint", cause: "one rank writes to a slow FUSE mount that answers", do: func(t *trial) (int, error) {
			t.begin()
			return t.checkpoint(t.seconds(8, 14))
		}},
		{name: "checkpoint in a thread", cause: "a thread writes it to a slow FUSE mount in one call, the main thread joins it", do: func(t *trial) (int, error) {
			t.begin()
			return t.saves("threadsave", t.seconds(8, 14))
		}},
		{name: "checkpoint by a program", cause: "a program that one rank started writes to a slow FUSE mount", do: func(t *trial) (int, error) {
			t.begin()
			return t.saves("copy", t.seconds(8, 14))
		}},
		{name: "cold data", cause: "one rank reads a file from a slow FUSE mount that answers", do: loads("read")},
		{name: "cold pages", cause: "one rank touches a mapped file on a slow FUSE mount", do: loads("map")},
		{name: "cold pages in a thread", cause: "the same in a thread that its main thread joins", do: loads("threadmap")},
		{name: "cold data in a DataLoader worker", cause: "a worker of one rank reads a file from a slow FUSE mount", do: loads("loaderread")},
		{name: "cold pages in a DataLoader worker", cause: "a worker touches a mapped file, a thread waits for the worker, the main thread for the thread", do: loads("loadermapthread")},
		{name: "own disk", cause: "one rank writes, syncs and reads files of its host", do: func(t *trial) (int, error) {
			t.begin()
			return t.carries("churn", fmt.Sprint("/var/tmp/truth", t.lane.number), fmt.Sprintf("%.0f", t.seconds(8, 14).Seconds()))
		}},
		{name: "download", cause: "one rank reads from a slow server that is none of the job's", do: (*trial).download},
		{name: "service", cause: "one rank waits for the answer of a service that is none of the job's", do: (*trial).service},
		{name: "many programs", cause: "one rank starts programs that compute for a moment each, as compilers do", do: during("pieces", 8, 16)},
		{name: "a program that left", cause: "a program that one rank started and that is no child any more computes; the rank looks whether it is done", do: during("daemon", 8, 16)},
		{name: "profiler", cause: "a profiler stops one rank for moments (ptrace), as py-spy does", do: (*trial).profiled},
		{name: "busy host", host: true, cause: "other programs take all CPUs", do: (*trial).busy},
		{name: "preempted", cause: "SIGTERM to all ranks, which save and end with status 0", do: (*trial).preempted},
		{name: "preempted and saves", cause: "SIGTERM to all ranks, which go to a barrier while rank 0 saves for 20 s, and end with status 0", do: func(t *trial) (int, error) { return t.savesAndEnds(syscall.SIGTERM) }},
		{name: "noticed and saves", cause: "the same by SIGUSR1, as Slurm sends it before the time limit", do: func(t *trial) (int, error) { return t.savesAndEnds(syscall.SIGUSR1) }},
		{name: "goes on alone", cause: "each rank destroys the group, two seconds after the one before, computes alone for 15 s and ends with status 0", do: (*trial).goesOnAlone},
		{name: "restarted smaller", cause: "the job ends well and starts again under the same id with a rank less", do: (*trial).smaller},
		{name: "ends well", cause: "all ranks end with status 0", do: (*trial).endsWell},
		{name: "cancelled", cause: "SIGTERM to all ranks, SIGKILL after a while", do: func(t *trial) (int, error) { return t.cancelled(syscall.SIGTERM) }},
		{name: "interrupted", cause: "SIGINT to all ranks", do: func(t *trial) (int, error) { return t.cancelled(syscall.SIGINT) }},
		{name: "deleted", cause: "SIGKILL to all processes at once", do: func(t *trial) (int, error) { return t.cancelled(syscall.SIGKILL) }},
		{name: "late rank", cause: "a job whose last rank starts 6 to 12 s after the others", do: (*trial).lateRank},
		{name: "launch script", cause: "a shell with a rank in its environment runs grep, ls and nvidia-smi in vain", do: (*trial).script},
		{name: "restarted", cause: "the job ends well and starts again under the same id", do: (*trial).restarted},
		{name: "uneven", cause: "one rank takes longer in each step", do: (*trial).uneven},
		{name: "long steps", cause: "all ranks compute for long", do: (*trial).longSteps},
		{name: "all asleep", cause: "all ranks sleep at once", do: (*trial).allAsleep},
		{name: "checkpoint of all ranks", cause: "each rank writes to a slow FUSE mount", do: (*trial).savesAll},
		{name: "health check", cause: "a command with the environment of a rank fails in its container, three times", apart: true, do: (*trial).healthCheck},
		{name: "two jobs", cause: "another job trains on the same hosts and ends", do: (*trial).neighbour},
		{name: "agent restarted", host: true, cause: "the agent is killed and started while the job trains", do: func(t *trial) (int, error) {
			t.begin()
			if err := t.agentAgain(); err != nil {
				return running, err
			}
			time.Sleep(t.seconds(5, 9))
			return running, t.moves(30 * time.Second)
		}},
	}
	for i := range all {
		all[i].healthy = true
	}
	return all
}

func (t *trial) endsWell() (int, error) {
	t.begin()
	if err := t.finish(); err != nil {
		return ended, err
	}
	time.Sleep(5 * time.Second)
	return ended, nil
}

// cancelled is a job that its owner or its scheduler ends.
func (t *trial) cancelled(s syscall.Signal) (int, error) {
	t.begin()
	for r := range t.world {
		if err := t.signal(r, s); err != nil {
			return ended, err
		}
	}
	time.Sleep(4 * time.Second)
	if err := t.end(); err != nil {
		return ended, err
	}
	time.Sleep(3 * time.Second)
	return ended, nil
}

func (t *trial) lateRank() (int, error) {
	if err := t.end(); err != nil {
		return ended, err
	}
	t.fresh() // the restart of a job that was killed is another trial
	t.begin()
	if err := t.start(t.world-1, t.seconds(6, 12)); err != nil {
		return ended, err
	}
	time.Sleep(3 * time.Second)
	return running, t.moves(30 * time.Second)
}

// script is what many jobs begin with, in a shell that has a rank and lives on.
func (t *trial) script() (int, error) {
	t.begin()
	t.named(t.id + "-launched")
	text := "export RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 JOB_ID=" + t.id + "-launched; grep -q nothing /etc/hostname; ls /nonexistent; nvidia-smi; readlink /nonexistent; timeout 1 sleep 3; python3 -c 'import time; time.sleep(4)'"
	return running, t.shell(text)
}

// restarted is a job that ends well, and starts again.
func (t *trial) restarted() (int, error) {
	t.begin()
	if err := t.finish(); err != nil {
		return ended, err
	}
	if err := t.start(-1, 0); err != nil {
		return ended, err
	}
	time.Sleep(t.seconds(6, 10))
	return running, t.moves(30 * time.Second)
}

// uneven may be told as a straggler: that is true.
func (t *trial) uneven() (int, error) {
	t.also("straggler")
	t.begin()
	if err := t.order(t.rank, "slow", "200"); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(10, 15))
	if err := t.order(t.rank, "slow", "0"); err != nil {
		return running, err
	}
	return running, t.moves(30 * time.Second)
}

func (t *trial) longSteps() (int, error) {
	t.begin()
	return t.everyone("compute", "6")
}

func (t *trial) allAsleep() (int, error) {
	t.begin()
	return t.everyone("sleep", fmt.Sprintf("%.0f", t.seconds(8, 16).Seconds()))
}

func (t *trial) savesAll() (int, error) {
	if err := t.disk.rate(8 << 20); err != nil {
		return running, err
	}
	t.later(func() error { return t.disk.rate(0) })
	t.begin()
	return t.everyone("save", t.disk.name+"/part", "16")
}

// everyone has all ranks carry out an order.
func (t *trial) everyone(order ...string) (int, error) {
	for r := range t.world {
		if err := t.order(r, order...); err != nil {
			return running, err
		}
	}
	for r := range t.world {
		if err := t.carried(r, 2*time.Minute); err != nil {
			return running, err
		}
	}
	return running, t.moves(time.Minute)
}

// healthCheck is what `docker exec` or a probe of Kubernetes does.
func (t *trial) healthCheck() (int, error) {
	t.begin()
	for range 3 {
		if err := t.shell("exit 1", t.how.env(t.job, t.rank)...); err == nil {
			return running, errors.New("the check does not fail")
		}
		time.Sleep(time.Second)
	}
	return running, t.moves(30 * time.Second)
}

func (t *trial) neighbour() (int, error) {
	other := *t.job
	other.network, other.world, other.ranks, other.real = nil, 2, nil, nil
	other.fresh()
	t.later(other.close)
	t.begin()
	if err := other.start(-1, 0); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(5, 8))
	if err := other.finish(); err != nil {
		return running, err
	}
	return running, t.moves(30 * time.Second)
}

// download serves what the rank reads, at a speed, on its own host.
func (t *trial) download() (int, error) {
	const speed = 1 << 20 // bytes a second
	lasts := t.seconds(8, 14)
	return t.asks(func(w http.ResponseWriter, _ *http.Request) {
		for piece, end := make([]byte, speed/10), time.Now().Add(lasts); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if _, err := w.Write(piece); err != nil {
				return // who reads has ended
			}
		}
	})
}

// service answers the rank after a while, as one does that generates what is trained on.
func (t *trial) service() (int, error) {
	lasts := t.seconds(8, 20)
	return t.asks(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(lasts)
		_, _ = w.Write([]byte("generated")) // who reads may have ended
	})
}

// asks lets the rank read what a server on its own host, that is none of the job's, answers.
func (t *trial) asks(answer http.HandlerFunc) (int, error) {
	host := t.rank
	if !t.job.apart() {
		host = 0
	}
	var l net.Listener
	err := t.network.Within(host, func() (err error) {
		l, err = net.Listen("tcp4", "127.0.0.1:8080")
		return err
	})
	if err != nil {
		return running, err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: answer}
	go server.Serve(l) //nolint:errcheck // it ends with the trial
	t.later(server.Close)
	t.begin()
	return t.carries("download", "http://127.0.0.1:8080/")
}

// profiled stops the main thread of a rank for a moment, twenty times a second.
func (t *trial) profiled() (int, error) {
	t.begin()
	lasts := t.seconds(8, 14)
	if err := t.order(t.rank, "compute", fmt.Sprintf("%.0f", lasts.Seconds())); err != nil {
		return running, err
	}
	if err := t.traced(lasts, 50*time.Millisecond); err != nil {
		return running, err
	}
	if err := t.carried(t.rank, time.Minute); err != nil {
		return running, err
	}
	return t.heals()
}

// busy takes the CPUs.
func (t *trial) busy() (int, error) {
	t.also("straggler")
	t.begin()
	for range 2 * runtime.NumCPU() {
		cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			return running, err
		}
		t.later(func() error {
			_ = cmd.Process.Kill() // it runs until then
			_ = cmd.Wait()
			return nil
		})
	}
	time.Sleep(t.seconds(8, 14))
	return running, t.moves(time.Minute)
}

// preempted is a job whose scheduler wants its place.
func (t *trial) preempted() (int, error) {
	if _, err := t.everyone("handle"); err != nil {
		return running, err
	}
	return t.cancelled(syscall.SIGTERM)
}

// savesAndEnds asks all ranks to end, and they do once rank 0 has saved.
func (t *trial) savesAndEnds(s syscall.Signal) (int, error) {
	if _, err := t.everyone("handlesave", "20"); err != nil {
		return running, err
	}
	t.begin()
	for r := range t.world {
		if err := t.signal(r, s); err != nil {
			return ended, err
		}
	}
	time.Sleep(28 * time.Second)
	if err := t.end(); err != nil {
		return ended, err
	}
	time.Sleep(3 * time.Second)
	return ended, nil
}

// goesOnAlone is a job whose ranks need each other no more, and go on for a while.
func (t *trial) goesOnAlone() (int, error) {
	t.begin()
	if err := t.order(0, "apart"); err != nil {
		return ended, err
	}
	if err := t.over(2 * time.Minute); err != nil {
		return ended, err
	}
	time.Sleep(8 * time.Second)
	return ended, nil
}

func (t *trial) smaller() (int, error) {
	t.begin()
	if err := t.finish(); err != nil {
		return ended, err
	}
	t.rank, t.world = 0, max(2, t.world-1)
	if err := t.start(-1, 0); err != nil {
		return ended, err
	}
	time.Sleep(t.seconds(6, 10))
	return running, t.moves(30 * time.Second)
}
