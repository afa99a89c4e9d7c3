package console

import (
	"net/http"
	"strings"

	"github.com/keytill/keytill/fulfillment"
)

// orderPage is an order with all that happened to it.
type orderPage struct {
	Order    fulfillment.Order
	Lines    []lineView
	Timeline []moment
	More     bool // the timeline is shown in part
	Refunds  []refundView
	Disputes []fulfillment.PastDispute
	Open     []fulfillment.PastFinding // findings that still hold

	Problem   string // what was tried and not done
	Shown     bool   // the keys are revealed
	Live      bool   // there is a key to reveal, send, replace
	Failed    bool   // a retry would try something
	Dashboard string
}

// A lineView is a line with its units and, after a reveal, their keys.
type lineView struct {
	fulfillment.OrderLine
	Units []unitView
	More  int // units that are not shown
}

type unitView struct {
	fulfillment.OrderUnit
	Line string
	Text string // of the key, after a reveal
	Live bool
}

// Ref names the unit in a form, with the key that it has now.
func (u unitView) Ref() string { return unitRef(u.Line, u.Unit, u.KeyID) }

// A refundView is a refund, and whether it waits for a person to say what it is for.
type refundView struct {
	fulfillment.PastRefund
	Asks bool
}

// maxUnits bounds what a page shows of one line.
const maxUnits = 200

// order finds the one order that an address names.
func (c *Console) order(v *visit) (fulfillment.Order, error) {
	id := v.r.PathValue("id")
	if strings.Contains(id, "@") {
		return fulfillment.Order{}, fulfillment.ErrNoOrder
	}
	orders, err := fulfillment.ListOrders(v.ctx, c.DB, v.who.Merchant, fulfillment.OrderFilter{Query: id}, nil, 2)
	switch {
	case err != nil:
		return fulfillment.Order{}, err
	case len(orders) == 0:
		return fulfillment.Order{}, fulfillment.ErrNoOrder
	case len(orders) > 1:
		return fulfillment.Order{}, fulfillment.ErrAmbiguous
	}
	return orders[0], nil
}

func (c *Console) showOrder(v *visit) error {
	order, err := c.order(v)
	if err != nil {
		return err
	}
	if order.ID != v.r.PathValue("id") {
		return v.goTo(orderPath(order.ID))
	}
	return c.answerOrder(v, http.StatusOK, order, nil, "")
}

// answerOrder shows an order: with its keys after a reveal, with what was wrong after an act that was not done.
func (c *Console) answerOrder(v *visit, status int, order fulfillment.Order, keys map[int64]string, problem string) error {
	history, err := fulfillment.LoadHistory(v.ctx, c.DB, v.who.Merchant, order.ID)
	if err != nil {
		return err
	}
	order.Email = v.address(order.Email)
	page := orderPage{Order: order, Problem: problem, Shown: keys != nil, Disputes: history.Disputes, Dashboard: c.dashboard(order)}
	units := order.Units()
	page.Live = units[fulfillment.UnitFulfilled]+units[fulfillment.UnitSuspended] > 0
	page.Failed = units[fulfillment.UnitFailed] > 0
	for _, l := range order.Lines {
		page.Lines = append(page.Lines, viewOfLine(l, keys))
	}
	asks := false
	for _, f := range history.Findings {
		if f.ClosedAt == nil {
			page.Open = append(page.Open, f)
			asks = asks || f.Kind == fulfillment.UnattributedRefund
		}
	}
	for _, r := range history.Refunds {
		page.Refunds = append(page.Refunds, refundView{r, asks && r.Attribution == ""})
	}
	all := v.timeline(order, history)
	page.Timeline, page.More = all, false
	if len(all) > maxMoments && v.r.URL.Query().Get("all") == "" {
		page.Timeline, page.More = all[:maxMoments], true
	}
	return v.show(status, "order", "Order "+order.ID, "orders", page)
}

func viewOfLine(l fulfillment.OrderLine, keys map[int64]string) lineView {
	line := lineView{OrderLine: l}
	for i, u := range l.Units {
		if i == maxUnits {
			line.More = len(l.Units) - maxUnits
			break
		}
		live := u.KeyID != 0 && (u.State == fulfillment.UnitFulfilled || u.State == fulfillment.UnitSuspended)
		line.Units = append(line.Units, unitView{OrderUnit: u, Line: l.ID, Text: keys[u.KeyID], Live: live})
	}
	return line
}

// dashboard is the payment at Stripe.
func (c *Console) dashboard(o fulfillment.Order) string {
	if o.PaymentIntent == "" {
		return ""
	}
	if c.Livemode {
		return "https://dashboard.stripe.com/payments/" + o.PaymentIntent
	}
	return "https://dashboard.stripe.com/test/payments/" + o.PaymentIntent
}
