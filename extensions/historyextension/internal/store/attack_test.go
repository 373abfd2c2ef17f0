//go:build unix

package store

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// `make attack` takes 100,000 verdicts and 1,000 rounds.
var (
	kept   = flag.Int("history-verdicts", hosttest.Size(1000, 300), "how many verdicts TestAttack… keeps under kill -9")
	rounds = flag.Int("history-rounds", hosttest.Size(30, 10), "how often TestAttack… damages a history")
	seed   = flag.Uint64("history-seed", uint64(time.Now().UnixNano()), "seed of what TestAttack… does")
)

// childVariable tells a copy of this test binary to be the process that is killed.
const childVariable = "TRACECORE_TEST_KEEP_FROM"

// TestAttackByKills kills a process that keeps verdicts, again and again, at any moment.
// What was acknowledged is there, as it was.
func TestAttackByKills(t *testing.T) {
	if from := os.Getenv(childVariable); from != "" {
		keepUntilKilled(t, from)
	}
	t.Logf("-history-seed=%d", *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	dir := t.TempDir()
	acknowledged, kills := 0, 0
	batches := map[string]int{} // the newest evidence of each incident
	for acknowledged < *kept {
		child := exec.Command(os.Args[0], "-test.run=^TestAttackByKills$")
		child.Env = append(os.Environ(), childVariable+"="+strconv.Itoa(acknowledged), "TRACECORE_TEST_KEEP_IN="+dir)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		lines := bufio.NewReader(out)
		_, err = lines.ReadString('\n') // the file is open
		require.NoError(t, err)
		// Some commits are seen, and the kill comes at any moment of the next.
		wanted, began, last := random.IntN(*kept/500+3), time.Now(), time.Duration(0)
		kill := func() { _ = child.Process.Kill() }
		for commits := 0; ; commits++ {
			if commits == wanted {
				time.AfterFunc(time.Duration(random.Float64()*float64(last)), kill)
			}
			line, err := lines.ReadString('\n')
			if errors.Is(err, io.EOF) {
				break // half a line says nothing
			}
			require.NoError(t, err)
			n, err := strconv.Atoi(strings.TrimSpace(line))
			require.NoError(t, err)
			acknowledged = n
			batches[numbered(n-1).IncidentID] = n
			began, last = time.Now(), time.Since(began)
		}
		require.Error(t, child.Wait())
		kills++
	}
	b := newBench(t, dir, 1<<30)
	for n := range acknowledged {
		var body []byte
		var checksum int64
		require.NoError(t, b.do(t.Context(), func(ctx context.Context) error {
			v := numbered(n)
			return b.conn.QueryRowContext(ctx, "SELECT body, sum FROM verdicts WHERE verdict_id = ? AND revision = ?", v.ID, v.Revision).Scan(&body, &checksum)
		}), "verdict %d", n)
		v, err := readVerdict(body, checksum)
		require.NoError(t, err)
		require.Equal(t, verdict.Bounded(numbered(n)), v)
	}
	for id, least := range batches {
		evidence, err := b.Evidence(t.Context(), id)
		require.NoError(t, err)
		var n int
		_, err = fmt.Sscanf(string(evidence), "evidence up to verdict %d", &n)
		require.NoError(t, err, "evidence of %s", id)
		require.GreaterOrEqual(t, n, least, "evidence of %s", id)
	}
	require.Empty(t, b.aside)
	t.Logf("%d verdicts and the evidence of %d incidents acknowledged, %d kills", acknowledged, len(batches), kills)
}

// numbered is the n-th verdict: of four revisions, in incidents of some verdicts.
func numbered(n int) verdict.Verdict {
	v := killed(fmt.Sprint("inc-", n/40), fmt.Sprint("node-", n/40%100), "llm", n/4%10)
	v.Revision, v.Updated = 1+n%4, onset.Add(time.Duration(n)*time.Millisecond)
	return v
}

// keepUntilKilled says after each commit how many verdicts are kept.
func keepUntilKilled(t *testing.T, from string) {
	next, err := strconv.Atoi(from)
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(uint64(os.Getpid()), 0))
	b := newBench(t, os.Getenv("TRACECORE_TEST_KEEP_IN"), 1<<30)
	b.keep(t)
	fmt.Println("open")
	for {
		var batch []verdict.Verdict
		for range 1 + random.IntN(100) {
			batch = append(batch, numbered(next))
			next++
		}
		b.keep(t, batch...)
		require.NoError(t, b.KeepEvidence(context.Background(), numbered(next-1).IncidentID, fmt.Appendf(nil, "evidence up to verdict %d", next)))
		fmt.Println(next)
	}
}

// TestAttackByDamage opens histories that are damaged anywhere. Each opens, keeps and
// answers, and what it answers was once told.
func TestAttackByDamage(t *testing.T) {
	t.Logf("-history-seed=%d", *seed)
	dir := t.TempDir()
	b := newBench(t, dir, 1<<22)
	told := map[string]bool{}
	for n := range 400 {
		told[string(verdict.ToJSON(numbered(n)))] = true
		b.keep(t, numbered(n))
	}
	withLog := t.TempDir()
	require.NoError(t, os.CopyFS(withLog, os.DirFS(dir))) // as a kill leaves it
	require.NoError(t, b.Close())
	for round := range *rounds {
		random := rand.New(rand.NewPCG(*seed, uint64(round)))
		hurt := t.TempDir()
		require.NoError(t, os.CopyFS(hurt, os.DirFS([]string{dir, withLog}[random.IntN(2)])))
		done := damage(t, random, hurt)
		b := newBench(t, hurt, 1<<22)
		b.keep(t, lost("inc-new", "node-1", "llm", 1))
		found, _, err := b.Incidents(t.Context(), history.Filter{Limit: history.MaxLimit})
		require.NoError(t, err)
		for _, i := range found {
			whole, err := b.Incident(t.Context(), i.ID, true)
			if errors.Is(err, ErrNotFound) {
				continue // damaged, and left out
			}
			require.NoError(t, err)
			for _, r := range whole.Revisions {
				require.True(t, told[string(verdict.ToJSON(r.Verdict))] || r.Verdict.IncidentID == "inc-new", "%s: %s", done, r.Verdict.ID)
			}
		}
		_, err = b.Incident(t.Context(), "inc-new", false)
		require.NoError(t, err)
		require.NoError(t, b.Close())
		if t.Failed() {
			t.Logf("round %d: %s", round, done)
			return
		}
	}
}

// damage changes one file.
func damage(t *testing.T, random *rand.Rand, dir string) (done string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, FileName+"*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	path := files[random.IntN(len(files))]
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	at := random.IntN(max(len(data), 1))
	write := func() error { return os.WriteFile(path, data, 0o600) }
	kinds := []struct {
		name string
		do   func() error
	}{
		{"bits", func() error {
			for range 1 + random.IntN(64) {
				data[random.IntN(len(data))] ^= 1 << random.IntN(8)
			}
			return write()
		}},
		{"head", func() error { data[random.IntN(min(len(data), 100))] ^= 1 << random.IntN(8); return write() }},
		{"cut", func() error { return os.Truncate(path, int64(at)) }},
		{"zeros", func() error { clear(data[at:min(len(data), at+pageBytes)]); return write() }},
		{"pages swapped", func() error {
			a, b := random.IntN(max(len(data)/pageBytes, 1))*pageBytes, random.IntN(max(len(data)/pageBytes, 1))*pageBytes
			for i := range min(pageBytes, len(data)) {
				data[a+i], data[b+i] = data[b+i], data[a+i]
			}
			return write()
		}},
		{"garbage behind", func() error { data = append(data, data[at:]...); return write() }},
		{"hole", func() error { return os.Truncate(path, int64(len(data))+1<<24) }},
		{"pipe", func() error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) }},
		{"gone", func() error { return os.Remove(path) }},
	}
	kind := kinds[random.IntN(len(kinds))]
	if len(data) == 0 {
		return "nothing"
	}
	require.NoError(t, kind.do())
	return kind.name + " of " + filepath.Base(path)
}

// TestAttackByAFullDisk: what was acknowledged is there, and what comes once there is room.
func TestAttackByAFullDisk(t *testing.T) {
	hosttest.Require(t, "mounts a small file system")
	disk := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=2m,mode=700"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	ballast := filepath.Join(disk, "ballast")
	b := newBench(t, filepath.Join(disk, "history"), 1<<22)
	b.keep(t, lost("inc-0", "node-1", "llm", 1))
	fillDisk(t, ballast)
	acknowledged := 1
	for err := error(nil); err == nil; acknowledged++ {
		err = b.Keep(t.Context(), []verdict.Verdict{lost(fmt.Sprint("inc-", acknowledged), "node-1", "llm", 1)})
		if err != nil {
			require.True(t, full(err), "%v", err)
			acknowledged--
		}
	}
	for range 10 {
		require.Error(t, b.Keep(t.Context(), []verdict.Verdict{lost("inc-more", "node-1", "llm", 1)}))
		b.pass(openEvery)
	}
	require.Len(t, b.ids(t, history.Filter{Limit: 1000}), acknowledged, "it can still be read")
	require.NoError(t, os.Remove(ballast))
	b.keep(t, lost("inc-after", "node-1", "llm", 1))
	require.NoError(t, b.Close())

	again := newBench(t, filepath.Join(disk, "history"), 1<<22)
	require.Len(t, again.ids(t, history.Filter{Limit: 1000}), acknowledged+1)
	require.Empty(t, append(b.aside, again.aside...))

	fillDisk(t, ballast)
	fresh := newBench(t, filepath.Join(disk, "other"), 1<<22)
	require.Error(t, fresh.Keep(t.Context(), []verdict.Verdict{lost("inc-1", "node-1", "llm", 1)}), "not even a folder has room")
	require.NoError(t, os.Remove(ballast))
	fresh.pass(openEvery)
	fresh.keep(t, lost("inc-1", "node-1", "llm", 1))
}

func fillDisk(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 512))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
}
