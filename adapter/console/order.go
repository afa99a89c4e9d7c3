package console

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/logs"
)

// orderPage is an order with all that happened to it.
type orderPage struct {
	Order    fulfillment.Order
	Lines    []lineView
	From     string // the part of the units that is shown, as addresses name it; empty: the first
	Next     string // … and the next part
	Units    int    // that the order has
	Timeline []moment
	More     bool // the timeline is shown in part
	Refunds  []refundView
	Disputes []fulfillment.PastDispute
	Open     []fulfillment.PastFinding // findings that still hold
	GivenUp  []noticeView              // notices to the storefront

	Problem   string // what was tried and not done
	Shown     bool   // the keys are revealed
	Live      bool   // the order has a key to reveal or send
	Choice    bool   // a unit that is shown has a key to replace or revoke
	Dashboard string
}

// A lineView is a line with its units that are shown and, after a reveal, their keys.
type lineView struct {
	fulfillment.OrderLine
	Place int // in the order
	Count int // units that it has
	Units []unitView
}

// First and Last are the units that are shown.
func (l lineView) First() int { return l.Units[0].Unit }

// Last is the last of them.
func (l lineView) Last() int { return l.Units[len(l.Units)-1].Unit }

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

// A noticeView is a notice to the storefront that was given up.
type noticeView struct {
	ID   int64
	What string
	Why  string
}

// shownUnits is how many units a page shows.
const shownUnits = 200

// order finds the one order that an address names, with the units that it names.
func (c *Console) order(v *visit) (fulfillment.OrderPart, error) {
	id := v.r.PathValue("id")
	if strings.Contains(id, "@") {
		return fulfillment.OrderPart{}, fulfillment.ErrNoOrder
	}
	ids, err := fulfillment.OrderIDs(v.ctx, c.DB, v.who.Merchant, id, 2)
	switch {
	case err != nil:
		return fulfillment.OrderPart{}, err
	case len(ids) == 0:
		return fulfillment.OrderPart{}, fulfillment.ErrNoOrder
	case len(ids) > 1:
		return fulfillment.OrderPart{}, fulfillment.ErrAmbiguous
	}
	return c.loadPart(v, ids[0])
}

func (c *Console) loadPart(v *visit, id string) (fulfillment.OrderPart, error) {
	logs.Note(v.ctx, "order", id)
	return fulfillment.LoadPart(v.ctx, c.DB, v.who.Merchant, id, fromUnit(v.r), shownUnits)
}

// fromUnit reads which units to show: line.unit, or from a form that looks for one, line and unit apart. What is no such
// place is the beginning.
func fromUnit(r *http.Request) fulfillment.UnitPlace {
	line, unit, _ := strings.Cut(r.FormValue("from"), ".")
	if line == "" {
		line, unit = r.FormValue("line"), r.FormValue("first")
	}
	at := fulfillment.UnitPlace{Line: 1, Unit: 1}
	if n, err := strconv.ParseInt(line, 10, 32); err == nil && n > 0 {
		at.Line = int(n)
		if n, err := strconv.ParseInt(unit, 10, 32); err == nil && n > 0 {
			at.Unit = int(n)
		}
	}
	return at
}

// ofLine is the place of a unit of a line that a link names by its id.
func (c *Console) ofLine(v *visit, id string) (fulfillment.UnitPlace, error) {
	at := fulfillment.UnitPlace{Line: 1, Unit: 1}
	unit, err := strconv.ParseInt(v.r.FormValue("first"), 10, 32)
	if err != nil || unit < 1 {
		return at, nil
	}
	at.Line, err = fulfillment.PlaceOfLine(v.ctx, c.DB, v.who.Merchant, id, v.r.FormValue("line-id"))
	at.Unit = int(unit)
	return at, err
}

func nameOf(at fulfillment.UnitPlace) string { return fmt.Sprintf("%d.%d", at.Line, at.Unit) }

func (c *Console) showOrder(v *visit) error {
	order, err := c.order(v)
	if err != nil {
		return err
	}
	if order.ID != v.r.PathValue("id") {
		return v.goTo(orderPath(order.ID))
	}
	if v.r.FormValue("line-id") != "" {
		at, err := c.ofLine(v, order.ID)
		if err != nil {
			return err
		}
		return v.goTo(orderPath(order.ID) + "?from=" + nameOf(at) + "#units")
	}
	return c.answerOrder(v, http.StatusOK, order, nil, "")
}

// answerOrder shows an order: with its keys after a reveal, with what was wrong after an act that was not done.
func (c *Console) answerOrder(v *visit, status int, order fulfillment.OrderPart, keys map[int64]string, problem string) error {
	history, err := fulfillment.LoadHistoryOf(v.ctx, c.DB, v.who.Merchant, order)
	if err != nil {
		return err
	}
	order.Email = v.who.Role.Address(order.Email)
	page := orderPage{Order: order.Order, Problem: problem, Shown: keys != nil, Live: order.HasLive, Disputes: history.Disputes,
		Dashboard: c.dashboard(order.Order)}
	if at := fromUnit(v.r); at != (fulfillment.UnitPlace{Line: 1, Unit: 1}) {
		page.From = nameOf(at)
	}
	if order.Next != nil {
		page.Next = nameOf(*order.Next)
	}
	for i, l := range order.Lines {
		line := viewOfLine(l, keys)
		line.Place, line.Count = order.Places[i], order.Counts[i]
		page.Units += line.Count
		for _, u := range line.Units {
			page.Choice = page.Choice || u.Live
		}
		page.Lines = append(page.Lines, line)
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
	for _, d := range history.Deliveries {
		if d.State == fulfillment.DeliveryFailed && d.Channel != fulfillment.ChannelEmail {
			page.GivenUp = append(page.GivenUp, noticeView{d.ID, noticeWords(d.Type), d.LastError})
		}
	}
	all := v.timeline(order.Order, history)
	page.Timeline, page.More = all, false
	if len(all) > maxMoments && v.r.URL.Query().Get("all") == "" {
		page.Timeline, page.More = all[:maxMoments], true
	}
	return v.show(status, "order", "Order "+order.ID, "orders", page)
}

func viewOfLine(l fulfillment.OrderLine, keys map[int64]string) lineView {
	line := lineView{OrderLine: l}
	for _, u := range l.Units {
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
