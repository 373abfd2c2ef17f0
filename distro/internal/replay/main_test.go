package replay

import (
	"os"
	"testing"

	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver"
)

// TestMain lets this program be the process that reads dumps for a collector here.
func TestMain(m *testing.M) {
	if ncclfrreceiver.IsReader() {
		os.Exit(ncclfrreceiver.Reader())
	}
	os.Exit(m.Run())
}
