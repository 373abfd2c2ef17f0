// Command tracecore-dcgm reads a DCGM host engine for the collector's dcgm
// receiver, which starts it and talks with it over its standard input and output.
// It is a program of its own because it loads the vendor's library: that needs
// cgo, can hang and can crash.
package main

import (
	"flag"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/receivers/dcgmreceiver/internal/dcgm"
	"github.com/tracecoreai/tracecore/receivers/dcgmreceiver/internal/godcgm"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/worker"
)

func main() {
	log.SetOutput(io.Discard) // go-dcgm's; what counts the messages say
	options, source := worker.Options{Commands: os.Stdin, Messages: os.Stdout}, dcgm.Options{}
	flag.StringVar(&source.Address, "endpoint", "127.0.0.1:5555", "host:port or unix:///path of the host engine, or embedded")
	flag.DurationVar(&source.Every, "every", 10*time.Second, "how often the engine reads")
	flag.BoolVar(&source.Profiling, "profiling", false, "read what the profiling module measures")
	flag.BoolVar(&source.Health, "health", false, "have the engine watch the health of the GPUs")
	flag.BoolVar(&source.Listen, "listen", false, "listen for Xids and violated policies")
	policies := flag.String("policies", "", "policies to set where nobody did, with commas")
	flag.DurationVar(&options.CallTimeout, "call-timeout", 10*time.Second, "a call that takes longer hangs")
	flag.Parse()
	if *policies != "" {
		source.Policies = strings.Split(*policies, ",")
	}
	if godcgm.Built {
		options.Source = dcgm.NewSource(godcgm.New(), source)
	}
	os.Exit(worker.Run(options))
}
