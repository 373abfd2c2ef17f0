// Command tracecore-gpu reads NVIDIA GPUs for the collector's gpu receiver, which
// starts it and talks with it over its standard input and output. It is a program of
// its own because it loads a vendor's library: that needs cgo, can hang in the driver
// and can crash. One run reads one source.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/memorylimit"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/dcgm"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/dcgm/dcgmcgo"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/helper"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/nvml"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/nvml/nvmlcgo"
)

func main() {
	log.SetOutput(io.Discard)                 // go-dcgm's; what counts the messages say
	_ = memorylimit.Apply(memorylimit.Helper) // without it the collector's share still holds
	options := helper.Options{Commands: os.Stdin, Messages: os.Stdout}
	from := flag.String("source", "nvml", "nvml or dcgm")
	flag.DurationVar(&options.CallTimeout, "call-timeout", 10*time.Second, "a call that takes longer hangs")
	library := flag.String("library", "", "nvml: file of the library; default: libnvidia-ml.so.1, as the dynamic linker finds it")
	events := flag.Uint64("events", 0, "nvml: types of events to listen for, as in nvml.h")
	engine := engineFlags()
	flag.Parse()
	switch *from {
	case "nvml":
		if nvmlcgo.Built {
			options.Source = nvml.NewSource(nvmlcgo.New(*library), *events)
		}
	case "dcgm":
		if dcgmcgo.Built {
			options.Source = dcgm.NewSource(dcgmcgo.New(), *engine)
		}
	default:
		fmt.Fprintf(os.Stderr, "-source: %q is neither nvml nor dcgm\n", *from)
		os.Exit(2)
	}
	os.Exit(helper.Run(options))
}

// engineFlags are those of the host engine.
func engineFlags() *dcgm.Options {
	var o dcgm.Options
	flag.StringVar(&o.Address, "endpoint", "127.0.0.1:5555", "dcgm: host:port or unix:///path of the host engine, or embedded")
	flag.DurationVar(&o.Every, "every", 10*time.Second, "dcgm: how often the engine reads")
	flag.BoolVar(&o.Ask, "ask", false, "dcgm: only say whether the engine answers")
	flag.BoolVar(&o.Profiling, "profiling", false, "dcgm: read what the profiling module measures")
	flag.BoolVar(&o.Health, "health", false, "dcgm: have the engine watch the health of the GPUs")
	flag.BoolVar(&o.Listen, "listen", false, "dcgm: listen for Xids and violated policies")
	flag.Func("policies", "dcgm: policies to set where nobody did, with commas", func(names string) error {
		o.Policies = nil
		if names != "" {
			o.Policies = strings.Split(names, ",")
		}
		return nil
	})
	return &o
}
