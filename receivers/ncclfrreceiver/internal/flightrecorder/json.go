package flightrecorder

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// jsonDump is a dump as _dump_fr_trace_json writes it: the same names, lists for
// tuples, 0 for None, no stacks.
type jsonDump struct {
	Version        string                `json:"version"`
	NCCLVersion    string                `json:"nccl_version"`
	CommLibVersion string                `json:"comm_lib_version"`
	Host           string                `json:"host_name"`
	Rank           *int                  `json:"rank"`
	Groups         map[string]jsonConfig `json:"pg_config"`
	Status         map[string]jsonStatus `json:"pg_status"`
	Entries        []json.RawMessage     `json:"entries"`
}

type jsonConfig struct {
	Name  string `json:"name"`
	Desc  string `json:"desc"`
	Ranks string `json:"ranks"`
}

type jsonStatus struct {
	LastEnqueued  *number `json:"last_enqueued_collective"`
	LastStarted   *number `json:"last_started_collective"`
	LastCompleted *number `json:"last_completed_collective"`
}

// number is an integer that some versions write as a text: the JSON form has
// last_completed_collective as "5" since its map holds texts.
type number int64

func (n *number) UnmarshalJSON(data []byte) error {
	if len(data) > 1 && data[0] == '"' {
		data = data[1 : len(data)-1]
	}
	var plain int64
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	*n = number(plain)
	return nil
}

func (n *number) orUnknown() int64 {
	if n == nil {
		return Unknown
	}
	return int64(*n)
}

type jsonEntry struct {
	RecordID      int64     `json:"record_id"`
	PGID          int64     `json:"pg_id"`
	ProcessGroup  []string  `json:"process_group"`
	CollectiveSeq int64     `json:"collective_seq_id"`
	P2PSeq        int64     `json:"p2p_seq_id"`
	OpID          int64     `json:"op_id"`
	Name          string    `json:"profiling_name"`
	InputSizes    [][]int64 `json:"input_sizes"`
	InputDtypes   []string  `json:"input_dtypes"`
	OutputSizes   [][]int64 `json:"output_sizes"`
	OutputDtypes  []string  `json:"output_dtypes"`
	State         string    `json:"state"`
	Retired       bool      `json:"retired"`
	IsP2P         bool      `json:"is_p2p"`
	TimeoutMS     int64     `json:"timeout_ms"`
	CreatedNS     int64     `json:"time_created_ns"`
	StartedNS     int64     `json:"time_discovered_started_ns"`
	CompletedNS   int64     `json:"time_discovered_completed_ns"`
	Frames        []Frame   `json:"frames"`
}

func decodeJSON(data []byte, limits Limits) (*Dump, error) {
	if err := countJSON(data, limits.Values); err != nil {
		return nil, err
	}
	var j jsonDump
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, jsonError(err, len(data))
	}
	d := &Dump{
		Version: j.Version, Library: j.NCCLVersion + j.CommLibVersion, Host: j.Host, Rank: Unknown,
		Groups: map[string]GroupConfig{}, Status: map[string]GroupStatus{},
	}
	if j.Rank != nil {
		d.Rank = value{kind: integer, number: int64(*j.Rank)}.rank()
	}
	for name, g := range j.Groups {
		d.Groups[name] = GroupConfig{Name: g.Name, Desc: g.Desc, Ranks: ParseRanks(g.Ranks)}
	}
	for name, s := range j.Status {
		d.Status[name] = GroupStatus{s.LastEnqueued.orUnknown(), s.LastStarted.orUnknown(), s.LastCompleted.orUnknown()}
	}
	return d, d.takeJSON(newest(j.Entries, limits.Entries))
}

func (d *Dump) takeJSON(entries []json.RawMessage) error {
	d.Entries = make([]Entry, len(entries))
	for i, raw := range entries {
		var j jsonEntry
		if err := json.Unmarshal(raw, &j); err != nil {
			return fmt.Errorf("entry %d: %w", i, jsonError(err, len(raw)))
		}
		j.into(&d.Entries[i])
	}
	return nil
}

// jsonError tells a file that ends too early from one that is no dump. It does
// not quote what it found: a file of others may be anything.
func jsonError(err error, size int) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		// At the end of a literal or number the package feeds itself a blank.
		blank := strings.HasPrefix(syntax.Error(), "invalid character ' '") && syntax.Offset >= int64(size)
		if blank || syntax.Error() == "unexpected end of JSON input" {
			return ErrTruncated
		}
		return fmt.Errorf("%w: byte %d is no JSON", ErrNotADump, syntax.Offset)
	}
	var typed *json.UnmarshalTypeError
	if errors.As(err, &typed) {
		return fmt.Errorf("%w: field %q is a JSON %s", ErrNotADump, Clip(typed.Field, 64), Clip(typed.Value, 16))
	}
	return fmt.Errorf("%w: a number that is none", ErrNotADump)
}

// countJSON bounds the values before they are made: each takes one of these
// characters, inside a text too, which only makes the count higher.
func countJSON(data []byte, limit int) error {
	n := 0
	for _, b := range data {
		if b == ',' || b == '[' || b == '{' || b == ':' {
			n++
		}
	}
	if n > 2*limit {
		return fmt.Errorf("%w: more than %d values: raise max_values, or lower TORCH_FR_BUFFER_SIZE", ErrTooLarge, limit)
	}
	return nil
}

func (j *jsonEntry) into(e *Entry) {
	*e = Entry{
		RecordID: j.RecordID, PGID: j.PGID, CollectiveSeq: j.CollectiveSeq, P2PSeq: j.P2PSeq, OpID: j.OpID, Name: j.Name,
		InputSizes: j.InputSizes, InputDtypes: j.InputDtypes, OutputSizes: j.OutputSizes, OutputDtypes: j.OutputDtypes,
		State: j.State, Retired: j.Retired, IsP2P: j.IsP2P, TimeoutMS: j.TimeoutMS,
		CreatedNS: j.CreatedNS, StartedNS: j.StartedNS, CompletedNS: j.CompletedNS, Frames: j.Frames,
	}
	if len(j.ProcessGroup) > 0 {
		e.Group = j.ProcessGroup[0]
	}
	if len(j.ProcessGroup) > 1 {
		e.Desc = j.ProcessGroup[1]
	}
	if len(e.Frames) > maxStack {
		e.Frames = e.Frames[:maxStack]
	}
}
