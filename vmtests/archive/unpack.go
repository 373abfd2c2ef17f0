package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// inTree fetches a package, unpacks it and lets use take what it wants.
func (c Cache) inTree(ctx context.Context, pkg Package, use func(tree string) error) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(c.Dir, "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	deb := filepath.Join(work, "package.deb")
	if err := fetch(ctx, pkg.URL, deb, pkg.SHA256); err != nil {
		return err
	}
	tree := filepath.Join(work, "tree")
	if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", deb, tree).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack: %w: %s", err, out)
	}
	return errors.Join(os.Remove(deb), use(tree))
}

// File returns the path of one file of the newest package that matches, named
// as it was before Debian moved /bin into /usr.
func (c Cache) File(ctx context.Context, q Query, inside string) (string, error) {
	pkg, problems, err := c.newest(ctx, q, q.Patterns[0])
	if err != nil {
		return "", errors.Join(append(problems, err)...)
	}
	path := filepath.Join(c.Dir, fmt.Sprintf("%s_%s_%s.%s", pkg.Name, pkg.Version, q.Arch, filepath.Base(inside)))
	if exists(path) {
		return path, nil
	}
	err = c.inTree(ctx, pkg, func(tree string) error {
		if found := filepath.Join(tree, "usr", inside); exists(found) {
			return os.Rename(found, path)
		}
		return os.Rename(filepath.Join(tree, inside), path)
	})
	if err != nil {
		return "", fmt.Errorf("%s of package %s %s: %w", inside, pkg.Name, pkg.Version, err)
	}
	return path, nil
}
