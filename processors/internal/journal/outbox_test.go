package journal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/extension/xextension/storage"

	"github.com/tracecoreai/tracecore/extensions/filestorageextension"
)

// shared is an outbox whose items begin with the name of their owner.
func shared(most int) *Outbox {
	return &Outbox{MostItems: most, MostBytes: 1 << 20, Owner: func(item []byte) []string {
		owner, _, _ := strings.Cut(string(item), " ")
		return []string{owner}
	}}
}

func all(o *Outbox) []string {
	items, _ := o.First(1 << 20)
	var texts []string
	for _, item := range items {
		texts = append(texts, string(item))
	}
	return texts
}

func TestAFloodTakesRoomFromItself(t *testing.T) {
	o := shared(10)
	o.Add([]byte("quiet 1"))
	dropped := 0
	for i := range 100_000 {
		dropped += o.Add(fmt.Appendf(nil, "flood %d", i))
	}
	o.Add([]byte("quiet 2"))
	require.Equal(t, 99_991, dropped)
	texts := all(o)
	require.Len(t, texts, 10)
	require.Equal(t, "quiet 1", texts[0])
	require.Equal(t, "flood 99999", texts[8], "the newest of the flood are left")
	require.Equal(t, "quiet 2", texts[9])
	require.LessOrEqual(t, len(o.slots), 2*o.Len()+65, "what has gone takes no room")
}

func TestDeliveryPassesOverWhatGaveWay(t *testing.T) {
	o := shared(3)
	for _, item := range []string{"a 1", "b 1", "b 2", "a 2", "b 3"} {
		o.Add([]byte(item))
	}
	items, last := o.First(2)
	o.DropThrough(last)
	require.Len(t, items, 2)
	rest, _ := o.First(9)
	require.Len(t, rest, 1)
	require.Equal(t, "b 3", string(rest[0]))
	require.Equal(t, 1, o.Len())
}

func openJournal(t *testing.T, folder string) (*Journal, func()) {
	factory := filestorageextension.NewFactory()
	config := factory.CreateDefaultConfig().(*filestorageextension.Config)
	config.Directory = folder
	extension, err := factory.Create(t.Context(), extensiontest.NewNopSettings(factory.Type()), config)
	require.NoError(t, err)
	require.NoError(t, extension.Start(t.Context(), nil))
	j, err := Open(t.Context(), extension.(storage.Extension), component.MustNewID("processor"))
	require.NoError(t, err)
	return j, func() {
		require.NoError(t, j.Client.Close(t.Context()))
		require.NoError(t, extension.Shutdown(t.Context()))
	}
}

// Whatever is added, gives way and is taken: a restart finds what waited, and no more.
func TestARestartFindsWhatWaited(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	folder := t.TempDir()
	o := shared(20)
	for range 30 {
		j, end := openJournal(t, folder)
		restored := shared(20)
		require.Empty(t, j.LoadOutbox(t.Context(), restored, func([]byte) error { return nil }))
		require.Equal(t, all(o), all(restored))
		require.GreaterOrEqual(t, restored.next, o.head())
		o = restored
		for i := range chance.IntN(40) {
			switch chance.IntN(4) {
			case 0:
				_, last := o.First(chance.IntN(5))
				if last > 0 {
					o.DropThrough(last)
				}
			case 1:
				require.NoError(t, j.Write(t.Context(), o))
			default:
				o.Add(fmt.Appendf(nil, "%c %d", "abbbbbbc"[chance.IntN(8)], i))
			}
		}
		require.NoError(t, j.Write(t.Context(), o))
		require.True(t, slices.IsSorted(o.stored))
		stored, err := j.read(t.Context(), itemPrefix)
		require.NoError(t, err)
		require.Len(t, stored, o.Len(), "nothing is left behind")
		end()
	}
}

// A second outbox is written with the first, and neither takes the other's items.
func TestTwoOutboxesDoNotMix(t *testing.T) {
	folder := t.TempDir()
	j, end := openJournal(t, folder)
	first, second := shared(9), shared(9)
	second.Name = "history"
	j.Second = second
	for i := range 5 {
		first.Add(fmt.Appendf(nil, "a %d", i))
		second.Add(fmt.Appendf(nil, "b %d", i))
	}
	require.NoError(t, j.Append(t.Context(), &Entry{}, first))
	first.DropThrough(3)
	second.DropThrough(0)
	require.NoError(t, j.Snapshot(t.Context(), []byte("state"), first))
	require.Equal(t, second, j.Second, "a snapshot keeps it")
	end()

	j, end = openJournal(t, folder)
	defer end()
	first, second = shared(9), shared(9)
	second.Name = "history"
	for _, o := range []*Outbox{first, second} {
		require.Empty(t, j.LoadOutbox(t.Context(), o, func([]byte) error { return nil }))
	}
	require.Equal(t, []string{"a 4"}, all(first))
	require.Equal(t, []string{"b 1", "b 2", "b 3", "b 4"}, all(second))
	require.NoError(t, j.ResetOutbox(t.Context(), first))
	left, err := j.read(t.Context(), second.prefix())
	require.NoError(t, err)
	require.Len(t, left, 4, "the other is reset alone")
}

func TestAnItemThatIsMissingIsDamage(t *testing.T) {
	folder := t.TempDir()
	j, end := openJournal(t, folder)
	o := shared(9)
	for _, item := range []string{"a 1", "a 2", "a 3"} {
		o.Add([]byte(item))
	}
	require.NoError(t, j.Write(t.Context(), o))
	require.NoError(t, j.Client.Delete(t.Context(), o.keyItem(1)))
	end()
	j, end = openJournal(t, folder)
	defer end()
	restored := shared(9)
	require.Len(t, j.LoadOutbox(t.Context(), restored, func([]byte) error { return nil }), 1)
	require.Equal(t, []string{"a 1", "a 3"}, all(restored))
	require.NoError(t, j.ResetOutbox(t.Context(), restored))
	require.NoError(t, j.Write(t.Context(), restored))
	require.Equal(t, []string{"a 1", "a 3"}, all(restored))
}

func TestTheOutboxOfAnOlderVersionIsRead(t *testing.T) {
	j, end := openJournal(t, t.TempDir())
	defer end()
	ops := []*storage.Operation{storage.SetOperation(keyOutbox, seal(boundsMagic, []byte{0, 0, 0, 0, 0, 0, 0, 5}))}
	for n := uint64(4); n < 7; n++ { // the first was delivered, and not removed before a crash
		ops = append(ops, storage.SetOperation((&Outbox{}).keyItem(n), seal(verdictMagic, fmt.Appendf(nil, "a %d", n))))
	}
	require.NoError(t, j.batch(t.Context(), ops...))
	o := shared(9)
	require.Empty(t, j.LoadOutbox(t.Context(), o, func([]byte) error { return nil }))
	require.Equal(t, []string{"a 5", "a 6"}, all(o))
	require.EqualValues(t, 7, o.next)
}

func BenchmarkAFullOutbox(b *testing.B) {
	o := shared(10_000)
	item := append([]byte("flood "), make([]byte, 2000)...)
	o.MostBytes = 1 << 30
	for b.Loop() {
		o.Add(item)
	}
}
