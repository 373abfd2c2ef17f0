// Package archive takes kernels, and files of other packages, out of Debian's archive: apt
// finds, verifies and downloads them, below a folder of our own and at the mirror that this
// machine's apt uses.
package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Package is what an index says about one binary package.
type Package struct {
	Name    string
	Version string
	SHA256  string
	File    string // path below the archive's root

	suite suite // where it was found
}

// suite is apt's view of one suite and architecture: a folder with its index alone.
type suite struct {
	name, arch, dir string
}

// indexAge is how long a fetched package index is believed without asking again.
const indexAge = 12 * time.Hour

// keyring is Debian's own, from the package debian-archive-keyring.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// open returns a suite with its index. One that cannot be refreshed is used as it is, so
// that work goes on offline.
func (c Cache) open(ctx context.Context, name, arch string) (suite, error) {
	s := suite{name: name, arch: arch, dir: filepath.Join(c.Dir, "apt", strings.ReplaceAll(name, "/", "-")+"_"+arch)}
	asked := filepath.Join(s.dir, "asked")
	info, err := os.Stat(asked)
	if err == nil && time.Since(info.ModTime()) < indexAge {
		return s, nil
	}
	if updateErr := s.update(ctx, c.Roots); updateErr != nil {
		if err != nil {
			return s, updateErr
		}
		return s, nil
	}
	return s, os.WriteFile(asked, nil, 0o644)
}

// update writes apt's files and fetches the index.
func (s suite) update(ctx context.Context, roots func(context.Context, string) ([]string, error)) error {
	release, component := splitComponent(s.name)
	uris, err := roots(ctx, release)
	if err != nil {
		return err
	}
	var lines string
	for _, uri := range uris {
		lines += fmt.Sprintf("deb %s %s %s\n", uri, release, component)
	}
	for _, dir := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o755); err != nil {
			return err
		}
	}
	if err := errors.Join(os.WriteFile(filepath.Join(s.dir, "sources.list"), []byte(lines), 0o644), os.WriteFile(filepath.Join(s.dir, "status"), nil, 0o644)); err != nil {
		return err
	}
	// Without this option apt-get update takes a suite that it cannot reach for a warning.
	_, err = s.run(ctx, "", "apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any")
	return err
}

// run runs a command of apt on this suite alone.
func (s suite) run(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	for _, option := range []string{
		"Dir::Etc::SourceList=" + s.dir + "/sources.list", "Dir::Etc::SourceParts=/dev/null",
		"Dir::Etc::Preferences=/dev/null", "Dir::Etc::PreferencesParts=/dev/null",
		"Dir::State::Lists=" + s.dir + "/lists", "Dir::State::status=" + s.dir + "/status",
		"Dir::Cache=" + s.dir, "Dir::Cache::pkgcache=pkgcache.bin",
		"APT::Architecture=" + s.arch, "APT::Architectures=" + s.arch, "APT::Sandbox::User=root",
		"Acquire::Languages=none", "Acquire::Retries=3", "Acquire::Check-Valid-Until=false",
	} {
		args = append(args, "-o", option)
	}
	return output(ctx, dir, program, args...)
}

// output runs a command; its error says what the command said.
func output(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, program, args...)
	command.Dir, command.Env = dir, append(os.Environ(), "LC_ALL=C")
	var complaints bytes.Buffer
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], err, strings.TrimSpace(complaints.String()))
	}
	return out, nil
}

// debian matches the suites of Debian's own archive, and tells the security archive apart.
var debian = regexp.MustCompile(`^(?:oldoldstable|oldstable|stable|testing|unstable|sid|bullseye|bookworm|trixie|forky|duke)(?:-(?:updates|backports|(security)))?$`)

// MachineRoots are the roots that apt is set up with on this machine, as a line of
// sources.list begins. They hold every suite, not only those this machine follows.
func MachineRoots(ctx context.Context, release string) ([]string, error) {
	targets, err := output(ctx, "", "apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return nil, err
	}
	wanted := debian.FindStringSubmatch(release)
	var roots []string
	for line := range strings.Lines(string(targets)) {
		of, uri, _ := strings.Cut(strings.TrimSpace(line), " ")
		found := debian.FindStringSubmatch(of)
		root := "[signed-by=" + keyring + "] " + uri
		if found != nil && wanted != nil && found[1] == wanted[1] && !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	}
	if len(roots) == 0 {
		return nil, fmt.Errorf("apt has no source that serves %s: add Debian's archive as apt knows it (`deb URI SUITE main`)", release)
	}
	return roots, nil
}

// splitComponent splits trixie/non-free into release and component, which is main where
// none stands.
func splitComponent(suite string) (release, component string) {
	release, component, named := strings.Cut(suite, "/")
	if !named {
		component = "main"
	}
	return release, component
}
