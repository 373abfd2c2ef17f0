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
)

// fetch downloads a file, checks its digest when one is given, and only then
// puts it in place.
func fetch(ctx context.Context, url, path, digest string) error {
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
	if response.StatusCode != http.StatusOK {
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
		return fmt.Errorf("get %s: sha256 is %s, the index says %s", url, got, digest)
	}
	return os.Rename(temporary.Name(), path)
}
