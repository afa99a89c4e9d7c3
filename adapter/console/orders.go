package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
)

// ordersPage is a part of a list of orders.
type ordersPage struct {
	Query   string // of a search
	Payment string
	Waiting bool
	Orders  []fulfillment.OrderHead
	Next    string // the address of the next part
	Cursor  string // … or, for a search, what its form carries
	Found   bool   // a search was made
	States  []fulfillment.PaymentState
}

// paymentStates are those that the list can be narrowed to.
var paymentStates = []fulfillment.PaymentState{fulfillment.Pending, fulfillment.Paid, fulfillment.PartRefunded, fulfillment.Refunded,
	fulfillment.Disputed, fulfillment.Lost, fulfillment.Closed}

func (c *Console) listOrders(v *visit) error {
	q := v.r.URL.Query()
	page := ordersPage{Payment: q.Get("payment"), Waiting: q.Get("waiting") != "", States: paymentStates}
	filter := fulfillment.OrderFilter{Payment: fulfillment.PaymentState(page.Payment), Waiting: page.Waiting}
	list := "orders"
	if page.Waiting {
		list, page.Payment = "waiting", ""
	}
	at, err := after(v.r, list)
	if err != nil {
		return err
	}
	var found []fulfillment.OrderHead
	err = c.read(v.ctx, func(tx pgx.Tx) error {
		found, err = fulfillment.ListHeads(v.ctx, tx, v.who.Merchant, filter, at.order(), pageSize+1)
		return err
	})
	if err != nil {
		return err
	}
	part, next := cut(found, func(o fulfillment.OrderHead) place { return place{List: list, At: o.ListedAt, ID: o.ID} })
	page.Orders, page.Next = v.masked(part), with(Path+"/orders", q, next)
	return v.show(http.StatusOK, "orders", "Orders", "orders", page)
}

// searchOrders finds orders by anything a buyer may hold. It is a POST: an address or a key does not belong into a URL,
// which ends up in histories and logs. What means one order leads to it.
func (c *Console) searchOrders(v *visit) error {
	query := strings.TrimSpace(v.r.PostFormValue("q"))
	if query == "" {
		return v.goTo(Path + "/orders")
	}
	at, err := after(v.r, "found")
	if err != nil {
		return err
	}
	var found []fulfillment.OrderHead
	err = c.read(v.ctx, func(tx pgx.Tx) error {
		found, err = fulfillment.ListHeads(v.ctx, tx, v.who.Merchant, fulfillment.OrderFilter{Query: query}, at.order(), pageSize+1)
		return err
	})
	if err == nil && len(found) == 0 && at.ID == "" {
		found, err = c.ordersOfKey(v, query)
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
	page.Orders, page.Cursor = cut(found, func(o fulfillment.OrderHead) place { return place{List: "found", At: o.ListedAt, ID: o.ID} })
	page.Orders = v.masked(page.Orders)
	return v.show(status, "orders", "Orders found", "orders", page)
}

// ordersOfKey are those that have or had a key; few, since a key is in as many pools at most.
func (c *Console) ordersOfKey(v *visit, text string) ([]fulfillment.OrderHead, error) {
	ids, err := c.Service.OrderIDsByKey(v.ctx, v.who.Merchant, text)
	if err != nil {
		return nil, err
	}
	return fulfillment.LoadHeads(v.ctx, c.DB, v.who.Merchant, ids[:min(len(ids), pageSize)])
}

func orderPath(id string) string { return Path + "/orders/" + url.PathEscape(id) }

// masked hides buyers' addresses from who only looks.
func (v *visit) masked(orders []fulfillment.OrderHead) []fulfillment.OrderHead {
	for i := range orders {
		orders[i].Email = v.who.Role.Address(orders[i].Email)
	}
	return orders
}
