package api

import (
	"context"
	"net/http"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// A Key is the text of a key with the unit that has it. It is in the answers of two operations and nowhere else.
type Key struct {
	Line  string                `json:"line"`
	Unit  int                   `json:"unit"`
	SKU   string                `json:"sku"`
	Name  string                `json:"name" doc:"What a buyer reads."`
	State fulfillment.UnitState `json:"state"`
	KeyID int64                 `json:"key_id"`
	Text  string                `json:"key"`
}

// OrderKeys are the keys of an order.
type OrderKeys struct {
	Order string                        `json:"order"`
	Keys  []Key                         `json:"keys"`
	Units map[fulfillment.UnitState]int `json:"units" doc:"How many units of the order are in which state."`
}

// RevealInput says whose keys to reveal, and why.
type RevealInput struct {
	OrderInput
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"Why: the audit keeps it."`
	}
}

func (a *API) addKeys() {
	add(a, operation{id: "get-order-keys", method: http.MethodGet, path: "/v1/orders/{id}/keys", tag: "Keys",
		title: "Read the keys that an order's buyer may use",
		about: "For the storefront's own pages. Keys that are suspended or taken back, or whose release date has not come, are not in it."}, a.orderKeys)
	// Never kept for an Idempotency-Key: the answer holds keys, and asking twice is in the audit twice.
	add(a, operation{id: "reveal-keys", method: http.MethodPost, path: "/v1/orders/{id}/reveal", tag: "Keys",
		title: "Reveal an order's keys to a person", about: "The audit has who, when and why before the keys are read."}, a.revealKeys)
}

func (a *API) orderKeys(ctx context.Context, in *OrderInput) (*Output[OrderKeys], error) {
	order, err := a.order(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	owned, err := a.Service.OwnedKeys(ctx, caller(ctx).Merchant, order.ID)
	if err != nil {
		return nil, err
	}
	out := OrderKeys{Order: order.ID, Keys: make([]Key, len(owned)), Units: order.Units()}
	for i, k := range owned {
		out.Keys[i] = Key{Line: k.Line, Unit: k.Unit, SKU: k.SKU, Name: k.Name, State: fulfillment.UnitFulfilled, KeyID: k.KeyID, Text: k.Text}
	}
	return &Output[OrderKeys]{out}, nil
}

func (a *API) revealKeys(ctx context.Context, in *RevealInput) (*Output[OrderKeys], error) {
	order, err := a.order(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	texts, err := a.Service.Reveal(ctx, caller(ctx).Merchant, order, who(ctx, in.Body.Reason))
	if err != nil {
		return nil, err
	}
	out := OrderKeys{Order: order.ID, Keys: []Key{}, Units: order.Units()}
	for _, l := range order.Lines {
		for _, u := range l.Units {
			if text, ok := texts[u.KeyID]; ok {
				out.Keys = append(out.Keys, Key{Line: l.ID, Unit: u.Unit, SKU: l.SKU, Name: l.Name, State: u.State, KeyID: u.KeyID, Text: text})
			}
		}
	}
	return &Output[OrderKeys]{out}, nil
}

// describeLicence describes what package licence answers, which is mounted beside this package.
func (a *API) describeLicence() {
	document := a.huma.OpenAPI()
	verify := a.describe(operation{id: "verify-key", method: http.MethodPost, path: "/v1/keys/verify", tag: "Keys",
		title: "Ask whether a key may be used", about: "For licence servers, which are limited to some hundred questions a minute."})
	verify.RequestBody = body(schemaOf[struct {
		Key string `json:"key" minLength:"1" maxLength:"4096" doc:"The key's text."`
		SKU string `json:"sku,omitempty" maxLength:"255" doc:"Look in this pool alone."`
	}](document, "KeyQuestion"))
	verify.Errors = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable}
	respond(document, &verify, schemaOf[inventory.Verified](document, "KeyVerdict"))
	document.AddOperation(&verify)

	changes := a.describe(operation{id: "list-key-changes", method: http.MethodGet, path: "/v1/keys/changes", tag: "Keys",
		title: "Follow what becomes of sold keys", about: "For licence servers that keep a list: revoked, suspended, valid again. " +
			"410 says that the database was restored from a backup since the cursor was given out: forget the list, and begin without one."})
	changes.Errors = append([]int{http.StatusGone}, verify.Errors...)
	changes.Parameters = append(changes.Parameters, query("after", "The next of the answer before; the beginning without one.", "string"),
		query("limit", "How many, from 1 to 1000; 100 unless said.", "integer"))
	respond(document, &changes, schemaOf[struct {
		Changes []inventory.KeyChange `json:"changes"`
		Next    string                `json:"next"`
		More    bool                  `json:"more"`
	}](document, "KeyChanges"))
	document.AddOperation(&changes)
}
