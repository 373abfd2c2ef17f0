package slurmexporter

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/slurmtest"
)

// stateVariable marks a process that is to be scontrol, and names the file with its nodes.
const stateVariable = "SLURM_STAND_IN"

// playStandIn is scontrol where the process is marked so, and does not return then.
func playStandIn() {
	if file := os.Getenv(stateVariable); file != "" && len(os.Args) > 1 && (os.Args[1] == "show" || os.Args[1] == "update") {
		os.Exit(standIn(file, os.Args[1:]))
	}
}

// fakeNode is a node of the stand-in.
type fakeNode struct {
	Base, Reason, Given, Boot, Comment string
	Drain                              bool
}

// standIn answers as scontrol of Slurm 22.05.8 answered, of which captured.txt is.
func standIn(file string, arguments []string) int {
	text, err := os.ReadFile(file)
	nodes := map[string]*fakeNode{}
	if err != nil || json.Unmarshal(text, &nodes) != nil {
		fmt.Fprintln(os.Stderr, "slurm_load_node error: Unable to contact slurm controller (connect failure)")
		return 1
	}
	if arguments[0] == "show" {
		for _, name := range sorted(nodes) {
			nodes[name].show(name)
		}
		return 0
	}
	values := map[string]string{}
	for _, one := range arguments[1:] {
		key, value, _ := strings.Cut(one, "=")
		values[key] = value
	}
	n := nodes[values["nodename"]]
	switch {
	case n == nil:
		fmt.Fprintln(os.Stderr, "slurm_update error: Invalid node name specified")
		return 1
	case values["state"] == "drain" && values["reason"] == "":
		fmt.Fprintln(os.Stderr, "You must specify a reason when DOWNING or DRAINING a node. Request denied")
		return 1
	case values["state"] == "undrain" && !n.Drain:
		fmt.Fprintln(os.Stderr, "slurm_update error: Invalid node state specified")
		return 1
	}
	if reason, ok := values["reason"]; ok {
		n.Reason, n.Given = reason, time.Now().UTC().Format(timeFormat)
	}
	switch values["state"] {
	case "drain":
		n.Drain = true
	case "undrain":
		n.Drain = false
		if n.Base != "DOWN" {
			n.Reason = ""
		}
	}
	text, err = json.Marshal(nodes)
	if err == nil { // a reader meanwhile has the old or the new one
		err = errors.Join(os.WriteFile(file+".new", text, 0o600), os.Rename(file+".new", file))
	}
	if err != nil {
		return 1
	}
	if n.Base == "UNKNOWN" && values["state"] == "undrain" { // as the controller answers, though it did so
		fmt.Fprintln(os.Stderr, "slurm_update error: Invalid node state specified")
		return 1
	}
	return 0
}

func sorted(nodes map[string]*fakeNode) (names []string) {
	for name := range nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (n *fakeNode) show(name string) {
	state, boot := n.Base, n.Boot
	if n.Drain {
		state += "+DRAIN"
	}
	if boot == "" {
		boot = "None"
	}
	fmt.Printf("NodeName=%s Arch=x86_64 CoresPerSocket=1 \n   CPUAlloc=0 CPUEfctv=1 CPUTot=1 CPULoad=0.01\n   NodeAddr=127.0.0.1 NodeHostName=%s Port=26820 Version=22.05.8\n"+
		"   OS=Linux 6.1.0 #1 SMP \n   State=%s ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n   Partitions=main \n   BootTime=%s SlurmdStartTime=%s\n",
		name, name, state, boot, boot)
	if n.Reason != "" {
		fmt.Printf("   Reason=%s [root@%s]\n", n.Reason, n.Given)
	}
	if n.Comment != "" {
		fmt.Printf("   Comment=%s\n", n.Comment)
	}
	fmt.Print("\n")
}

// cluster is a Slurm whose nodes are gpu-1 to gpu-20.
type cluster struct {
	scontrol scontrol
	file     string // of the stand-in
}

func names() (all []string) {
	for i := range 20 {
		all = append(all, fmt.Sprintf("gpu-%d", i+1))
	}
	return all
}

func newStandIn(t *testing.T) *cluster {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := &cluster{scontrol{self, hosttest.Patience}, filepath.Join(t.TempDir(), "nodes.json")}
	nodes := map[string]*fakeNode{}
	for _, name := range names() {
		nodes[name] = &fakeNode{Base: "IDLE"}
	}
	c.write(t, nodes)
	t.Setenv(stateVariable, c.file)
	return c
}

func (c *cluster) write(t *testing.T, nodes map[string]*fakeNode) {
	t.Helper()
	text, err := json.Marshal(nodes)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(c.file, text, 0o600))
}

// set changes a node of the stand-in.
func (c *cluster) set(t *testing.T, name string, change func(*fakeNode)) {
	t.Helper()
	text, err := os.ReadFile(c.file)
	require.NoError(t, err)
	nodes := map[string]*fakeNode{}
	require.NoError(t, json.Unmarshal(text, &nodes))
	change(nodes[name])
	c.write(t, nodes)
}

// newReal has the nodes of a controller of Slurm.
func newReal(t *testing.T) *cluster {
	t.Helper()
	return &cluster{scontrol: scontrol{slurmtest.Start(t, "gpu", len(names())).Scontrol, hosttest.Patience}}
}

// admin is what somebody does by hand.
func (c *cluster) admin(t *testing.T, arguments ...string) {
	t.Helper()
	_, err := c.scontrol.run(t.Context(), append([]string{"update"}, arguments...)...)
	require.NoError(t, err)
}

// at is a node as Slurm has it now.
func (c *cluster) at(t *testing.T, name string) *node {
	t.Helper()
	nodes, err := c.scontrol.nodes(t.Context())
	require.NoError(t, err)
	n := find(nodes, name)
	require.NotNil(t, n, name)
	return n
}

// drained are the nodes that are.
func (c *cluster) drained(t *testing.T) (all []string) {
	t.Helper()
	nodes, err := c.scontrol.nodes(t.Context())
	require.NoError(t, err)
	for i := range nodes {
		if nodes[i].drained() {
			all = append(all, nodes[i].name)
		}
	}
	return all
}
