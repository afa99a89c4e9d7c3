package console

import (
	"net/http"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

type findingsPage struct {
	Findings []findingView
	Pools    []inventory.Pool // to map a price to; for who may
	Next     string
}

type findingView struct {
	fulfillment.Finding
	Advice string
	Item   string // the price or product to map
}

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
		page.Findings = append(page.Findings, one)
	}
	if asks {
		if page.Pools, err = inventory.Pools(v.ctx, c.DB, v.who.Merchant); err != nil {
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
