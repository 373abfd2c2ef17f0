package statelog

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rig is a log in a folder, and what it said.
type rig struct {
	*Log
	damaged int64
	aside   []string
	refused int
	last    error // why it refused
	ready   error
}

func open(t testing.TB, dir string) *rig { return openBut(t, dir, readFile) }

func openBut(t testing.TB, dir string, read func(string) (*os.File, []byte, error)) *rig {
	t.Helper()
	r := &rig{}
	aside := t.TempDir()
	r.Log = openWith(dir, Options{
		Ready: func() error { return r.ready },
		SetAside: func(path, _ string) error {
			r.aside = append(r.aside, filepath.Base(path))
			return os.Rename(path, filepath.Join(aside, fmt.Sprint(len(r.aside))))
		},
		Damaged: func(_ string, bytes int64) { r.damaged += bytes },
		Refused: func(err error) { r.refused, r.last = r.refused+1, err }, Taken: func() {},
		Memory: NewBudget(1 << 20),
	}, read)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func set(key, value string) Op { return Op{Key: key, Value: []byte(value)} }

func (r *rig) all(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, key := range r.Keys() {
		value, err := r.Get(key)
		require.NoError(t, err)
		if value != nil {
			found[key] = string(value)
		}
	}
	return found
}

// copied is what a kill -9 leaves: the files as they are.
func copied(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	r := open(t, dir)
	require.NoError(t, r.Apply(set("a", "1"), set("b", ""), set("c", "3")))
	require.NoError(t, r.Apply(Op{Key: "c", Delete: true}, set("a", "2")))
	want := map[string]string{"a": "2", "b": ""}
	require.Equal(t, want, r.all(t))
	require.Equal(t, want, open(t, copied(t, dir)).all(t), "after kill -9")
	require.NoError(t, r.Close())
	again := open(t, dir)
	require.Equal(t, want, again.all(t))
	require.Zero(t, again.damaged)
	require.ErrorIs(t, r.Apply(set("a", "3")), errClosed)
}

// change makes a random change of the log and of what it must hold.
func change(t testing.TB, random *rand.Rand, r *rig, want map[string]string) {
	t.Helper()
	var ops []Op
	for range 1 + random.IntN(4) {
		key := fmt.Sprintf("key/%d", random.IntN(200))
		if random.IntN(3) == 0 {
			ops = append(ops, Op{Key: key, Delete: true})
			delete(want, key)
			continue
		}
		value := strings.Repeat(fmt.Sprintf("%x ", random.Uint32()), random.IntN(2000))
		ops = append(ops, set(key, value))
		want[key] = value
	}
	require.NoError(t, r.Apply(ops...))
}

// TestAgainstAMap makes changes, kills and restarts, and compares with a map.
func TestAgainstAMap(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	random := rand.New(rand.NewPCG(1, 2))
	want := map[string]string{}
	r := open(t, dir)
	for step := range 4000 {
		change(t, random, r, want)
		switch random.IntN(100) {
		case 0:
			dir = copied(t, dir)
			r = open(t, dir)
			require.Equal(t, want, r.all(t), "step %d", step)
			require.Zero(t, r.damaged)
		case 1, 2, 3:
			r.Tend()
		}
	}
	r.Tend()
	require.Equal(t, want, r.all(t))
	disk, _ := r.Sizes()
	require.LessOrEqual(t, disk, 2*r.live+4*leastSegment, "what is outdated leaves the disk")
}

func TestAQueueLeavesNothingBehind(t *testing.T) {
	r := open(t, filepath.Join(t.TempDir(), "log"))
	value := strings.Repeat("x", 100<<10)
	for n := range 500 {
		require.NoError(t, r.Apply(set(fmt.Sprint(n), value), set("write", fmt.Sprint(n))))
		if n >= 20 {
			require.NoError(t, r.Apply(Op{Key: fmt.Sprint(n - 20), Delete: true}))
		}
		if n%10 == 0 {
			r.Tend()
		}
	}
	require.Less(t, len(r.segments), 8)
	require.Len(t, r.all(t), 21)
}

// damage is what a device, a file system or a person can do to a file.
var damage = map[string]func(random *rand.Rand, data []byte) []byte{
	"bit": func(random *rand.Rand, data []byte) []byte {
		data[random.IntN(len(data))] ^= 1 << random.IntN(8)
		return data
	},
	"cut": func(random *rand.Rand, data []byte) []byte { return data[:random.IntN(len(data))] },
	"zeros": func(random *rand.Rand, data []byte) []byte {
		at := random.IntN(len(data))
		clear(data[at:min(len(data), at+4096)])
		return data
	},
	"swap": func(random *rand.Rand, data []byte) []byte {
		pages := slices.Collect(slices.Chunk(slices.Clone(data), 4096))
		random.Shuffle(len(pages), func(i, j int) { pages[i], pages[j] = pages[j], pages[i] })
		return slices.Concat(pages...)
	},
	"garbage": func(random *rand.Rand, data []byte) []byte {
		for range 1 + random.IntN(5000) {
			data = append(data, byte(random.Uint32()))
		}
		return data
	},
	"repeat": func(random *rand.Rand, data []byte) []byte { return append(data, data[random.IntN(len(data)):]...) },
	"empty":  func(*rand.Rand, []byte) []byte { return nil },
}

// TestDamageCostsTheDamagedPartAlone: what is read from a damaged log was written to
// it at some time, and the log works on.
func TestDamageCostsTheDamagedPartAlone(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	dir := filepath.Join(t.TempDir(), "log")
	r := open(t, dir)
	written := map[string]map[string]bool{}
	want := map[string]string{}
	for range 600 {
		change(t, random, r, want)
		for key, value := range want {
			if written[key] == nil {
				written[key] = map[string]bool{}
			}
			written[key][value] = true
		}
	}
	for n := range 70 {
		kind := slices.Sorted(maps.Keys(damage))[n%len(damage)]
		t.Run(fmt.Sprintf("%s/%d", kind, n), func(t *testing.T) {
			random := rand.New(rand.NewPCG(5, uint64(n)))
			hurt := copied(t, dir)
			files, err := filepath.Glob(filepath.Join(hurt, "*"))
			require.NoError(t, err)
			path := files[random.IntN(len(files))]
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, damage[kind](random, data), 0o600))

			r := open(t, hurt)
			found := r.all(t)
			for key, value := range found {
				require.True(t, written[key][value], "%s holds what was never written", key)
			}
			if kind == "garbage" || kind == "repeat" {
				require.Equal(t, want, found)
			}
			require.NoError(t, r.Apply(set("after", "yes")))
			r.Tend()
			found["after"] = "yes"
			require.Equal(t, found, r.all(t))
			again := open(t, copied(t, hurt))
			require.Equal(t, found, again.all(t))
			require.Zero(t, again.damaged, "the damage is gone at the next start")
		})
	}
}

func TestOneFlippedBitCostsOneBatch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	r := open(t, dir)
	want := map[string]string{}
	for n := range 100 {
		key := fmt.Sprint(n)
		want[key] = strings.Repeat(key, 100)
		require.NoError(t, r.Apply(set(key, want[key])))
	}
	path := r.segments[0].path
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for at := 0; at < len(whole); at += 97 {
		hurt := slices.Clone(whole)
		hurt[at] ^= 4
		dir := filepath.Join(t.TempDir(), "log")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(path)), hurt, 0o600))
		r := open(t, dir)
		require.Len(t, r.all(t), 99, "byte %d", at)
		require.Less(t, r.damaged, int64(300))
		r.Tend()
		require.LessOrEqual(t, len(r.aside), 1)
	}
}

// TestStoredBytesCannotPassForAFrame: a value that is itself a frame stays a value
// when damage makes the reader look for frames.
func TestStoredBytesCannotPassForAFrame(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	r := open(t, dir)
	inner := encodeFrame(0, 99, []Op{set("forged", "yes")})
	require.NoError(t, r.Apply(set("a", string(inner))))
	path := r.segments[0].path
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[0] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o600))
	require.Empty(t, open(t, dir).all(t))
}

func TestWhatIsNoStateIsSetAside(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	r := open(t, dir)
	require.NoError(t, r.Apply(set("a", "1")))
	require.NoError(t, r.Close())
	require.NoError(t, os.Mkdir(filepath.Join(dir, nameOf(7, 1)), 0o700))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, nameOf(8, 1))))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "000000000001-0000000000000000.state2"), []byte("newer"), 0o600))
	large, err := os.Create(filepath.Join(dir, nameOf(9, 1)))
	require.NoError(t, err)
	require.NoError(t, large.Truncate(mostFile+1))
	require.NoError(t, large.Close())

	r = open(t, dir)
	require.Len(t, r.aside, 4)
	require.Equal(t, map[string]string{"a": "1"}, r.all(t))

	file := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(file, []byte("a file where the folder belongs"), 0o600))
	r = open(t, file)
	require.Equal(t, []string{"log"}, r.aside)
	require.NoError(t, r.Apply(set("a", "1")))
	require.Zero(t, r.refused)
}

func TestADiskThatTakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	r := open(t, dir)
	require.NoError(t, r.Apply(set("a", "1"), set("b", "1"), set("gone", "1")))
	r.refuse(errors.New("no space left on device"))
	r.ready = errors.New("no space left on device")
	require.NoError(t, r.Apply(set("a", "2"), Op{Key: "gone", Delete: true}, set("c", "1")))
	want := map[string]string{"a": "2", "b": "1", "c": "1"}
	require.Equal(t, want, r.all(t))
	r.Tend()
	require.Equal(t, map[string]string{"a": "1", "b": "1", "gone": "1"}, open(t, copied(t, dir)).all(t), "the disk has what it had")

	err := r.Apply(set("large", strings.Repeat("x", 1<<20)))
	require.ErrorIs(t, err, ErrFull)
	require.Equal(t, want, r.all(t), "all or none")
	for range 1000 {
		require.NoError(t, r.Apply(set("c", strings.Repeat("x", 10_000))), "what is replaced is given back")
	}
	require.NoError(t, r.Apply(set("c", "1")))

	r.ready = nil
	r.Tend()
	require.Equal(t, want, open(t, copied(t, dir)).all(t))
	_, memory := r.Sizes()
	require.Zero(t, memory)
	require.EqualValues(t, 1<<20, r.options.Memory.left)
}

func TestAFolderThatComesLater(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "log")
	old := open(t, dir)
	require.NoError(t, old.Apply(set("a", "old"), set("b", "old")))
	require.NoError(t, old.Close())

	r := &rig{}
	r.Log = Open(dir, Options{
		Ready:    func() error { return r.ready },
		SetAside: func(path, _ string) error { r.aside = append(r.aside, path); return os.RemoveAll(path) },
		Damaged:  func(string, int64) {}, Refused: func(error) { r.refused++ }, Taken: func() {}, Memory: NewBudget(1 << 20),
	})
	require.NoError(t, r.Close())
	r.ready = errors.New("permission denied")
	r.Log = Open(dir, r.options)
	require.Equal(t, 1, r.refused)
	require.NoError(t, r.Apply(set("a", "new")))
	r.ready = nil
	r.Tend()
	require.Empty(t, r.aside, "what nobody has read is not damaged")
	require.Equal(t, map[string]string{"a": "new"}, r.all(t), "what the component never saw does not mix with what it wrote")
	require.Equal(t, map[string]string{"a": "old", "b": "old"}, open(t, copied(t, dir)).all(t))
	require.ErrorIs(t, r.Close(), ErrLost)
	require.Equal(t, map[string]string{"a": "old", "b": "old"}, open(t, dir).all(t))
}

func TestMediaThatRotWhileInUse(t *testing.T) {
	r := open(t, filepath.Join(t.TempDir(), "log"))
	require.NoError(t, r.Apply(set("a", "1234567890"), set("b", "1")))
	_, err := r.active.file.WriteAt([]byte("X"), r.index["a"].at)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"b": "1"}, r.all(t))
	require.EqualValues(t, 10, r.damaged)
	require.NoError(t, os.Truncate(r.active.path, 0))
	_, err = r.Get("b")
	require.Error(t, err)
	r.Tend()
	require.NoError(t, r.Apply(set("c", "1")))
	require.Equal(t, map[string]string{"c": "1"}, r.all(t))
}

// FuzzScan: any bytes are read without harm, and nothing is found that no frame says.
func FuzzScan(f *testing.F) {
	frame := encodeFrame(5, 1, []Op{set("a", "1"), {Key: "b", Delete: true}})
	f.Add(frame)
	f.Add(append(frame[3:], frame...))
	f.Add([]byte(strings.Repeat(magic+"\xff\xff\x00\x00", 1000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		used := 0
		found := scan(data, 5, func(sequence uint64, ops []stored) {
			plain := make([]Op, len(ops))
			for i, op := range ops {
				plain[i] = op.Op
				require.Equal(t, string(op.Value), string(data[op.at:op.at+len(op.Value)]))
			}
			used += len(encodeFrame(5, sequence, plain))
		})
		require.LessOrEqual(t, used, len(data)-found.leftOut)
	})
}
