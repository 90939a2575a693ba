package dashboard

import (
	"fmt"
	"net/url"
	"strconv"
)

// countedAtMost is the maximum number of keys or webhooks after a page that are counted, to show
// the total number.
const countedAtMost = 1000

// A pager is the template data for the position of a page in a list, and for links to other pages.
type pager struct {
	After  bool   // this is not the first page
	Next   string // the ID after which the next page begins; empty if this is the last page
	Range  string // such as "51–73 of 73"; empty if unknown
	Newest string // link to the first page
	Older  string // link to the next page, or empty
	Empty  bool   // the page shows no item
}

// pager returns the pager of a page that shows n items of a list at the given path. later is the
// number of items on later pages, as returned by the function later. thing is the noun for one
// item.
func (c *call) pager(path string, filters string, n int, next string, later int, thing string) pager {
	view := pager{After: c.after() != "", Next: next, Newest: c.root + path, Empty: n == 0}
	older := view.Newest + "?after=" + url.QueryEscape(next)
	if filters != "" {
		view.Newest += "?" + filters
		older = view.Newest + "&after=" + url.QueryEscape(next)
	}
	before := 0 // number of items on earlier pages
	if view.After {
		var err error
		if before, err = strconv.Atoi(c.URL.Query().Get("before")); err != nil || before < 0 || before > 1e9 {
			before = -1 // unknown: the link has been changed
		}
	}
	if next != "" {
		view.Older = older
		if before >= 0 {
			view.Older += "&before=" + strconv.Itoa(before+n)
		}
	}
	if before < 0 || n == 0 {
		return view
	}
	if !view.After && next == "" {
		view.Range = count(n, thing)
		return view
	}
	view.Range = strconv.Itoa(before + n)
	if n > 1 {
		view.Range = fmt.Sprintf("%d–%d", before+1, before+n)
	}
	if later >= 0 {
		view.Range += fmt.Sprintf(" of %d", before+n+later)
	}
	return view
}

// later returns the number of items after a page, or -1 if it is unknown. rest is the number of
// items counted after the page; a next that is not empty means that uncounted items follow.
func later(rest int, next string) int {
	if next != "" {
		return -1
	}
	return rest
}
