package console

import (
	"net/http"
	"net/url"
	"strconv"

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
	all, err := c.pools(v)
	if err != nil {
		return err
	}
	var found []fulfillment.PoolOverview
	for _, p := range all {
		if p.SKU > at.ID && len(found) <= pageSize {
			found = append(found, p)
		}
	}
	part, next := cut(found, func(p fulfillment.PoolOverview) place { return place{List: "pools", ID: p.SKU} })
	return v.show(http.StatusOK, "pools", "Pools", "pools", poolsPage{part, with(Path+"/pools", nil, next)})
}

type poolPage struct {
	Pool    inventory.Pool
	Counts  inventory.Counts
	Waiting fulfillment.Waiting
	Items   []inventory.Item // prices and products that are sold from it
	Batches []inventory.Batch
	Next    string
	Problem string
}

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
	counts, err := inventory.Stock(v.ctx, c.DB, pool.Merchant, pool.ID)
	if err != nil {
		return err
	}
	waiting, err := fulfillment.WaitingByPool(v.ctx, c.DB, pool.Merchant)
	if err != nil {
		return err
	}
	items, err := inventory.Items(v.ctx, c.DB, pool.Merchant)
	if err != nil {
		return err
	}
	for _, it := range items {
		if it.PoolID != nil && *it.PoolID == pool.ID {
			page.Items = append(page.Items, it)
		}
	}
	batches, err := inventory.BatchHeadsBefore(v.ctx, c.DB, pool.Merchant, pool.ID, at.N, pageSize+1)
	if err != nil {
		return err
	}
	page.Counts, page.Waiting = counts[pool.ID], waiting[pool.ID]
	part, next := cut(batches, func(b inventory.Batch) place { return place{List: "batches", N: b.ID} })
	page.Batches, page.Next = part, with(Path+"/pool", url.Values{"sku": {pool.SKU}}, next)
	return v.show(status, "pool", pool.Name, "pools", page)
}

type batchPage struct {
	Pool    inventory.Pool
	Batch   inventory.Batch
	Sold    int64
	Problem string
}

func batchPath(sku string, id int64) string {
	return Path + "/batch?sku=" + url.QueryEscape(sku) + "&id=" + strconv.FormatInt(id, 10)
}

func (c *Console) showBatch(v *visit) error {
	pool, id, err := c.batchOf(v)
	if err != nil {
		return err
	}
	return c.answerBatch(v, http.StatusOK, pool, id, "")
}

func (c *Console) batchOf(v *visit) (inventory.Pool, int64, error) {
	id, err := strconv.ParseInt(v.r.FormValue("id"), 10, 64)
	if err != nil || id < 1 || id > 1<<62 {
		return inventory.Pool{}, 0, inventory.ErrNoBatch
	}
	pool, err := inventory.PoolBySKU(v.ctx, c.DB, v.who.Merchant, v.r.FormValue("sku"))
	return pool, id, err
}

func (c *Console) answerBatch(v *visit, status int, pool inventory.Pool, id int64, problem string) error {
	batches, err := inventory.BatchesBefore(v.ctx, c.DB, pool.Merchant, pool.ID, id+1, 1)
	if err != nil {
		return err
	}
	if len(batches) == 0 || batches[0].ID != id {
		return inventory.ErrNoBatch
	}
	b := batches[0]
	page := batchPage{Pool: pool, Batch: b, Sold: b.Counts[inventory.Allocated] + b.Counts[inventory.Suspended], Problem: problem}
	return v.show(status, "batch", "Batch "+strconv.FormatInt(id, 10), "pools", page)
}

func (c *Console) setBatchState(v *visit) error {
	pool, id, err := c.batchOf(v)
	if err != nil {
		return err
	}
	state := inventory.BatchState(v.r.PostFormValue("state"))
	switch state {
	case inventory.BatchImported, inventory.BatchQuarantined, inventory.BatchRecalled:
	default:
		return errForm
	}
	if v.person().Reason == "" {
		_, text := c.explain(v.ctx, fulfillment.ErrNoReason)
		return c.answerBatch(v, http.StatusUnprocessableEntity, pool, id, text)
	}
	if _, err := c.Service.SetBatchState(v.ctx, pool, id, state, v.person()); err != nil {
		status, text := c.explain(v.ctx, err)
		return c.answerBatch(v, status, pool, id, text)
	}
	return v.goTo(batchPath(pool.SKU, id) + "&done=batch")
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
	return v.goTo(Path + "/findings?done=map")
}
