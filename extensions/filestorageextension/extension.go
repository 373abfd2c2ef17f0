package filestorageextension

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/extensions/filestorageextension/internal/metadata"
	"github.com/tracecoreai/tracecore/extensions/filestorageextension/internal/statelog"
	"github.com/tracecoreai/tracecore/internal/setaside"
)

const (
	// tendEvery is how often a disk that refuses is tried again, and what is written
	// synced.
	tendEvery = time.Second
	// mostUnsaved is what all components together may hold in memory while the disk
	// takes nothing: an agent has 512 MiB.
	mostUnsaved = 32 << 20
)

// fileStorage keeps a folder of state, with one log for each component.
type fileStorage struct {
	config    *Config
	settings  extension.Settings
	telemetry *metadata.TelemetryBuilder
	folder    *folder
	memory    *statelog.Budget

	mu      sync.Mutex
	clients map[string]*client
	stop    func()
}

var _ storage.Extension = (*fileStorage)(nil)

func newFileStorage(settings extension.Settings, config *Config) (*fileStorage, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	return &fileStorage{
		config: config, settings: settings, telemetry: telemetry, folder: &folder{path: config.Directory},
		memory: statelog.NewBudget(mostUnsaved), clients: map[string]*client{}, stop: func() {},
	}, nil
}

// Start takes the folder. Another process that has it is an error. A folder that
// cannot be made or written is said and tried again: it costs the state alone.
func (x *fileStorage) Start(context.Context, component.Host) error {
	if err := x.folder.take(); errors.Is(err, errTaken) {
		return err
	}
	if err := x.observe(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { x.tendUntil(ctx) })
	x.stop = func() {
		cancel()
		running.Wait()
	}
	return nil
}

func (x *fileStorage) tendUntil(ctx context.Context) {
	ticker := time.NewTicker(tendEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, c := range x.open() {
			c.log.Tend()
		}
	}
}

// open returns the clients that are open.
func (x *fileStorage) open() []*client {
	x.mu.Lock()
	defer x.mu.Unlock()
	clients := make([]*client, 0, len(x.clients))
	for _, c := range x.clients {
		clients = append(clients, c)
	}
	return clients
}

// GetClient opens the state of a component.
func (x *fileStorage) GetClient(_ context.Context, kind component.Kind, id component.ID, storageName string) (storage.Client, error) {
	name := nameOf(kind, id, storageName)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.clients[name] != nil {
		return nil, fmt.Errorf("the state %s is open already: two components have one name", name)
	}
	w := &watch{extension: x, name: name}
	c := &client{name: name, release: x.release, lost: w.lost, log: statelog.Open(filepath.Join(x.config.Directory, name), statelog.Options{
		Sync: x.config.FSync, Ready: x.folder.take, SetAside: w.setAside, Damaged: w.damaged, Refused: w.refused, Taken: w.taken, Memory: x.memory,
	})}
	x.clients[name] = c
	return c, nil
}

func (x *fileStorage) release(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.clients, name)
}

// nameOf names the folder of a component's state.
func nameOf(kind component.Kind, id component.ID, storageName string) string {
	parts := []string{strings.ToLower(kind.String()), id.Type().String(), id.Name()}
	if storageName != "" {
		parts = append(parts, storageName)
	}
	name := url.QueryEscape(strings.Join(parts, "_"))
	if len(name) > 200 { // a file system takes 255 bytes
		sum := sha256.Sum256([]byte(name))
		return hex.EncodeToString(sum[:])
	}
	return name
}

// observe makes sizes metrics.
func (x *fileStorage) observe() error {
	sum := func(value func(disk, memory int64) int64) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			var all int64
			for _, c := range x.open() {
				all += value(c.log.Sizes())
			}
			o.Observe(all)
			return nil
		}
	}
	return errors.Join(
		x.telemetry.RegisterExtensionFileStorageStoredBytesCallback(sum(func(disk, _ int64) int64 { return disk })),
		x.telemetry.RegisterExtensionFileStorageUnsavedBytesCallback(sum(func(_, memory int64) int64 { return memory })),
	)
}

// Shutdown closes what components left open and gives the folder back.
func (x *fileStorage) Shutdown(ctx context.Context) error {
	x.stop()
	x.stop = func() {}
	var err error
	for _, c := range x.open() {
		err = errors.Join(err, c.Close(ctx))
	}
	x.folder.giveBack()
	x.telemetry.Shutdown()
	return err
}

// watch says what happens to the state of one component.
type watch struct {
	extension *fileStorage
	name      string
	refusing  bool // said, and not over
}

func (w *watch) logger() *zap.Logger {
	return w.extension.settings.Logger.With(zap.String("state", w.name))
}

func (w *watch) setAside(path, why string) error {
	to, err := setaside.Move(w.extension.config.Directory, path, time.Now())
	if err != nil {
		return fmt.Errorf("%s: %s, and it cannot be moved: %w", path, why, err)
	}
	w.extension.telemetry.ExtensionFileStorageSetAside.Add(context.Background(), 1)
	w.logger().Warn("a file of state is set aside: "+why, zap.String("file", path), zap.String("now", to))
	return nil
}

func (w *watch) damaged(path string, bytes int64) {
	w.extension.telemetry.ExtensionFileStorageDamagedBytes.Add(context.Background(), bytes)
	w.logger().Warn("part of the stored state is not what was written, or its last write was not finished: that part is left out, the rest is used",
		zap.String("file", path), zap.Int64("bytes", bytes))
}

func (w *watch) refused(err error) {
	w.extension.telemetry.ExtensionFileStorageWriteFailures.Add(context.Background(), 1)
	if !w.refusing {
		w.logger().Warn("the disk does not take the state: it is held in memory, so that a restart would lose it; make room or repair the folder, it is tried again every second",
			zap.String("folder", w.extension.config.Directory), zap.Error(err))
	}
	w.refusing = true
}

func (w *watch) lost(err error) {
	w.logger().Warn("the state is closed and the disk still takes nothing", zap.String("folder", w.extension.config.Directory), zap.Error(err))
}

func (w *watch) taken() {
	w.refusing = false
	w.logger().Info("the disk takes the state again")
}
