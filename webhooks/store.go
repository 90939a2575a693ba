package webhooks

import (
	"context"
	"errors"
	"time"
)

// The errors that a Store returns, as they are or wrapped.
var (
	ErrNotFound = errors.New("no such webhook or event")
	ErrExists   = errors.New("webhook exists already")
)

// A Page asks for a part of a list that is ordered by descending id.
type Page struct {
	After string // the id after which the part begins; empty: at the start
	Limit int    // how many at most; at least 1
}

// A Store keeps webhooks, events and what is owed of them. Backends implement
// it; package storetest proves them.
//
// Every method is one atomic step, and what it reports as done survives a crash.
// If it returns one of the errors above or the context's, nothing has happened;
// after any other error the step has happened as a whole or not at all, and the
// caller must cope with both. Methods are safe for concurrent use and appear to
// happen one after the other. A context that has ended makes a method return the
// context's error; one that ends while the step is being committed changes nothing
// any more.
//
// Values are copied in and out: neither side sees what the other changes later.
// Times come back in UTC, to the millisecond; what is finer is dropped. What ids,
// accounts and URLs mean is the service's business: a store takes any ids and
// accounts of 1 to 128 bytes, and other strings of up to 4,096 bytes, all of them
// UTF-8 without NUL. Ids are ordered byte by byte.
//
// The service gives no id to two accounts; wherever account and id do not belong
// together the answer is ErrNotFound.
//
// # Deliveries
//
// A delivery is either owed or settled. One that is owed is due at some time
// and may be leased: a claim leases it to one worker for a while, and gives out
// a token that the worker's settlement must show. A lease that runs out, or
// whose process died, makes the delivery claimable again, under another token;
// nobody has to clean up. Due times and leases go by the store's clock.
type Store interface {
	// CreateWebhook adds a webhook. ErrExists if there is one of that id, in
	// whatever account.
	CreateWebhook(ctx context.Context, webhook Webhook) error

	// WebhookByID returns a webhook, or ErrNotFound.
	WebhookByID(ctx context.Context, account, id string) (Webhook, error)

	// ListWebhooks returns a part of the account's webhooks by descending id,
	// which is newest first; an empty list past the end. The id after which
	// the page begins need not exist any more.
	ListWebhooks(ctx context.Context, account string, page Page) ([]Webhook, error)

	// UpdateWebhook calls change with a copy of the webhook, stores what change
	// leaves in it, and returns that. ErrNotFound if there is no such webhook;
	// change's own error if it returns one, and nothing is stored. ID, Account
	// and CreatedAt keep their values whatever change does to them. No other
	// change of the webhook comes between reading and storing; change may run
	// more than once, and must not call the store.
	UpdateWebhook(ctx context.Context, account, id string, change func(*Webhook) error) (Webhook, error)

	// DeleteWebhook removes a webhook and all that it is owed, or returns
	// ErrNotFound. Nothing is claimed for it any more, and settlements of what
	// was claimed before are stale. Its settled deliveries remain.
	DeleteWebhook(ctx context.Context, account, id string) error

	// Enqueue stores the event together with one owed delivery, due now, for
	// each webhook of its account that is active and subscribed to its type at
	// that instant, and returns how many those are. If the account has an
	// event of that id already, nothing is stored, whatever else differs, and
	// the first result is returned again.
	Enqueue(ctx context.Context, event Envelope) (deliveries int, err error)

	// ClaimDeliveries leases deliveries that are due, at most claim.Limit, and
	// never so many that one webhook has more than claim.PerWebhook leased at a
	// time. Webhooks with deliveries due take turns, however many each has
	// due, and over several claims too; of one webhook the longest due comes
	// first. Inactive webhooks are passed over. No tasks is not an error.
	//
	// Claims and settlements at the same moment need not wait for each other: a
	// claim may pass over what another call is busy with.
	//
	// A record that cannot be read any more is claimed too, once its turn
	// comes, as a Task with Err set, so that it can be settled instead of
	// blocking the others.
	//
	// wait is when to claim again at the latest, unless something is enqueued,
	// settled or changed through this Store before: 0 if there may be more at
	// once, never more than an hour. It may be shorter than need be, and has to
	// be where others write to the same store.
	ClaimDeliveries(ctx context.Context, claim Claim) (tasks []Task, wait time.Duration, err error)

	// SettleDeliveries ends claims: for each settlement it logs the attempt,
	// if there was one, and settles the delivery, or makes it due again, or
	// just gives back the lease; and it deactivates the webhook if told so. A
	// settlement whose token is not that of the delivery's current lease does
	// nothing, and its index is among those returned, in ascending order; the
	// others are done in one step. A lease that ran out stays current until a
	// later claim, which may end it even if it gives the delivery to nobody yet.
	SettleDeliveries(ctx context.Context, settlements []Settlement) (stale []int, err error)

	// EventDeliveries returns what became of an event, by ascending webhook
	// id, or ErrNotFound if the account has no event of that id. Deliveries
	// that were owed to a webhook when it was deleted are left out.
	EventDeliveries(ctx context.Context, account, eventID string) ([]Delivery, error)
}

// A Claim says how much to lease.
type Claim struct {
	Limit      int           // tasks at most; at least 1
	PerWebhook int           // leases a webhook at most, those of earlier claims included; at least 1
	Lease      time.Duration // how long; longer than an attempt can take
}

// A Task is a claimed delivery.
type Task struct {
	Event   Envelope
	Webhook Webhook
	Attempt int    // the number of the attempt to make: one more than were made, claims whose lease ran out in this process included
	Token   uint64 // unique to this claim

	// Err tells that a stored record could not be read. What could not be
	// read of Event and Webhook is zero, but for the webhook's ID.
	Err error
}

// A Settlement ends a claim.
type Settlement struct {
	Task    Task    // as it was claimed
	Outcome Outcome // what becomes of the delivery
	Attempt Attempt // to be logged, except with Release

	// RetryAfter is in how long the next attempt is due, with Retry; at least
	// 0.
	RetryAfter time.Duration

	// Deactivate makes the webhook inactive in the same step.
	Deactivate bool
}

// An Outcome is what becomes of a claimed delivery.
type Outcome uint8

// The outcomes.
const (
	Release Outcome = iota // no attempt was made: owed as before, due at once
	Retry                  // failed: owed again, due after Settlement.RetryAfter
	Deliver                // settled as Delivered
	GiveUp                 // settled as Dead
)
