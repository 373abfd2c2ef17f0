package charts_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// image is what `make image` has made, for one architecture.
type image struct {
	layers [][]byte
	config struct {
		Architecture string
		Config       struct {
			User            string
			Env, Entrypoint []string
		}
	}
}

// readImage follows an image layout from its index to the layers of amd64.
func readImage(t *testing.T, name string) image {
	t.Helper()
	file, err := os.Open(tool(t, "bin/image/"+name))
	require.NoError(t, err)
	defer file.Close()
	blobs := unpacked(t, file, nil)
	type descriptor struct{ Digest string }
	var manifest struct {
		Manifests, Layers []descriptor
		Config            descriptor
	}
	blob := func(d descriptor) []byte {
		data, found := blobs["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		require.True(t, found, d.Digest)
		return data
	}
	require.NoError(t, json.Unmarshal(blobs["index.json"], &manifest))
	for range 2 { // the layout's index, that of the architectures
		next := manifest.Manifests[0]
		manifest.Manifests = nil
		require.NoError(t, json.Unmarshal(blob(next), &manifest))
	}
	var i image
	require.NoError(t, json.Unmarshal(blob(manifest.Config), &i.config))
	for _, layer := range manifest.Layers {
		i.layers = append(i.layers, blob(layer))
	}
	return i
}

// unpacked are the regular files of a tar; its links go to links.
func unpacked(t *testing.T, from io.Reader, links map[string]string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for reader := tar.NewReader(from); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		switch header.Typeflag {
		case tar.TypeReg:
			files[header.Name], err = io.ReadAll(reader)
			require.NoError(t, err)
		case tar.TypeSymlink:
			links[header.Name] = header.Linkname
		}
	}
}

func (i image) files(t *testing.T) (all map[string][]byte, links map[string]string) {
	t.Helper()
	all, links = map[string][]byte{}, map[string]string{}
	for _, layer := range i.layers {
		plain, err := gzip.NewReader(bytes.NewReader(layer))
		require.NoError(t, err)
		for name, data := range unpacked(t, plain, links) {
			all[name] = data
		}
	}
	return all, links
}

// root is a container's root file system, unpacked from the image.
func (i image) root(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	files, links := i.files(t)
	for name, data := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, data, 0o755))
	}
	for name, to := range links {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.Symlink(to, path))
	}
	return root
}

// TestTheImageHoldsWhatMakeBuildMade: two links of one source, for the image and
// for bin/, are the same bytes. tools/image has the test that the same binary gives
// the same image.
func TestTheImageHoldsWhatMakeBuildMade(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("make chart makes the image of amd64")
	}
	i := readImage(t, "tracecore.tar")
	files, _ := i.files(t)
	built, err := os.ReadFile(tool(t, "bin/tracecore"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(built, files["usr/bin/tracecore"]), "bin/tracecore and the image's differ: run `make build image`")
	require.Len(t, files, 3, "the image has the binary, certificates and the names of two users")
	require.Equal(t, []string{"/usr/bin/tracecore"}, i.config.Config.Entrypoint)
	user := at(t, objects(t, render(t, withGateway()...))["StatefulSet/gateway"], "spec", "template", "spec", "securityContext", "runAsUser")
	require.Equal(t, fmt.Sprintf("%v:%v", user, user), i.config.Config.User)
}

// TestTheImageRunsAsTheChartRunsIt starts the containers of the rendered DaemonSet
// and of `helm test` with runc, from the image, and waits for the drill's verdict
// in the agent's log.
func TestTheImageRunsAsTheChartRunsIt(t *testing.T) {
	requireContainers(t)
	i := readImage(t, "tracecore.tar")
	root := i.root(t)
	for name, settings := range map[string]string{"privileged": "security.privileged=true", "named capabilities": "security.privileged=false"} {
		t.Run(name, func(t *testing.T) {
			rendered := render(t, "--set", settings)
			n := node{image: i, root: root, config: collectorConfigs(t, rendered)["agent"], state: t.TempDir()}
			spec := pod(t, rendered)
			check := n.run(t, spec, at(t, spec, "initContainers", 0))
			require.Zero(t, check.wait(t), check.text)
			require.Contains(t, check.text.String(), "kmsg")

			agent := n.run(t, spec, at(t, spec, "containers", 0))
			agent.healthy(t)
			test := at(t, objects(t, rendered)["Pod/test"], "spec")
			drill := n.run(t, test, at(t, test, "containers", 0))
			require.Zero(t, drill.wait(t), drill.text)
			agent.says(t, "GPU ffff:ff:1f.0")
		})
	}
}

func requireContainers(t *testing.T) {
	t.Helper()
	hosttest.Require(t, "it runs containers")
	if runtime.GOARCH != "amd64" {
		require.NotEqual(t, "true", os.Getenv("CI"), "CI must run the image on amd64")
		t.Skip("needs amd64, which the image is made for")
	}
}

// node runs containers of pods, as the runtime of a node does.
type node struct {
	image               image
	root, config, state string

	folders map[string]string // what volumes of the pod are here: usr, libdcgm
	driver  string            // a library that NVIDIA's container runtime brings
	shared  string            // a folder that test and container share, under the same path
}

// running is one container.
type running struct {
	id, pidFile string
	command     *exec.Cmd
	text        *output
}

// run starts a container from the image with what its pod asks for.
func (n node) run(t *testing.T, pod, container any) *running {
	t.Helper()
	bundle := t.TempDir()
	spec, err := json.Marshal(n.spec(t, pod, container))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "config.json"), spec, 0o600))
	r := &running{
		id:      "tracecore-test-" + strconv.Itoa(os.Getpid()) + "-" + filepath.Base(filepath.Dir(bundle)) + filepath.Base(bundle),
		pidFile: filepath.Join(bundle, "pid"), text: &output{},
	}
	root := []string{"--root", filepath.Join(bundle, "runc")}
	r.command = exec.Command("runc", append(root, "run", "--bundle", bundle, "--pid-file", r.pidFile, r.id)...)
	r.command.Stdout, r.command.Stderr = r.text, r.text
	require.NoError(t, r.command.Start())
	t.Cleanup(func() {
		out, err := exec.Command("runc", append(root, "delete", "--force", r.id)...).CombinedOutput()
		_ = r.command.Wait()
		if t.Failed() {
			t.Logf("%s%v %s", out, err, r.text)
		}
	})
	return r
}

// wait returns the exit code.
func (r *running) wait(t *testing.T) int {
	t.Helper()
	if err := r.command.Wait(); err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
	}
	return r.command.ProcessState.ExitCode()
}

// healthy asks the container's health endpoint, in its own network.
func (r *running) healthy(t *testing.T) {
	t.Helper()
	r.answers(t, "http://127.0.0.1:13133/", "")
}

// answers waits for an answer of the container that has a text in it.
func (r *running) answers(t *testing.T, url, want string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, _, address string) (net.Conn, error) { return r.dial(address) }}}
	var got []byte
	require.True(t, assertEventually(func() bool {
		response, err := client.Get(url)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		got, err = io.ReadAll(response.Body)
		return err == nil && response.StatusCode == http.StatusOK && strings.Contains(string(got), want)
	}), "%s has no %q: %s: %s", url, want, got, r.text)
}

// says waits for a text in the container's output.
func (r *running) says(t *testing.T, want string) {
	t.Helper()
	require.True(t, assertEventually(func() bool { return strings.Contains(r.text.String(), want) }), "no %q: %s", want, r.text)
}

func (r *running) dial(address string) (net.Conn, error) {
	text, err := os.ReadFile(r.pidFile)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, err
	}
	there, err := netns.GetFromPid(pid)
	if err != nil {
		return nil, err
	}
	defer there.Close()
	runtime.LockOSThread() // not unlocked: the thread ends with this goroutine
	if err := netns.Set(there); err != nil {
		return nil, err
	}
	return net.DialTimeout("tcp", address, time.Second)
}
