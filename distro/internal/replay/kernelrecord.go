package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/distro/internal/replay/kernelline"
)

// journalRecord is one kernel record as `journalctl -k -o json` writes it
// (systemd.journal-fields(7); the Journal JSON Format writes what is not UTF-8 as
// a list of bytes, and null for what is too large).
type journalRecord struct {
	Time       string          `json:"__REALTIME_TIMESTAMP"` // µs
	Transport  string          `json:"_TRANSPORT"`
	Host       string          `json:"_HOSTNAME"`
	Facility   string          `json:"SYSLOG_FACILITY"`
	Identifier string          `json:"SYSLOG_IDENTIFIER"`
	Message    json.RawMessage `json:"MESSAGE"`
}

// parse returns the line that a record of the journal is. What a process wrote
// to /dev/kmsg has another facility than the kernel's, and journald took its
// beginning for the name of a program (journald-kmsg.c, dev_kmsg_record).
func parseJournal(document []byte) (kernelline.Line, error) {
	var r journalRecord
	if err := json.Unmarshal(document, &r); err != nil {
		return kernelline.Line{}, fmt.Errorf("journal record: %w", err)
	}
	if r.Transport != "kernel" {
		return kernelline.Line{}, kernelline.ErrForeign
	}
	micros, err := strconv.ParseInt(r.Time, 10, 64)
	if err != nil || micros <= 0 || micros > 1<<52 {
		return kernelline.Line{}, fmt.Errorf("journal record: __REALTIME_TIMESTAMP %q is no time", r.Time)
	}
	text, err := journalText(r.Message)
	if err != nil {
		return kernelline.Line{}, err
	}
	line := kernelline.Line{At: time.UnixMicro(micros), Host: r.Host, Writer: kmsg.WriterKernel, Text: text}
	switch r.Facility {
	case "0":
	case "":
		line.Writer = kmsg.WriterUnknown
	default:
		line.Writer = kmsg.WriterUserspace
		if r.Identifier != "" {
			line.Text = r.Identifier + ": " + text
		}
	}
	return line, nil
}

func journalText(message json.RawMessage) (string, error) {
	var text *string
	if err := json.Unmarshal(message, &text); err == nil {
		if text == nil {
			return "", nil
		}
		return *text, nil
	}
	var numbers []uint8
	var wide []uint16 // a list of numbers: []uint8 would be read as base64
	if err := json.Unmarshal(message, &wide); err != nil {
		return "", errors.New("journal record: MESSAGE is neither text nor bytes")
	}
	for _, n := range wide {
		numbers = append(numbers, uint8(n))
	}
	return string(numbers), nil
}

// dmesgDocument is what `dmesg --json` writes. pri has no facility, so it does
// not say who wrote a record.
type dmesgDocument struct {
	Records []struct {
		Time json.Number `json:"time"` // s since boot
		Text string      `json:"msg"`
	} `json:"dmesg"`
}

func parseDmesg(document []byte) ([]kernelline.Line, error) {
	var d dmesgDocument
	if err := json.Unmarshal(document, &d); err != nil {
		return nil, fmt.Errorf("dmesg: %w", err)
	}
	lines := make([]kernelline.Line, 0, len(d.Records))
	for i, r := range d.Records {
		uptime, err := kernelline.Seconds(r.Time.String())
		if err != nil {
			return lines, fmt.Errorf("dmesg: record %d: time %q is no number of seconds", i, r.Time)
		}
		lines = append(lines, kernelline.Line{Uptime: uptime, Text: r.Text})
	}
	return lines, nil
}
