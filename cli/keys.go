package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/storageapi/storageapi/client"
)

func createKey(r *run) error {
	var p client.CreateKey
	r.online()
	r.flags.StringVar(&p.Name, "name", "", "the `name` of the key")
	r.listFlag(&p.Scopes, "scopes", "the scopes of the key")
	r.timeFlag(&p.ExpiresAt, "expires", "when the key expires; default: never")
	r.listFlag(&p.Resources, "resources", "the only resources for the key")
	r.listFlag(&p.AllowedNetworks, "networks", "the only networks from which the key can be used")
	r.flags.IntVar(&p.RateLimit, "rate", 0, "the limit of the key in requests per `minute`; 0 means none")
	_, c, err := r.parseAccount(1, 1)
	if err != nil {
		return err
	}
	key, err := c.CreateKey(r.ctx, p)
	if errors.Is(err, client.ErrCreatedBefore) { // by an attempt of this call whose response was lost
		return fmt.Errorf("%s: %w; revoke it, and create another", key.ID, err)
	}
	if err != nil {
		return err
	}
	return r.show(struct {
		client.Key
		Value string `json:"key"` // not redacted
	}{key, key.Value.Reveal()})
}

func listKeys(r *run) error {
	var query client.KeyQuery
	r.online()
	r.flags.StringVar(&query.Name, "name", "", "only keys with this `text` in their name")
	r.listFlag(&query.Scopes, "scopes", "only keys with all of these scopes")
	r.listFlag(&query.Labels, "labels", "only keys with all of these labels, such as team=data")
	r.timeFlag(&query.UnusedSince, "unused-since", "only keys not used since then")
	_, c, err := r.parseAccount(1, 1)
	if err != nil {
		return err
	}
	return list(r, "ID ENABLED CREATED EXPIRES LAST-USED NAME SCOPES", c.Keys(r.ctx, query), func(k client.Key) []string {
		return []string{k.ID, fmt.Sprint(k.Enabled), timeText(k.CreatedAt), timeText(k.ExpiresAt), timeText(k.LastUsedAt), k.Name, strings.Join(k.Scopes, ",")}
	})
}

func revokeKeys(r *run) error {
	r.online()
	r.yesFlag()
	args, c, err := r.parseAccount(2, math.MaxInt)
	if err != nil {
		return err
	}
	var names []string
	for _, id := range args[1:] {
		key, err := c.Key(r.ctx, id)
		if err != nil {
			return err
		}
		names = append(names, fmt.Sprintf("%s (%s)", id, key.Name))
	}
	if err := r.confirm("This deletes " + strings.Join(names, ", ") + " of " + args[0] + ", and all their values stop working."); err != nil {
		return err
	}
	for _, id := range args[1:] {
		if err := c.DeleteKey(r.ctx, id); err != nil {
			return err
		}
		if err := r.show(map[string]string{"revoked": id}); err != nil {
			return err
		}
	}
	return nil
}

func findKey(r *run) error {
	r.online()
	r.yesFlag()
	revoke := r.flags.Bool("revoke", false, "also revoke the value: this deletes the key, unless a rotation has replaced the value")
	if _, err := r.parse(0, 0); err != nil {
		return err
	}
	if isTerminal(r.Stdin) {
		fmt.Fprint(r.Stderr, "The value of the key: ")
	}
	line, err := r.in.ReadString('\n')
	value := strings.TrimSpace(line)
	if value == "" {
		return usageError(fmt.Sprintf("no value is on the standard input: %v", err))
	}
	c, err := r.service("", value)
	if err != nil {
		return err
	}
	var found json.RawMessage
	if err := c.Do(r.ctx, "GET", "/keys", nil, &found); err != nil {
		return err
	}
	if err := r.show(found); err != nil || !*revoke {
		return err
	}
	if err := r.confirm("This revokes the value."); err != nil {
		return err
	}
	err = c.Do(r.ctx, "DELETE", "/keys", nil, nil)
	// The GET has just found the value. If DELETE does not, an earlier attempt whose response was
	// lost has revoked it.
	if refusal, ok := errors.AsType[*client.Error](err); err != nil && !(ok && refusal.Code == "NOT_FOUND") {
		return err
	}
	fmt.Fprintln(r.Stderr, "The value is revoked.")
	return nil
}
