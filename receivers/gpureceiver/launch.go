package gpureceiver

import (
	"fmt"
	"os"
	"strings"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/process"
)

// task is what a helper is started for.
type task struct {
	source Source
	listen bool // for events
	ask    bool // only whether the host engine answers
}

// starter starts a helper.
type starter func(*Config, task) (process.Session, error)

func startHelper(c *Config, t task) (process.Session, error) {
	arguments := []string{"-source=" + string(t.source), "-call-timeout=" + c.CallTimeout.String()}
	if t.source == DCGM {
		return process.Start(c.Helper, append(arguments, c.DCGM.arguments(c, t)...), c.DCGM.environment())
	}
	return process.Start(c.Helper, append(arguments, c.NVML.arguments(c, t)...), nil)
}

func (n *NVMLConfig) arguments(c *Config, t task) []string {
	events := uint64(0)
	if t.listen {
		events = eventTypes(c.Events)
	}
	return []string{"-library=" + n.Library, fmt.Sprintf("-events=%d", events)}
}

func (d *DCGMConfig) arguments(c *Config, t task) []string {
	return []string{
		"-endpoint=" + d.engine(), "-every=" + c.CollectionInterval.String(), fmt.Sprintf("-profiling=%t", d.Profiling),
		fmt.Sprintf("-health=%t", d.Health), fmt.Sprintf("-listen=%t", t.listen), fmt.Sprintf("-ask=%t", t.ask),
		"-policies=" + strings.Join(d.Policies, ","),
	}
}

// environment lets the dynamic linker find the library: go-dcgm asks for it by
// its name alone.
func (d *DCGMConfig) environment() []string {
	folder := d.LibraryFolder
	if folder == "" {
		return nil
	}
	if others := os.Getenv("LD_LIBRARY_PATH"); others != "" {
		folder += ":" + others
	}
	return []string{"LD_LIBRARY_PATH=" + folder}
}

// eventTypes are the types of NVML's events that somebody wants to hear of.
func eventTypes(events metadata.EventsConfig) (types uint64) {
	for _, event := range []struct {
		wanted bool
		types  uint64
	}{
		{events.GpuXid.Enabled, device.EventXid},
		{events.GpuEcc.Enabled, device.EventECCCorrected | device.EventECCUncorrected},
		{events.GpuClockChange.Enabled, device.EventClock},
	} {
		if event.wanted {
			types |= event.types
		}
	}
	return types
}
