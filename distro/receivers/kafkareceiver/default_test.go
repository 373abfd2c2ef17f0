package kafkareceiver

import (
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/kafkareceiver"
	"github.com/stretchr/testify/require"
)

// FAILURE-MODES.md says when others read the partitions of a replica that crashed, and the
// chart sets no time of its own.
func TestACrashIsNoticedInTenSeconds(t *testing.T) {
	config := bounded().CreateDefaultConfig().(*kafkareceiver.Config).ConsumerConfig
	require.Equal(t, 10*time.Second, config.SessionTimeout)
}
