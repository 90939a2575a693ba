package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var (
	screenshots = flag.Bool("screenshots", false, "replace the pictures in docs/dashboard")
	pictures    = flag.String("pictures", "", "the `directory` to put pictures of all pages into")
)

// patience is how long to wait for the expected content of a page. It is much longer than usually
// necessary, for busy machines.
const patience = 30 * time.Second

// chromium returns the path of the browser to use.
func chromium(t *testing.T) string {
	t.Helper()
	names := []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil && name != "" {
			return path
		}
	}
	missing(t, `needs Chromium: "apt-get install chromium", or its path in the environment variable CHROMIUM`)
	return ""
}

// missing skips the test, or fails it in CI, where all dependencies must be installed.
func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// shared is the browser of all tests. Each test uses its own window.
var shared struct {
	sync.Mutex
	ctx  context.Context
	stop func()
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if shared.stop != nil {
		shared.stop()
	}
	os.Exit(code)
}

func start(t *testing.T) context.Context {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.ctx != nil {
		return shared.ctx
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(time.Minute))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		stop()
		t.Fatalf("the browser does not start: %v", err)
	}
	shared.ctx, shared.stop = ctx, func() { cancel(); stop() }
	return ctx
}

// A window is a browser tab with its own cookies that shows a site.
type window struct {
	*testing.T
	ctx  context.Context
	site *site
	bare bool // scripts are disabled

	mu       sync.Mutex
	heard    []string // errors reported by the browser
	trouble  []string // unexpected errors among them
	expected []string
}

// open opens a window. Unexpected browser errors in it fail the test at its end.
func (s *site) open(t *testing.T) *window {
	t.Helper()
	ctx, cancel := chromedp.NewContext(start(t), chromedp.WithNewBrowserContext())
	w := &window{T: t, ctx: ctx, site: s}
	t.Cleanup(func() {
		if t.Failed() {
			w.picture(filepath.Join(os.TempDir(), "e2e-"+strings.ReplaceAll(t.Name(), "/", "-")+".png"))
		}
		cancel()
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, trouble := range w.trouble {
			t.Errorf("the browser says: %s", trouble)
		}
	})
	if err := chromedp.Listen(ctx, w.listen); err != nil {
		t.Fatal(err)
	}
	call(w, log.Enable, cdp.Empty{})
	call(w, runtime.Enable, cdp.Empty{})
	call(w, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `addEventListener("pagehide", () => { window.left = true; })`})
	w.size(1180, 900)
	return w
}

// listen records errors that the browser reports: scripts that failed, and resources that the
// Content-Security-Policy blocked.
func (w *window) listen(event any) {
	var said string
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		said = "a script failed: " + event.ExceptionDetails.Text
		if exception := event.ExceptionDetails.Exception; exception != nil {
			said += " " + exception.Description
		}
	case *log.EventEntryAdded:
		if event.Entry.Level != "error" {
			return
		}
		said = event.Entry.Text + " " + event.Entry.URL
	case *page.EventJavascriptDialogOpening:
		said = "a dialog of a script: " + event.Message
	default:
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, said)
	for _, expected := range w.expected {
		if strings.Contains(said, expected) {
			return
		}
	}
	w.trouble = append(w.trouble, said)
}

// expect allows browser errors that contain text.
func (w *window) expect(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected = append(w.expected, text)
}

// hear waits until the browser has reported an expected error that contains text.
func (w *window) hear(text string) {
	w.Helper()
	w.wait(func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		about := func(said string) bool { return strings.Contains(said, text) }
		w.trouble = slices.DeleteFunc(w.trouble, about)
		return slices.ContainsFunc(w.heard, about)
	}, func() string { return "the browser does not complain of " + text })
}

func (w *window) run(actions ...chromedp.Action[chromedp.Void]) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		w.Fatal(err)
	}
}

// call sends a protocol command to the browser.
func call[P, R any](w *window, command cdp.Command[P, R], params P) R {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		w.Fatal(err)
	}
	return result
}

func (w *window) size(width, height int64) {
	w.Helper()
	call(w, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500})
}

func (w *window) dark(on bool) {
	w.Helper()
	scheme := "light"
	if on {
		scheme = "dark"
	}
	call(w, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// zone sets the reader's time zone.
func (w *window) zone(name string) {
	w.Helper()
	call(w, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: name})
}

// withoutScripts disables JavaScript in the window.
func (w *window) withoutScripts() {
	w.Helper()
	w.bare = true
	call(w, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// visit opens a page of the dashboard.
func (w *window) visit(path string) {
	w.Helper()
	w.run(chromedp.Navigate(w.site.url + path))
}

// clickable returns an XPath for a clickable element with this name.
func clickable(name string) string {
	return fmt.Sprintf(`//*[self::a or self::button or self::summary][normalize-space()=%q or @aria-label=%[1]q]`, name)
}

func (w *window) click(name string) {
	w.Helper()
	w.run(chromedp.Click(clickable(name), chromedp.NodeVisible))
}

// fill replaces the content of a field.
func (w *window) fill(id, text string) {
	w.Helper()
	w.run(chromedp.WaitVisible(chromedp.ID(id)))
	eval[bool](w, fmt.Sprintf(`document.getElementById(%q).select(), true`, id))
	w.run(chromedp.SendKeys(chromedp.ID(id), text))
}

// check clicks a checkbox or radio button.
func (w *window) check(name, value string) {
	w.Helper()
	w.run(chromedp.Click(chromedp.CSS(fmt.Sprintf("input[name=%s][value=%q]", name, value))))
}

func (w *window) press(key string) {
	w.Helper()
	w.run(chromedp.KeyEvent(key))
}

// eval evaluates an expression in the page and returns its value.
func eval[T any](w *window, expression string) T {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	for {
		value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
		if err == nil {
			return value
		}
		if ctx.Err() != nil {
			w.Fatalf("%s: %v", expression, err)
		}
		time.Sleep(20 * time.Millisecond) // evaluation fails while the browser is leaving a page
	}
}

// text returns the visible text of the page. It waits until the page has loaded and its scripts
// have run.
func (w *window) text() string {
	w.Helper()
	return strings.Join(strings.Fields(eval[string](w, `document.readyState == "complete" ? document.body.innerText : ""`)), " ")
}

// see waits until all texts are visible.
func (w *window) see(texts ...string) {
	w.Helper()
	for _, text := range texts {
		w.wait(func() bool { return strings.Contains(w.text(), text) }, func() string {
			return fmt.Sprintf("%q is not to be read in: %s", text, w.text())
		})
	}
}

func (w *window) wait(done func() bool, why func() string) {
	w.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatal(why())
		}
	}
}

// at waits until the browser shows the page with this path.
func (w *window) at(path string) {
	w.Helper()
	address := func() string { return eval[string](w, `location.pathname + location.search`) }
	w.wait(func() bool {
		return address() == "/settings/"+path && eval[string](w, `document.readyState`) == "complete"
	},
		func() string { return "the browser is at " + address() + ", not at " + path })
}

// gone checks that the page does not contain the text, not even invisibly.
func (w *window) gone(text string) {
	w.Helper()
	if text == "" || strings.Contains(eval[string](w, `document.documentElement.outerHTML`), text) {
		w.Errorf("%q is in %s", text, eval[string](w, `location.href`))
	}
}

// again goes back or forward, or reloads the page. If the browser shows a page that it has kept, a
// script reloads that page; again then waits until it is loaded.
func (w *window) again(how string) {
	w.Helper()
	before := eval[float64](w, `performance.timeOrigin`)
	switch how {
	case "back", "forward":
		history := call(w, page.GetNavigationHistory, cdp.Empty{})
		to := history.CurrentIndex - 1
		if how == "forward" {
			to = history.CurrentIndex + 1
		}
		if to < 0 || to >= int64(len(history.Entries)) {
			w.Fatalf("there is nowhere to go %s", how)
		}
		call(w, page.NavigateToHistoryEntry, page.NavigateToHistoryEntryParams{EntryID: history.Entries[to].ID})
	case "reload":
		call(w, page.Reload, page.ReloadParams{})
	}
	w.wait(func() bool {
		return eval[bool](w, fmt.Sprintf(`performance.timeOrigin != %v && document.readyState == "complete" && (%v || !window.left)`, before, w.bare))
	},
		func() string { return "no page comes by " + how })
}

// picture saves a screenshot of the whole page.
func (w *window) picture(file string) { w.save(file, chromedp.FullScreenshot(100)) }

func (w *window) save(file string, screenshot chromedp.Action[[]byte]) {
	image, err := chromedp.Run(w.ctx, screenshot)
	if err != nil {
		w.Logf("no screenshot: %v", err)
		return
	}
	if err := os.WriteFile(file, image, 0o644); err != nil {
		w.Error(err)
		return
	}
	w.Logf("see %s", file)
}

// allowClipboard allows the page to write to the clipboard and the test to read it.
func (w *window) allowClipboard() {
	w.Helper()
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		_, err := chromedp.CallBrowser(w.ctx, browser.SetPermission, browser.SetPermissionParams{
			Permission:       &browser.PermissionDescriptor{Name: name},
			Setting:          browser.PermissionSettingGranted,
			BrowserContextID: chromedp.FromContext(w.ctx).BrowserContextID,
		})
		if err != nil {
			w.Fatal(err)
		}
	}
}

const (
	tab    = kb.Tab
	escape = kb.Escape
	enter  = kb.Enter
)
