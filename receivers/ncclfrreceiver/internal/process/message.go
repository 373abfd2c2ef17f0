package process

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/flightrecorder"
)

// The process says greeting when it is ready. Then each request is the length of a
// file in 8 bytes, big-endian, and its content; each answer the length of an answer
// in JSON, and the answer.
const greeting = "tracecore dump reader 1\n"

// mostAnswer bounds an answer. A dump of 2,000 entries in ten groups takes 0.1 MiB;
// 1,024 groups with 32 long operations each would take more.
const mostAnswer = 4 << 20

// answer is what the process makes of a file: a digest, or why there is none.
type answer struct {
	Digest *flightrecorder.Digest `json:",omitempty"`
	Kind   string                 `json:",omitempty"` // of kinds
	Why    string                 `json:",omitempty"`
}

// kinds are the errors that mean something to the receiver.
var kinds = map[string]error{
	"truncated": flightrecorder.ErrTruncated, "hostile": flightrecorder.ErrHostile,
	"too_large": flightrecorder.ErrTooLarge, "not_a_dump": flightrecorder.ErrNotADump,
}

// refusal is an error that the process reported.
type refusal struct {
	kind error
	text string
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) Unwrap() error { return r.kind }

// answerOf makes the answer of a file.
func answerOf(digest *flightrecorder.Digest, err error) answer {
	if err == nil {
		return answer{Digest: digest}
	}
	for kind, of := range kinds {
		if errors.Is(err, of) {
			return answer{Kind: kind, Why: err.Error()}
		}
	}
	return answer{Kind: "not_a_dump", Why: err.Error()}
}

// taken is what the receiver gets of an answer. The text is that of our own process,
// but it has read the file: control characters do not pass.
func (a answer) taken() (*flightrecorder.Digest, error) {
	if a.Digest != nil {
		return a.Digest, nil
	}
	kind := kinds[a.Kind]
	if kind == nil {
		return nil, errors.New("an answer without a digest and without a reason")
	}
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(flightrecorder.Clip(a.Why, 512), "?"))
	return nil, &refusal{kind: kind, text: text}
}

func writeMessage(w io.Writer, content []byte) error {
	if _, err := w.Write(binary.BigEndian.AppendUint64(nil, uint64(len(content)))); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// readMessage reads one of at most most bytes.
func readMessage(r io.Reader, most int64) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint64(head[:])
	if n > uint64(most) {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	content := make([]byte, n)
	_, err := io.ReadFull(r, content)
	return content, err
}

func encode(a answer) []byte {
	content, err := json.Marshal(a)
	if err != nil || len(content) > mostAnswer {
		content, _ = json.Marshal(answerOf(nil, fmt.Errorf("%w: its groups and operations take more than %d MiB", flightrecorder.ErrTooLarge, mostAnswer>>20)))
	}
	return content
}
