package unwind

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sort"
	"strconv"
	"sync"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/procmem"
)

// MaxFiles is how many ELF files are held open by default. A rank of PyTorch maps 400; the
// ranks of a node map the same.
const MaxFiles = 1024

// Unwinder unwinds the threads of processes. It holds their files open, by device and inode:
// Prepare opens those of a process while all is well, since a file on a mount that hangs cannot
// be opened any more. Its methods may be called at the same time.
type Unwinder struct {
	fs   *procfs.FS
	arch *arch
	most int
	vdso *image // this process's own; the kernel gives all the same
	why  error  // there is no vdso

	mu    sync.Mutex // guards what follows
	known *lookups
	files map[fileID]*fairlru.Element[*mapped]
	order fairlru.List[*mapped]
	left  []*mapped // gave way, and are closed when nobody unwinds through them
}

type fileID struct {
	device string
	inode  uint64
}

// mapped is a file that is open, or why it cannot be used.
type mapped struct {
	id    fileID
	file  *patientFile
	image *image
	why   error
	of    map[uint32]struct{} // processes that have it mapped
}

// New makes an unwinder that reads processes through fs and holds so many files, 0: MaxFiles.
func New(fs *procfs.FS, files int) (*Unwinder, error) {
	machines := map[string]func() *arch{"amd64": amd64, "arm64": arm64}
	machine := machines[runtime.GOARCH]
	if machine == nil {
		return nil, fmt.Errorf("unwind native frames: %s is not known", runtime.GOARCH)
	}
	u := &Unwinder{fs: fs, arch: machine(), most: cmp.Or(files, MaxFiles), known: newLookups(), files: map[fileID]*fairlru.Element[*mapped]{}}
	u.vdso, u.why = ownVDSO(u.arch, u.known)
	return u, nil
}

// Close closes the files.
func (u *Unwinder) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.files) > 0 {
		u.giveWay()
	}
	u.closeLeft()
	return nil
}

// Release lets go of a process that has ended: of the files that no other has. An open file
// keeps its mount, and so a volume, busy.
func (u *Unwinder) Release(pid uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, place := range u.files {
		if _, has := place.Value.of[pid]; has {
			if delete(place.Value.of, pid); len(place.Value.of) == 0 {
				u.drop(place)
			}
		}
	}
	u.closeLeft()
}

// Prepare opens the files whose code a process has mapped. What cannot be opened is tried
// again when a stack needs it.
func (u *Unwinder) Prepare(pid uint32) error {
	code, err := u.fs.AllCode(pid)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, m := range code[:min(len(code), u.most)] {
		if m.Inode != 0 {
			u.open(pid, m)
		}
	}
	u.closeLeft()
	return nil
}

// open is called with mu held.
func (u *Unwinder) open(pid uint32, m procfs.Mapping) *mapped {
	id := fileID{m.Device, m.Inode}
	if place := u.files[id]; place != nil {
		u.order.Touch(place, fairlru.Little)
		place.Value.of[pid] = struct{}{}
		return place.Value
	}
	file, err := u.fs.OpenMapped(pid, m)
	if err != nil {
		return &mapped{why: err}
	}
	name := fmt.Sprintf("%s (device %s, inode %d)", m.Path, m.Device, m.Inode)
	f := &mapped{id: id, file: &patientFile{fs: u.fs, pid: pid, name: name, file: file}, of: map[uint32]struct{}{pid: {}}}
	if f.image, f.why = newImage(f.file, u.arch, u.known); errors.Is(f.why, procfs.ErrHung) {
		u.left = append(u.left, f)
		return f
	}
	for len(u.files) >= u.most {
		u.giveWay()
	}
	u.files[id] = u.order.Add(f, fairlru.Little, strconv.FormatUint(uint64(pid), 10))
	return f
}

// giveWay drops the file that was used longest ago, of the process that opened most.
func (u *Unwinder) giveWay() {
	place, _ := u.order.Victim()
	u.drop(place)
}

func (u *Unwinder) drop(place *fairlru.Element[*mapped]) {
	u.order.Remove(place)
	delete(u.files, place.Value.id)
	u.left = append(u.left, place.Value)
}

// closeLeft closes files beside: FUSE waits for its daemon when a file is closed (fuse_flush,
// fs/fuse/file.c). One device that hangs holds up its own files alone.
func (u *Unwinder) closeLeft() {
	devices := map[string][]*os.File{}
	for _, f := range u.left {
		devices[f.id.device] = append(devices[f.id.device], f.file.file)
	}
	u.left = nil
	for _, files := range devices {
		go func() {
			for _, file := range files {
				file.Close()
			}
		}()
	}
}

// Process is one process while its threads are unwound. It is for one goroutine.
type Process struct {
	unwinder *Unwinder
	pid      uint32
	code     []procfs.Mapping // by address
	memory   *procmem.Process
}

// Process reads which code a process has mapped.
func (u *Unwinder) Process(pid uint32) (*Process, error) {
	memory, err := procmem.Open(u.fs, pid)
	if err != nil {
		return nil, err
	}
	code, err := u.fs.AllCode(pid)
	if err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	return &Process{u, pid, code, memory}, nil
}

// Close ends the look at a process.
func (p *Process) Close() error { return p.memory.Close() }

// stackMemory bounds what is read of one stack: main threads have 8 MiB, of which 256 frames
// touch few pages.
const stackMemory = 1 << 20

// Unwind goes from the registers of a thread that sleeps to its start.
func (p *Process) Unwind(r Registers) Trace {
	return p.walk(r, procmem.NewSnapshot(p.memory, stackMemory))
}

// UnwindCopy unwinds a thread that runs, from its registers and what its stack was from the
// stack pointer on. It reads nothing else of the process.
func (p *Process) UnwindCopy(r Registers, stack []byte) Trace {
	return p.walk(r, procmem.Piece{Start: r.Values[p.unwinder.arch.sp], Bytes: stack})
}

func (p *Process) walk(r Registers, memory procmem.Memory) Trace {
	u := p.unwinder
	u.mu.Lock()
	defer u.mu.Unlock()
	used := map[*mapped]bool{}
	defer func() {
		for f := range used {
			f.file.forget()
		}
		u.closeLeft()
	}()
	w := walker{arch: u.arch, memory: memory, find: func(pc uint64) *code { return p.find(pc, used) }}
	return w.walk(r)
}

// find is called with the unwinder's mu held.
func (p *Process) find(pc uint64, used map[*mapped]bool) *code {
	at := sort.Search(len(p.code), func(i int) bool { return p.code[i].End > pc })
	if at == len(p.code) || pc < p.code[at].Start {
		return nil
	}
	m := p.code[at]
	c := &code{object: m.Path, start: m.Start, offset: m.Offset}
	switch {
	case m.Path == "[vdso]":
		c.image, c.why = p.unwinder.vdso, p.unwinder.why
	case m.Inode == 0:
		c.object = cmp.Or(m.Path, "[anonymous]")
		c.why = errors.New("its code is in no file")
	default:
		f := p.unwinder.open(p.pid, m)
		if c.image, c.why = f.image, f.why; f.file != nil {
			used[f] = true
		}
	}
	return c
}

// patientFile reads a file in pieces, each once for a stack; a read that hangs is left behind.
type patientFile struct {
	fs     *procfs.FS
	pid    uint32 // that gave it
	name   string
	file   *os.File
	pieces map[int64][]byte
}

const (
	piece     = 4 << 10
	maxPieces = 256 // of one file for one stack
)

// forget drops the pieces.
func (f *patientFile) forget() { f.pieces = nil }

// ReadAt is io.ReaderAt's.
func (f *patientFile) ReadAt(into []byte, at int64) (int, error) {
	if len(into) > piece {
		content, err := f.read(at, len(into))
		return copy(into, content), err
	}
	done := 0
	for done < len(into) {
		start := (at + int64(done)) &^ (piece - 1)
		content, err := f.piece(start)
		n := copy(into[done:], content[min(at+int64(done)-start, int64(len(content))):])
		if done += n; n == 0 {
			return done, cmp.Or(err, io.EOF)
		}
	}
	return done, nil
}

func (f *patientFile) piece(start int64) ([]byte, error) {
	if content, ok := f.pieces[start]; ok {
		return content, nil
	}
	content, err := f.read(start, piece)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if f.pieces == nil || len(f.pieces) >= maxPieces {
		f.pieces = map[int64][]byte{}
	}
	f.pieces[start] = content
	return content, nil
}

// read makes its own buffer, which a read that is left behind may fill whenever it returns.
func (f *patientFile) read(at int64, length int) ([]byte, error) {
	file := f.file
	content, err := procfs.PatientlyOf(f.fs, f.pid, f.name, func() ([]byte, error) {
		buffer := make([]byte, length)
		n, err := file.ReadAt(buffer, at)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return buffer[:n], err
	})
	if err == nil && len(content) < length {
		err = io.EOF
	}
	return content, err
}

// vdsoBytes is more than any has: two to four pages.
const vdsoBytes = 64 << 10

// ownVDSO reads this process's own vDSO. Where it lies is in the auxiliary vector
// (AT_SYSINFO_EHDR, getauxval(3)).
func ownVDSO(machine *arch, known *lookups) (*image, error) {
	vector, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return nil, err
	}
	const sysinfoEHDR = 33
	for ; len(vector) >= 16; vector = vector[16:] {
		if binary.LittleEndian.Uint64(vector) != sysinfoEHDR {
			continue
		}
		memory, err := os.Open("/proc/self/mem")
		if err != nil {
			return nil, err
		}
		defer memory.Close()
		content := make([]byte, vdsoBytes)
		n, err := memory.ReadAt(content, int64(binary.LittleEndian.Uint64(vector[8:])))
		if n == 0 {
			return nil, err
		}
		return newImage(sized(content[:n]), machine, known)
	}
	return nil, errors.New("this kernel has no vDSO")
}
