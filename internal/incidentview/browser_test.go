//go:build browser

package incidentview

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// opens is how long a page may take in a browser, from its address to the last pixel.
const opens = time.Second

// browser is a headless Chromium and the server that it gets pages from. Whatever it asks of
// anybody goes to that server, too.
type browser struct {
	*httptest.Server
	t     *testing.T
	pages map[string][]byte
	told  chan string
}

func newBrowser(t *testing.T, pages map[string][]byte) *browser {
	b := &browser{t: t, pages: pages, told: make(chan string, 1)}
	b.Server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.Close)
	return b
}

// frames shows a page in a frame of a width, and says when it was there, whether it is
// wider than its frame, and how many words of its drawings lie on others.
const frames = `<!doctype html><link rel="icon" href="data:,"><body><script>
const f = document.createElement("iframe"), from = performance.now();
f.width = %d; f.height = 900; f.onload = () => { const d = f.contentDocument.documentElement, high = d.getBoundingClientRect().height,
	words = [...d.querySelectorAll("svg text")].map(t => t.getBoundingClientRect()).filter(r => r.width > 0), apart = 4,
	upon = words.filter((a, i) => words.slice(i + 1).some(b => a.left < b.right && b.left < a.right && a.top + apart < b.bottom && b.top + apart < a.bottom)).length;
requestAnimationFrame(() => requestAnimationFrame(() => fetch("/told?" + [Math.round(performance.now() - from), d.scrollWidth - d.clientWidth, Math.round(high), upon].join("+")))); };
f.src = %q; document.body.append(f);
</script>`

func (b *browser) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if page, ok := b.pages[strings.TrimPrefix(r.URL.Path, "/page/")]; ok {
		_, _ = w.Write(page)
		return
	}
	if name, framed := strings.CutPrefix(r.URL.Path, "/frame/"); framed {
		var width int
		_, _ = fmt.Sscan(r.URL.Query().Get("width"), &width)
		_, _ = fmt.Fprintf(w, frames, width, "/page/"+name)
		return
	}
	if r.URL.Path == "/told" {
		b.told <- strings.ReplaceAll(r.URL.RawQuery, "+", " ")
		return
	}
	http.NotFound(w, r)
}

const patience = hosttest.Patience

func (b *browser) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "chromium", append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-default-apps",
		"--disable-domain-reliability", "--disable-features=OptimizationHints,MediaRouter,Translate", "--hide-scrollbars", "--user-data-dir=" + b.t.TempDir(),
		"--proxy-server=" + strings.TrimPrefix(b.URL, "http://"), "--proxy-bypass-list=<-loopback>",
	}, args...)...)
}

// run runs it to its end.
func (b *browser) run(args ...string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	said, err := b.command(ctx, args...).CombinedOutput()
	require.NoError(b.t, err, "%s", said)
}

// framed shows a page in a frame of a width: how long it took until it was painted, by how
// much it is wider than its frame, how high it is, and how many words lie on others.
func (b *browser) framed(name string, width int) (took time.Duration, over, high, upon int) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	cmd := b.command(ctx, "--remote-debugging-port=0", fmt.Sprintf("%s/frame/%s?width=%d", b.URL, name, width))
	require.NoError(b.t, cmd.Start())
	var ms int
	select {
	case told := <-b.told:
		_, err := fmt.Sscan(told, &ms, &over, &high, &upon)
		require.NoError(b.t, err, told)
	case <-time.After(patience):
		require.Fail(b.t, "the page is not painted")
	}
	cancel()
	_ = cmd.Wait() // it was ended
	return time.Duration(ms) * time.Millisecond, over, high, upon
}

// asks are what a page asks for once it is there: Chromium's own requests have no page that
// they come from.
func (b *browser) asks(page string) []string {
	b.t.Helper()
	log := filepath.Join(b.t.TempDir(), "net.json")
	b.run("--dump-dom", "--log-net-log="+log, b.URL+page)
	text, err := os.ReadFile(log)
	require.NoError(b.t, err)
	var told struct {
		Events []struct {
			Params struct {
				URL       string `json:"url"`
				Initiator string `json:"initiator"`
			} `json:"params"`
		} `json:"events"`
	}
	require.NoError(b.t, json.Unmarshal(text, &told))
	seen, asked := false, []string{}
	for _, e := range told.Events {
		seen = seen || e.Params.URL == b.URL+page
		if strings.HasPrefix(e.Params.Initiator, b.URL) {
			asked = append(asked, e.Params.URL)
		}
	}
	require.True(b.t, seen, "the log has not even the page")
	return asked
}

// shots is where pictures go that somebody looks at; "" for nowhere.
func shots(name string) string {
	if dir := os.Getenv("TRACECORE_SHOTS"); dir != "" {
		return filepath.Join(dir, name)
	}
	return ""
}

// A report opens at once, asks for nothing, fits a phone, and prints on few pages. Pictures
// of it go to TRACECORE_SHOTS.
func TestPagesInABrowser(t *testing.T) {
	_, err := exec.LookPath("chromium")
	require.NoError(t, err, "install Debian's package chromium")
	pages := map[string][]byte{}
	for name, ranks := range map[string]int{"report": 1024, "largest": 16384} {
		r := checkpointStops(ranks)
		incident := r.largest(t)
		records := NewRecords(incident)
		for _, logs := range r.batches {
			records.Logs(logs)
		}
		v := Build(incident, Options{Now: began.Add(15 * time.Minute), Version: "test", Records: records, Before: &Before{
			Kept: 12, Others: 1, Alike: []Earlier{{ID: "a07d3c12", Since: began.Add(-300 * time.Hour), Seconds: 2460, Headline: "Daemon juicefs of /ckpt on node-031 is gone", Shares: "same mount, another node"}},
		}})
		var b bytes.Buffer
		require.NoError(t, WriteHTML(&b, v))
		pages[name] = b.Bytes()
	}
	a, other := sides()
	a.Steps, a.StepTime, other.Steps, other.StepTime = 5950, 1210*time.Millisecond, 2590, 1390*time.Millisecond
	var b bytes.Buffer
	require.NoError(t, WriteCompareHTML(&b, Compare(a, other)))
	pages["compare"], b = b.Bytes(), bytes.Buffer{}
	require.NoError(t, WriteListHTML(&b, List{Host: "gateway-1", At: began, Rows: []Row{
		{Link: "/incidents/1", Headline: "Daemon juicefs (pid 2211) of /ckpt on node-064 is gone; rank 517 of job llm-70b waits", State: "error", Where: "node-064", Job: "llm-70b", Since: began, Lasted: 138 * time.Second},
		{Link: "/incidents/2", Headline: strings.Repeat("averyveryverylongname/", 12), State: "cleared, acknowledged", Over: true, Where: "node-001, node-002, node-003, …", Job: "vit", Since: began.Add(-time.Hour), Lasted: time.Hour},
	}, Jobs: []JobRow{
		{Job: "llm-70b", Outcome: "goes on", Ranks: "1,024 of 1,024", Hosts: "node-000, node-001, node-002, …", Step: "1.21 s", Since: began.Add(-33 * time.Hour), Lasted: 33 * time.Hour},
		{Job: strings.Repeat("a-job-with-a-long-name/", 8), Outcome: "failed", Failed: "rank 12882 on node-1610: SIGKILL", Ranks: "8", Hosts: "node-128", Stood: "12 min 4 s", Since: began.Add(-50 * time.Hour), Lasted: 9 * time.Hour},
	}, AgentsWords: "1,022 watching, 1 silent, 1 stopped by order", Agents: []AgentRow{
		{Host: "node-007", State: "watching, claimed twice", Lost: "12", Since: began.Add(-9 * time.Hour)},
		{Host: strings.Repeat("a-node-with-a-long-name.", 6), State: "silent", Lost: "not known", Failing: "gpu, ncclsock/own", Since: began.Add(-time.Hour)},
		{Host: "node-009", State: "watching", Lost: "0", Since: began.Add(-9 * time.Hour), Well: true},
	}}))
	pages["list"] = b.Bytes()
	pages["curious"] = []byte(`<!doctype html><img src="/elsewhere.png">`)
	c := newBrowser(t, pages)
	require.NotEmpty(t, c.asks("/page/curious"), "what asks is seen to ask")
	delete(pages, "curious")
	for name, page := range pages {
		t.Run(name, func(t *testing.T) {
			c.t = t
			require.Less(t, len(page), 2<<20)
			if to := shots(name + ".html"); to != "" {
				require.NoError(t, os.WriteFile(to, page, 0o600))
			}
			require.Empty(t, c.asks("/page/"+name), "a page asks for nothing beside itself")
			for _, width := range []int{320, 420, 800, 1280} {
				took, over, high, upon := c.framed(name, width)
				t.Logf("%s, %d kB, %d px wide: painted after %s, %d px high", name, len(page)>>10, width, took, high)
				require.Less(t, took, opens)
				require.LessOrEqual(t, over, 0, "it scrolls sideways at %d px", width)
				require.Zero(t, upon, "words of a drawing lie on others at %d px", width)
			}
			for theme, setting := range map[string]string{"light": "1", "dark": "0"} {
				for _, width := range []string{"1280", "420"} {
					if to := shots(name + "-" + width + "-" + theme + ".png"); to != "" {
						c.run("--blink-settings=preferredColorScheme="+setting, "--force-device-scale-factor=1", "--window-size="+width+",4200", "--screenshot="+to, c.URL+"/page/"+name)
					}
				}
			}
			paper := filepath.Join(t.TempDir(), "page.pdf")
			if to := shots(name + ".pdf"); to != "" {
				paper = to
			}
			c.run("--print-to-pdf="+paper, "--no-pdf-header-footer", c.URL+"/page/"+name)
			pdf, err := os.ReadFile(paper)
			require.NoError(t, err)
			printed := len(regexp.MustCompile(`/Type\s*/Page\b`).FindAll(pdf, -1))
			t.Logf("%s: %d pages of A4", name, printed)
			require.Positive(t, printed)
			require.LessOrEqual(t, printed, 4)
		})
	}
}
