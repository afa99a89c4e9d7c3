package console

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// poolPath names a pool in the query: a SKU may hold slashes and dots, which a browser would make another path of.
func poolPath(sku string) string { return Path + "/pool?sku=" + url.QueryEscape(sku) }

type poolsPage struct {
	Pools []fulfillment.PoolOverview
	Next  string
}

func (c *Console) listPools(v *visit) error {
	at, err := after(v.r, "pools")
	if err != nil {
		return err
	}
	var found []fulfillment.PoolOverview
	err = c.read(v.ctx, func(tx pgx.Tx) error {
		found, err = fulfillment.Overview(v.ctx, tx, v.who.Merchant, at.ID, pageSize+1, c.Now())
		return err
	})
	if err != nil {
		return err
	}
	part, next := cut(found, func(p fulfillment.PoolOverview) place { return place{List: "pools", ID: p.SKU} })
	return v.show(http.StatusOK, "pools", "Pools", "pools", poolsPage{part, with(Path+"/pools", nil, next)})
}

type poolPage struct {
	Pool    inventory.Pool
	Stands  fulfillment.PoolOverview
	Items   []inventory.Item // prices and products that are sold from it, the first of them
	More    bool
	Batches []inventory.Batch
	Next    string
	Problem string
}

// shownItems is how many prices and products of a pool are shown.
const shownItems = 20

func (c *Console) showPool(v *visit) error {
	pool, err := inventory.PoolBySKU(v.ctx, c.DB, v.who.Merchant, v.r.URL.Query().Get("sku"))
	if err != nil {
		return err
	}
	return c.answerPool(v, http.StatusOK, pool, "")
}

func (c *Console) answerPool(v *visit, status int, pool inventory.Pool, problem string) error {
	page := poolPage{Pool: pool, Problem: problem}
	var at place
	var err error
	if v.r.Method == http.MethodGet {
		if at, err = after(v.r, "batches"); err != nil {
			return err
		}
	}
	var batches []inventory.Batch
	err = c.read(v.ctx, func(tx pgx.Tx) (err error) {
		if page.Stands, err = fulfillment.OverviewOf(v.ctx, tx, pool, c.Now()); err != nil {
			return err
		}
		if page.Items, err = inventory.ItemsOf(v.ctx, tx, pool.Merchant, pool.ID, shownItems+1); err != nil {
			return err
		}
		batches, err = inventory.BatchHeadsBefore(v.ctx, tx, pool.Merchant, pool.ID, at.N, pageSize+1)
		return err
	})
	if err != nil {
		return err
	}
	if page.More = len(page.Items) > shownItems; page.More {
		page.Items = page.Items[:shownItems]
	}
	part, next := cut(batches, func(b inventory.Batch) place { return place{List: "batches", N: b.ID} })
	page.Batches, page.Next = part, with(Path+"/pool", url.Values{"sku": {pool.SKU}}, next)
	return v.show(status, "pool", pool.Name, "pools", page)
}

// setMapping says what a price or product hands out: the answer to a finding about one that is unknown.
func (c *Console) setMapping(v *visit) error {
	item, sku := v.r.PostFormValue("item"), v.r.PostFormValue("sku")
	perUnit, err := strconv.Atoi(v.r.PostFormValue("per_unit"))
	if err != nil || perUnit < 1 || perUnit > 100 || item == "" || (sku == "") == (v.r.PostFormValue("no_keys") == "") {
		return errForm
	}
	var pool *inventory.Pool // nil: no keys here
	if sku != "" {
		found, err := inventory.PoolBySKU(v.ctx, c.DB, v.who.Merchant, sku)
		if err != nil {
			return err
		}
		pool = &found
	}
	if err := c.Service.Map(v.ctx, v.who.Merchant, item, pool, perUnit); err != nil {
		return err
	}
	act := fulfillment.Act{At: c.Now(), Actor: v.who.Name, Action: "map", Subject: item + " to " + sku}
	if pool == nil {
		act.Subject = item + " to no keys"
	}
	if err := fulfillment.Record(v.ctx, c.DB, v.who.Merchant, act); err != nil {
		return err
	}
	if pool != nil && v.r.PostFormValue("back") == "pool" {
		return v.goTo(poolPath(sku) + "&done=map")
	}
	return v.goTo(Path + "/findings?done=map")
}
