//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/truth/judge"
)

// agent is tracecore as its users run it, with its embedded configuration, on ports and a
// state folder of its own.
type agent struct {
	binary, folder string
	without        string // receivers that its pipelines leave out, with commas

	cmd    *exec.Cmd
	health string

	mu    sync.Mutex // guards what follows
	lines []judge.Line
	odd   int // lines of standard output that are no verdict
}

// ready is how long a start may take, on a machine that is busy with ranks.
const ready = time.Minute

func (a *agent) start() error {
	free, err := freeAddresses(3)
	if err != nil {
		return err
	}
	grpc, http := free[0], free[1]
	a.health = free[2]
	fewer, err := a.fewer()
	if err != nil {
		return err
	}
	a.cmd = exec.Command(a.binary, append(fewer,
		"--set=receivers.otlp.protocols.grpc.endpoint="+grpc, "--set=receivers.otlp.protocols.http.endpoint="+http,
		"--set=extensions.health_check.endpoint="+a.health, "--set=service.telemetry.metrics.level=none",
		"--set=exporters.terminal.format=json")...)
	a.cmd.Env = append(os.Environ(), "TRACECORE_STATE_DIR="+filepath.Join(a.folder, "state"))
	words, err := os.OpenFile(filepath.Join(a.folder, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer words.Close()
	a.cmd.Stderr = words
	said, err := a.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := a.cmd.Start(); err != nil {
		return fmt.Errorf("start tracecore: %w", err)
	}
	kept, err := os.OpenFile(filepath.Join(a.folder, "verdicts.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(err, a.stop())
	}
	go func() {
		defer kept.Close()
		a.hear(io.TeeReader(said, kept))
	}()
	return a.wait()
}

// fewer are the settings that leave receivers out of its pipelines.
func (a *agent) fewer() (settings []string, err error) {
	if a.without == "" {
		return nil, nil
	}
	text, err := exec.Command(a.binary, "print-config").Output()
	if err != nil {
		return nil, fmt.Errorf("print the configuration: %w", err)
	}
	var config struct {
		Service struct {
			Pipelines map[string]struct {
				Receivers []string `yaml:"receivers"`
			} `yaml:"pipelines"`
		} `yaml:"service"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	for _, name := range strings.Split(a.without, ",") {
		found := false
		for pipeline, p := range config.Service.Pipelines {
			kept := slices.DeleteFunc(slices.Clone(p.Receivers), func(r string) bool { return r == name })
			if found = found || len(kept) < len(p.Receivers); len(kept) < len(p.Receivers) {
				p.Receivers = kept
				config.Service.Pipelines[pipeline] = p
			}
		}
		if !found {
			return nil, fmt.Errorf("no pipeline has a receiver %q", name)
		}
	}
	for pipeline, p := range config.Service.Pipelines {
		settings = append(settings, "--set=service.pipelines."+pipeline+".receivers=["+strings.Join(p.Receivers, ",")+"]")
	}
	return settings, nil
}

// wait waits until its pipelines are up.
func (a *agent) wait() error {
	ctx, cancel := context.WithTimeout(context.Background(), ready)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.health+"/", nil)
		if err != nil {
			return err
		}
		if answer, err := http.DefaultClient.Do(request); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("tracecore is not ready after %s: see %s", ready, filepath.Join(a.folder, "agent.log"))
		case <-again.C:
		}
	}
}

func (a *agent) hear(said io.Reader) {
	for lines := bufio.NewReader(said); ; {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		a.take(text, time.Now())
	}
}

func (a *agent) take(text []byte, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l, err := judge.Read(text, at)
	if err != nil {
		a.odd++
		return
	}
	a.lines = append(a.lines, l)
}

// since returns the verdicts that came at that time or later.
func (a *agent) since(at time.Time) []judge.Line {
	a.mu.Lock()
	defer a.mu.Unlock()
	var later []judge.Line
	for _, l := range a.lines {
		if !l.At.Before(at) {
			later = append(later, l)
		}
	}
	return later
}

// again kills it without a warning and starts it on what it left.
func (a *agent) again() error {
	if err := a.stop(); err != nil {
		return err
	}
	return a.start()
}

func (a *agent) stop() error {
	if a.cmd == nil || a.cmd.Process == nil {
		return nil
	}
	if err := a.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = a.cmd.Wait() // it was killed
	return nil
}

// freeAddresses finds so many addresses, each with another port: all are held until the
// last one is found.
func freeAddresses(count int) (free []string, err error) {
	for range count {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		free = append(free, l.Addr().String())
	}
	return free, nil
}
