package kerneleventsreceiver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/extensiontest"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/extensions/filestorageextension"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

var storageID = component.MustNewID("file_storage")

// keeps gives the bench a storage in that folder.
func (b *bench) keeps(t *testing.T, folder string) (end func()) {
	factory := filestorageextension.NewFactory()
	config := factory.CreateDefaultConfig().(*filestorageextension.Config)
	config.Directory = folder
	extension, err := factory.Create(t.Context(), extensiontest.NewNopSettings(factory.Type()), config)
	require.NoError(t, err)
	require.NoError(t, extension.Start(t.Context(), b.Host))
	b.Host.Extensions[storageID] = extension
	b.config.Storage = &storageID
	return func() { require.NoError(t, extension.Shutdown(context.Background())) }
}

func late(text string) kmsg.Back {
	return kmsg.Back{Events: []kmsg.Event{{Time: start.Add(-time.Hour), Writer: kmsg.WriterKernel, Late: true, Text: text}}}
}

// run starts a receiver, lets it do, and stops it and its storage.
func (b *bench) run(t *testing.T, folder string, do func()) {
	end := b.keeps(t, folder)
	r := b.receiver(t, b.Sink)
	require.NoError(t, r.Start(t.Context(), b.Host))
	do()
	require.NoError(t, r.Shutdown(t.Context()))
	end()
}

func TestWhatTheKernelSaidBeforeIsToldOnceAndAsAClaim(t *testing.T) {
	b, folder := newBench(t), t.TempDir()
	b.back = late(xid79)
	b.run(t, folder, func() {
		r := b.Next(t)
		require.Equal(t, "gpu.xid", r.EventName())
		require.Equal(t, start.Add(-time.Hour).UnixNano(), int64(r.Timestamp()), "when it happened, not when it was read")
		a := r.Attributes().AsRaw()
		require.Equal(t, "claimed", a["tracecore.trust"], "nobody saw who wrote it")
		require.Equal(t, true, a["kernelevents.late"])
		require.EqualValues(t, 1, b.Own(t, "lines_late"))
		require.Zero(t, b.Own(t, "log_gaps"))
	})
	require.Equal(t, []kmsg.Moment{0}, b.since, "all of this boot, the first time")

	stopped := kmsg.Now()
	b.back = kmsg.Back{}
	b.run(t, folder, func() {
		b.write(xid79)
		require.NotContains(t, b.Next(t).Attributes().AsRaw(), "kernelevents.late")
	})
	require.Len(t, b.since, 2)
	require.NotZero(t, b.since[1])
	require.LessOrEqual(t, b.since[1], stopped, "from when the last process stopped looking")
}

func TestWithoutAStorageNothingIsReadBack(t *testing.T) {
	b := newBench(t)
	b.back = late(xid79)
	b.start(t)
	b.write("NVRM: Xid (PCI:0000:66:00): 79, GPU has fallen off the bus.")
	require.Equal(t, "0000:66:00.0", b.Next(t).Attributes().AsRaw()["gpu.id"])
	require.Empty(t, b.since)
}

func TestANoteOfAnotherBootSaysNothingOfThisOne(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"another boot": `{"boot":"another","until":5}`,
		"the future":   `{"boot":"BOOT","until":9223372036854775807}`,
		"damaged":      `{"boot":`,
		"of no time":   `{"boot":"BOOT","until":-1}`,
	} {
		b := newBench(t)
		end := b.keeps(t, folder)
		w := newWatched(b.Settings, &storageID, "BOOT")
		require.NoError(t, w.open(t.Context(), b.Host), name)
		require.NoError(t, w.client.Set(t.Context(), noteKey, []byte(text)))
		require.NoError(t, w.client.Close(t.Context()))
		w = newWatched(b.Settings, &storageID, "BOOT")
		require.NoError(t, w.open(t.Context(), b.Host), name)
		since, kept := w.since()
		require.True(t, kept)
		require.Zero(t, since, name)
		require.NoError(t, w.client.Close(t.Context()))
		end()
	}
}

// A process that is killed while it reads back reads all of it again.
func TestNothingIsNotedBeforeAllIsReadBack(t *testing.T) {
	b := newBench(t)
	defer b.keeps(t, t.TempDir())()
	w := newWatched(b.Settings, &storageID, "BOOT")
	require.NoError(t, w.open(t.Context(), b.Host))
	defer func() { require.NoError(t, w.client.Close(t.Context())) }()
	w.note(true)
	kept, err := w.client.Get(t.Context(), noteKey)
	require.NoError(t, err)
	require.Nil(t, kept)
	w.resume()
	w.note(false)
	kept, err = w.client.Get(t.Context(), noteKey)
	require.NoError(t, err)
	require.Nil(t, kept, "a record waits")
	w.note(true)
	kept, err = w.client.Get(t.Context(), noteKey)
	require.NoError(t, err)
	require.Contains(t, string(kept), "BOOT")
}

func TestAGapIsCounted(t *testing.T) {
	for name, set := range map[string]func(*bench){
		"overwritten":         func(b *bench) { b.back.Gap = true },
		"too many to hand on": func(b *bench) { b.back.Cut = 3 },
		"not readable":        func(b *bench) { b.backErr = errors.New("operation not permitted") },
	} {
		b := newBench(t)
		set(b)
		b.run(t, t.TempDir(), func() {
			b.write(xid79) // the probe works all the same
			b.Next(t)
			require.EqualValues(t, 1, b.Own(t, "log_gaps"), name)
		})
	}
}

func TestAProbeThatComesBackReadsWhatItMissed(t *testing.T) {
	b := newBench(t)
	b.config.ErrorMode = record.Ignore
	b.run(t, t.TempDir(), func() {
		b.write(xid79)
		b.Next(t)
		before := kmsg.Now()
		b.back = late("NVRM: Xid (PCI:0000:66:00): 79, GPU has fallen off the bus.")
		b.source.Broken <- errors.New("it broke")
		b.Tick(t, time.Second, start)
		require.Equal(t, true, b.Next(t).Attributes().AsRaw()["kernelevents.late"])
		require.Len(t, b.since, 2)
		require.GreaterOrEqual(t, b.since[1], before)
	})
}

func TestAStorageThatIsNoneIsAnError(t *testing.T) {
	b := newBench(t)
	b.config.Storage = &storageID
	r := b.receiver(t, b.Sink)
	require.ErrorContains(t, r.Start(t.Context(), b.Host), "define it under extensions")
	require.NoError(t, r.Shutdown(t.Context()))
}
