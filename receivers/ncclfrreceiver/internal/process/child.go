package process

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/flightrecorder"
)

// variable tells a copy of this program to be the process that reads dumps, within
// the limits that it holds.
const variable = "TRACECORE_DUMP_READER"

// IsChild reports whether this process is to read dumps. A main asks this before
// anything else, and then only returns what Child returns.
func IsChild() bool { return os.Getenv(variable) != "" }

// Child is the whole life of the process. It ends when nobody asks any more.
func Child() int {
	var limits flightrecorder.Limits
	if err := json.Unmarshal([]byte(os.Getenv(variable)), &limits); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", variable, err)
		return 1
	}
	if err := confine(); err != nil {
		fmt.Fprintln(os.Stderr, "confine the reader of dumps:", err)
		return 1
	}
	if err := serve(os.Stdin, os.Stdout, limits); err != nil {
		fmt.Fprintln(os.Stderr, "read dumps:", err)
		return 1
	}
	return 0
}

// mostFile bounds a request: the receiver has refused what is larger than its
// max_file_size.
const mostFile = 1 << 30

func serve(in io.Reader, out io.Writer, limits flightrecorder.Limits) error {
	if _, err := io.WriteString(out, greeting); err != nil {
		return err
	}
	for {
		data, err := readMessage(in, mostFile)
		if err == io.EOF { //nolint:errorlint // io.ReadFull returns it as it is, between two messages only
			return nil
		}
		if err != nil {
			return err
		}
		if err := writeMessage(out, encode(answerOf(flightrecorder.Read(data, limits)))); err != nil {
			return err
		}
		debug.FreeOSMemory() // the next file may be an hour away
	}
}
