package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/fulfillment"
)

// ordersPage is a part of a list of orders.
type ordersPage struct {
	Query   string // of a search
	Payment string
	Waiting bool
	Orders  []fulfillment.Order
	Next    string // the address of the next part
	Cursor  string // … or, for a search, what its form carries
	Found   bool   // a search was made
	States  []fulfillment.PaymentState
}

// paymentStates are those that the list can be narrowed to.
var paymentStates = []fulfillment.PaymentState{fulfillment.Pending, fulfillment.Paid, fulfillment.PartRefunded, fulfillment.Refunded,
	fulfillment.Disputed, fulfillment.Lost, fulfillment.Closed}

func (c *Console) listOrders(v *visit) error {
	at, err := after(v.r, "orders")
	if err != nil {
		return err
	}
	q := v.r.URL.Query()
	page := ordersPage{Payment: q.Get("payment"), Waiting: q.Get("waiting") != "", States: paymentStates}
	filter := fulfillment.OrderFilter{Payment: fulfillment.PaymentState(page.Payment), Waiting: page.Waiting}
	var found []fulfillment.Order
	err = c.read(v.ctx, func(tx pgx.Tx) error {
		found, err = fulfillment.ListOrders(v.ctx, tx, v.who.Merchant, filter, at.order(), pageSize+1)
		return err
	})
	if err != nil {
		return err
	}
	part, next := cut(found, placeOfOrder)
	page.Orders, page.Next = v.masked(part), with(Path+"/orders", q, next)
	return v.show(http.StatusOK, "orders", "Orders", "orders", page)
}

func placeOfOrder(o fulfillment.Order) place { return place{List: "orders", At: o.PlacedAt, ID: o.ID} }

// searchOrders finds orders by anything a buyer may hold. It is a POST: an address or a key does not belong into a URL,
// which ends up in histories and logs. What means one order leads to it.
func (c *Console) searchOrders(v *visit) error {
	query := strings.TrimSpace(v.r.PostFormValue("q"))
	if query == "" {
		return v.goTo(Path + "/orders")
	}
	at, err := after(v.r, "orders")
	if err != nil {
		return err
	}
	found, err := fulfillment.ListOrders(v.ctx, c.DB, v.who.Merchant, fulfillment.OrderFilter{Query: query}, at.order(), pageSize+1)
	if err == nil && len(found) == 0 && at.ID == "" {
		found, err = c.Service.FindOrdersByKey(v.ctx, v.who.Merchant, query)
		if errors.Is(err, fulfillment.ErrNoOrder) {
			found, err = nil, nil
		}
	}
	if err != nil {
		return err
	}
	if len(found) == 1 && at.ID == "" {
		return v.goTo(orderPath(found[0].ID))
	}
	status := http.StatusOK
	if len(found) == 0 {
		status = http.StatusNotFound
	}
	page := ordersPage{Query: query, Found: true, States: paymentStates}
	page.Orders, page.Cursor = cut(found, placeOfOrder)
	page.Orders = v.masked(page.Orders)
	return v.show(status, "orders", "Orders found", "orders", page)
}

func orderPath(id string) string { return Path + "/orders/" + url.PathEscape(id) }

// masked hides buyers' addresses from who only looks.
func (v *visit) masked(orders []fulfillment.Order) []fulfillment.Order {
	for i := range orders {
		orders[i].Email = v.address(orders[i].Email)
	}
	return orders
}

// address leaves a viewer enough of an address to recognize one that is known.
func (v *visit) address(address string) string {
	if v.who.Role.May(access.Support) {
		return address
	}
	name, domain, ok := strings.Cut(address, "@")
	if !ok || name == "" {
		return ""
	}
	return string([]rune(name)[0]) + "•••@" + domain
}
