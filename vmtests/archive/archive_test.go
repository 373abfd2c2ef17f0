package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionsAreOrderedAsDebianDoes(t *testing.T) {
	for _, older := range [][2]string{
		{"5.10.218-1", "5.10.262-1"},
		{"6.12.90-1", "6.12.107-1"},
		{"6.12.115+deb13-1", "6.12.115+deb13.1-1"},
		{"7.2.12-1~bpo13+1", "7.2.12-1"},
		{"7.2.12-1", "7.2.12-1+b1"},
		{"7.2~rc4-1", "7.2-1"},
		{"9.0-1", "1:1.0-1"},
		{"1.0-1", "1.0a-1"},
		{"1.0a", "1.0+"},
		{"1.02-1", "1.3-1"},
	} {
		require.Negative(t, compareVersions(older[0], older[1]), "%s < %s", older[0], older[1])
		require.Positive(t, compareVersions(older[1], older[0]), "%s > %s", older[1], older[0])
	}
	require.Zero(t, compareVersions("6.1.170-3", "6.1.170-3"))
	require.Zero(t, compareVersions("6.01-1", "6.1-1"))
}

func TestPatternsStandForVersionsOnly(t *testing.T) {
	require.True(t, matches("linux-image-5.10.0-*-cloud-amd64", "linux-image-5.10.0-46-cloud-amd64"))
	require.True(t, matches("linux-image-6.12.*+deb13-cloud-amd64", "linux-image-6.12.117+deb13-cloud-amd64"))
	require.False(t, matches("linux-image-5.10.0-*-cloud-amd64", "linux-image-5.10.0-46-cloud-amd64-dbg"))
	require.False(t, matches("linux-image-5.10.0-*-cloud-amd64", "linux-image-5.10.0-46-rt-amd64"))
	require.False(t, matches("linux-binary-*-cloud-amd64", "linux-binary-unsigned-7.2.13+deb14-cloud-amd64"))
	require.False(t, matches("linux-binary-*-cloud-amd64", "linux-binary--cloud-amd64"))
}

const index = `Package: linux-image-6.1.0-47-cloud-amd64
Version: 6.1.170-3
Description: a text
 that goes on: like this
Filename: pool/main/l/linux/old.deb
SHA256: aa

Package: linux-image-6.1.0-56-cloud-amd64
Version: 6.1.192-2
Filename: pool/main/l/linux/new.deb
SHA256: bb

Package: linux-image-6.1.0-99-cloud-amd64
Version: 6.1.999-1
Description: without a digest it cannot be checked
Filename: pool/main/l/linux/unchecked.deb
`

func TestNewestPackageOfTheSeriesIsTaken(t *testing.T) {
	got, found, err := newest(strings.NewReader(index), "linux-image-6.1.0-*-cloud-amd64", "http://mirror.test/debian")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, Package{
		Name: "linux-image-6.1.0-56-cloud-amd64", Version: "6.1.192-2", SHA256: "bb",
		URL: "http://mirror.test/debian/pool/main/l/linux/new.deb",
	}, got)
	_, found, err = newest(strings.NewReader(index), "linux-image-5.10.0-*-cloud-amd64", "")
	require.NoError(t, err)
	require.False(t, found)
}

func TestSourcesAreFoundAsAptIsSetUp(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  Sources
	}{
		"one line each": {
			files: map[string]string{"sources.list": "# old\ndeb [arch=amd64 signed-by=/k] http://a.test/debian/ bookworm main contrib\n" +
				"deb http://a.test/debian-security bookworm-security main # here\ndeb-src http://src.test/debian bookworm main\n"},
			want: Sources{Main: []string{"http://a.test/debian"}, Security: []string{"http://a.test/debian-security"}},
		},
		"stanzas": {
			files: map[string]string{"sources.list.d/debian.sources": "Types: deb deb-src\nURIs: https://b.test/debian\nSuites: trixie trixie-updates\nComponents: main\n\n" +
				"Types: deb\nURIs: https://c.test/off\nSuites: trixie\nComponents: main\nEnabled: no\n"},
			want: Sources{Main: []string{"https://b.test/debian"}},
		},
		"third parties are not Debian": {
			files: map[string]string{
				"sources.list":            "deb http://d.test/debian sid main",
				"sources.list.d/x.list":   "deb http://vendor.test/apt cloud-bookworm main\ndeb http://other.test/debian bookworm stable",
				"sources.list.d/y.list":   "deb cdrom:[disk]/ bookworm main",
				"sources.list.d/z.unread": "deb http://unread.test/debian bookworm main",
			},
			want: Sources{Main: []string{"http://d.test/debian"}},
		},
		"mirror list": {
			files: map[string]string{
				"sources.list": "deb mirror+file:/etc/apt/mirrors.txt bookworm main",
				"mirrors.txt":  "http://e.test/debian\nhttp://f.test/debian\n",
			},
			want: Sources{Main: []string{"http://e.test/debian"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range tc.files {
				path := filepath.Join(root, "etc/apt", file)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			}
			got, err := ReadSources(root)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestSuiteMayNameItsComponent(t *testing.T) {
	for given, want := range map[string][2]string{
		"trixie":                   {"trixie", "main"},
		"trixie/non-free":          {"trixie", "non-free"},
		"trixie/non-free-firmware": {"trixie", "non-free-firmware"},
		"buster/updates":           {"buster/updates", "main"},
	} {
		suite, component := splitComponent(given)
		require.Equal(t, want, [2]string{suite, component})
	}
}

func TestMachineWithoutDebianSourcesIsToldWhatToDo(t *testing.T) {
	_, err := ReadSources(t.TempDir())
	require.ErrorContains(t, err, "no Debian archive in")
	require.ErrorContains(t, err, "deb URI SUITE main")
}

func TestOnlyFilesWithTheRightDigestArriveInPlace(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("kernel"))
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "sub", "file")
	right := sha256.Sum256([]byte("kernel"))

	require.ErrorContains(t, fetch(context.Background(), server.URL+"/gone", path, ""), "404")
	require.ErrorContains(t, fetch(context.Background(), server.URL+"/x", path, strings.Repeat("0", 64)), "the index says")
	require.NoFileExists(t, path)
	require.NoError(t, fetch(context.Background(), server.URL+"/x", path, hex.EncodeToString(right[:])))
	require.FileExists(t, path)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	require.NoError(t, err)
	require.Equal(t, []string{path}, left, "no half files are left behind")
}

func TestReleaseFileNamesTheIndex(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	release := "Suite: x\nMD5Sum:\n 00 1 main/binary-amd64/Packages.xz\nSHA256:\n " + digest + "  12 main/binary-amd64/Packages.xz\n"
	got, err := listedDigest(release, "main/binary-amd64/Packages.xz")
	require.NoError(t, err)
	require.Equal(t, digest, got)
	_, err = listedDigest(release, "main/binary-arm64/Packages.xz")
	require.ErrorContains(t, err, "no SHA256 of")
}

func TestReleaseFileWithoutASignatureIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "InRelease")
	require.NoError(t, os.WriteFile(path, []byte("SHA256:\n 00 1 main/binary-amd64/Packages.xz\n"), 0o644))
	_, err := verify(context.Background(), path)
	require.ErrorContains(t, err, "no good signature of Debian")
}

func TestSuiteWithoutASourceIsNamed(t *testing.T) {
	_, err := Cache{Dir: t.TempDir()}.Kernel(context.Background(), Query{Suites: []string{"bookworm-security"}, Arch: "amd64", Patterns: []string{"linux-image-6.1.0-*"}}, nil)
	require.ErrorContains(t, err, "suite bookworm-security: apt has no source that serves it")
	require.ErrorContains(t, err, "correct the row in kernels.txt")
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
