package e2e

import (
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestScreenshots updates the pictures in docs/dashboard if -screenshots is set.
func TestScreenshots(t *testing.T) {
	if !*screenshots {
		t.Skip("replaces the pictures in docs with -screenshots")
	}
	s := newStory(t)
	views := make(map[string]view)
	for _, view := range s.views() {
		views[view.name] = view
	}
	for _, picture := range []struct {
		file, view string
		dark       bool
		width      int64
	}{
		{"keys", "keys", false, 1180},
		{"keys-phone", "keys", true, 390},
		{"key-revoke", "keys-revoke", true, 1180},
		{"key-new", "key-new", false, 1180},
		{"webhooks", "webhooks", true, 1180},
		{"webhook", "webhook", false, 1180},
		{"webhook-phone", "webhook", true, 390},
		{"delivery", "delivery", false, 1180},
		{"events", "events", false, 1180},
		{"key-made", "key-made", false, 1180},
	} {
		w := s.open(t)
		w.dark(picture.dark)
		w.size(picture.width, 800)
		w.visit(views[picture.view].path)
		if more := views[picture.view].more; more != nil {
			more(w)
		}
		file := filepath.Join("..", "..", "docs", "dashboard", picture.file+".png")
		if picture.width < 500 { // save only the visible part
			w.save(file, chromedp.CaptureScreenshot())
		} else {
			w.picture(file)
		}
	}
}
