package record

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSignalNames(t *testing.T) {
	for signal, name := range map[int]string{
		1: "SIGHUP", 6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM", 31: "SIGSYS", 34: "SIGRTMIN+0", 64: "SIGRTMIN+30",
		0: "signal 0", 32: "signal 32", -1: "signal -1", 65: "signal 65",
	} {
		require.Equal(t, name, SignalName(signal))
	}
}

func TestSignalCodes(t *testing.T) {
	for name, tc := range map[string]struct{ signal, code int }{
		"SI_USER": {9, 0}, "SI_KERNEL": {11, 128}, "SI_TKILL": {6, -6}, "SEGV_MAPERR": {11, 1}, "BUS_MCEERR_AR": {7, 4},
		"FPE_INTDIV": {8, 1}, "ILL_ILLOPC": {4, 1}, "5": {11, 5}, "-60": {9, -60}, "1": {15, 1},
	} {
		require.Equal(t, name, signalCode(tc.signal, tc.code))
	}
}
