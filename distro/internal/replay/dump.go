package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver"
)

// dumpKeys are the members that a Flight Recorder dump in JSON can begin with
// (PyTorch, torch/csrc/distributed/c10d/FlightRecorderDetail.hpp, dump_json).
var dumpKeys = map[string]bool{
	"version": true, "entries": true, "pg_config": true, "pg_status": true, "rank": true,
	"nccl_version": true, "comm_lib_version": true, "nccl_comm_state": true, "host_name": true,
}

// isDump reports whether a file begins as a Flight Recorder dump does: a pickle
// (protocol 2 or newer: opcode PROTO), or a JSON object of theirs.
func isDump(head []byte) bool {
	const proto = 0x80
	if head[0] == proto {
		return true
	}
	d := json.NewDecoder(bytes.NewReader(head))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return false
	}
	key, err := d.Token()
	name, ok := key.(string)
	return err == nil && ok && dumpKeys[name]
}

// dump is a Flight Recorder dump: a whole file.
type dump struct {
	path string
	job  string
	emit func(batch)
}

func (o *opener) dumpFormat(in *file, emit func(batch)) (format, error) {
	if in.packed || in.path == Stdin {
		return nil, errors.New("a Flight Recorder dump is read from the file that PyTorch wrote, whose name tells the rank: unpack it there")
	}
	return &dump{path: in.path, job: o.Job, emit: emit}, nil
}

func (d *dump) fill() error {
	logs, err := ncclfrreceiver.ReadFile(d.path, d.job)
	if err != nil {
		return err
	}
	d.emit(ofLogs(logs))
	return io.EOF
}
