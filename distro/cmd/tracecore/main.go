// Command tracecore is the OpenTelemetry Collector distribution that names what
// broke in a distributed training run.
package main

import (
	"context"
	"os"

	"github.com/tracecoreai/tracecore/distro/internal/command"
	"github.com/tracecoreai/tracecore/distro/internal/drill"
)

func main() {
	if drill.IsChild() {
		os.Exit(drill.Child())
	}
	os.Exit(command.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
