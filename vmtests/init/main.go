//go:build linux

// Command init is process 1 of a test machine: it sets the machine up, runs the
// test binaries one after the other, reports on the second serial line and
// powers off.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/vmtests/guest"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: runs only as process 1 of a test machine; use `make vmtest`")
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() error {
	if err := setUp(); err != nil {
		return err
	}
	text, err := os.ReadFile(guest.ManifestPath)
	if err != nil {
		return err
	}
	var manifest guest.Manifest
	if err := json.Unmarshal(text, &manifest); err != nil {
		return fmt.Errorf("read %s: %w", guest.ManifestPath, err)
	}
	port, err := openPort(manifest.Port)
	if err != nil {
		return err
	}
	send := sender(port)
	if err := send(guest.Line{Kind: guest.Boot, Text: release()}); err != nil {
		return err
	}
	go func() {
		for range time.Tick(guest.AliveInterval) {
			_ = send(guest.Line{Kind: guest.Alive})
		}
	}()
	for _, test := range manifest.Tests {
		if err := guest.Run(test, manifest.Env, send); err != nil {
			return err
		}
		killAll()
	}
	if err := send(guest.Line{Kind: guest.Done}); err != nil {
		return err
	}
	return sent(port)
}

// sender writes whole lines, for several at a time.
func sender(port io.Writer) func(guest.Line) error {
	var lock sync.Mutex
	encoder := json.NewEncoder(port)
	return func(line guest.Line) error {
		lock.Lock()
		defer lock.Unlock()
		return encoder.Encode(line)
	}
}

// killAll ends what a test left behind, so that tests cannot disturb each other.
func killAll() {
	_ = unix.Kill(-1, unix.SIGKILL)
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if pid <= 0 || err != nil {
			return
		}
	}
}
