//go:build linux

package acceptance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/distro/internal/privtest"
)

// TestDrillsShowTheirVerdictAndItsDelay runs each drill as an operator does.
func TestDrillsShowTheirVerdictAndItsDelay(t *testing.T) {
	privtest.Require(t)
	for name, says := range map[string][]string{
		"xid": {"ffff:ff:1f.0", "rank 3", "job tracecore-drill", "SIGABRT", "gpu_lost (18)"},
		"oom": {"rank 3", "job tracecore-drill", "32 MiB", "host_oom_kill (12)"},
	} {
		t.Run(name, func(t *testing.T) {
			got := commandtest.Finish(t, commandtest.New(t, "drill", name))
			require.Equal(t, 0, got.Code, "%s%s", got.Stdout, got.Stderr)
			for _, want := range append(says, "This is a drill", "verdict after ") {
				require.Contains(t, got.Stdout, want)
			}
		})
	}
}
