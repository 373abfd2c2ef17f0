//go:build linux && (amd64 || arm64)

package fakejob

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tracecoreai/tracecore/bpf/internal/standin"
)

// LibraryName is the file's name, as a package installs it.
const LibraryName = "libnccl.so.2.29.7"

// Library is what a stand-in for NCCL is like.
type Library struct {
	Name string // of the file; "": LibraryName
	// RankOffset is where struct ncclComm has the rank: a multiple of eight. Zero: the
	// library does not show it.
	RankOffset uint64
	// Second is another place that its code shows as well, 0: none.
	Second uint64
	// Functions it defines; nil: those of NCCL 2.29.
	Functions []string
	// Needs are the libraries that it is linked against.
	Needs []string
	// Texts are what it has among its constants.
	Texts []byte
}

// Functions are those of NCCL 2.29 that a job calls.
func Functions() []string {
	return []string{
		"ncclCommUserRank", "ncclCommCount", "ncclCommCuDevice",
		"ncclAllReduce", "ncclBroadcast", "ncclBcast", "ncclReduce", "ncclAllGather", "ncclReduceScatter", "ncclAlltoAll", "ncclGather", "ncclScatter",
		"ncclSend", "ncclRecv", "ncclGroupStart", "ncclGroupEnd",
		"ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitRankScalable", "ncclCommInitAll",
		"ncclCommSplit", "ncclCommShrink", "ncclCommGrow", "ncclCommFinalize", "ncclCommRevoke", "ncclCommDestroy", "ncclCommAbort", "ncclDevCommCreate",
	}
}

// others are functions that RCCL and libcuda have.
func others() []string { return []string{"ncclAllToAll", "cuGraphLaunch", "cuGraphLaunch_ptsz"} }

func place(function string) int { return slices.Index(append(Functions(), others()...), function) }

// Content is the file. Its functions begin as those of the true library do.
func (l Library) Content() []byte {
	names := l.Functions
	if names == nil {
		names = Functions()
	}
	list := make([]standin.Function, len(names))
	for i, name := range names {
		list[i] = standin.Function{Name: name, Place: place(name), Code: l.code(name)}
	}
	content := standin.Library(list)
	if len(l.Needs) > 0 {
		content = standin.Linked(content, l.Needs...)
	}
	if len(l.Texts) > 0 {
		content = standin.WithTexts(content, l.Texts)
	}
	return content
}

// Install writes the file to a folder.
func (l Library) Install(folder string) (file string, err error) {
	name := l.Name
	if name == "" {
		name = LibraryName
	}
	file = filepath.Join(folder, name)
	return file, os.WriteFile(file, l.Content(), 0o755)
}

// Offset is where in the file a function is: for a program of another language, which maps the
// file from the last multiple of 64 KiB on.
func Offset(function string) int { return standin.CodeAt + place(function)*standin.Stride }

func (l Library) code(function string) []byte {
	field := slices.Index(Functions(), function) // rank, size and device are the first
	if l.RankOffset == 0 || field > 2 {
		return plain()
	}
	places := []uint64{l.RankOffset + uint64(field)*4}
	if l.Second != 0 {
		places = append(places, l.Second+uint64(field)*4)
	}
	return loads(places)
}

func entry(base uintptr, function string) (uintptr, error) {
	number := place(function)
	if number < 0 {
		return 0, fmt.Errorf("the library has no %s", function)
	}
	return base + uintptr(number*standin.Stride), nil
}
