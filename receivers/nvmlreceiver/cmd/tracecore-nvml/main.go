// Command tracecore-nvml reads NVIDIA GPUs for the collector's nvml receiver,
// which starts it and talks with it over its standard input and output. It is a
// program of its own because it loads the vendor's library: that needs cgo, can
// hang in the driver and can crash.
package main

import (
	"flag"
	"os"
	"time"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu/worker"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/gonvml"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/reading"
)

func main() {
	options := worker.Options{Commands: os.Stdin, Messages: os.Stdout}
	library := flag.String("library", "", "file of the library; default: libnvidia-ml.so.1, as the dynamic linker finds it")
	events := flag.Uint64("events", 0, "types of events to listen for, as in nvml.h")
	flag.DurationVar(&options.CallTimeout, "call-timeout", 10*time.Second, "a call that takes longer hangs")
	flag.Parse()
	if gonvml.Built {
		options.Source = reading.NewSource(gonvml.New(*library), *events)
	}
	os.Exit(worker.Run(options))
}
