package console

import (
	"net/http"
	"strings"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

type findingsPage struct {
	Findings []findingView
	Pools    []inventory.Pool // to map a price to, the first of them: others are typed
	Next     string
}

type findingView struct {
	fulfillment.Finding
	Advice string
	Item   string // the price or product to map
	Notice string // the delivery to the storefront that was given up
}

// offeredPools is how many pools are offered to map a price to.
const offeredPools = 100

// mailed marks the findings about mails, which are sent again from their order's page.
const mailed = "over " + string(fulfillment.ChannelEmail) + ":"

func (c *Console) listFindings(v *visit) error {
	at, err := after(v.r, "findings")
	if err != nil {
		return err
	}
	found, err := fulfillment.ListFindings(v.ctx, c.DB, v.who.Merchant, at.N, pageSize+1)
	if err != nil {
		return err
	}
	part, next := cut(found, func(f fulfillment.Finding) place { return place{List: "findings", N: f.ID} })
	page := findingsPage{Next: with(Path+"/findings", nil, next)}
	asks := false
	for _, f := range part {
		one := findingView{Finding: f, Advice: findingAdvice(f.Kind)}
		if f.Kind == fulfillment.UnknownPrice {
			one.Item, asks = f.Subject, true
		}
		if id, found := strings.CutPrefix(f.Subject, "delivery "); found && f.Kind == fulfillment.Undeliverable && !strings.Contains(f.Detail, mailed) {
			one.Notice = id
		}
		page.Findings = append(page.Findings, one)
	}
	if asks {
		if page.Pools, err = inventory.PoolsAfter(v.ctx, c.DB, v.who.Merchant, "", offeredPools); err != nil {
			return err
		}
	}
	return v.show(http.StatusOK, "findings", "Findings", "findings", page)
}

type auditPage struct {
	Acts []fulfillment.Recorded
	Next string
}

func (c *Console) listAudit(v *visit) error {
	at, err := after(v.r, "audit")
	if err != nil {
		return err
	}
	found, err := fulfillment.ListActs(v.ctx, c.DB, v.who.Merchant, at.N, pageSize+1)
	if err != nil {
		return err
	}
	part, next := cut(found, func(r fulfillment.Recorded) place { return place{List: "audit", N: r.ID} })
	return v.show(http.StatusOK, "audit", "Audit", "audit", auditPage{part, with(Path+"/audit", nil, next)})
}
