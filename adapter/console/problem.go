package console

import (
	"context"
	"errors"
	"net/http"

	"github.com/keytill/keytill/adapter/stripeapi"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

var (
	errNoPage   = errors.New("there is no such page")
	errCursor   = errors.New("this link is of another list, or of an older version")
	errRequest  = errors.New("the request cannot be read")
	errForm     = errors.New("the form is not complete")
	errNoUpload = errors.New("this upload is not there")
	errTooLarge = errors.New("this file is too large")
	errNoUnits  = errors.New("say which units, or that it is for none")
)

const internalProblem = "Something went wrong here. The log says what; nothing was half done."

// problems are all errors that the person before the screen can do something about, in words for them. Everything else is
// logged, and told with nothing of what is inside. One that is spoken has its own text shown beside it, which holds no key.
var problems = []struct {
	err    error
	status int
	text   string
	spoken bool
}{
	{errNoPage, http.StatusNotFound, "There is no such page.", false},
	{errCursor, http.StatusNotFound, "This link is of another list. Begin at the list's first page.", false},
	{errRequest, http.StatusBadRequest, "This request cannot be read.", false},
	{errForm, http.StatusUnprocessableEntity, "Something is missing in the form.", false},
	{errNoUpload, http.StatusNotFound, "This upload has ended: it was imported, discarded, is somebody else's, or is older than half an hour. Upload the file again.", false},
	{errTooLarge, http.StatusRequestEntityTooLarge, "The file is larger than 32 MiB. Split it, or use `keytill import`, which takes any size.", false},
	{errNoUnits, http.StatusUnprocessableEntity, "Say how many units of which line the refund is for, or that it is for no key.", false},

	{fulfillment.ErrNoOrder, http.StatusNotFound, "No order matches.", false},
	{fulfillment.ErrNotFound, http.StatusNotFound, "Stripe knows no such payment.", false},
	{fulfillment.ErrNotOurs, http.StatusUnprocessableEntity, "This payment sells no keys.", false},
	{fulfillment.ErrNoUnit, http.StatusNotFound, "The order has no such unit. Choose one in the table.", false},
	{fulfillment.ErrNoRefund, http.StatusNotFound, "No such refund of an order is known.", false},
	{fulfillment.ErrNoLine, http.StatusUnprocessableEntity, "The order has no such line.", false},
	{fulfillment.ErrAttribution, http.StatusUnprocessableEntity, "The refund cannot be for that: a line has fewer units.", false},
	{fulfillment.ErrAmbiguous, http.StatusConflict, "That means more than one. Choose one in the list.", false},
	{fulfillment.ErrNoReason, http.StatusUnprocessableEntity, "Say why. The audit keeps it.", false},
	{fulfillment.ErrNoKey, http.StatusConflict, "This unit has no live key.", false},
	{fulfillment.ErrOtherKey, http.StatusConflict, "This unit has another key by now, so nothing was done. The order below is how it stands.", false},
	{fulfillment.ErrRecalled, http.StatusConflict, "The order has no key that may be sent.", false},
	{fulfillment.ErrNoAddress, http.StatusUnprocessableEntity, "That is no e-mail address that a mail can go to.", false},
	{fulfillment.ErrElsewhere, http.StatusConflict, "The storefront's own process does this, in a transaction with its own tables.", false},
	{fulfillment.ErrNoDelivery, http.StatusConflict, "There is no notice to send again: it was sent meanwhile, or never given up.", false},
	{fulfillment.ErrSoldOut, http.StatusConflict, "Sold out.", false},

	{inventory.ErrNoPool, http.StatusNotFound, "There is no pool of this SKU.", false},
	{inventory.ErrNoBatch, http.StatusNotFound, "The pool has no such batch.", false},
	{inventory.ErrBatchState, http.StatusConflict, "A recalled batch stays recalled.", false},
	{inventory.ErrImported, http.StatusConflict, "This very file was imported into this pool before. Tick “even if imported before” if that is meant.", false},
	{inventory.ErrBadRow, http.StatusUnprocessableEntity, "", true},
	{inventory.ErrNoColumn, http.StatusUnprocessableEntity, "", true},
	{inventory.ErrEmpty, http.StatusUnprocessableEntity, "The file holds no key.", false},
	{inventory.ErrDuplicates, http.StatusConflict, "The file holds keys that are there already, and you asked to refuse such files.", false},

	{fulfillment.ErrStale, http.StatusServiceUnavailable, "Others work on this at the moment. Try again.", false},
	{inventory.ErrContended, http.StatusServiceUnavailable, "Others work on this at the moment. Try again.", false},
	{inventory.ErrMoved, http.StatusServiceUnavailable, "Others work on this at the moment. Try again.", false},
	{reconcile.ErrUnavailable, http.StatusBadGateway, "Stripe does not answer at the moment. Try again.", false},
	{reconcile.ErrForbidden, http.StatusBadGateway, "The Stripe API key may not read this.", false},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, "This took too long. Try again.", false},
}

// explain makes an error words for a person, and logs what they cannot do anything about.
func (c *Console) explain(ctx context.Context, err error) (status int, text string) {
	for _, p := range problems {
		if !errors.Is(err, p.err) {
			continue
		}
		if p.status >= http.StatusInternalServerError {
			c.Logger.WarnContext(ctx, "a request of the console could not be done", "error", err)
		}
		if p.spoken {
			return p.status, err.Error()
		}
		return p.status, p.text
	}
	var stripe *stripeapi.Error
	if errors.As(err, &stripe) {
		c.Logger.WarnContext(ctx, "a request of the console could not be done", "error", err)
		return http.StatusBadGateway, "Stripe did not answer as it should. The log says what it said."
	}
	if ctx.Err() == nil {
		c.Logger.ErrorContext(ctx, "a request of the console failed", "error", err)
	}
	return http.StatusInternalServerError, internalProblem
}

// fail answers with a page that says what went wrong.
func (c *Console) fail(v *visit, err error) {
	status, text := c.explain(v.ctx, err)
	c.refuse(v.w, v.r, v, status, text)
}

// refuse answers with a page that says why not.
func (c *Console) refuse(w http.ResponseWriter, r *http.Request, v *visit, status int, text string) {
	page := view{Title: http.StatusText(status), Page: text}
	if v != nil {
		page.Who = v.who
	}
	c.render(w, r, status, "problem", page)
}
