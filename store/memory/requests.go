package memory

import (
	"time"

	"github.com/storageapi/storageapi/internal/creation"
)

// requests are those that made keys, or webhooks.
type requests struct {
	known map[ref]request // by name
	log   []request       // in the order they were noted, those known and others
}

// A request is one that made something.
type request struct {
	name ref
	made creation.Repeated
	at   time.Time
}

// forgetStep is how many requests are forgotten at most when one is noted.
const forgetStep = 8

// repeated returns the error that the account has made the request before, or nil.
func (r *requests) repeated(account string, terms *creation.Terms) error {
	before, known := r.known[ref{account, terms.Request}]
	if !known || time.Since(before.at) > terms.Lifetime {
		return nil
	}
	return &before.made
}

// note remembers a request that has made something, if terms name one.
func (r *requests) note(account, id string, terms *creation.Terms) {
	if terms.Request == "" {
		return
	}
	if r.known == nil {
		r.known = make(map[ref]request)
	}
	noted := request{ref{account, terms.Request}, creation.Repeated{ID: id, Sum: terms.Sum}, time.Now()}
	r.known[noted.name] = noted
	r.log = append(r.log, noted)
	for range min(forgetStep, len(r.log)) {
		oldest := r.log[0]
		if time.Since(oldest.at) <= terms.Lifetime {
			break
		}
		if r.known[oldest.name] == oldest {
			delete(r.known, oldest.name)
		}
		r.log = r.log[1:]
	}
}
