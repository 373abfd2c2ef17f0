package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mirror is an archive with one suite, made here, and a cache that takes packages from it.
type mirror struct {
	Cache
	root     string
	packages string // its index
}

func newMirror(t *testing.T) *mirror {
	t.Helper()
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			require.NotEqual(t, "true", os.Getenv("CI"), "CI must have %s", program)
			t.Skip("needs ", program)
		}
	}
	m := &mirror{root: t.TempDir()}
	m.Cache = Cache{Dir: t.TempDir(), Roots: func(context.Context, string) ([]string, error) {
		return []string{"[trusted=yes] copy:" + m.root}, nil
	}}
	return m
}

// add builds a package with these files. A digest other than "" stands in the index.
func (m *mirror) add(t *testing.T, name, version, digest string, files ...string) {
	t.Helper()
	tree, file := t.TempDir(), name+"_"+version+".deb"
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: nobody\nDescription: a text\n", name, version)
	m.write(t, tree, "DEBIAN/control", control)
	for _, f := range files {
		m.write(t, tree, f, name+" "+version)
	}
	_, err := output(t.Context(), "", "dpkg-deb", "-b", tree, filepath.Join(m.root, file))
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(m.root, file))
	require.NoError(t, err)
	if digest == "" {
		digest = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	m.packages += fmt.Sprintf("%sFilename: %s\nSize: %d\nSHA256: %s\n\n", control, file, len(content), digest)
	m.write(t, m.root, "dists/any/main/binary-amd64/Packages", m.packages)
}

func (m *mirror) write(t *testing.T, root, name, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o644))
}

var query = Query{Suites: []string{"any"}, Arch: "amd64", Patterns: []string{"linux-image-9.1.0-*-cloud"}}

func TestNewestPackageOfTheSeriesIsTaken(t *testing.T) {
	m := newMirror(t)
	m.add(t, "linux-image-9.1.0-9-cloud", "9.1.9-1", "", "boot/vmlinuz-9")
	m.add(t, "linux-image-9.1.0-10-cloud", "9.1.10-1~bpo1", "", "boot/vmlinuz-10")
	m.add(t, "linux-image-unsigned-9.1.0-11-cloud", "9.1.11-1", "", "boot/vmlinuz-11")
	m.add(t, "linux-image-9.2.0-1-cloud", "9.2.1-1", "", "boot/vmlinuz-1")
	pkg, folder, err := m.Files(t.Context(), query, []string{"boot/vmlinuz-*"})
	require.NoError(t, err)
	require.Equal(t, "9.1.10-1~bpo1", pkg.Version)
	text, err := os.ReadFile(filepath.Join(folder, "boot/vmlinuz-10"))
	require.NoError(t, err)
	require.Equal(t, "linux-image-9.1.0-10-cloud 9.1.10-1~bpo1", string(text))

	// Without a network the last index is used.
	asked := filepath.Join(m.Dir, "apt/any_amd64/asked")
	old := time.Now().Add(-2 * indexAge)
	require.NoError(t, os.Chtimes(asked, old, old))
	m.Roots = func(context.Context, string) ([]string, error) { return nil, errors.New("no network") }
	again, _, err := m.Files(t.Context(), query, []string{"boot/vmlinuz-*"})
	require.NoError(t, err)
	require.Equal(t, pkg, again)
}

func TestPackagesAreUnpackedBesideEachOther(t *testing.T) {
	m := newMirror(t)
	m.add(t, "libc6", "2.41-1", "", "usr/lib/libc.so.6")
	m.add(t, "python3-minimal", "3.13.5-1", "", "usr/bin/python3")
	root := t.TempDir()
	for _, name := range []string{"libc6", "python3-minimal"} {
		pkg, err := m.Unpack(t.Context(), Query{Suites: []string{"any"}, Arch: "amd64", Patterns: []string{name}}, root)
		require.NoError(t, err)
		require.Equal(t, name, pkg.Name)
	}
	for file, want := range map[string]string{"usr/lib/libc.so.6": "libc6 2.41-1", "usr/bin/python3": "python3-minimal 3.13.5-1"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
	_, err := m.Unpack(t.Context(), Query{Suites: []string{"any"}, Arch: "amd64", Patterns: []string{"python2"}}, root)
	require.ErrorContains(t, err, "no package python2")
}

func TestAPackageWithAnotherDigestIsRefused(t *testing.T) {
	m := newMirror(t)
	m.add(t, "linux-image-9.1.0-1-cloud", "9.1.1-1", strings.Repeat("ab", 32), "boot/vmlinuz-1")
	_, _, err := m.Files(t.Context(), query, []string{"boot/vmlinuz-*"})
	require.ErrorContains(t, err, "Hash Sum mismatch")
}

func TestPackagesThatAreGoneAreNamed(t *testing.T) {
	m := newMirror(t)
	m.add(t, "other", "1", "", "usr/file")
	_, err := m.Kernel(t.Context(), query, nil)
	require.ErrorContains(t, err, "no package linux-image-9.1.0-*-cloud in any")
	require.ErrorContains(t, err, "correct the row in kernels.txt")
}

func TestModulesOfTheSameBuildAreFoundBesideTheKernel(t *testing.T) {
	m := newMirror(t)
	m.add(t, "linux-binary-9.1-cloud", "9.1-1", "", "boot/vmlinuz-9.1")
	m.add(t, "linux-modules-9.1-cloud", "9.1-0", "", "usr/lib/modules/9.1/kernel/fuse.ko")
	split := query
	split.Patterns = []string{"linux-binary-*-cloud"}
	kernel, _, err := m.newest(t.Context(), split, split.Patterns[0])
	require.NoError(t, err)
	_, err = sibling(t.Context(), kernel, "linux-modules-9.1-cloud", nil)
	require.ErrorIs(t, err, errGone, "of another build")
	known := Package{Name: "linux-modules-9.1-cloud", Version: "9.1-1", SHA256: "aa", File: "pool/m.deb"}
	beside, err := sibling(t.Context(), kernel, "linux-modules-9.1-cloud", []Package{known})
	require.NoError(t, err)
	require.Equal(t, "pool/m.deb", beside.File)
}

func TestMachineWithoutASourceIsToldWhatToDo(t *testing.T) {
	_, err := MachineRoots(t.Context(), "nosuch")
	require.ErrorContains(t, err, "apt has no source that serves nosuch: add Debian's archive")
}

func TestPatternsStandForVersionsOnly(t *testing.T) {
	require.True(t, matches("linux-image-5.10.0-*-cloud-amd64", "linux-image-5.10.0-46-cloud-amd64"))
	require.True(t, matches("linux-image-6.12.*+deb13-cloud-amd64", "linux-image-6.12.117+deb13-cloud-amd64"))
	require.False(t, matches("linux-image-5.10.0-*-cloud-amd64", "linux-image-5.10.0-46-cloud-amd64-dbg"))
	require.False(t, matches("linux-image-5.10.0-*-cloud-amd64", "linux-image-5.10.0-46-rt-amd64"))
	require.False(t, matches("linux-binary-*-cloud-amd64", "linux-binary-unsigned-7.2.13+deb14-cloud-amd64"))
	require.False(t, matches("linux-binary-*-cloud-amd64", "linux-binary--cloud-amd64"))
}

func TestModulesComeAfterWhatTheyNeed(t *testing.T) {
	order := parseDependencies("kernel/net/bridge/bridge.ko.xz: kernel/net/802/stp.ko.xz kernel/net/llc/llc.ko.xz\nkernel/net/sch-netem.ko:\n")
	require.Equal(t, map[string][]string{
		"bridge":    {"kernel/net/llc/llc.ko.xz", "kernel/net/802/stp.ko.xz", "kernel/net/bridge/bridge.ko.xz"},
		"sch_netem": {"kernel/net/sch-netem.ko"},
	}, order)
	require.NotEqual(t, listID([]string{"fuse"}), listID([]string{"fuse", "veth"}), "another list has another folder")
}

func TestPackageWithoutModulesIsRefused(t *testing.T) {
	into := filepath.Join(t.TempDir(), "modules")
	require.ErrorContains(t, place(t.Context(), t.TempDir(), []string{"fuse"}, into), "no modules in the package")
	require.NoDirExists(t, into)
}

func TestBothPackageLayoutsHoldAnImage(t *testing.T) {
	for _, layout := range []string{"boot/vmlinuz-6.1.0-56-cloud-amd64", "usr/lib/modules/7.2.13/vmlinuz"} {
		tree := t.TempDir()
		image := filepath.Join(tree, layout)
		require.NoError(t, os.MkdirAll(filepath.Dir(image), 0o755))
		require.NoError(t, os.WriteFile(image, nil, 0o644))
		got, err := findImage(tree)
		require.NoError(t, err)
		require.Equal(t, image, got)
	}
	_, err := findImage(t.TempDir())
	require.ErrorContains(t, err, "no vmlinuz")
}

func TestFilesOfAPackageAreTakenFromTheirPlace(t *testing.T) {
	tree, into := t.TempDir(), filepath.Join(t.TempDir(), "files")
	lib := filepath.Join(tree, "usr/lib/x86_64-linux-gnu")
	require.NoError(t, os.MkdirAll(lib, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(lib, "libc.so.6"), []byte("glibc"), 0o755))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(lib, "libm.so.6")))

	require.NoError(t, pick(tree, "usr/lib/*/libc.so.?", into))
	got, err := os.ReadFile(filepath.Join(into, "usr/lib/x86_64-linux-gnu/libc.so.6"))
	require.NoError(t, err)
	require.Equal(t, "glibc", string(got))
	require.ErrorContains(t, pick(tree, "usr/lib/*/libm.so.6", into), "no file usr/lib/*/libm.so.6 in it", "a link is no file")
	require.ErrorContains(t, pick(tree, "usr/lib/*/libdl.so.2", into), "no file")
}
