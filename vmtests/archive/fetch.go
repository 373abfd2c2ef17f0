package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// attempts of a download, and the pause before the second; it doubles.
const (
	attempts   = 4
	firstPause = 2 * time.Second
)

// errRefused marks an answer that another attempt will not change.
var errRefused = errors.New("not to be had")

// fetch downloads a file, checks its digest when one is given, and only then
// puts it in place. A connection that breaks, a server that is busy and a mirror
// in the middle of an update are tried again.
func fetch(ctx context.Context, url, path, digest string) error {
	return retry(ctx, firstPause, func() error { return fetchOnce(ctx, url, path, digest) })
}

func retry(ctx context.Context, pause time.Duration, do func() error) error {
	var err error
	for range attempts {
		if err = do(); err == nil || errors.Is(err, errRefused) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(pause):
			pause *= 2
		}
	}
	return fmt.Errorf("after %d attempts: %w", attempts, err)
}

func fetchOnce(ctx context.Context, url, path, digest string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch code := response.StatusCode; {
	case code == http.StatusOK:
	case code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout:
		return fmt.Errorf("get %s: %w: %s", url, errRefused, response.Status)
	default:
		return fmt.Errorf("get %s: %s", url, response.Status)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "fetch-")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(temporary, hash), response.Body)
	if err = errors.Join(err, temporary.Close()); err != nil {
		return fmt.Errorf("get %s: %w", url, err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); digest != "" && got != digest {
		return fmt.Errorf("get %s: %w: sha256 is %s, the index says %s", url, errRefused, got, digest)
	}
	return os.Rename(temporary.Name(), path)
}
