package dashboard

import (
	"errors"
	"net/http"

	"github.com/storageapi/storageapi/apierr"
)

var (
	errNoPage       = errors.New("no such page")
	errNoAccount    = errors.New("no account")
	errOtherAccount = errors.New("the form belongs to another account")
)

// A badForm is an error of a form that cannot be parsed.
type badForm struct{ error }

func (f badForm) Unwrap() error { return f.error }

// failure returns the error page for err.
func (p *pages) failure(c *call, err error) response {
	var (
		form     badForm
		tooLarge *http.MaxBytesError
	)
	switch {
	case errors.Is(err, errNoPage), errors.Is(err, apierr.ErrNotFound):
		return failed(http.StatusNotFound, "Page not found", "It may have been deleted, or the URL is wrong.")
	case errors.Is(err, errMayNot):
		return failed(http.StatusForbidden, "You don’t have permission to do this", "Nothing was changed. Ask an administrator of your account.")
	case errors.Is(err, errOtherAccount):
		return failed(http.StatusConflict, "You are signed in to another account", "This form belongs to a different account. Nothing was changed. Open the page again.")
	case errors.As(err, &tooLarge):
		return failed(http.StatusRequestEntityTooLarge, "Form too large", "Nothing was changed. A form can have at most 64 KiB.")
	case errors.As(err, &form):
		return failed(http.StatusBadRequest, "The form could not be read", "Nothing was changed. Go back and submit it again.")
	}
	if c.Context().Err() == nil {
		p.log.ErrorContext(c.Context(), "dashboard: request failed", "route", c.Pattern, "error", err)
	}
	return failed(http.StatusInternalServerError, "Something went wrong", "This is a problem on our side. Try again in a moment.")
}

// A failureView is the template data for an error page.
type failureView struct{ Heading, Text string }

func failed(status int, heading, text string) response {
	return response{status: status, page: "failure", title: heading, data: failureView{heading, text}}
}

// refuseOrigin answers a request that another site's page has sent.
func (p *pages) refuseOrigin(w http.ResponseWriter, r *http.Request) {
	c := &call{Request: r, root: p.root(r)}
	p.write(w, c, failed(http.StatusForbidden, "Request blocked", "Another site sent this request. Nothing was changed."))
}
