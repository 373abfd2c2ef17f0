//go:build linux

// Package stranger attacks the kernel log, for tests: a process without any privilege
// makes the kernel print text of its choice, in each way that needs no right.
package stranger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// Attack is one text that a stranger made the kernel print.
type Attack struct {
	Route   string
	Text    string // what was to be printed, as far as the route takes it
	PID     uint32 // the process that did it
	Refused string // why the kernel did not let it; "" when it did
}

// The routes.
const (
	Crash     = "process that crashes"   // its name, and that of its file
	Trap      = "process that traps"     // the same, by another handler
	Mount     = "mount option"           // in a user namespace
	Interface = "network interface"      // its name, in a user namespace
	Write     = "write to /dev/kmsg"     // by root without capabilities
	Nobody    = "write by nobody"        // to /dev/kmsg
	Stick     = "label of a file system" // on a stick that is put in
)

// Routes returns all routes.
func Routes() []string { return []string{Crash, Trap, Mount, Interface, Write, Nobody, Stick} }

// variable says, in the environment of a process, which stranger it is.
const variable = "TRACECORE_STRANGER"

var strangers = map[string]func(texts []string, tell func(Attack)) error{
	"nobody": asNobody, "namespace": inNamespace, "powerless": asPowerlessRoot,
}

// Main makes this process a stranger, if it was started as one, and does not return then.
// TestMain of a test that calls Attacks begins with it.
func Main() {
	attack, is := strangers[os.Getenv(variable)]
	if !is {
		return
	}
	var texts []string
	err := json.NewDecoder(os.Stdin).Decode(&texts)
	out := json.NewEncoder(os.Stdout)
	if err == nil {
		err = attack(texts, func(a Attack) { _ = out.Encode(a) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // this process was started for nothing else
	}
	os.Exit(0) //nolint:forbidigo // see above
}

// Attacks makes the kernel print each text on each route. The test has asked Require.
// The kernel prints what it would print on a machine that shows crashes.
func Attacks(tb testing.TB, texts []string) []Attack {
	tb.Helper()
	hosttest.UnlimitKmsg(tb)
	hosttest.SetSysctl(tb, "debug/exception-trace", "1")
	hosttest.SetSysctl(tb, "kernel/printk_ratelimit", "0")
	hosttest.SetSysctl(tb, "kernel/printk", "1 4 1 7") // a console is slow
	ctx, cancel := context.WithTimeout(tb.Context(), hosttest.Patience)
	defer cancel()
	var all []Attack
	for name, who := range map[string]*syscall.SysProcAttr{
		"nobody":    {Credential: &syscall.Credential{Uid: 65534, Gid: 65534}},
		"powerless": {},
	} {
		done, err := start(ctx, name, who, texts)
		if err != nil {
			tb.Fatalf("attack as %s: %v", name, err)
		}
		all = append(all, done...)
	}
	return append(all, sticks(tb, texts)...)
}

// start runs a stranger and returns what it did. /proc/self/exe needs no right to the
// folders above the program.
func start(ctx context.Context, name string, who *syscall.SysProcAttr, texts []string) ([]Attack, error) {
	input, err := json.Marshal(texts)
	if err != nil {
		return nil, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Dir, cmd.SysProcAttr, cmd.Stdin, cmd.Stderr = "/", who, bytes.NewReader(input), &said
	cmd.Env = []string{variable + "=" + name, "TMPDIR=/tmp"}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, said.Bytes())
	}
	var attacks []Attack
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var a Attack
		if err := decoder.Decode(&a); err != nil {
			return nil, err
		}
		attacks = append(attacks, a)
	}
	return attacks, nil
}
