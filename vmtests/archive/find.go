package archive

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// errGone marks what was in the archive once.
var errGone = errors.New("the archive has moved on, correct the row in kernels.txt")

// newest takes the newest package of all suites. A suite that cannot be asked is
// a warning while another has the package.
func (c Cache) newest(ctx context.Context, q Query, pattern string) (Package, []error, error) {
	var best Package
	var problems []error
	for _, name := range q.Suites {
		s, err := c.open(ctx, name, q.Arch)
		var found []Package
		if err == nil {
			found, err = s.packages(ctx, pattern)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("suite %s: %w", name, err))
		}
		for _, p := range found {
			if best.Name == "" || newer(ctx, p.Version, best.Version) {
				best = p
			}
		}
	}
	if best.Name == "" {
		return best, problems, fmt.Errorf("no package %s in %s: %w", pattern, strings.Join(q.Suites, ", "), errGone)
	}
	return best, problems, nil
}

// newer compares versions as dpkg does.
func newer(ctx context.Context, a, b string) bool {
	return exec.CommandContext(ctx, "dpkg", "--compare-versions", a, "gt", b).Run() == nil
}

// packages returns those of a suite whose names match the pattern.
func (s suite) packages(ctx context.Context, pattern string) ([]Package, error) {
	head, _, _ := strings.Cut(pattern, "*")
	names, err := s.run(ctx, "", "apt-cache", "pkgnames", head)
	if err != nil {
		return nil, err
	}
	args := []string{"show", "--no-all-versions"}
	for _, name := range strings.Fields(string(names)) {
		if matches(pattern, name) {
			args = append(args, name)
		}
	}
	if len(args) == 2 {
		return nil, nil
	}
	text, err := s.run(ctx, "", "apt-cache", args...)
	if err != nil {
		return nil, err
	}
	var found []Package
	for stanza := range strings.SplitSeq(string(text), "\n\n") {
		if p := parse(stanza); p.File != "" {
			p.suite = s
			found = append(found, p)
		}
	}
	return found, nil
}

// parse reads one paragraph of `Key: value` lines.
func parse(stanza string) Package {
	var p Package
	fields := map[string]*string{"Package": &p.Name, "Version": &p.Version, "SHA256": &p.SHA256, "Filename": &p.File}
	for line := range strings.Lines(stanza) {
		key, value, _ := strings.Cut(line, ": ")
		if field := fields[key]; field != nil {
			*field = strings.TrimSpace(value)
		}
	}
	return p
}

// matches compares a name with a pattern in which one * stands for a version,
// so it begins with a digit: linux-image-*-cloud does not match
// linux-image-unsigned-6.1-cloud.
func matches(pattern, name string) bool {
	head, tail, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	if len(name) <= len(head)+len(tail) || !strings.HasPrefix(name, head) || !strings.HasSuffix(name, tail) {
		return false
	}
	return name[len(head)] >= '0' && name[len(head)] <= '9'
}

// sibling finds another package of the same build in the same suite, or among
// those whose digest we know ourselves.
func sibling(ctx context.Context, pkg Package, name string, known []Package) (Package, error) {
	found, err := pkg.suite.packages(ctx, name)
	if err != nil {
		return Package{}, err
	}
	for _, p := range append(found, known...) {
		if p.Name == name && p.Version == pkg.Version {
			p.suite = pkg.suite
			return p, nil
		}
	}
	return Package{}, fmt.Errorf("no package %s %s beside it: %w", name, pkg.Version, errGone)
}
