package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// indexAge is how long a fetched package index is believed without asking again.
const indexAge = 12 * time.Hour

// keyring is Debian's own, from the package debian-archive-keyring.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// newestInFile reads an index through apt's own decompressor, which every
// Debian machine has.
func newestInFile(ctx context.Context, path, pattern, root string) (Package, bool, error) {
	command := exec.CommandContext(ctx, "/usr/lib/apt/apt-helper", "cat-file", path)
	out, err := command.StdoutPipe()
	if err != nil {
		return Package{}, false, err
	}
	if err := command.Start(); err != nil {
		return Package{}, false, fmt.Errorf("unpack index: %w", err)
	}
	pkg, ok, readErr := newest(out, pattern, root)
	if err := errors.Join(readErr, command.Wait()); err != nil {
		return Package{}, false, fmt.Errorf("read index %s: %w", path, err)
	}
	pkg.index, pkg.root = path, root
	return pkg, ok, nil
}

// index returns the path of a suite's package index, fetched if it is old. One
// that cannot be refreshed is used as it is, so that work goes on offline.
func (c Cache) index(ctx context.Context, root, suite, arch string) (string, error) {
	digest := sha256.Sum256([]byte(root))
	path := filepath.Join(c.Dir, "index", fmt.Sprintf("%s_%s_%x.xz", strings.ReplaceAll(suite, "/", "-"), arch, digest[:4]))
	info, err := os.Stat(path)
	if err == nil && time.Since(info.ModTime()) < indexAge {
		return path, nil
	}
	suite, component := splitComponent(suite)
	fetchErr := refresh(ctx, root+"/dists/"+suite, component+"/binary-"+arch, path)
	if fetchErr != nil && err != nil {
		return "", fetchErr
	}
	return path, nil
}

// refresh fetches an index by the digest that the signed InRelease file names,
// so that a mirror in the middle of an update cannot mix old and new.
func refresh(ctx context.Context, dist, folder, path string) error {
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	signed := filepath.Join(work, "InRelease")
	if err := fetch(ctx, dist+"/InRelease", signed, ""); err != nil {
		return err
	}
	text, err := verify(ctx, signed)
	if err != nil {
		return fmt.Errorf("%s/InRelease: %w", dist, err)
	}
	digest, err := listedDigest(text, folder+"/Packages.xz")
	if err != nil {
		return fmt.Errorf("%s/InRelease: %w", dist, err)
	}
	return fetch(ctx, dist+"/"+folder+"/by-hash/SHA256/"+digest, path, digest)
}

// verify returns what of the file is signed by a key of the keyring. As apt
// does, it takes one good signature and lets unknown keys pass.
func verify(ctx context.Context, signed string) (string, error) {
	content := signed + ".content"
	command := exec.CommandContext(ctx, "gpgv", "--status-fd", "1", "--keyring", keyring, "--output", content, signed)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	status, err := command.Output()
	if err == nil {
		err = errors.New("the status has no VALIDSIG")
	}
	good := bytes.Contains(status, []byte("[GNUPG:] VALIDSIG "))
	if bad := bytes.Contains(status, []byte("[GNUPG:] BADSIG ")); bad || !good {
		return "", fmt.Errorf("no good signature of Debian, install gpgv and debian-archive-keyring (gpgv: %w: %s)", err, complaints.String())
	}
	text, err := os.ReadFile(content)
	return string(text), err
}

// listedDigest finds a file in the SHA256 list of a Release file.
func listedDigest(release, name string) (string, error) {
	_, list, _ := strings.Cut(release, "\nSHA256:")
	for _, line := range strings.Split(list, "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[2] == name && len(f[0]) == 2*sha256.Size {
			return f[0], nil
		}
	}
	return "", fmt.Errorf("no SHA256 of %s: the suite is not built for this architecture", name)
}
