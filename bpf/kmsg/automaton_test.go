package kmsg

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// naive is what the automaton must agree with.
func naive(words []string, text string) bool {
	text = text[:min(len(text), matchBytes)]
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

func TestAutomatonFindsWordsAnywhere(t *testing.T) {
	for name, words := range map[string][]string{
		"one":                      {"abc"},
		"one byte":                 {"a"},
		"one within another":       {"abcd", "bc"},
		"one begins another":       {"abc", "ab"},
		"the same, other order":    {"ab", "abc"},
		"suffix of a prefix":       {"aab", "ab", "ba"},
		"repeats":                  {"aaab", "aba"},
		"twice":                    {"ab", "ab"},
		"overlapping failed start": {"abac", "bab"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := newAutomaton(words)
			require.NoError(t, err)
			// Every text of up to six letters over an alphabet one larger.
			for text := range texts("abcd-", 6) {
				require.Equal(t, naive(words, text), a.match([]byte(text)), "%q in %q", words, text)
			}
		})
	}
}

// texts yields all texts over the alphabet of at most so many letters.
func texts(alphabet string, most int) func(func(string) bool) {
	return func(yield func(string) bool) {
		level := []string{""}
		for range most {
			var next []string
			for _, s := range level {
				for _, c := range alphabet {
					next = append(next, s+string(c))
				}
			}
			for _, s := range next {
				if !yield(s) {
					return
				}
			}
			level = next
		}
	}
}

func TestAutomatonLooksOnlyAtTheBeginning(t *testing.T) {
	a, err := newAutomaton([]string{"NVRM:"})
	require.NoError(t, err)
	require.True(t, a.match([]byte(strings.Repeat(" ", matchBytes-5)+"NVRM: x")))
	require.False(t, a.match([]byte(strings.Repeat(" ", matchBytes-4)+"NVRM: x")))
}

func TestAutomatonRefusesWhatDoesNotFit(t *testing.T) {
	every := make([]byte, 0, 255)
	for b := range 255 {
		every = append(every, byte(b+1))
	}
	many := make([]string, 0, 400)
	for i := range 400 {
		many = append(many, fmt.Sprintf("%04d-a-word", i))
	}
	for name, tc := range map[string]struct {
		words []string
		want  string
	}{
		"no word":              {nil, "give at least one"},
		"empty word":           {[]string{"a", ""}, "use 1 to 256"},
		"word too long":        {[]string{strings.Repeat("x", 257)}, "use 1 to 256"},
		"too many bytes":       {[]string{string(every)}, "use fewer words"},
		"too many states":      {many, "too long together"},
		"word of another kind": {[]string{"ok", "\xff\x00"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newAutomaton(tc.words)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// The line shapes that the probe exists for, and ordinary lines of a boot.
func TestDefaultWords(t *testing.T) {
	a, err := newAutomaton(append(DefaultWords(), markerPrefix+"0123456789abcdef"))
	require.NoError(t, err)
	for _, line := range []string{
		"NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
		"NVRM: The NVIDIA GPU 0000:65:00.0",
		"installed in this system has",
		"fallen off the bus and is not responding to commands.",
		"nvidia 0000:65:00.0: NVRM: {7}[Hardware Error]: event severity: fatal",
		"nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
		"nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Severity 1 Engine instance 48 Sub-engine instance 00",
		"nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Data {0x50610002, 0x10100030}",
		"amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=10, emitted seq=12",
		"[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout",
		"mlx5_core 0000:98:00.0: Port module event[error]: module 0, Cable error",
		"mlx5_core 0000:98:00.0 ib0: Link down",
		"infiniband mlx5_0: Port: 1 Link DOWN",
		"pcieport 0000:60:01.0: AER: Uncorrected (Fatal) error received: 0000:60:01.0",
		"nvidia 0000:65:00.0:   [18] MalfTLP           | Receiver    | Transaction Layer",
		"nfs: server files.example not responding, still trying",
		"NFS: state manager: lease expired failed on NFSv4 server files.example",
		"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:1234]",
		"INFO: task python:1234 blocked for more than 120 seconds.",
		"INFO: task python:1234 blocked in I/O wait for more than 122 seconds.", // Linux 7.1 and later
		"python[1234]: segfault at 0 ip 00007f0000001000 sp 00007ffe00000000 error 4",
		"traps: python3[124] trap invalid opcode ip:7f0000001000 sp:7ffd0 error:0",
		" in libnccl.so.2[7f0000000000+1000]",
		"tracecore: self-test 0123456789abcdef",
	} {
		require.True(t, a.match([]byte(line)), line)
	}
	for _, line := range []string{
		"",
		"Linux version 6.12.0",
		"nvme nvme0: 8/0/0 default/read/poll queues",
		"nvidia: module license 'NVIDIA' taints kernel.",
		"eth0: link becomes ready",
		"pci 0000:00:01.0: BAR 0 assigned",
		"tracecore: self-test fedcba9876543210",
		"Out of memory: Killed process 1 (python)",
	} {
		require.False(t, a.match([]byte(line)), line)
	}
}

func FuzzAutomaton(f *testing.F) {
	f.Add("ab", "bc", "xabcx")
	f.Fuzz(func(t *testing.T, one, two, text string) {
		words := []string{one, two}
		a, err := newAutomaton(words)
		if err != nil {
			t.Skip()
		}
		require.Equal(t, naive(words, text), a.match([]byte(text)))
	})
}
