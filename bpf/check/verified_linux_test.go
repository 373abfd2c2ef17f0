//go:build linux && (amd64 || arm64)

package check

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/privtest"
)

// verifierLimit is how many instructions the verifier processes at most
// (BPF_COMPLEXITY_LIMIT_INSNS since 5.2, include/linux/bpf.h).
const verifierLimit = 1_000_000

// TestProgramsStayFarFromTheVerifiersLimit opens every probe as the receivers do
// and asks the kernel what each program cost its verifier. The rung and the
// counts are told in the tables of the test machines (vmtests/RESULTS.md).
func TestProgramsStayFarFromTheVerifiersLimit(t *testing.T) {
	privtest.Require(t)
	for _, s := range subjects() {
		t.Run(s.name, func(t *testing.T) {
			others := programIDs(t)
			h, err := s.open()
			require.NoError(t, err)
			defer func() { require.NoError(t, h.Close()) }()
			rung := h.Report().Rung
			require.NotEmpty(t, rung)
			tell(t, map[string]any{"probe": s.name, "rung": rung})
			for id := range programIDs(t) {
				if !others[id] {
					askVerifier(t, s.name, id)
				}
			}
		})
	}
}

// programIDs are those of all programs that are loaded.
func programIDs(t *testing.T) map[ebpf.ProgramID]bool {
	t.Helper()
	ids := map[ebpf.ProgramID]bool{}
	var id ebpf.ProgramID
	for {
		var err error
		if id, err = ebpf.ProgramGetNextID(id); errors.Is(err, os.ErrNotExist) {
			return ids
		}
		require.NoError(t, err)
		ids[id] = true
	}
}

// askVerifier checks and tells one program's count, which the kernel knows since
// 5.16 (aba64c7da983).
func askVerifier(t *testing.T, probe string, id ebpf.ProgramID) {
	t.Helper()
	program, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, os.ErrNotExist) {
		return // another process's, which was unloaded just now
	}
	require.NoError(t, err)
	defer program.Close()
	info, err := program.Info()
	require.NoError(t, err)
	count, known := info.VerifiedInstructions()
	if !known || count == 0 {
		t.Logf("%s: this kernel does not tell what a program cost its verifier", info.Name)
		return
	}
	require.Less(t, count, uint32(verifierLimit/2), info.Name)
	tell(t, map[string]any{"probe": probe, "program": info.Name, "instructions": count})
}

// tell appends a line to the file that the test machines collect; elsewhere
// there is none.
func tell(t *testing.T, line map[string]any) {
	t.Helper()
	name := os.Getenv("TRACECORE_RESULTS")
	if name == "" {
		return
	}
	text, err := json.Marshal(line)
	require.NoError(t, err)
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	defer file.Close()
	_, err = file.Write(append(text, '\n'))
	require.NoError(t, err)
}
