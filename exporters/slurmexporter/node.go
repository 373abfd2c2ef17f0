package slurmexporter

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
)

// node is a node as Slurm has it.
type node struct {
	name, host string
	states     []string // base state and flags: IDLE, DRAIN, NOT_RESPONDING
	reason     string   // without who gave it, and when
	since      time.Time
	boot       time.Time // zero where slurmd has not said
	unclear    bool      // some value stands there twice
}

// mark begins each reason that tracecore gives. Who drains by hand writes another.
const mark = "tracecore: "

// room is what a reason may say; sinfo -R shows it in a column.
var room = nodeguard.Room{Listed: 3, Tracked: 16, LineBytes: 200}

func reasonOf(said *nodeguard.Said, note string) string { return mark + said.Write(note) }

// drained reports whether no new job starts on it.
func (n *node) drained() bool {
	for _, state := range n.states {
		if state == "DRAIN" || state == "DRAINED" || state == "DRAINING" {
			return true
		}
	}
	return false
}

// ours reports whether tracecore drained it, and nobody gave another reason since.
func (n *node) ours() bool { return n.drained() && strings.HasPrefix(n.reason, mark) && !n.unclear }

// others reports whether it is somebody else's to bring back: it is drained, or down, for a
// reason of theirs.
func (n *node) others() bool {
	return n.unclear || n.drained() && !n.ours() || n.reason != "" && !strings.HasPrefix(n.reason, mark)
}

// said is what our reason stands for.
func (n *node) said() nodeguard.Said {
	if !n.ours() {
		return nodeguard.Said{}
	}
	return nodeguard.Read(strings.TrimPrefix(n.reason, mark))
}

// bootID tells boots of the node apart; "" where none is known. Slurm knows when, not which.
func (n *node) bootID() string {
	if n.boot.IsZero() {
		return ""
	}
	return fmt.Sprintf("%08x", n.boot.Unix())
}

const timeFormat = "2006-01-02T15:04:05" // of Slurm, in TZ

var (
	keys = regexp.MustCompile(`(?:^| )([A-Za-z]+)=(\S*)`)
	// given is who gave a reason, and when.
	given = regexp.MustCompile(`^(.*) \[[^\[\]@]*@([0-9T:-]+)\]$`)
	// names that are one node: no list of nodes (gpu-[1-9]), and no option.
	oneNode = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
)

// parse reads `scontrol show node`: a block for each node, whose lines but the first are
// indented. A value that stands twice in a block was put there by somebody: a comment may
// have lines of its own.
func parse(text string) []node {
	var all []node
	seen := map[string]int{}
	var fields map[string]bool
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "NodeName=") {
			all, fields = append(all, node{}), map[string]bool{}
		}
		if len(all) == 0 {
			continue
		}
		n := &all[len(all)-1]
		if reason, ok := strings.CutPrefix(line, "   Reason="); ok {
			n.once(fields, "Reason")
			n.reason = reason
			if found := given.FindStringSubmatch(reason); found != nil {
				n.reason = found[1]
				n.since = moment(found[2])
			}
			continue
		}
		if strings.HasPrefix(line, "   Comment=") || strings.HasPrefix(line, "   OS=") {
			continue
		}
		for _, found := range keys.FindAllStringSubmatch(strings.TrimPrefix(line, "  "), -1) {
			n.take(fields, found[1], found[2])
		}
	}
	for i := range all {
		if first, twice := seen[all[i].name]; twice {
			all[first].unclear, all[i].unclear = true, true
		}
		seen[all[i].name] = i
	}
	return all
}

func (n *node) take(fields map[string]bool, key, value string) {
	switch key {
	case "NodeName":
		n.name = value
	case "NodeHostName":
		n.host = value
	case "State":
		for _, state := range strings.Split(value, "+") {
			n.states = append(n.states, strings.TrimRight(state, "*~#!%$@^-"))
		}
	case "BootTime":
		n.boot = moment(value)
	default:
		return
	}
	n.once(fields, key)
}

func (n *node) once(fields map[string]bool, key string) {
	n.unclear = n.unclear || fields[key]
	fields[key] = true
}

func moment(text string) time.Time {
	at, err := time.ParseInLocation(timeFormat, text, time.UTC)
	if err != nil {
		return time.Time{}
	}
	return at
}

// find is the node that a verdict names, by its name in Slurm or its host name, short or
// whole; nil for none, and where two could be meant. Two whole names that differ are two
// machines, though both begin alike.
func find(nodes []node, named string) *node {
	if named == "" {
		return nil
	}
	short, _, _ := strings.Cut(named, ".")
	for _, same := range []func(*node) bool{
		func(n *node) bool { return strings.EqualFold(n.name, named) || strings.EqualFold(n.host, named) },
		func(n *node) bool {
			whole := short != named && (strings.Contains(n.host, ".") || strings.Contains(n.name, "."))
			return !whole && (strings.EqualFold(n.name, short) || strings.EqualFold(n.host, short))
		},
	} {
		var found *node
		for i := range nodes {
			if n := &nodes[i]; same(n) && oneNode.MatchString(n.name) {
				if found != nil {
					return nil
				}
				found = n
			}
		}
		if found != nil {
			return found
		}
	}
	return nil
}
