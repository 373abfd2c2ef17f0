// Package drillsecret proves that a process is of a drill. Agent and drill share a secret:
// a file that root alone reads. A drill gives its processes a token in their environment,
// which holds for a minute; the agent checks it when it learns the process. A job can
// call itself what it likes: without the secret it is no drill.
package drillsecret

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Name of the file in a state folder.
const Name = "drill.secret"

// holds is how far the start of a process may be from the making of its token.
const holds = time.Minute

const secretBytes = 32

// Secret makes tokens and checks them. A nil Secret proves nothing.
type Secret struct{ key []byte }

// Open reads the secret, or makes it when there is none; made says which. A file or folder
// that others could have written is refused.
func Open(path string) (s *Secret, made bool, err error) {
	if s, err = read(path); !errors.Is(err, fs.ErrNotExist) {
		return s, false, err
	}
	err = make0600(path)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, false, fmt.Errorf("make the drill secret %s: %w; give a folder that this user alone writes", path, err)
	}
	made = err == nil
	s, err = read(path)
	return s, made, err
}

func read(path string) (*Secret, error) {
	if err := private(path); err != nil {
		return nil, fmt.Errorf("drill secret %s: %w", path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the drill secret: %w", err)
	}
	defer f.Close()
	key := make([]byte, secretBytes+1)
	if n, err := f.Read(key); err != nil || n != secretBytes {
		return nil, fmt.Errorf("drill secret %s: not %d bytes: remove it, it is made anew", path, secretBytes)
	}
	return &Secret{key[:secretBytes]}, nil
}

// private refuses what another user owns or may change.
func private(path string) error {
	for _, one := range []struct {
		path   string
		folder bool
		others fs.FileMode // permissions that others must not have
	}{{filepath.Dir(path), true, 0o022}, {path, false, 0o077}} {
		info, err := os.Lstat(one.path)
		switch {
		case err != nil:
			return err
		case info.IsDir() != one.folder || !one.folder && !info.Mode().IsRegular():
			return fmt.Errorf("%s is a %s: remove it", one.path, info.Mode().Type())
		case info.Mode().Perm()&one.others != 0 || !mine(info):
			return fmt.Errorf("others may change or read %s (%s): chown it to root, chmod 0600 the file and 0700 its folder", one.path, info.Mode())
		}
	}
	return nil
}

// make0600 makes the file at once with its content: who finds it finds it whole.
func make0600(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	key := make([]byte, secretBytes)
	_, _ = rand.Read(key) // never fails: crypto/rand
	f, err := os.CreateTemp(filepath.Dir(path), Name+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(key)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}

// Token is a proof for processes that start about then.
func (s *Secret) Token(at time.Time) string {
	stamp := strconv.FormatInt(at.UnixMilli(), 10)
	return stamp + "." + hex.EncodeToString(s.sign(stamp))
}

// Proves reports whether the token is of a drill, for a process that started then.
func (s *Secret) Proves(token string, start time.Time) bool {
	stamp, sum, ok := strings.Cut(token, ".")
	if s == nil || !ok {
		return false
	}
	given, err := hex.DecodeString(sum)
	made, err2 := strconv.ParseInt(stamp, 10, 64)
	if err != nil || err2 != nil || !hmac.Equal(given, s.sign(stamp)) {
		return false
	}
	return start.Sub(time.UnixMilli(made)).Abs() <= holds
}

func (s *Secret) sign(stamp string) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte("tracecore drill " + stamp))
	return mac.Sum(nil)
}
