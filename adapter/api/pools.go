package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// A Pool is the shelf of one SKU.
type Pool struct {
	SKU           string             `json:"sku" minLength:"1" maxLength:"255"`
	Name          string             `json:"name,omitempty" maxLength:"500" doc:"What a buyer reads; the SKU unless set."`
	Shortage      inventory.Shortage `json:"shortage,omitempty" enum:"wait,fail" default:"wait" doc:"What a paid unit does without stock."`
	PendingSupply *int64             `json:"pending_supply,omitempty" minimum:"0" doc:"How many units may be sold ahead; any number unless set."`
	ReleaseAt     *time.Time         `json:"release_at,omitempty" doc:"Nothing is announced to buyers before."`
	LowKeys       *int64             `json:"low_keys,omitempty" minimum:"0" doc:"Tell when no more keys are left."`
	LowPercent    *int               `json:"low_percent,omitempty" minimum:"1" maximum:"99" doc:"… or no more than this part of what was last stocked."`
	MaxReserved   *int64             `json:"max_reserved,omitempty" minimum:"0" doc:"How many keys carts may hold at once; any number unless set."`
	CreatedAt     *time.Time         `json:"created_at,omitempty" readOnly:"true"`
}

func poolFrom(p inventory.Pool) Pool {
	return Pool{SKU: p.SKU, Name: p.Name, Shortage: p.Shortage, PendingSupply: p.PendingSupply, ReleaseAt: p.ReleaseAt,
		LowKeys: p.LowKeys, LowPercent: p.LowPercent, MaxReserved: p.MaxReserved, CreatedAt: &p.CreatedAt}
}

// PoolInput is a pool to make.
type PoolInput struct{ Body Pool }

// A Mapping says what a price or product hands out.
type Mapping struct {
	Item    string `json:"item" doc:"price_… or prod_…"`
	SKU     string `json:"sku,omitempty" doc:"None: no keys here."`
	PerUnit int    `json:"per_unit" doc:"Keys for each unit of quantity."`
}

// MappingInput says what a price or product hands out from now on.
type MappingInput struct {
	Item string `path:"item" maxLength:"255" doc:"A Stripe price (price_…) or product (prod_…)."`
	Body struct {
		SKU     string `json:"sku,omitempty" maxLength:"255" doc:"The pool; left out with no_keys."`
		NoKeys  bool   `json:"no_keys,omitempty" doc:"It is passed over: shipping, say."`
		PerUnit int    `json:"per_unit,omitempty" minimum:"1" maximum:"100" default:"1" doc:"Keys for each unit of quantity."`
	}
}

func (a *API) addPools() {
	add(a, operation{id: "list-pools", method: http.MethodGet, path: "/v1/pools", tag: "Stock", title: "List the pools, by SKU"}, a.listPools)
	add(a, operation{id: "create-pool", method: http.MethodPost, path: "/v1/pools", tag: "Stock", title: "Make a pool", repeat: repeatSafe,
		status: http.StatusCreated}, a.createPool)
	add(a, operation{id: "list-mappings", method: http.MethodGet, path: "/v1/mappings", tag: "Stock",
		title: "List what prices and products hand out"}, a.listMappings)
	add(a, operation{id: "set-mapping", method: http.MethodPut, path: "/v1/mappings/{item}", tag: "Stock", repeat: repeatSafe,
		title: "Say what a price or product hands out", about: "Orders that waited for it are settled. Units that exist keep their pool."}, a.setMapping)
	add(a, operation{id: "get-stock", method: http.MethodGet, path: "/v1/stock", tag: "Stock", title: "Count the keys, and what waits for them",
		about: "By pool: keys by state, units that wait, days of cover, what carts hold by age, and how many reservations found nothing."}, a.getStock)
}

func (a *API) listPools(ctx context.Context, in *struct{ Page }) (*ListOutput[Pool], error) {
	after, err := in.after("pools")
	if err != nil {
		return nil, err
	}
	pools, err := inventory.Pools(ctx, a.DB, caller(ctx).Merchant)
	if err != nil {
		return nil, err
	}
	var found []Pool
	for _, p := range pools {
		if p.SKU > after.ID && len(found) <= in.Limit {
			found = append(found, poolFrom(p))
		}
	}
	return listOf(found, in.Limit, func(p Pool) place { return place{List: "pools", ID: p.SKU} }), nil
}

func (a *API) createPool(ctx context.Context, in *PoolInput) (*Output[Pool], error) {
	p := in.Body
	pool := inventory.Pool{Merchant: caller(ctx).Merchant, SKU: p.SKU, Name: p.Name, Shortage: p.Shortage, PendingSupply: p.PendingSupply,
		ReleaseAt: p.ReleaseAt, LowKeys: p.LowKeys, LowPercent: p.LowPercent, MaxReserved: p.MaxReserved, CreatedAt: a.Now()}
	var made inventory.Pool
	err := pg.InTx(ctx, a.DB, func(tx pgx.Tx) (err error) {
		if made, err = inventory.CreatePool(ctx, tx, pool); err != nil {
			return err
		}
		return fulfillment.Record(ctx, tx, pool.Merchant, fulfillment.Act{At: pool.CreatedAt, Actor: caller(ctx).Name, Action: "create pool", Subject: made.SKU})
	})
	if err != nil {
		return nil, err
	}
	return &Output[Pool]{poolFrom(made)}, nil
}

func (a *API) listMappings(ctx context.Context, in *struct{ Page }) (*ListOutput[Mapping], error) {
	after, err := in.after("mappings")
	if err != nil {
		return nil, err
	}
	merchant := caller(ctx).Merchant
	items, err := inventory.Items(ctx, a.DB, merchant)
	if err != nil {
		return nil, err
	}
	pools, err := inventory.Pools(ctx, a.DB, merchant)
	if err != nil {
		return nil, err
	}
	skus := make(map[int64]string, len(pools))
	for _, p := range pools {
		skus[p.ID] = p.SKU
	}
	var found []Mapping
	for _, it := range items {
		if it.Item <= after.ID || len(found) > in.Limit {
			continue
		}
		m := Mapping{Item: it.Item, PerUnit: it.PerUnit}
		if it.PoolID != nil {
			m.SKU = skus[*it.PoolID]
		}
		found = append(found, m)
	}
	return listOf(found, in.Limit, func(m Mapping) place { return place{List: "mappings", ID: m.Item} }), nil
}

func (a *API) setMapping(ctx context.Context, in *MappingInput) (*Output[Mapping], error) {
	if (in.Body.SKU == "") != in.Body.NoKeys {
		return nil, fmt.Errorf("%w: name a sku, or say no_keys", errInvalid)
	}
	merchant := caller(ctx).Merchant
	var pool *inventory.Pool
	if in.Body.SKU != "" {
		found, err := inventory.PoolBySKU(ctx, a.DB, merchant, in.Body.SKU)
		if err != nil {
			return nil, err
		}
		pool = &found
	}
	perUnit := max(in.Body.PerUnit, 1)
	if err := a.Service.Map(ctx, merchant, in.Item, pool, perUnit); err != nil {
		return nil, err
	}
	return &Output[Mapping]{Mapping{Item: in.Item, SKU: in.Body.SKU, PerUnit: perUnit}}, nil
}

func (a *API) getStock(ctx context.Context, _ *struct{}) (*ListOutput[fulfillment.PoolOverview], error) {
	pools, err := fulfillment.Overview(ctx, a.DB, caller(ctx).Merchant, a.Now())
	if err != nil {
		return nil, err
	}
	return listOf(pools, len(pools), nil), nil
}
