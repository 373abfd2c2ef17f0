//go:build linux

package acceptance

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// kills is how often an agent is started and killed. `make attack` takes fifty.
var kills = flag.Int("kills", 1, "how often TestAKilledAgentLeavesNothing kills an agent")

// left is what of an agent can outlive it: objects of BPF, by the lines that
// /proc/PID/fdinfo has about them (bpf_prog_show_fdinfo and the like, kernel/bpf/syscall.c),
// and the processes that it started.
type left struct {
	programs, maps, links []uint32
	children              []int
}

// has reads what a process has now.
func has(t *testing.T, pid int) (all left) {
	t.Helper()
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	require.NoError(t, err)
	for _, info := range infos {
		text, err := os.ReadFile(info)
		if err != nil { // closed meanwhile
			continue
		}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			into := map[string]*[]uint32{"prog_id": &all.programs, "map_id": &all.maps, "link_id": &all.links}[name]
			if err == nil && into != nil {
				*into = append(*into, uint32(id))
			}
		}
	}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		for _, child := range strings.Fields(string(text)) {
			id, err := strconv.Atoi(child)
			require.NoError(t, err)
			all.children = append(all.children, id)
		}
	}
	return all
}

// still says what is there of all that.
func (l left) still() (names []string) {
	there := func(kind string, ids []uint32, open func(uint32) (io.Closer, error)) {
		for _, id := range ids {
			object, err := open(id)
			if err == nil {
				object.Close()
			}
			if !errors.Is(err, os.ErrNotExist) {
				names = append(names, fmt.Sprintf("%s %d: %v", kind, id, err))
			}
		}
	}
	there("program", l.programs, func(id uint32) (io.Closer, error) { return ebpf.NewProgramFromID(ebpf.ProgramID(id)) })
	there("map", l.maps, func(id uint32) (io.Closer, error) { return ebpf.NewMapFromID(ebpf.MapID(id)) })
	there("link", l.links, func(id uint32) (io.Closer, error) { return link.NewFromID(link.ID(id)) })
	for _, pid := range l.children {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			names = append(names, fmt.Sprintf("process %d", pid))
		}
	}
	return names
}

// TestAKilledAgentLeavesNothing: neither programs in the kernel, nor maps, nor processes.
func TestAKilledAgentLeavesNothing(t *testing.T) {
	privtest.Require(t)
	state := t.TempDir()
	for range *kills {
		a := startAgent(t, state)
		var all left
		require.Eventually(t, func() bool { // probes open one after the other
			all = has(t, a.Cmd.Process.Pid)
			return len(all.programs) >= 6 && len(all.maps) >= 6
		}, hosttest.Patience, 20*time.Millisecond, "%s", a.Stderr)
		require.NotEmpty(t, all.still(), "what lives is seen")
		a.Kill()
		var still []string
		require.Eventually(t, func() bool { // the kernel frees them behind a grace period
			still = all.still()
			return len(still) == 0
		}, hosttest.Patience, 20*time.Millisecond, "%v", &still)
	}
}
