package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/keytill/keytill/adapter/problem"
	"github.com/keytill/keytill/adapter/stripeapi"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

// errInvalid marks what a request asks for and cannot have, in words for who asks.
var errInvalid = errors.New("the request cannot be done as it is")

// problems are all errors that somebody outside can do something about. Everything else is logged, and answered with
// nothing of what is inside. An error is told by its own words and none of those around it, unless it is spoken: its
// whole text is meant for who asks, and holds no key and no address.
var problems = []struct {
	err    error
	status int
	kind   string
	spoken bool
}{
	{errInvalid, http.StatusUnprocessableEntity, "invalid", true},
	{errCursor, http.StatusUnprocessableEntity, "bad_cursor", false},
	{inventory.ErrCursorGone, http.StatusGone, "cursor_gone", false},
	{inventory.ErrCursor, http.StatusUnprocessableEntity, "bad_cursor", false},

	{fulfillment.ErrNoOrder, http.StatusNotFound, "no_order", false},
	{fulfillment.ErrNotFound, http.StatusNotFound, "not_at_stripe", false},
	{fulfillment.ErrNotOurs, http.StatusUnprocessableEntity, "not_an_order", false},
	{fulfillment.ErrNoUnit, http.StatusNotFound, "no_unit", false},
	{fulfillment.ErrNoRefund, http.StatusNotFound, "no_refund", false},
	{fulfillment.ErrNoLine, http.StatusUnprocessableEntity, "no_line", false},
	{fulfillment.ErrAttribution, http.StatusUnprocessableEntity, "bad_attribution", true},
	{fulfillment.ErrAmbiguous, http.StatusConflict, "ambiguous", false},
	{fulfillment.ErrNoReason, http.StatusUnprocessableEntity, "no_reason", false},
	{fulfillment.ErrNoKey, http.StatusConflict, "no_live_key", false},
	{fulfillment.ErrOtherKey, http.StatusConflict, "other_key", false},
	{fulfillment.ErrRecalled, http.StatusConflict, "taken_back", false},
	{fulfillment.ErrNoAddress, http.StatusUnprocessableEntity, "no_address", false},
	{fulfillment.ErrNoDelivery, http.StatusConflict, "no_delivery", false},
	{fulfillment.ErrElsewhere, http.StatusConflict, "elsewhere", false},
	{fulfillment.ErrSoldOut, http.StatusConflict, "sold_out", false},
	{fulfillment.ErrTooMany, http.StatusConflict, "too_many", false},

	{inventory.ErrNoPool, http.StatusNotFound, "no_pool", false},
	{inventory.ErrPoolExists, http.StatusConflict, "pool_exists", false},
	{fulfillment.ErrReleased, http.StatusConflict, "released", false},
	{inventory.ErrNoMerchant, http.StatusForbidden, "no_merchant", false},
	{inventory.ErrNoBatch, http.StatusNotFound, "no_batch", false},
	{inventory.ErrBatchState, http.StatusConflict, "batch_state", false},
	{inventory.ErrImported, http.StatusConflict, "imported_before", false},
	{inventory.ErrBadRow, http.StatusUnprocessableEntity, "bad_file", true},
	{inventory.ErrNoColumn, http.StatusUnprocessableEntity, "no_column", true},
	{inventory.ErrEmpty, http.StatusUnprocessableEntity, "empty_file", false},
	{inventory.ErrDuplicates, http.StatusConflict, "duplicates", false},

	{errNoPages, http.StatusConflict, "no_pages", false},

	{fulfillment.ErrStale, http.StatusServiceUnavailable, "busy", false},
	{inventory.ErrContended, http.StatusServiceUnavailable, "busy", false},
	{inventory.ErrMoved, http.StatusServiceUnavailable, "busy", false},
	{reconcile.ErrUnavailable, http.StatusBadGateway, "stripe_unavailable", false},
	{reconcile.ErrForbidden, http.StatusBadGateway, "stripe_forbidden", false},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, "timeout", false},
}

const internalDetail = "something went wrong here; the log has it under this request's id"

// kind is the URI of a kind of problem.
func kind(word string) string { return problem.Kind(word) }

// problem makes an error of an operation the answer to it.
func (a *API) problem(ctx context.Context, err error) error {
	var answer huma.StatusError
	if errors.As(err, &answer) {
		return err
	}
	for _, p := range problems {
		if !errors.Is(err, p.err) {
			continue
		}
		if p.status >= http.StatusInternalServerError {
			a.Logger.WarnContext(ctx, "an API request could not be done", "error", err)
		}
		detail := p.err.Error()
		if p.spoken {
			detail = err.Error()
		}
		return document(p.status, p.kind, detail)
	}
	var stripe *stripeapi.Error
	if errors.As(err, &stripe) {
		a.Logger.WarnContext(ctx, "an API request could not be done", "error", err)
		return document(http.StatusBadGateway, "stripe_refused", "Stripe did not answer as it should; the log has it under this request's id")
	}
	if ctx.Err() == nil {
		a.Logger.ErrorContext(ctx, "an API request failed", "error", err)
	}
	return document(http.StatusInternalServerError, "internal", internalDetail)
}

func document(status int, word, detail string) *huma.ErrorModel {
	return &huma.ErrorModel{Type: kind(word), Title: http.StatusText(status), Status: status, Detail: detail}
}

// refuse answers a request before its operation is reached.
func (a *API) refuse(ctx huma.Context, status int, word, detail string) {
	_, w := humachi.Unwrap(ctx)
	write(w, document(status, word, detail))
}

// write answers with a problem document.
func write(w http.ResponseWriter, p *huma.ErrorModel) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(p) // who has gone needs no answer
}

// withoutValues takes what was sent out of a problem with it: it may be a key.
func withoutValues(_ huma.Context, _ string, value any) (any, error) {
	if p, ok := value.(*huma.ErrorModel); ok {
		for _, detail := range p.Errors {
			if detail != nil {
				detail.Value = nil
			}
		}
		if p.Type == "" {
			p.Type = kind("invalid")
		}
	}
	return value, nil
}
