package console

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// batchPage is an import as it stands, with the orders that have its keys.
type batchPage struct {
	Pool    inventory.Pool
	Batch   inventory.Batch
	Sold    int64               // keys that buyers have
	Holders []inventory.SoldKey // … of a page
	Next    string
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
	page := batchPage{Pool: pool, Problem: problem}
	var at place
	var err error
	if v.r.Method == http.MethodGet {
		if at, err = after(v.r, "holders"); err != nil {
			return err
		}
	}
	var next int64
	err = c.read(v.ctx, func(tx pgx.Tx) (err error) {
		if page.Batch, err = inventory.BatchByID(v.ctx, tx, pool.Merchant, pool.ID, id); err != nil {
			return err
		}
		page.Sold = page.Batch.Counts[inventory.Allocated] + page.Batch.Counts[inventory.Suspended]
		if page.Sold > 0 {
			page.Holders, next, err = inventory.SoldOfBatchAfter(v.ctx, tx, pool.Merchant, id, at.N, pageSize)
		}
		return err
	})
	if err != nil {
		return err
	}
	if shown := at.Before + int64(len(page.Holders)); next != 0 && shown < page.Sold {
		page.Next = with(Path+"/batch", url.Values{"sku": {pool.SKU}, "id": {strconv.FormatInt(id, 10)}},
			place{List: "holders", N: next, Before: shown}.String())
	}
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
