package console

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/keytill/keytill/fulfillment"
)

// onOrder does something with the order that the address names, and leads to its page, with a word about what was done.
// What could not be done is told on that page.
func (c *Console) onOrder(v *visit, act func(fulfillment.OrderPart) (done string, err error)) error {
	order, err := c.order(v)
	if err != nil {
		return err
	}
	done, err := act(order)
	if err != nil {
		return c.notDone(v, order.ID, err)
	}
	return v.goTo(v.orderPart(order.ID, "done="+done))
}

// orderPart is the address of an order's page with the units that the form was beside.
func (v *visit) orderPart(id, query string) string {
	if at := fromUnit(v.r); at != (fulfillment.UnitPlace{Line: 1, Unit: 1}) {
		query = "from=" + nameOf(at) + "&" + query
	}
	return orderPath(id) + "?" + query
}

// notDone shows the order as it stands now, with why an act was not done.
func (c *Console) notDone(v *visit, id string, cause error) error {
	status, text := c.explain(v.ctx, cause)
	order, err := c.loadPart(v, id)
	if err != nil {
		return err
	}
	return c.answerOrder(v, status, order, nil, text)
}

// reveal shows the keys of the units on the page in its answer and nowhere else: a reload asks again, and is in the audit
// again.
func (c *Console) reveal(v *visit) error {
	order, err := c.order(v)
	if err != nil {
		return err
	}
	keys, err := c.Service.Reveal(v.ctx, v.who.Merchant, order.Order, v.person())
	if err != nil {
		return c.notDone(v, order.ID, err)
	}
	if keys == nil {
		keys = map[int64]string{}
	}
	return c.answerOrder(v, http.StatusOK, order, keys, "")
}

func (c *Console) resend(v *visit) error {
	return c.onOrder(v, func(o fulfillment.OrderPart) (string, error) {
		return "resend", c.Service.Resend(v.ctx, v.who.Merchant, o.ID, strings.TrimSpace(v.r.PostFormValue("to")), v.person())
	})
}

func (c *Console) replace(v *visit) error {
	return c.onOrder(v, func(o fulfillment.OrderPart) (string, error) {
		ref, err := v.unit(o)
		if err != nil {
			return "", err
		}
		if err := c.Service.ReplaceKey(v.ctx, v.who.Merchant, ref, v.person()); err != nil {
			return "", err
		}
		now, err := c.loadPart(v, o.ID)
		if err == nil && now.Units()[fulfillment.UnitWaiting] > o.Units()[fulfillment.UnitWaiting] {
			return "waits", nil
		}
		return "replace", err
	})
}

func (c *Console) revoke(v *visit) error {
	return c.onOrder(v, func(o fulfillment.OrderPart) (string, error) {
		ref, err := v.unit(o)
		if err != nil {
			return "", err
		}
		return "revoke", c.Service.RevokeKey(v.ctx, v.who.Merchant, ref, v.person())
	})
}

// unitRef names a unit in a form, with the key that it had when the form was made.
func unitRef(line string, unit int, key int64) string {
	return fmt.Sprintf("%d.%d.%s", unit, key, line)
}

// unit reads which unit a form names.
func (v *visit) unit(o fulfillment.OrderPart) (fulfillment.UnitRef, error) {
	parts := strings.SplitN(v.r.PostFormValue("unit"), ".", 3)
	if len(parts) != 3 {
		return fulfillment.UnitRef{}, fulfillment.ErrNoUnit
	}
	unit, err := strconv.Atoi(parts[0])
	key, errKey := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || errKey != nil || key <= 0 || parts[2] == "" {
		return fulfillment.UnitRef{}, fulfillment.ErrNoUnit
	}
	return fulfillment.UnitRef{Order: o.ID, Line: parts[2], Unit: unit, KeyID: key}, nil
}

func (c *Console) retry(v *visit) error {
	return c.onOrder(v, func(o fulfillment.OrderPart) (string, error) {
		_, err := c.Service.Retry(v.ctx, v.who.Merchant, o.ID, v.person())
		return "retry", err
	})
}

func (c *Console) settle(v *visit) error {
	return c.onOrder(v, func(o fulfillment.OrderPart) (string, error) {
		_, err := c.Service.Settle(v.ctx, v.who.Merchant, o.ID)
		return "settle", err
	})
}

// attribute says what a refund is for. The job that settles the order is in the same transaction; the settle here only
// lets the page show at once what came of it.
func (c *Console) attribute(v *visit) error {
	return c.onOrder(v, func(o fulfillment.OrderPart) (string, error) {
		lines, err := v.attribution(o)
		if err != nil {
			return "", err
		}
		if _, err := c.Service.AttributeRefund(v.ctx, v.who.Merchant, v.r.PostFormValue("refund"), lines, v.person()); err != nil {
			return "", err
		}
		if _, err := c.Service.Settle(context.WithoutCancel(v.ctx), v.who.Merchant, o.ID); err != nil {
			c.Logger.WarnContext(v.ctx, "a refund was attributed, and its order could not be settled at once", "order", o.ID, "error", err)
			return "attributed", nil
		}
		return "attribute", nil
	})
}

// attribution reads how many units of which line a refund is for, in the form of keytill_lines.
func (v *visit) attribution(o fulfillment.OrderPart) (string, error) {
	if v.r.PostFormValue("none") != "" {
		return "none", nil
	}
	var parts []string
	for _, l := range o.Lines {
		text := strings.TrimSpace(v.r.PostFormValue("units." + l.ID))
		if text == "" || text == "0" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return "", errNoUnits
		}
		parts = append(parts, fmt.Sprintf("%s:%d", l.ID, n))
	}
	if len(parts) == 0 {
		return "", errNoUnits
	}
	return strings.Join(parts, ","), nil
}

// sendAgain sends a notice to the storefront again that was given up, and leads to where it is told of.
func (c *Console) sendAgain(v *visit) error {
	id, err := strconv.ParseInt(v.r.PathValue("id"), 10, 64)
	if err != nil {
		return fulfillment.ErrNoDelivery
	}
	order, err := c.Service.SendAgain(v.ctx, v.who.Merchant, id, v.person())
	switch {
	case err != nil:
		return err
	case order == "":
		return v.goTo(Path + "/findings?done=again")
	}
	return v.goTo(orderPath(order) + "?done=again")
}
