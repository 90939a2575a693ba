package dashboard

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
)

//go:embed templates
var templateFiles embed.FS

// functions are the functions that templates can call. "in" and "graces" combine several values
// into one, because a partial template takes only one.
var functions = template.FuncMap{
	"asset":  func(name string) string { return assetNames[name] },
	"field":  func(name string, f form) fieldView { return fieldView{name, f.Values.Get(name), f.Errors[name]} },
	"in":     func(page layoutView, list []deliveryView, mode string) any { return deliveriesView{page, list, mode} },
	"graces": func(label string, view rotationView) any { return gracesView{label, view.Form, graces} },
	"more":   func(list []scopeView, shown int) int { return len(list) - shown },
	"count":  count,
	"left":   func(whole, part int) int { return max(whole-part, 0) },
}

// A deliveriesView is the template data for a table of deliveries.
type deliveriesView struct {
	layoutView
	Deliveries []deliveryView
	Mode       string // "select": selectable rows; "webhooks": deliveries of one event; or empty
}

// A gracesView is the template data for choosing a grace period.
type gracesView struct {
	Label  string
	Form   form
	Graces []choice
}

// templates maps page names to templates, each combined with the layout.
var templates = loadTemplates()

func loadTemplates() map[string]*template.Template {
	layout := template.Must(template.New("layout.html").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html", "templates/body.html"))
	entries, err := templateFiles.ReadDir("templates")
	if err != nil {
		panic(err) // impossible: the templates are embedded
	}
	pages := make(map[string]*template.Template)
	for _, entry := range entries {
		switch entry.Name() {
		case "layout.html", "parts.html", "body.html": // part of every page
			continue
		}
		page := template.Must(template.Must(layout.Clone()).ParseFS(templateFiles, path.Join("templates", entry.Name())))
		pages[strings.TrimSuffix(entry.Name(), ".html")] = page
	}
	return pages
}

// A layoutView is the data for the layout template. Data is the data for the page inside the
// layout.
type layoutView struct {
	Site, Title, Tab, Account string
	Bound                     string // the value of the field "account" in forms
	Root                      string
	Home, SignOut             string // addresses, or empty
	May                       mayView
	Notice                    string
	Query                     string // the text in the search field
	Unit                      string // unit of balances; empty if the service has no balances
	Replace                   string
	Refresh                   bool
	Data                      any
}

// render writes the page of a response.
func (p *pages) render(w io.Writer, c *call, a response) error {
	page := templates[a.page]
	if page == nil {
		return fmt.Errorf("no template %q", a.page)
	}
	view := layoutView{
		Query: a.query, Unit: p.unit,
		Site: p.title, Title: a.title, Tab: a.tab, Account: c.account, Bound: boundTo(c.account),
		Home: p.home, SignOut: p.signOut, May: p.viewMay(c.Request),
		Root: c.root, Notice: c.notice(), Refresh: a.refresh, Data: a.data,
	}
	switch {
	case a.replace != "":
		view.Replace = c.root + a.replace
	case c.Method == http.MethodPost: // otherwise a reload would send the form again
		view.Replace = "./" + url.PathEscape(path.Base(c.URL.Path))
	}
	return page.Execute(w, view)
}
