package flightrecorder

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// Operation is what profiling_name says: "nccl:all_reduce", "gloo:recv 0<-1".
type Operation struct {
	Backend string // nccl, gloo, xccl, ""
	Type    string // all_reduce, send, coalesced
	Src     int    // of a send or receive, as ranks of the group; else Unknown
	Dst     int
}

// ParseOperation reads a profiling_name. A name without a backend is a type.
func ParseOperation(name string) Operation {
	op := Operation{Src: Unknown, Dst: Unknown}
	rest := name
	if backend, after, found := strings.Cut(name, ":"); found {
		op.Backend, rest = Clip(backend, 16), after
	}
	kind, meta, _ := strings.Cut(rest, " ")
	op.Type = Clip(kind, 64)
	switch op.Type {
	case "send":
		op.Src, op.Dst = pair(meta, "->")
	case "recv":
		op.Dst, op.Src = pair(meta, "<-")
	}
	return op
}

func pair(meta, arrow string) (left, right int) {
	l, r, found := strings.Cut(meta, arrow)
	if !found {
		return Unknown, Unknown
	}
	return groupRank(l), groupRank(r)
}

func groupRank(s string) int {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n > MaxRank {
		return Unknown
	}
	return int(n)
}

// coalesces reports whether the operation ends a group of coalesced ones, whose
// members share its sequence number and have no state of their own
// (ProcessGroupNCCL::endCoalescing).
func (o Operation) coalesces() bool {
	return o.Type == "coalesced" || strings.HasSuffix(o.Type, "_coalesced")
}

// Signature is what must be equal on all ranks that meet in a collective, in
// words: "all_reduce [[65536]] -> [[65536]] of Float -> Float". What may differ
// by the collective's own rules is left out, as PyTorch's analyzer does
// (torch/distributed/flight_recorder/components/types.py, Op.match).
func (e *Entry) Signature() string {
	op := ParseOperation(e.Name)
	freeIn, freeOut := freeSides(op.Type)
	in, inTypes := side(e.InputSizes, e.InputDtypes, freeIn)
	out, outTypes := side(e.OutputSizes, e.OutputDtypes, freeOut)
	if allToAll(op.Type) { // each rank cuts its own way, of one type
		in, out = "", ""
	}
	signature := op.Type
	if in != "" || out != "" {
		signature += " " + in + " -> " + out
	}
	if inTypes != "" || outTypes != "" {
		signature += " of " + inTypes + " -> " + outTypes
	}
	return Clip(signature, maxText)
}

// side returns what is compared of the inputs or outputs. Types of empty tensors
// are not: nothing of that type travels.
func side(sizes [][]int64, types []string, free bool) (string, string) {
	switch {
	case free:
		return "", ""
	case len(sizes) == 0 || len(sizes[0]) == 0:
		return FormatSizes(sizes), ""
	default:
		return FormatSizes(sizes), FormatDtypes(types)
	}
}

// freeSides says which side of a collective is a rank's own: only the root of a
// scatter has an input, only that of a gather an output.
func freeSides(operation string) (input, output bool) {
	return operation == "scatter", operation == "gather"
}

func allToAll(operation string) bool {
	return strings.HasPrefix(operation, "all_to_all") || strings.HasPrefix(operation, "alltoall")
}

// FormatDtypes writes types as a set: the analyzer compares sets.
func FormatDtypes(types []string) string {
	set := slices.Clone(types)
	slices.Sort(set)
	return Clip(strings.Join(slices.Compact(set), ","), 64)
}

// FormatSizes writes sizes as a dump has them: [[2, 3], [4]]. Beyond a length it
// ends in a hash, so that different sizes stay different.
func FormatSizes(sizes [][]int64) string {
	var b []byte
	b = append(b, '[')
	for i, dims := range sizes {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, '[')
		for j, d := range dims {
			if j > 0 {
				b = append(b, ", "...)
			}
			b = strconv.AppendInt(b, d, 10)
		}
		b = append(b, ']')
	}
	b = append(b, ']')
	if len(b) > maxSizes {
		return fmt.Sprintf("%s… %d tensors #%08x", b[:maxSizes-32], len(sizes), Hash(string(b)))
	}
	return string(b)
}

// Hash is the 32 bits of a signature that travel in a history; never 0, which
// stands for none.
func Hash(signature string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(signature)) // never fails
	return max(h.Sum32(), 1)
}

// Bounds of the texts of a record.
const (
	maxText  = 512
	maxSizes = 160
)

// Clip shortens s to at most n bytes, at a rune.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}
